// Shared by the drivers of the CPU path: the kernels of the selected instruction set, an utterance's extents
// and offsets, its lattice, and rows of logits.
#pragma once

#ifndef WARPALIGN_SIMD_NAMESPACE
#define WARPALIGN_SIMD_NAMESPACE warpalign::detail::ctc::host
#endif
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "core/arena.h"
#include "core/constants.h"
#include "core/visit_dtype.h"
#include "cpu/dispatch.h"
#include "cpu/simd.h"
#include "cpu/workers.h"
#include "ctc/contract.h"
#include "ctc/cpu_kernel.h"
#include "ctc/problem.h"

namespace warpalign::detail::ctc {

inline const CpuKernels& kernels() {
  return cpu::with_selected_isa([](auto isa) -> const CpuKernels& { return kernels_for(isa); });
}

// The type of computations with elements of type T, and their kernels.
template <class T>
struct Arithmetic {
  using Real = float;
  static const CpuRowKernels<float>& rows() {
    if constexpr (std::is_same_v<T, Float16>) return kernels().rows16;
    if constexpr (std::is_same_v<T, BFloat16>) return kernels().rows_b16;
    return kernels().rows32;
  }
};
template <>
struct Arithmetic<double> {
  using Real = double;
  static const CpuRowKernels<double>& rows() { return kernels().rows64; }
};

// Element `index` of an array of reals whose type is given by `dtype`.
inline double read_real(const void* data, DType dtype, std::int64_t index) {
  return dtype == DType::kFloat64 ? static_cast<const double*>(data)[index]
                                  : static_cast<const float*>(data)[index];
}

// One utterance's extents and offsets.
struct Utterance {
  std::int32_t index;
  std::int32_t frames;        // T_b
  std::int32_t labels;        // U_b
  std::int64_t first_target;  // offset of its targets, and of its part of flat outputs
};

// The batch's utterances, from lengths on the host.
class Batch {
 public:
  Batch(const CtcProblem& problem, std::int64_t* first_targets) : p_(problem), first_(first_targets) {
    const std::int64_t stride = p_.target_stride < 0 ? p_.labels : p_.target_stride;
    std::int64_t before = 0;
    for (int b = 0; b < p_.batch; ++b) {
      first_[b] = p_.flat_targets ? before : b * stride;
      before += labels_of(b);
    }
  }
  [[nodiscard]] Utterance operator[](int b) const {
    return {b, p_.logit_lengths.data ? static_cast<std::int32_t>(p_.logit_lengths[b]) : p_.frames,
            labels_of(b), first_[b]};
  }

 private:
  [[nodiscard]] std::int32_t labels_of(int b) const {
    return p_.target_lengths.data ? static_cast<std::int32_t>(p_.target_lengths[b]) : p_.labels;
  }

  const CtcProblem& p_;
  std::int64_t* const first_;
};

// The number of slots of a frame's weights, rounded up to whole vectors, with at least one that cannot be
// emitted.
inline std::int64_t weights_stride(std::int32_t slots) {
  return (static_cast<std::int64_t>(slots) + kCpuPad) / kCpuPad * kCpuPad;
}
inline std::int32_t most_slots(const CtcProblem& p) {
  return std::min(p.classes + (p.star >= 0 ? 1 : 0), p.labels + 1);
}

// A worker's lattice of one utterance: the slots, and the slot of each label.
class Lattice {
 public:
  Lattice(const CtcProblem& problem, Arena& arena)
      : p_(problem),
        stride_(cpu_stride(problem.labels)),
        slot_(arena.take<std::int32_t>(stride_)),
        skip_(arena.take<double>(stride_)),
        column_(arena.take<std::int32_t>(most_slots(problem) + kCpuSlotPad)),
        prior_(arena.take<double>(most_slots(problem) + kCpuSlotPad)),
        slot_of_class_(arena.take<std::int32_t>(problem.classes)) {}

  // Called once, before the first set().
  void clear() { std::fill_n(slot_of_class_, p_.classes, -1); }

