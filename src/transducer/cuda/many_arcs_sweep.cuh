// Steps of a sweep with any number of arcs, one arc after the other. Nothing but sums is kept of an arc: what
// comes through it is computed once for alpha and once more for its share.
#pragma once

#include "transducer/cuda/arcs_sweep.cuh"

namespace warpalign::detail::transducer {

template <class Real>
class ManyArcsSweep : public ArcsSweep<Real, ManyArcsSweep<Real>> {
  using Base = ArcsSweep<Real, ManyArcsSweep>;
  friend Base;

 public:
  __device__ __forceinline__ ManyArcsSweep(const Strip<Real>& strip, unsigned char* shared)
      : Base(strip, shared), frames_(table_of(strip.p.batch, strip.utterance).frames) {}

 private:
  using Base::arcs_, Base::by_label_, Base::end_, Base::exists, Base::first_label_, Base::gamma,
      Base::invalid_, Base::is_label, Base::kColumns, Base::put, Base::ring_, Base::ring_rows_, Base::slot,
      Base::stage_, Base::strip_, Base::weight;
  static constexpr bool kIsStaged = false;

  template <class Function>
  __device__ __forceinline__ void each_arc(const Function& function) const {
#pragma unroll 1
    for (int arc = 0; arc < arcs_; ++arc) function(arc);
  }
  [[nodiscard]] __device__ __forceinline__ int frames(int arc) const { return frames_[arc]; }

  // Where the arc comes from at the group's step q, in a ring of rows of so many columns.
  [[nodiscard]] __device__ __forceinline__ int source(int base, int q, int arc) const {
    const int row = base - frames(arc) - is_label(arc);
    return ((row < 0 ? row + ring_rows_ : row) + q) * kColumns + strip_.lane + !is_label(arc);
  }
  [[nodiscard]] __device__ __forceinline__ int target(int base, int q, int arc) const {
    const int row = base + frames(arc);
    return ((row >= ring_rows_ ? row - ring_rows_ : row) + q) * kStrip + strip_.lane;
  }

  // Whether Numbers could take all of the steps.
  template <class Numbers, bool kEdge>
  __device__ __forceinline__ bool forward_steps(int first, Border<Real>* right) {
    using Number = typename Numbers::Number;
    Number* const ring = reinterpret_cast<Number*>(ring_);
    const int base = first % ring_rows_;
    Real steepest = 0;
    bool holds = true;
#pragma unroll 1
    for (int q = 0; q < kGroup; ++q) {
      const int t = first + q - strip_.lane;
      __syncwarp();
      const auto way = [&](int arc) {
        Real w = -static_cast<Real>(CUDART_INF);
        if (!kEdge || exists(arc, t)) w = weight(first, q, arc);
        if constexpr (kNear<Numbers>) steepest = steeper(steepest, w);
        return Numbers::times(ring[source(base, q, arc)], Numbers::weight(w));
      };
      // The sum of ways relative to the largest exponent so far; scaling by powers of 2 changes no bit.
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
      if (kEdge) {
        // A NaN here reaches the end or has been seen in the first slot.
        if (strip_.column == 0 && t == 0) alpha = {1, 0};
        if (strip_.is_last && t == strip_.frames) end_ = {alpha.mantissa, alpha.exponent};
      }
      holds &= !strip_.exists || Numbers::holds(alpha);
      if (!kEdge || (t >= 0 && t < strip_.frames)) {
        invalid_ |= isnan(this->is_staged() ? stage_.slot(first, arcs_, 0, q) : *slot(first + q, 0));
      }
      const Real scale = sum > Real(0) ? reciprocal_of(sum) : Real(0);
      Real others = 0;
#pragma unroll 2
      for (int arc = 0; arc < arcs_; ++arc) {
        if (arc == largest) continue;
        const Number one = way(arc);
        const Real share = one.mantissa * Numbers::scale(one.exponent, top) * scale;
        others += share;
        if (strip_.exists && (!kEdge || exists(arc, t))) *slot(first + q - frames(arc), arc) = share;
      }
      if (strip_.exists && (!kEdge || exists(largest, t)))
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

  template <bool kEdge>
  __device__ __forceinline__ void reverse_steps(int first, const Real* right, Real* left) {
    const bool takes_border = strip_.lane == kStrip - 1 || strip_.is_last;
    const int base = first % ring_rows_;
#pragma unroll 1
    for (int q = kGroup - 1; q >= 0; --q) {
      const int s = first + q, t = s - strip_.lane;
      Real sum = cuda::shuffle_down(by_label_);
      if (takes_border) sum = strip_.has_right() ? right[(s + 1) % kBorderFrames] : Real(0);
#pragma unroll 2
      for (int arc = 0; arc < first_label_; ++arc) {
        sum += this->template flow<kEdge>(first, q, arc, gamma()[target(base, q, arc)]);
      }
      if (kEdge && t >= strip_.frames) sum = strip_.is_last && t == strip_.frames ? Real(1) : Real(0);
      by_label_ = 0;
#pragma unroll 2
      for (int arc = first_label_; arc < arcs_; ++arc) {
        const Real after = frames(arc) == 0 ? sum : gamma()[target(base, q, arc)];
        by_label_ += this->template flow<kEdge>(first, q, arc, after);
      }
      put(gamma(), base + q, ring_rows_, kStrip, strip_.lane, sum);
      if (strip_.lane == 0) left[s % kBorderFrames] = by_label_;
    }
  }

  const std::int32_t* const frames_;  // by arc
};

}  // namespace warpalign::detail::transducer
