// Steps of a sweep with any number of arcs, one arc after the other. Only sums are stored: an arc's summand
// is computed once for alpha and again for its share.
#pragma once

#include "transducer/cuda/lattice/arcs_sweep.cuh"

namespace warpalign::detail::transducer {

template <class Real>
class ManyArcsSweep : public ArcsSweep<Real, ManyArcsSweep<Real>> {
  using Base = ArcsSweep<Real, ManyArcsSweep>;
  friend Base;

 public:
  __device__ __forceinline__ ManyArcsSweep(const Strip<Real>& strip, unsigned char* shared)
      : Base(strip, shared), frames_(table_of(strip.p.batch, strip.utterance).frames) {}

 private:
  using Base::arcs_, Base::base_, Base::by_label_, Base::end_, Base::first_label_, Base::gamma,
      Base::invalid_, Base::is_label, Base::is_staged, Base::kColumns, Base::put, Base::ring_,
      Base::ring_rows_, Base::slot, Base::stage_, Base::strip_;
  static constexpr bool kIsStaged = false;

  template <class Function>
  __device__ __forceinline__ void each_arc(const Function& function) const {
#pragma unroll 1
    for (int arc = 0; arc < arcs_; ++arc) function(arc);
  }
  [[nodiscard]] __device__ __forceinline__ int frames(int arc) const { return frames_[arc]; }

  // Whether the arc that starts at frame t exists.
  [[nodiscard]] __device__ __forceinline__ bool exists(int arc, int t) const {
    return static_cast<unsigned>(t) < static_cast<unsigned>(strip_.starts(is_label(arc), frames(arc)));
  }
  [[nodiscard]] __device__ __forceinline__ Real weight(int first, int q, int arc) const {
    const bool there = exists(arc, first + q - strip_.lane - frames(arc));
    Real w = -static_cast<Real>(CUDART_INF);
    if (is_staged()) {
      w = there ? stage_.slot(first, arc, arc, q) : w;
    } else if (there) {
      w = *slot(first + q - frames(arc), arc);
    }
    return w;
  }

  // The index of the arc's source at the group's step q, in a ring of rows of kColumns columns.
  [[nodiscard]] __device__ __forceinline__ int source(int base, int q, int arc) const {
    const int row = base - frames(arc) - is_label(arc);
    return ((row < 0 ? row + ring_rows_ : row) + q) * kColumns + strip_.lane + !is_label(arc);
  }
  [[nodiscard]] __device__ __forceinline__ int target(int base, int q, int arc) const {
    const int row = base + frames(arc);
    return ((row >= ring_rows_ ? row - ring_rows_ : row) + q) * kStrip + strip_.lane;
  }

  // Returns whether all numbers were in the range of Numbers.
  template <class Numbers>
  __device__ __forceinline__ bool forward_steps(int first, Border<Real>* right) {
    using Number = typename Numbers::Number;
    Number* const ring = reinterpret_cast<Number*>(ring_);
    const int base = base_;
    Real steepest = 0;
    bool holds = true;
#pragma unroll 1
    for (int q = 0; q < kGroup; ++q) {
      const int t = first + q - strip_.lane;
      __syncwarp();
      const auto way = [&](int arc) {
        const Real w = weight(first, q, arc);
        if constexpr (kNear<Numbers>) steepest = steeper(steepest, w);
        return Numbers::times(ring[source(base, q, arc)], Numbers::weight(w));
      };
      // The sum relative to the largest exponent so far. Scaling by powers of 2 is exact.
      auto top = Numbers::zero().exponent;
      Real sum = 0, most = 0;
      int largest = 0;
#pragma unroll 2
      for (int arc = 0; arc < arcs_; ++arc) {
        const Number one = way(arc);
        const auto exponent = Numbers::larger(top, one.exponent);
        const Real before = Numbers::scale(top, exponent);
        const Real z = one.mantissa * Numbers::scale(one.exponent, exponent);
        top = exponent;
        sum = sum * before + z;
        most *= before;
        if (z > most) largest = arc;
        most = max(most, z);
      }
      Number alpha = Numbers::normalized(sum, top);
      // A NaN here has been detected in the first slot.
      if ((strip_.column == 0) & (t == 0)) alpha = {1, 0};
      if (strip_.is_last & (t == strip_.frames)) end_ = {alpha.mantissa, alpha.exponent};
      holds &= !strip_.exists | Numbers::holds(alpha);
      if (t >= 0 && t < strip_.frames) {
        invalid_ |= isnan(is_staged() ? stage_.slot(first, arcs_, 0, q) : *slot(first + q, 0));
      }
      const Real scale = sum > Real(0) ? reciprocal_of(sum) : Real(0);
      Real others = 0;
#pragma unroll 2
      for (int arc = 0; arc < arcs_; ++arc) {
        if (arc == largest) continue;
        const Number one = way(arc);
        const Real share = one.mantissa * Numbers::scale(one.exponent, top) * scale;
        others += share;
        if (exists(arc, t - frames(arc))) *slot(first + q - frames(arc), arc) = share;
      }
      if (exists(largest, t - frames(largest)))
        *slot(first + q - frames(largest), largest) = Real(1) - others;
      put(ring, base + q, ring_rows_, kColumns, strip_.lane + 1, alpha);
      if (strip_.lane == kStrip - 1 && strip_.has_right()) {
        right[(first + q + 1) % kBorderFrames] = {alpha.mantissa, 0, alpha.exponent};
      }
    }
    return holds && Numbers::holds(steepest);
  }
  template <class Numbers>
  static constexpr bool kNear = sizeof(Numbers::Number::exponent) == 4;

  // The arc's posterior, which overwrites the share; 0 if there is no such arc. after: gamma of the node that
  // it leads to.
  __device__ __forceinline__ Real flow(int first, int q, int arc, Real after) const {
    const int s = first + q;
    const bool there = exists(arc, s - strip_.lane);
    Real share = 0;
    if (is_staged()) {
      share = there ? stage_.slot(first, arc, arc, q) : share;
    } else if (there) {
      share = *slot(s, arc);
    }
    const Real posterior = after * share;
    if (there) *slot(s, arc) = posterior;
    return posterior;
  }

  __device__ __forceinline__ void before_reverse() {}
  __device__ __forceinline__ void reverse_steps(int first, const Real* right, Real* left) {
    const bool takes_border = strip_.lane == kStrip - 1 || strip_.is_last;
    const int base = base_;
#pragma unroll 1
    for (int q = kGroup - 1; q >= 0; --q) {
      const int s = first + q, t = s - strip_.lane;
      Real sum = cuda::shuffle_down(by_label_);
      if (takes_border) sum = strip_.has_right() ? right[(s + 1) % kBorderFrames] : Real(0);
#pragma unroll 2
      for (int arc = 0; arc < first_label_; ++arc) {
        sum += flow(first, q, arc, gamma()[target(base, q, arc)]);
      }
      if (t >= strip_.frames) sum = strip_.is_last && t == strip_.frames ? Real(1) : Real(0);
      by_label_ = 0;
#pragma unroll 2
      for (int arc = first_label_; arc < arcs_; ++arc) {
        const Real after = frames(arc) == 0 ? sum : gamma()[target(base, q, arc)];
        by_label_ += flow(first, q, arc, after);
      }
      put(gamma(), base + q, ring_rows_, kStrip, strip_.lane, sum);
      if (strip_.lane == 0) left[s % kBorderFrames] = by_label_;
    }
  }

  const std::int32_t* const frames_;  // by arc
};

}  // namespace warpalign::detail::transducer