  void set(const Utterance& u) {
    slots_ = star_ = 0;
    add(p_.blank);
    for (std::int64_t k = 0; k < stride_; ++k) skip_[k] = kCpuDead;
    for (std::int32_t k = 0; k < u.labels; ++k) {
      const std::int64_t label = label_of(u, k);
      slot_[kCpuPad + k] = label == p_.star ? star_slot() : add(static_cast<std::int32_t>(label));
      if (k > 0 && label != label_of(u, k - 1)) skip_[kCpuPad + k] = 0;
    }
    for (std::int64_t k = kCpuPad + u.labels; k < stride_; ++k) slot_[k] = slots_;
    std::fill_n(slot_, kCpuPad, slots_);
    for (std::int32_t slot = 0; slot < slots_; ++slot) slot_of_class_[column_[slot]] = -1;
    std::fill_n(column_ + slots_, kCpuSlotPad, p_.blank);
    std::fill_n(prior_ + slots_, kCpuSlotPad, 0.0);
    labels_ = u.labels;
  }

  [[nodiscard]] CpuLattice view() const { return {labels_, stride_, slot_, skip_, slots_}; }
  [[nodiscard]] std::int64_t label_of(const Utterance& u, std::int32_t k) const {
    return p_.targets[u.first_target + k];
  }
  [[nodiscard]] std::int32_t slots() const { return slots_; }
  [[nodiscard]] std::int32_t star() const { return star_; }  // its slot; 0: none
  [[nodiscard]] const std::int32_t* columns() const { return column_; }
  [[nodiscard]] const double* priors() const { return prior_; }
  [[nodiscard]] std::int32_t slot_of(std::int32_t k) const { return slot_[kCpuPad + k]; }

 private:
  std::int32_t add(std::int32_t label) {
    std::int32_t& slot = slot_of_class_[label];
    if (slot >= 0) return slot;
    column_[slots_] = label;
    prior_[slots_] = p_.prior ? read_real(p_.prior, p_.dtype, label) : 0;
    return slot = slots_++;
  }
  std::int32_t star_slot() {
    if (star_ > 0) return star_;
    column_[slots_] = p_.blank;
    prior_[slots_] = 0;
    return star_ = slots_++;
  }

  const CtcProblem& p_;
  const std::int64_t stride_;
  std::int32_t* const slot_;
  double* const skip_;
  std::int32_t* const column_;
  double* const prior_;
  std::int32_t* const slot_of_class_;
  std::int32_t slots_ = 0, labels_ = 0, star_ = 0;
};

// Rows of logits, or of their gradient, with contiguous columns, as the kernels need them.
template <class T>
class Rows {
 public:
  // packed: memory for C elements, used if the last stride is not 1.
  Rows(const void* data, const std::int64_t* stride, std::int32_t columns, T* packed)
      : data_(static_cast<const T*>(data)), stride_(stride), columns_(columns), packed_(packed) {}

  [[nodiscard]] const T* operator()(std::int32_t b, std::int32_t t) const {
    const T* const row = data_ + b * stride_[0] + t * stride_[1];
    if (stride_[2] == 1) return row;
    for (std::int32_t c = 0; c < columns_; ++c) packed_[c] = row[c * stride_[2]];
    return packed_;
  }
  [[nodiscard]] T element(std::int32_t b, std::int32_t t, std::int32_t c) const {
    return data_[b * stride_[0] + t * stride_[1] + c * stride_[2]];
  }

 private:
  const T* const data_;
  const std::int64_t* const stride_;
  const std::int32_t columns_;
  T* const packed_;
};

// The pairs that a path can be in at frame t: it has reached label k by then, and can still reach the labels
// after k.
inline CpuRange range_of(const Utterance& u, std::int32_t t) {
  return {std::max<std::int64_t>(0, std::int64_t{u.labels} - u.frames + t), std::min(u.labels, t)};
}

// Sets all states of a row to unreachable.
inline void clear_row(double* row, std::int64_t stride) {
  for (int array = 0; array < 4; array += 2) {
    std::fill_n(row + array * stride, stride, 1.0);
    std::fill_n(row + (array + 1) * stride, stride, kCpuDead);
  }
}
// Sets the blank of pair k to 1: all paths begin, or end, there.
inline void set_end(double* row, std::int64_t stride, std::int32_t k) {
  row[kCpuPad + k] = 1;
  row[stride + kCpuPad + k] = 0;
}

inline constexpr double kInfinity = std::numeric_limits<double>::infinity();
inline constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

}  // namespace warpalign::detail::ctc
