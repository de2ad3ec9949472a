// Steps of a sweep with few arcs: what belongs to an arc is in registers.
#pragma once

#include "transducer/cuda/arcs_sweep.cuh"

namespace warpalign::detail::transducer {

// kArcs: at most so many.
template <class Real, int kArcs>
class FewArcsSweep : public ArcsSweep<Real, FewArcsSweep<Real, kArcs>> {
  using Base = ArcsSweep<Real, FewArcsSweep>;
  friend Base;

 public:
  __device__ __forceinline__ FewArcsSweep(const Strip<Real>& strip, unsigned char* shared)
      : Base(strip, shared) {
    const ArcTable& table = table_of(strip.p.batch, strip.utterance);
#pragma unroll
    for (int arc = 0; arc < kArcs; ++arc) frames_[arc] = uniform(arc < arcs_ ? table.frames[arc] : 0);
  }

 private:
  using Base::arcs_, Base::by_label_, Base::end_, Base::exists, Base::first_label_, Base::gamma,
      Base::invalid_, Base::is_label, Base::kColumns, Base::put, Base::ring_, Base::ring_rows_, Base::slot,
      Base::stage_, Base::strip_, Base::weight;
  // Steps whose code stands side by side, where most of the time goes: as many as registers allow.
  static constexpr int kUnrolled = kArcs <= 5 ? 4 : 2;

  template <class Function>
  __device__ __forceinline__ void each_arc(const Function& function) const {
#pragma unroll
    for (int arc = 0; arc < kArcs; ++arc) {
      if (arc < arcs_) function(arc);
    }
  }
  [[nodiscard]] __device__ __forceinline__ int frames(int arc) const { return frames_[arc]; }

  // Whether Numbers could take all of the steps.
  template <class Numbers, bool kEdge>
  __device__ __forceinline__ bool forward_steps(int first, Border<Real>* right) {
    using Number = typename Numbers::Number;
    Number* const ring = reinterpret_cast<Number*>(ring_);
    const int base = first % ring_rows_;
    int from[kArcs];  // in the ring, at the group's first step
#pragma unroll
    for (int arc = 0; arc < kArcs; ++arc) {
      const int row = base - frames_[arc] - is_label(arc);
      from[arc] = (row < 0 ? row + ring_rows_ : row) * kColumns + strip_.lane + !is_label(arc);
    }
    Real steepest = 0;
    bool holds = true;
#pragma unroll(kEdge ? 1 : kUnrolled)
    for (int q = 0; q < kGroup; ++q) {
      const int t = first + q - strip_.lane;
      __syncwarp();
      Number ways[kArcs];
      auto top = Numbers::zero().exponent;
#pragma unroll
      for (int arc = 0; arc < kArcs; ++arc) {
        ways[arc] = Numbers::zero();
        if (arc >= arcs_) continue;
        Real w = -static_cast<Real>(CUDART_INF);
        if (!kEdge || exists(arc, t)) w = weight(first, q, arc);
        if constexpr (sizeof(top) == 4) steepest = steeper(steepest, w);
        ways[arc] = Numbers::times(ring[from[arc] + q * kColumns], Numbers::weight(w));
        top = Numbers::larger(top, ways[arc].exponent);
      }
      Real z[kArcs];
      Real sum = 0;
#pragma unroll
      for (int arc = 0; arc < kArcs; ++arc) {
        z[arc] = 0;
        if (arc >= arcs_) continue;
        z[arc] = ways[arc].mantissa * Numbers::scale(ways[arc].exponent, top);
        sum += z[arc];
      }
      Number alpha = Numbers::normalized(sum, top);
      if (kEdge) {
        // A NaN here reaches the end or has been seen in the first slot.
        if (strip_.column == 0 && t == 0) alpha = {1, 0};
        if (strip_.is_last && t == strip_.frames) end_ = {alpha.mantissa, alpha.exponent};
      }
      holds &= !strip_.exists || Numbers::holds(alpha);
      put(ring, base + q, ring_rows_, kColumns, strip_.lane + 1, alpha);
      if (strip_.lane == kStrip - 1 && strip_.has_right()) {
        right[(first + q + 1) % kBorderFrames] = {alpha.mantissa, 0, alpha.exponent};
      }
      if (!kEdge || (t >= 0 && t < strip_.frames)) {
        invalid_ |= isnan(strip_.p.shape.staged ? stage_.slot(first, arcs_, 0, q) : *slot(first + q, 0));
      }
      if (strip_.exists) store_shares<kEdge>(first + q, t, z, sum);
    }
    return holds && Numbers::holds(steepest);
  }

  template <bool kEdge>
  __device__ __forceinline__ void store_shares(int s, int t, const Real (&z)[kArcs], Real sum) const {
    const Real scale = sum > Real(0) ? reciprocal_of(sum) : Real(0);
    Real most = z[0];
#pragma unroll
    for (int arc = 1; arc < kArcs; ++arc) most = max(most, z[arc]);
    Real others = 0;
    bool taken = false;
    bool largest[kArcs];
#pragma unroll
    for (int arc = 0; arc < kArcs; ++arc) {
      largest[arc] = !taken && z[arc] == most;
      taken |= largest[arc];
      others += largest[arc] ? Real(0) : z[arc] * scale;
    }
#pragma unroll
    for (int arc = 0; arc < kArcs; ++arc) {
      if (arc >= arcs_ || (kEdge && !exists(arc, t))) continue;
      *slot(s - frames_[arc], arc) = largest[arc] ? Real(1) - others : z[arc] * scale;
    }
  }

  template <bool kEdge>
  __device__ __forceinline__ void reverse_steps(int first, const Real* right, Real* left) {
    const bool takes_border = strip_.lane == kStrip - 1 || strip_.is_last;
    const int base = first % ring_rows_;
    int from[kArcs];
#pragma unroll
    for (int arc = 0; arc < kArcs; ++arc) {
      const int row = base + frames_[arc];
      from[arc] = (row >= ring_rows_ ? row - ring_rows_ : row) * kStrip + strip_.lane;
    }
#pragma unroll(kEdge ? 1 : kUnrolled)
    for (int q = kGroup - 1; q >= 0; --q) {
      const int s = first + q, t = s - strip_.lane;
      Real sum = cuda::shuffle_down(by_label_);
      if (takes_border) sum = strip_.has_right() ? right[(s + 1) % kBorderFrames] : Real(0);
#pragma unroll
      for (int arc = 0; arc < kArcs; ++arc) {
        if (arc < first_label_)
          sum += this->template flow<kEdge>(first, q, arc, gamma()[from[arc] + q * kStrip]);
      }
      if (kEdge && t >= strip_.frames) sum = strip_.is_last && t == strip_.frames ? Real(1) : Real(0);
      by_label_ = 0;
#pragma unroll
      for (int arc = 0; arc < kArcs; ++arc) {
        if (arc < first_label_ || arc >= arcs_) continue;
        const Real after = frames_[arc] == 0 ? sum : gamma()[from[arc] + q * kStrip];
        by_label_ += this->template flow<kEdge>(first, q, arc, after);
      }
      put(gamma(), base + q, ring_rows_, kStrip, strip_.lane, sum);
      if (strip_.lane == 0) left[s % kBorderFrames] = by_label_;
    }
  }

  int frames_[kArcs];
};

}  // namespace warpalign::detail::transducer
