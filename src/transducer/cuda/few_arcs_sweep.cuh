// Steps of a sweep with few arcs: what belongs to an arc is in registers.
//
// A step's chain of dependent instructions goes from alpha of the step before to alpha. All else is to be off
// it: weights of a few steps are loaded and split ahead, and nothing branches. Arcs that the family does not
// have, up to kArcs, are computed with weights of 0.
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
      Base::invalid_, Base::is_label, Base::kColumns, Base::ring_, Base::ring_rows_, Base::slot, Base::stage_,
      Base::strip_;
  static constexpr bool kIsStaged = true;
  // Steps whose weights are in registers at a time, and whose code stands side by side.
  template <class Numbers, bool kEdge>
  static constexpr int kAhead = kEdge || sizeof(Numbers::Number::exponent) == 8 ? 1
                                : kArcs <= 5                                    ? 4
                                                                                : 2;

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
  // Of the arc that ends at frame t.
  template <bool kEdge>
  [[nodiscard]] __device__ __forceinline__ bool counts(int arc, int t) const {
    return arc < arcs_ && (!kEdge || exists(arc, t));
  }
  // Where the arcs' slots of a row are.
  __device__ __forceinline__ void find_slots(int row, bool of_sources, Real* (&to)[kArcs]) const {
#pragma unroll
    for (int arc = 0; arc < kArcs; ++arc) to[arc] = slot(row - (of_sources ? frames_[arc] : 0), arc);
  }

  // Whether Numbers could take all of the steps.
  template <class Numbers, bool kEdge>
  __device__ __forceinline__ bool forward_steps(int first, Border<Real>* right) {
    using Number = typename Numbers::Number;
    constexpr int kSteps = kAhead<Numbers, kEdge>;
    Number* const ring = reinterpret_cast<Number*>(ring_);
    const int base = first % ring_rows_;
    const int from_first = base == 0 ? ring_rows_ : 0;  // where the first group's rows stand once more
    int from[kArcs];                                    // in the ring, at the group's first step
#pragma unroll
    for (int arc = 0; arc < kArcs; ++arc) {
      const int row = base - frames_[arc] - is_label(arc);
      from[arc] = (row < 0 ? row + ring_rows_ : row) * kColumns + strip_.lane + !is_label(arc);
    }
    Real* to[kArcs];
    find_slots(first, true, to);
    const bool hands_over = strip_.lane == kStrip - 1 && strip_.has_right();
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
          if (!counts<kEdge>(arc, t)) w = -static_cast<Real>(CUDART_INF);
          if constexpr (sizeof(Number::exponent) == 4) steepest = steeper(steepest, w);
          weights[q][arc] = Numbers::weight(w);
        }
        const bool inside = !kEdge || (t >= 0 && t < strip_.frames);
        invalid_ |= inside && isnan(stage_.slot(first, arcs_, 0, part + q));
      }
