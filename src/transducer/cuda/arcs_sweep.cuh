// Sweeps of any arcs: big blanks, tokens and durations. Lane l is at frame t = s - l at step s.
//
//   forward   alpha(t,u) = sum over arcs of alpha(t - frames, u or u - 1) weight
//   reverse   gamma(t,u) goes to where the shares came from: gamma(t - frames, u or u - 1) += gamma(t,u)
//   share
//
// A lane remembers its last `history` frames in shared memory: alpha, or sums for gamma. Shares are formed as
// in plain_sweep.cuh: the largest one is what the others leave.
#pragma once

#include "transducer/cuda/strip.cuh"

namespace warpalign::detail::transducer {

// kArcs: at most so many.
template <class Real_, int kArcs>
class ArcsSweep {
 public:
  using Real = Real_;

  // Of a strip: alpha of its columns and of the one on the left.
  static WARPALIGN_ANYWHERE constexpr int shared_bytes(int history) {
    return (history * (kStrip + 1) * static_cast<int>(sizeof(Real) + sizeof(Exponent)) + 15) / 16 * 16;
  }

  __device__ __forceinline__ ArcsSweep(const Strip<Real>& strip, unsigned char* shared)
      : strip_(strip),
        table_(table_of(strip.p.batch, strip.utterance)),
        arcs_(table_.arcs()),
        history_(strip.p.history),
        exponents_(reinterpret_cast<Exponent*>(shared)),
        mantissas_(reinterpret_cast<Real*>(exponents_ + history_ * (kStrip + 1))) {}

  __device__ __forceinline__ void begin_forward() {
    __syncwarp();
    for (int k = strip_.lane; k < history_ * (kStrip + 1); k += kStrip) {
      mantissas_[k] = 0;
      exponents_[k] = kNothing;
    }
    __syncwarp();
    place_ = place_of_start();
    load<false>(0);
  }

  __device__ __forceinline__ void forward_group(int first, const Border<Real>* left, Border<Real>* right) {
#pragma unroll 1
    for (int s = first; s < first + kGroup; ++s) {
      const State<Real> alpha = forward_step(s, left[s % kBorderFrames].state());
      if (strip_.lane == kStrip - 1 && strip_.has_right()) {
        right[(s + 1) % kBorderFrames] = {alpha.mantissa, 0, alpha.exponent};
      }
    }
  }

  [[nodiscard]] __device__ __forceinline__ State<Real> end() const { return end_; }
  [[nodiscard]] __device__ __forceinline__ bool invalid() const { return invalid_; }

  // The step behind the last one has the place of the first one plus `last` + 1.
  __device__ __forceinline__ void begin_reverse(int last) {
    __syncwarp();
    for (int k = strip_.lane; k < history_ * (kStrip + 1); k += kStrip) {
      blanks()[k] = 0;
      labels()[k] = 0;
    }
    __syncwarp();
    place_ = (place_of_start() + last) % history_;
    load<true>(last);
  }

  __device__ __forceinline__ void reverse_group(int first, const Real* right, Real* left) {
#pragma unroll 1
    for (int s = first + kGroup - 1; s >= first; --s) {
      const Real border = strip_.has_right() ? right[(s + 1) % kBorderFrames] : Real(0);
      const Real to_left = reverse_step(s, border);
      if (strip_.lane == 0) left[s % kBorderFrames] = to_left;
    }
  }

 private:
  // Frame t of lane l has the place t modulo the history, of which -l may be the first.
  [[nodiscard]] __device__ __forceinline__ int place_of_start() const {
    return (history_ - strip_.lane % history_) % history_;
  }
  // Of the frame `frames` before; frames < history.
  [[nodiscard]] __device__ __forceinline__ int before(int frames) const {
    const int place = place_ - frames;
    return place < 0 ? place + history_ : place;
  }
  // In the arrays, column 0 is the one on the left of the strip.
  [[nodiscard]] __device__ __forceinline__ int at(int place, int column) const {
    return place * (kStrip + 1) + column;
  }
  [[nodiscard]] __device__ __forceinline__ bool has_arc(int arc, int t) const {
    const int frames = table_.frames[arc];
    return table_.is_label(arc) ? strip_.has_label(t, frames) : strip_.has_blank(t, frames);
  }

  // What the slots of step s hold: weights, or (kShares) shares.
  template <bool kShares>
  __device__ __forceinline__ void load(int s) {
#pragma unroll
    for (int arc = 0; arc < kArcs; ++arc) {
      next_[arc] = kShares ? Real(0) : -static_cast<Real>(CUDART_INF);
      if (arc < arcs_ && has_arc(arc, s - strip_.lane))
        next_[arc] = *strip_.slot(s - table_.frames[arc], arc);
    }
    if (kShares) return;
    const int t = s - strip_.lane;
    check_ = strip_.exists && t >= 0 && t < strip_.frames ? *strip_.slot(s, 0) : Real(0);
  }

