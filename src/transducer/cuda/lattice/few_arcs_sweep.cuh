// Steps of a sweep with few arcs: the data of each arc are in registers.
//
// The critical path of a step goes from alpha of the previous step to alpha. Everything else is kept off it:
// the weights of a few steps are loaded and split in advance, the shares of a step are computed while the
// next step waits for its sources, and there are no branches. Arcs that do not exist, and the arcs up to
// kArcs that the family does not have, are computed with weights of 0.
#pragma once

#include "transducer/cuda/lattice/arcs_sweep.cuh"

namespace warpalign::detail::transducer {

// Reduces all values by `join`, as a binary tree.
template <class T, int kCount, class Join>
__device__ __forceinline__ T joined(const T (&values)[kCount], const Join& join) {
  T parts[kCount];
#pragma unroll
  for (int k = 0; k < kCount; ++k) parts[k] = values[k];
#pragma unroll
  for (int width = 1; width < kCount; width *= 2) {
#pragma unroll
    for (int k = 0; k + width < kCount; k += 2 * width) parts[k] = join(parts[k], parts[k + width]);
  }
  return parts[0];
}

// kArcs: the most arcs of a node.
template <class Real, int kArcs>
class FewArcsSweep : public ArcsSweep<Real, FewArcsSweep<Real, kArcs>> {
  using Base = ArcsSweep<Real, FewArcsSweep>;
  friend Base;

 public:
  __device__ __forceinline__ FewArcsSweep(const Strip<Real>& strip, unsigned char* shared)
      : Base(strip, shared) {
    const ArcTable& table = table_of(strip.p.batch, strip.utterance);
#pragma unroll
    for (int arc = 0; arc < kArcs; ++arc) {
      frames_[arc] = uniform(arc < arcs_ ? table.frames[arc] : 0);
      starts_[arc] = arc < arcs_ ? strip.starts(is_label(arc), frames_[arc]) : 0;
    }
  }

 private:
  using Base::arcs_, Base::base_, Base::by_label_, Base::end_, Base::first_label_, Base::gamma,
      Base::invalid_, Base::is_label, Base::kColumns, Base::ring_, Base::ring_rows_, Base::slot, Base::stage_,
      Base::strip_;
  static constexpr bool kIsStaged = true;
  // The number of steps whose weights are in registers at a time. Their code is unrolled.
  static constexpr int kStepsAhead = 4;
  template <class Numbers>
  static constexpr int kAhead = sizeof(Numbers::Number::exponent) == 8 ? 1 : kStepsAhead;

  template <class Function>
  __device__ __forceinline__ void each_arc(const Function& function) const {
#pragma unroll
    for (int arc = 0; arc < kArcs; ++arc) {
      if (arc < arcs_) function(arc);
    }
  }
  [[nodiscard]] __device__ __forceinline__ int frames(int arc) const { return frames_[arc]; }
  [[nodiscard]] __device__ __forceinline__ Real staged_slot(int first, int q, int arc) const {
    const int piece = arc < arcs_ ? arc : 0;
    return stage_.slot(first, piece, piece, q);
  }
  // Whether the arc that starts at frame t exists.
  [[nodiscard]] __device__ __forceinline__ bool exists(int arc, int t) const {
    return static_cast<unsigned>(t) < static_cast<unsigned>(starts_[arc]);
  }
  // Finds the addresses of the arcs' slots of a row.
  __device__ __forceinline__ void find_slots(int row, bool of_sources, Real* (&to)[kArcs]) const {
#pragma unroll
    for (int arc = 0; arc < kArcs; ++arc) to[arc] = slot(row - (of_sources ? frames_[arc] : 0), arc);
  }