#pragma unroll
      for (int q = 0; q < kSteps; ++q) {
        const int t = first + part + q - strip_.lane;
        __syncwarp();
        Number ways[kArcs];
        auto top = Numbers::zero().exponent;
#pragma unroll
        for (int arc = 0; arc < kArcs; ++arc) {
          ways[arc] = Numbers::times(ring[from[arc] + (part + q) * kColumns], weights[q][arc]);
          top = Numbers::larger(top, ways[arc].exponent);
        }
        Real z[kArcs];
        Real sum = 0;
#pragma unroll
        for (int arc = 0; arc < kArcs; ++arc) {
          z[arc] = ways[arc].mantissa * Numbers::scale(ways[arc].exponent, top);
          sum += z[arc];
        }
        Number alpha = Numbers::normalized(sum, top);
        if (kEdge) {
          // A NaN here reaches the end or has been seen in the first slot.
          if (strip_.column == 0 && t == 0) alpha = {1, 0};
          if (strip_.is_last && t == strip_.frames) end_ = {alpha.mantissa, alpha.exponent};
        }
        holds &= !strip_.exists | Numbers::holds(alpha);
        Number* const place = ring + (base + part + q) * kColumns + strip_.lane + 1;
        *place = alpha;
        place[from_first * kColumns] = alpha;
        if (hands_over)
          right[static_cast<unsigned>(first + part + q + 1) % kBorderFrames] = {alpha.mantissa, 0,
                                                                                alpha.exponent};
        store_shares<kEdge>(to, part + q, t, z, sum);
      }
    }
    return holds && Numbers::holds(steepest);
  }

  template <bool kEdge>
  __device__ __forceinline__ void store_shares(Real* const (&to)[kArcs], int q, int t, const Real (&z)[kArcs],
                                               Real sum) const {
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
      const Real share = largest[arc] ? Real(1) - others : z[arc] * scale;
      if (strip_.exists && counts<kEdge>(arc, t)) to[arc][q * kStrip] = share;
    }
  }

  template <bool kEdge>
  __device__ __forceinline__ void reverse_steps(int first, const Real* right, Real* left) {
    constexpr int kSteps = kEdge ? 1 : kArcs <= 5 ? 4 : 2;
    const bool takes_border = strip_.lane == kStrip - 1 || strip_.is_last;
    const int base = first % ring_rows_;
    const int from_first = base == 0 ? ring_rows_ : 0;
    int from[kArcs];
#pragma unroll
    for (int arc = 0; arc < kArcs; ++arc) {
      const int row = base + frames_[arc];
      from[arc] = (row >= ring_rows_ ? row - ring_rows_ : row) * kStrip + strip_.lane;
    }
    Real* to[kArcs];
    find_slots(first, false, to);
#pragma unroll 1
    for (int part = kGroup - kSteps; part >= 0; part -= kSteps) {
      Real share[kSteps][kArcs], border[kSteps];
      bool there[kSteps][kArcs];
#pragma unroll
      for (int q = 0; q < kSteps; ++q) {
        const int s = first + part + q, t = s - strip_.lane;
        border[q] = strip_.has_right() ? right[static_cast<unsigned>(s + 1) % kBorderFrames] : Real(0);
#pragma unroll
        for (int arc = 0; arc < kArcs; ++arc) {
          there[q][arc] = counts<kEdge>(arc, t + frames_[arc]) && (!kEdge || t >= 0);
          share[q][arc] = there[q][arc] ? staged_slot(first, part + q, arc) : Real(0);
        }
      }
#pragma unroll
      for (int q = kSteps - 1; q >= 0; --q) {
        const int s = first + part + q, t = s - strip_.lane;
        Real sum = cuda::shuffle_down(by_label_);
        if (takes_border) sum = border[q];
        Real posterior[kArcs];
#pragma unroll
        for (int arc = 0; arc < kArcs; ++arc) {
          posterior[arc] = gamma()[from[arc] + (part + q) * kStrip] * share[q][arc];
          sum += is_label(arc) || !there[q][arc] ? Real(0) : posterior[arc];
        }
        if (kEdge && t >= strip_.frames) sum = strip_.is_last && t == strip_.frames ? Real(1) : Real(0);
        by_label_ = 0;
#pragma unroll
        for (int arc = 0; arc < kArcs; ++arc) {
          if (is_label(arc) && frames_[arc] == 0) posterior[arc] = sum * share[q][arc];
          by_label_ += is_label(arc) && there[q][arc] ? posterior[arc] : Real(0);
          if (strip_.exists && there[q][arc]) to[arc][(part + q) * kStrip] = posterior[arc];
        }
        Real* const place = gamma() + (base + part + q) * kStrip + strip_.lane;
        *place = sum;
        place[from_first * kStrip] = sum;
        if (strip_.lane == 0) left[s % kBorderFrames] = by_label_;
      }
    }
  }

  int frames_[kArcs];
};

}  // namespace warpalign::detail::transducer
