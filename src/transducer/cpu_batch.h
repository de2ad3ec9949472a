// Shared by the drivers of the CPU path: the kernels of the selected instruction set, a batch's utterances,
// the layout of saved memory, and loops over workers.
#pragma once

#ifndef WARPALIGN_SIMD_NAMESPACE
#define WARPALIGN_SIMD_NAMESPACE warpalign::detail::transducer::host
#endif
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "core/constants.h"
#include "core/visit_dtype.h"
#include "cpu/dispatch.h"
#include "cpu/simd.h"
#include "cpu/workers.h"
#include "transducer/arcs.h"
#include "transducer/cpu_diagonals.inl"
#include "transducer/cpu_kernel.h"
#include "warpalign/transducer.h"

// The CUDA path has its own Batch and Utterance. The inline namespace gives these different names for the
// linker.
namespace warpalign::detail::transducer {
inline namespace on_host {

using cpu::run_workers;
using cpu::threads_of;
using host::Diagonals;

inline const CpuKernels& kernels() {
  return cpu::with_selected_isa([](auto isa) -> const CpuKernels& { return kernels_for(isa); });
}

// The type of computations with elements of type T, and their kernels.
template <class T>
struct Arithmetic {
  using Real = float;
  static const cpu::RowKernels<float>& rows(const CpuKernels& k) {
    if constexpr (std::is_same_v<T, Float16>) return k.rows16;
    if constexpr (std::is_same_v<T, BFloat16>) return k.rows_b16;
    return k.rows32;
  }
  static const CpuLatticeKernels<float>& lattice(const CpuKernels& k) { return k.lattice32; }
};
template <>
struct Arithmetic<double> {
  using Real = double;
  static const cpu::RowKernels<double>& rows(const CpuKernels& k) { return k.rows64; }
  static const CpuLatticeKernels<double>& lattice(const CpuKernels& k) { return k.lattice64; }
};

inline std::size_t real_size(DType dtype) {
  return dtype == DType::kFloat64 ? sizeof(double) : sizeof(float);
}

// The number of elements of saved memory for `nodes` nodes: of Saved, for all utterances.
inline std::size_t saved_elements(const TransducerLattice& l, std::int64_t nodes) {
  return static_cast<std::size_t>(nodes) * (1 + slots_of(l)) +
         static_cast<std::size_t>(l.batch) * 2 * kCpuPad;
}

// One utterance's extents and offsets.
struct Utterance {
  std::int32_t index;
  std::int32_t frames;  // T_b
  std::int32_t labels;  // U_b
  std::int64_t nodes;
  std::int64_t first_row;    // nodes of earlier utterances; also its first row in packed logits
  std::int64_t saved_begin;  // offset in saved memory, in elements
  const std::int32_t* targets;
  bool without_durations;

  [[nodiscard]] std::int32_t states() const { return labels + 1; }
  // y_u, -1 for u = 0.
  [[nodiscard]] std::int32_t label_before(std::int32_t u) const { return u > 0 ? targets[u - 1] : -1; }
};

// The batch's utterances, from lengths on the host.
class Batch {
 public:
  // Two numbers an utterance.
  static std::size_t elements(const TransducerLattice& l) { return 2 * static_cast<std::size_t>(l.batch); }

  Batch(const TransducerLattice& lattice, std::int64_t* memory)
      : l_(lattice), first_node_(memory), first_target_(memory + lattice.batch) {
    std::int64_t nodes = 0, targets = 0;
    for (int b = 0; b < l_.batch; ++b) {
      first_node_[b] = nodes;
      first_target_[b] = l_.flat_targets ? targets : first_target(l_, b);
      nodes += static_cast<std::int64_t>(frames_of(b)) * (labels_of(b) + 1);
      targets += labels_of(b);
      longest_ = std::max(longest_, frames_of(b));
      most_states_ = std::max(most_states_, labels_of(b) + 1);
    }
    nodes_ = nodes;
  }

  [[nodiscard]] Utterance operator[](int b) const {
    const std::int64_t nodes = static_cast<std::int64_t>(frames_of(b)) * (labels_of(b) + 1);
    return {b,
            frames_of(b),
            labels_of(b),
            nodes,
            first_node_[b],
            first_node_[b] * (1 + slots_of(l_)) + std::int64_t{2} * kCpuPad * b,
            l_.targets + first_target_[b],
            l_.tdt && l_.without_durations && l_.without_durations[b] != 0};
  }
  [[nodiscard]] std::int32_t longest() const { return longest_; }
  [[nodiscard]] std::int32_t most_states() const { return most_states_; }
  [[nodiscard]] std::int64_t nodes() const { return nodes_; }

 private:
  [[nodiscard]] std::int32_t frames_of(int b) const {
    return l_.logit_lengths ? l_.logit_lengths[b] : l_.frames;
  }
  [[nodiscard]] std::int32_t labels_of(int b) const {
    return l_.target_lengths ? l_.target_lengths[b] : l_.states - 1;
  }

  const TransducerLattice& l_;
  std::int64_t* const first_node_;
  std::int64_t* const first_target_;
  std::int32_t longest_ = 0;
  std::int32_t most_states_ = 1;
  std::int64_t nodes_ = 0;
};

// An utterance's part of saved memory: lse in the order of rows, then each slot's array in the order of the
// lattice's nodes.
template <class Real>
struct Saved {
  Real* lse;
  Real* slots;
  std::int64_t stride;

  Saved(void* saved, const Utterance& u)
      : lse(static_cast<Real*>(saved) + u.saved_begin), slots(lse + u.nodes + kCpuPad), stride(u.nodes) {}
};

// Arcs of an utterance.
struct Family {
  ArcTable table;
  Penalties<double> penalties;

  Family(const TransducerLattice& l, const Utterance& u)
      : table(u.without_durations ? plain_arc_table(l) : arc_table(l)),
        penalties(penalties_of<double>(l, std::log(l.star_penalty), u.without_durations)) {}

  [[nodiscard]] ArcTerm<double> term(const Utterance& utterance, std::int32_t slot, std::int32_t t,
                                     std::int32_t u) const {
    if (!table.is_label(slot)) return blank_term(penalties, utterance.label_before(u));
    return label_term(penalties, t, utterance.frames, utterance.targets[u]);
  }
};

}  // namespace on_host
}  // namespace warpalign::detail::transducer