  // Returns whether all numbers were in the range of Numbers. Steps at the edges of the lattice have no
  // special code: a block waits for its slowest strip, and some strip is at an edge most of the time.
  template <class Numbers>
  __device__ __forceinline__ bool forward_steps(int first, Border<Real>* right) {
    using Number = typename Numbers::Number;
    using Exponent = decltype(Number::exponent);
    constexpr int kSteps = kAhead<Numbers>;
    Number* const ring = reinterpret_cast<Number*>(ring_);
    const int from_first = base_ == 0 ? ring_rows_ : 0;  // the copy of the first group's rows
    int from[kArcs];  // an arc's source in the ring at the group's first step
#pragma unroll
    for (int arc = 0; arc < kArcs; ++arc) {
      const int row = base_ - frames_[arc] - is_label(arc);
      from[arc] = (row < 0 ? row + ring_rows_ : row) * kColumns + strip_.lane + !is_label(arc);
    }
    Real* to[kArcs];
    find_slots(first, true, to);
    const bool hands_over = strip_.lane == kStrip - 1 && strip_.has_right();
    // A first blank of one frame comes from this lane's previous alpha, in a register.
    const bool from_before = frames_[0] == 1;
    Number before = ring[(base_ == 0 ? ring_rows_ - 1 : base_ - 1) * kColumns + strip_.lane + 1];
    Real steepest = 0;
    bool holds = true;
#pragma unroll 1
    for (int part = 0; part < kGroup; part += kSteps) {
      decltype(Numbers::weight(Real())) weights[kSteps][kArcs];
#pragma unroll
      for (int q = 0; q < kSteps; ++q) {
        const int t = first + part + q - strip_.lane;
#pragma unroll
        for (int arc = 0; arc < kArcs; ++arc) {
          Real w = staged_slot(first, part + q, arc);
          if (!exists(arc, t - frames_[arc])) w = -static_cast<Real>(CUDART_INF);
          if constexpr (sizeof(Exponent) == 4) steepest = steeper(steepest, w);
          weights[q][arc] = Numbers::weight(w);
        }
        const bool is_node = static_cast<unsigned>(t) < static_cast<unsigned>(strip_.frames);
        invalid_ |= is_node & isnan(stage_.slot(first, arcs_, 0, part + q));
      }
      Real z[kArcs];
      Real sum = 0;
#pragma unroll
      for (int q = 0; q < kSteps; ++q) {
        const int t = first + part + q - strip_.lane;
        __syncwarp();
        Number ways[kArcs];
#pragma unroll
        for (int arc = 0; arc < kArcs; ++arc) ways[arc] = ring[from[arc] + (part + q) * kColumns];
        if (from_before) ways[0] = before;
        if (q > 0) store_shares(to, part + q - 1, t - 1, z, sum);
        Exponent exponents[kArcs];
#pragma unroll
        for (int arc = 0; arc < kArcs; ++arc) {
          ways[arc] = Numbers::times(ways[arc], weights[q][arc]);
          exponents[arc] = ways[arc].exponent;
        }
        const Exponent top = joined(exponents, [](Exponent a, Exponent b) { return Numbers::larger(a, b); });
#pragma unroll
        for (int arc = 0; arc < kArcs; ++arc) {
          z[arc] = ways[arc].mantissa * Numbers::scale(ways[arc].exponent, top);
        }
        sum = joined(z, [](Real a, Real b) { return a + b; });
        Number alpha = Numbers::normalized(sum, top);
        // A NaN here has been detected in the first slot.
        if ((strip_.column == 0) & (t == 0)) alpha = {1, 0};
        if (strip_.is_last & (t == strip_.frames)) end_ = {alpha.mantissa, alpha.exponent};
        Number* const place = ring + (base_ + part + q) * kColumns + strip_.lane + 1;
        *place = alpha;
        place[from_first * kColumns] = alpha;
        before = alpha;
        holds &= !strip_.exists | Numbers::holds(alpha);
        if (hands_over)
          right[static_cast<unsigned>(first + part + q + 1) % kBorderFrames] = {alpha.mantissa, 0,
                                                                                alpha.exponent};
      }
      store_shares(to, part + kSteps - 1, first + part + kSteps - 1 - strip_.lane, z, sum);
    }
    return holds && Numbers::holds(steepest);
  }

  // Stores the shares of the arcs that end at frame t, the group's step q. The largest share is 1 minus the
  // others.
  __device__ __forceinline__ void store_shares(Real* const (&to)[kArcs], int q, int t, const Real (&z)[kArcs],
                                               Real sum) const {
    const Real scale = sum > Real(0) ? reciprocal_of(sum) : Real(0);
    const Real most = joined(z, [](Real a, Real b) { return max(a, b); });
    Real share[kArcs];
#pragma unroll
    for (int arc = 0; arc < kArcs; ++arc) share[arc] = z[arc] * scale;
    const Real rest = Real(1) - joined(share, [](Real a, Real b) { return a + b; });
    bool taken = false;
#pragma unroll
    for (int arc = 0; arc < kArcs; ++arc) {
      const bool largest = !taken & (z[arc] == most);
      taken |= largest;
      if (exists(arc, t - frames_[arc])) to[arc][q * kStrip] = largest ? share[arc] + rest : share[arc];
    }
  }

