// Sweeps of any arcs: big blanks, tokens and durations. Lane l is at frame t = s - l at step s.
//
//   forward   alpha(t,u) = sum over arcs into (t, u) of alpha(t - frames, u or u - 1) weight
//   reverse   gamma(t,u) = sum over blanks out of (t, u) of gamma(t + frames, u) share
//                        + sum over labels out of (t, u) of gamma(t + frames, u + 1) share
//
// The forward sweep stores alpha of the last frames in a ring of rows in shared memory: row s has lane l's
// frame s - l in column l + 1, and frame s + 1 of the column on the left in column 0. So an arc's source is
// the same number of rows back for every lane. The reverse sweep stores gamma of a lane's own column; the
// lane of column u + 1 sums the flow through its labels to u, as in plain_sweep.cuh. A group's slots are
// staged in shared memory.
//
// Shares are computed as in plain_sweep.cuh: the largest one is 1 minus the others. Groups of steps use
// 32-bit exponents until the first group for which they do not suffice, and 64-bit exponents from there on.
//
// Slots of arcs that start before frame 0 or end after the end are padding, and are treated as weights of 0.
#pragma once

#include "transducer/cuda/lattice/arc_numbers.cuh"
#include "transducer/cuda/lattice/slot_stage.cuh"
#include "transducer/cuda/lattice/strip.cuh"

namespace warpalign::detail::transducer {

// The base of these sweeps. Steps is derived from it, and computes a group's steps; it has
//
//   each_arc(function)                       function(arc) for every arc, in order
//   frames(arc)                              frames that the arc consumes
//   kIsStaged                                whether slots are always staged in shared memory
//   forward_steps<Numbers>(first, right)     returns whether Numbers could represent all numbers
//   before_reverse(), reverse_steps(first, right, left)
template <class Real_, class Steps>
class ArcsSweep {
 public:
  using Real = Real_;
  static constexpr bool kHasNear = sizeof(Real) == 4;

  // Shared memory of a strip: the ring, then the slots of two groups.
  static WARPALIGN_ANYWHERE constexpr int shared_bytes(const SweepShape& shape) {
    const int ring = (ring_rows(shape) + kGroup) * kColumns * static_cast<int>(sizeof(State<Real>));
    return ring + (shape.staged ? SlotStage<Real>::bytes(shape.slots + 1, 1) : 0);
  }

  __device__ __forceinline__ ArcsSweep(const Strip<Real>& strip, unsigned char* shared)
      : strip_(strip),
        ring_rows_(ring_rows(strip.p.shape)),
        ring_(shared),
        // Lanes after the last column read the same memory as that one, and write nothing.
        slots_(strip.slots + min(strip.utterance.labels - strip.column, 0)),
        arc_stride_(strip.utterance.layout.arc_stride()),
        stage_(strip.utterance.layout, strip.slots - strip.lane,
               shared + (ring_rows(strip.p.shape) + kGroup) * kColumns * sizeof(State<Real>),
               strip.p.shape.slots + 1, strip.lane,
               strip.lane + min(strip.utterance.labels - strip.column, 0)) {
    const ArcTable& table = table_of(strip.p.batch, strip.utterance);
    arcs_ = uniform(table.arcs());
    first_label_ = uniform(table.blanks);
    longest_ = uniform(table.longest);
  }

  __device__ __forceinline__ void begin_forward() {
    // A group is computed again with 64 bits if 32 do not suffice. That is impossible without staging,
    // because shares overwrite the weights.
    is_far_ = !kHasNear || !is_staged();
    if (is_far_) {
      clear(reinterpret_cast<State<Real>*>(ring_), kColumns, State<Real>::zero());
    } else if constexpr (kHasNear) {
      clear(reinterpret_cast<NearState<Real>*>(ring_), kColumns, NearNumbers::zero());
    }
    if (is_staged()) SlotStage<Real>::await();
    base_ = 0;
    ask_forward(0);
  }

  __device__ __forceinline__ void forward_group(int first, const Border<Real>* left, Border<Real>* right) {
    if (is_staged()) SlotStage<Real>::await();
    ask_forward(first + kGroup);
    if (!near_group(first, left, right)) {
      enter<FarNumbers<Real>>(first, left);
      steps().template forward_steps<FarNumbers<Real>>(first, right);
    }
    base_ = base_ + kGroup == ring_rows_ ? 0 : base_ + kGroup;
  }

  [[nodiscard]] __device__ __forceinline__ State<Real> end() const { return end_; }
  [[nodiscard]] __device__ __forceinline__ bool invalid() const { return strip_.exists && invalid_; }

  // last: the last step, with which the reverse sweep begins.
  __device__ __forceinline__ void begin_reverse(int last) {
    clear(gamma(), kStrip, Real(0));
    by_label_ = 0;
    steps().before_reverse();
    if (is_staged()) SlotStage<Real>::await();
    base_ = (last - (kGroup - 1)) % ring_rows_;
    ask_reverse(last - (kGroup - 1));
  }

  // right: the flow into the strip's last column from the right. left: the flow out of its first column. Both
  // by frame modulo kBorderFrames.
  __device__ __forceinline__ void reverse_group(int first, const Real* right, Real* left) {
    if (is_staged()) SlotStage<Real>::await();
    ask_reverse(first - kGroup);
    steps().reverse_steps(first, right, left);
    base_ = (base_ == 0 ? ring_rows_ : base_) - kGroup;
  }

