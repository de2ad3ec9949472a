// The posteriors of the arcs out of one node, for a row's gradient.
#pragma once

#include "transducer/cuda/call/params.cuh"

namespace warpalign::detail::transducer {

template <class Real>
struct NodePosteriors {
  const Batch& batch;
  const Utterance& utterance;
  const Real* slots;
  Real label_factor;  // 1 + FastEmit's lambda
  int t, u;

  // FastEmit's g of a slot; 0 if there is no arc or it does not depend on the logits.
  [[nodiscard]] __device__ __forceinline__ Real of(const ArcTable& table, int arc) const {
    const int star = batch.lattice.star;
    if (!arc_end(table, arc, t, u, utterance.frames, utterance.labels).exists) return 0;
    const bool is_label = table.is_label(arc);
    if (star >= 0 && (is_label || u > 0) && utterance.targets[u - !is_label] == star) return 0;
    const Real g = slots[utterance.slot + utterance.layout.slot(t, utterance.column(t, u) + is_label, arc)];
    return is_label ? g * label_factor : g;
  }
  // Sums of the posteriors of all blanks, and of all labels.
  [[nodiscard]] __device__ __forceinline__ Real of_blanks(const ArcTable& table) const {
    Real sum = 0;
    for (int arc = 0; arc < table.blanks; ++arc) sum += of(table, arc);
    return sum;
  }
  [[nodiscard]] __device__ __forceinline__ Real of_labels(const ArcTable& table) const {
    Real sum = 0;
    for (int arc = table.blanks; arc < table.arcs(); ++arc) sum += of(table, arc);
    return sum;
  }
};

}  // namespace warpalign::detail::transducer