  // In the reverse sweep a label of no frame is separate: it needs gamma of the same frame, which is computed
  // last.
  __device__ __forceinline__ void before_reverse() {
#pragma unroll
    for (int arc = 0; arc < kArcs; ++arc) {
      if (is_label(arc) & (arc < arcs_) & (frames_[arc] == 0)) {
        at_once_ = arc;
        starts_at_once_ = starts_[arc];
        starts_[arc] = 0;
      }
    }
  }

  __device__ __forceinline__ void reverse_steps(int first, const Real* right, Real* left) {
    constexpr int kSteps = kStepsAhead;
    const bool takes_border = strip_.lane == kStrip - 1 || strip_.is_last;
    const int from_first = base_ == 0 ? ring_rows_ : 0;
    int from[kArcs];
#pragma unroll
    for (int arc = 0; arc < kArcs; ++arc) {
      const int row = base_ + frames_[arc];
      from[arc] = (row >= ring_rows_ ? row - ring_rows_ : row) * kStrip + strip_.lane;
    }
    Real* to[kArcs];
    find_slots(first, false, to);
    Real* const to_at_once = slot(first, at_once_);
    const bool from_before = frames_[0] == 1;
    Real before = gamma()[(base_ + kGroup) * kStrip + strip_.lane];
#pragma unroll 1
    for (int part = kGroup - kSteps; part >= 0; part -= kSteps) {
      Real share[kSteps][kArcs], share_at_once[kSteps], border[kSteps];
#pragma unroll
      for (int q = 0; q < kSteps; ++q) {
        const int s = first + part + q, t = s - strip_.lane;
        border[q] = strip_.has_right() ? right[static_cast<unsigned>(s + 1) % kBorderFrames] : Real(0);
#pragma unroll
        for (int arc = 0; arc < kArcs; ++arc) {
          share[q][arc] = staged_slot(first, part + q, arc);
          if (!exists(arc, t)) share[q][arc] = 0;
        }
        share_at_once[q] = stage_.slot(first, at_once_, at_once_, part + q);
        if (!starts_at_once(t)) share_at_once[q] = 0;
      }
#pragma unroll
      for (int q = kSteps - 1; q >= 0; --q) {
        const int s = first + part + q, t = s - strip_.lane;
        // A step depends on the previous one only through the first blank, `from_right` and the label of no
        // frame.
        Real by_blank = 0, by_label = 0;
#pragma unroll
        for (int arc = kArcs - 1; arc >= 0; --arc) {
          Real after = gamma()[from[arc] + (part + q) * kStrip];
          if (arc == 0 && from_before) after = before;
          const Real posterior = after * share[q][arc];
          if (is_label(arc)) {
            by_label += posterior;
          } else {
            by_blank += posterior;
          }
          if (exists(arc, t)) to[arc][(part + q) * kStrip] = posterior;
        }
        const Real from_right = cuda::shuffle_down(by_label_);
        Real sum = by_blank + (takes_border ? border[q] : from_right);
        if (t >= strip_.frames) sum = strip_.is_last & (t == strip_.frames) ? Real(1) : Real(0);
        const Real posterior = sum * share_at_once[q];
        by_label_ = by_label + posterior;
        if (starts_at_once(t)) to_at_once[(part + q) * kStrip] = posterior;
        Real* const place = gamma() + (base_ + part + q) * kStrip + strip_.lane;
        *place = sum;
        place[from_first * kStrip] = sum;
        before = sum;
        if (strip_.lane == 0) left[static_cast<unsigned>(s) % kBorderFrames] = by_label_;
      }
    }
  }
  [[nodiscard]] __device__ __forceinline__ bool starts_at_once(int t) const {
    return static_cast<unsigned>(t) < static_cast<unsigned>(starts_at_once_);
  }

  // The label of no frame, if there is one, and the number of frames at which it starts.
  int at_once_ = 0;
  int starts_at_once_ = 0;
  int frames_[kArcs];
  int starts_[kArcs];  // arcs of this lane's column start at frames 0 ... starts_ - 1
};

}  // namespace warpalign::detail::transducer