 protected:
  static constexpr int kColumns = kStrip + 1;

  // The number of rows, in whole groups: those that arcs read, those of the group, and one whose column 0 is
  // filled in advance. A copy of the first group's rows follows the last row, so that a group's rows are
  // contiguous.
  static WARPALIGN_ANYWHERE constexpr int ring_rows(const SweepShape& shape) {
    return (shape.history + 2 * kGroup - 2) / kGroup * kGroup;
  }
  [[nodiscard]] __device__ __forceinline__ bool is_staged() const {
    return Steps::kIsStaged || strip_.p.shape.staged;
  }
  [[nodiscard]] __device__ __forceinline__ bool is_label(int arc) const { return arc >= first_label_; }
  [[nodiscard]] __device__ __forceinline__ Real* slot(int row, int arc) const {
    return slots_ + static_cast<std::int64_t>(row) * kStrip + arc * arc_stride_;
  }
  [[nodiscard]] __device__ __forceinline__ const Steps& steps() const {
    return static_cast<const Steps&>(*this);
  }
  [[nodiscard]] __device__ __forceinline__ Steps& steps() { return static_cast<Steps&>(*this); }
  template <class T>
  __device__ __forceinline__ void clear(T* ring, int columns, const T& with) const {
    __syncwarp();
    for (int k = strip_.lane; k < (ring_rows_ + kGroup) * columns; k += kStrip) ring[k] = with;
    __syncwarp();
  }
  template <class T>
  __device__ __forceinline__ static void put(T* ring, int row, int rows, int columns, int column,
                                             const T& v) {
    ring[row * columns + column] = v;
    if (row < kGroup) ring[(row + rows) * columns + column] = v;
  }

  // ---- Forward

  // Computes a group with 32-bit exponents. Returns whether they sufficed.
  __device__ __forceinline__ bool near_group(int first, const Border<Real>* left, Border<Real>* right) {
    if constexpr (kHasNear) {
      if (is_far_) return false;
      bool holds = enter<NearNumbers>(first, left);
      holds &= steps().template forward_steps<NearNumbers>(first, right);
      if (!__any_sync(cuda::kFullWarp, !holds)) return true;
      become_far();
    }
    return false;
  }

  __device__ __forceinline__ void ask_forward(int first) const {
    if (!is_staged()) return;
    steps().each_arc([&](int arc) { stage_.template ask<1>(first, arc, arc, steps().frames(arc)); });
    stage_.template ask<1>(first, arcs_, 0, 0);
  }

  // Stores the group's frames of the column on the left. Returns whether they are in the range of Numbers.
  template <class Numbers>
  __device__ __forceinline__ bool enter(int first, const Border<Real>* left) const {
    using Number = typename Numbers::Number;
    if (strip_.lane >= kGroup) return true;
    const int t = first + strip_.lane;
    Number number = Numbers::zero();
    bool holds = true;
    if (strip_.has_left()) {
      const State<Real> alpha = left[t % kBorderFrames].state();
      if (alpha.mantissa != Real(0)) {
        number = {alpha.mantissa, static_cast<decltype(number.exponent)>(alpha.exponent)};
        if constexpr (sizeof(number.exponent) == 4) {
          holds = alpha.exponent > -kFarthest && alpha.exponent < kFarthest;
        }
      }
    }
    const int row = base_ + strip_.lane - 1;
    put(reinterpret_cast<Number*>(ring_), row < 0 ? ring_rows_ - 1 : row, ring_rows_, kColumns, 0, number);
    return holds;
  }

  __device__ __forceinline__ void become_far() {
    auto* const near = reinterpret_cast<const NearState<Real>*>(ring_);
    auto* const far = reinterpret_cast<State<Real>*>(ring_);
    const int count = (ring_rows_ + kGroup) * kColumns;
    for (int first = (count - 1) / kStrip * kStrip; first >= 0; first -= kStrip) {
      const int k = first + strip_.lane;
      __syncwarp();
      const NearState<Real> s = k < count ? near[k] : NearState<Real>{0, 0};
      __syncwarp();
      if (k < count)
        far[k] = s.mantissa == Real(0) ? State<Real>::zero() : State<Real>{s.mantissa, s.exponent};
    }
    __syncwarp();
    is_far_ = true;
  }

  // ---- Reverse: the arcs whose slots are in row s of this lane: blanks out of (t, u), labels out of (t, u -
  // 1).

  [[nodiscard]] __device__ __forceinline__ Real* gamma() const { return reinterpret_cast<Real*>(ring_); }
  __device__ __forceinline__ void ask_reverse(int first) const {
    if (!is_staged() || first < 0) return;
    steps().each_arc([&](int arc) { stage_.template ask<1>(first, arc, arc, 0); });
  }

  const Strip<Real>& strip_;
  const int ring_rows_;
  unsigned char* const ring_;
  Real* const slots_;  // this lane's slots in row 0
  const std::int64_t arc_stride_;
  const SlotStage<Real> stage_;
  int arcs_, first_label_, longest_;
  int base_ = 0;  // the ring's row of the group's first step
  State<Real> end_ = State<Real>::zero();
  bool is_far_ = false;
  bool invalid_ = false;
  Real by_label_ = 0;  // flow through this column's labels to the column on the left
};

}  // namespace warpalign::detail::transducer
