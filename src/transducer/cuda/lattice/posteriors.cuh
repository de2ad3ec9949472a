// Copies posteriors from the slots of the lattice pass to the caller's layout. A thread owns a row.
#pragma once

#include <math_constants.h>

#include "transducer/cuda/call/params.cuh"

namespace warpalign::detail::transducer {

template <class Real>
struct PosteriorParams {
  Batch batch;
  RowStride stride;
  const Real* slots;
  const std::int32_t* outcome;
  Real* blank;  // (rows,); this and the following may be null
  Real* label;
  Real* grouped;  // (durations, rows): by big blank or duration
};

inline constexpr int kPosteriorThreads = 256;

// Writes one row. The slots of an utterance that is invalid or has no path are not read.
template <class Real>
__device__ __forceinline__ void write_posteriors(const PosteriorParams<Real>& p, const RowCursor& at) {
  const Batch& batch = p.batch;
  const TransducerLattice& l = batch.lattice;
  Real blank = 0, label = 0, empty = 0;
  bool has_slots = false;
  Utterance utterance{};
  if (at.b < l.batch) {
    utterance = utterance_at(batch, at.b);
    if (at.t < utterance.frames && at.u <= utterance.labels) {
      const int outcome = p.outcome[at.b];
      has_slots = outcome == kPaths;
      if (outcome == kInvalid) blank = label = empty = static_cast<Real>(CUDART_NAN);
    }
  }
  const ArcTable& table = table_of(batch, utterance);
  const auto posterior = [&](int arc) -> Real {
    const bool is_label = table.is_label(arc);
    if (!arc_end(table, arc, at.t, at.u, utterance.frames, utterance.labels).exists) return 0;
    return p.slots[utterance.slot + utterance.layout.slot(at.t, at.u + is_label, arc)];
  };
  for (int arc = 0; has_slots && arc < table.arcs(); ++arc) {
    if (table.is_label(arc)) {
      label += posterior(arc);
    } else if (l.tdt || arc == 0) {
      blank += posterior(arc);
    }
  }
  if (p.blank) p.blank[at.row] = blank;
  if (p.label) p.label[at.row] = label;
  for (int k = 0; p.grouped && k < l.durations; ++k) {
    Real sum = empty;
    for (int arc = 0; has_slots && arc < table.arcs(); ++arc) {
      if (l.tdt ? table.duration[arc] == k : arc == k + 1) sum += posterior(arc);
    }
    p.grouped[k * batch.rows + at.row] = sum;
  }
}

template <class Real>
__global__ void __launch_bounds__(kPosteriorThreads)
    posteriors_kernel(const __grid_constant__ PosteriorParams<Real> p) {
  const std::int64_t first =
      static_cast<std::int64_t>(blockIdx.x) * kPosteriorThreads + static_cast<int>(threadIdx.x);
  RowCursor at(p.batch, first);
  for (; at.row < p.batch.rows; at.advance(p.batch, p.stride)) write_posteriors(p, at);
}

}  // namespace warpalign::detail::transducer