  __device__ __forceinline__ State<Real> forward_step(int s, const State<Real>& border) {
    const int t = s - strip_.lane;
    Real z[kArcs];
    Exponent exponents[kArcs];
    // A node with NaN shows it in its first slot, whether a path leads on from there or not.
    invalid_ |= isnan(check_);
    Real weights[kArcs];
#pragma unroll
    for (int arc = 0; arc < kArcs; ++arc) weights[arc] = next_[arc];
    load<false>(s + 1);
    if (strip_.lane == 0) {
      mantissas_[at(place_, 0)] = border.mantissa;
      exponents_[at(place_, 0)] = border.exponent;
    }
    __syncwarp();
    Exponent top = kNothing;
#pragma unroll
    for (int arc = 0; arc < kArcs; ++arc) {
      z[arc] = 0;
      exponents[arc] = kNothing;
      if (arc >= arcs_) continue;
      const int from = at(before(table_.frames[arc]), strip_.lane + !table_.is_label(arc));
      const State<Real> way = product({mantissas_[from], exponents_[from]}, Weight<Real>::of(weights[arc]));
      z[arc] = way.mantissa;
      exponents[arc] = way.exponent;
      top = larger(top, way.exponent);
    }
    Real sum = 0;
#pragma unroll
    for (int arc = 0; arc < kArcs; ++arc) {
      z[arc] *= scale_to<Real>(exponents[arc], top);
      sum += z[arc];
    }
    State<Real> alpha = normal(State<Real>{sum, top});
    if (strip_.column == 0 && t == 0) alpha = State<Real>::one();
    if (strip_.is_last && t == strip_.frames) end_ = alpha;
    if (strip_.p.outcome) store_shares(s, z, sum);
    __syncwarp();
    mantissas_[at(place_, strip_.lane + 1)] = alpha.mantissa;
    exponents_[at(place_, strip_.lane + 1)] = alpha.exponent;
    place_ = place_ + 1 == history_ ? 0 : place_ + 1;
    return alpha;
  }

  __device__ __forceinline__ void store_shares(int s, const Real (&z)[kArcs], Real sum) const {
    const int t = s - strip_.lane;
    int largest = 0;
    Real most = z[0];
#pragma unroll
    for (int arc = 1; arc < kArcs; ++arc) {
      if (z[arc] > most) {
        most = z[arc];
        largest = arc;
      }
    }
    const Real scale = sum > Real(0) ? reciprocal_of(sum) : Real(0);
    Real others = 0;
#pragma unroll
    for (int arc = 0; arc < kArcs; ++arc) {
      if (arc != largest) others += z[arc] * scale;
    }
#pragma unroll
    for (int arc = 0; arc < kArcs; ++arc) {
      if (arc >= arcs_ || !has_arc(arc, t)) continue;
      *strip_.slot(s - table_.frames[arc], arc) = arc == largest ? Real(1) - others : z[arc] * scale;
    }
  }

  // Sums for gamma: of this lane's column, by blanks; of the column on the left, by labels.
  [[nodiscard]] __device__ __forceinline__ Real* blanks() const { return mantissas_; }
  [[nodiscard]] __device__ __forceinline__ Real* labels() const {
    return reinterpret_cast<Real*>(exponents_);
  }

  // What the step adds to the column on the left of the strip is complete for frame t of lane 0.
  __device__ __forceinline__ Real reverse_step(int s, Real border) {
    const int t = s - strip_.lane;
    Real shares[kArcs];
#pragma unroll
    for (int arc = 0; arc < kArcs; ++arc) shares[arc] = next_[arc];
    load<true>(s - 1);
    __syncwarp();
    const int own = at(place_, strip_.lane);
    Real gamma = blanks()[own];
    blanks()[own] = 0;
    if (strip_.lane == kStrip - 1) {
      gamma += border;
    } else {
      gamma += labels()[own + 1];
      labels()[own + 1] = 0;
    }
    if (t >= strip_.frames) gamma = strip_.is_last && t == strip_.frames ? Real(1) : Real(0);
#pragma unroll
    for (int arc = 0; arc < kArcs; ++arc) {
      if (arc >= arcs_ || !has_arc(arc, t)) continue;
      const Real posterior = gamma * shares[arc];
      *strip_.slot(s - table_.frames[arc], arc) = posterior;
      Real* const sums = table_.is_label(arc) ? labels() : blanks();
      sums[at(before(table_.frames[arc]), strip_.lane)] += posterior;
    }
    Real to_left = 0;
    if (strip_.lane == 0) {
      to_left = labels()[own];
      labels()[own] = 0;
    }
    __syncwarp();
    place_ = place_ == 0 ? history_ - 1 : place_ - 1;
    return to_left;
  }

  const Strip<Real>& strip_;
  const ArcTable& table_;
  const int arcs_;
  const int history_;
  Exponent* const exponents_;  // [history][33]
  Real* const mantissas_;
  int place_ = 0;  // of frame t
  State<Real> end_ = State<Real>::zero();
  bool invalid_ = false;
  Real next_[kArcs];  // of the next step
  Real check_ = 0;
};

}  // namespace warpalign::detail::transducer
