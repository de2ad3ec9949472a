// Sweeps of any arcs: big blanks, tokens and durations. Lane l is at frame t = s - l at step s.
//
//   forward   alpha(t,u) = sum over arcs into (t, u) of alpha(t - frames, u or u - 1) weight
//   reverse   gamma(t,u) = sum over arcs out of (t, u) of gamma(t + frames, u or u + 1) share
//
// A warp remembers alpha, or gamma, of its columns and of the neighbouring one for `history` frames, in
// shared memory. Shares are formed as in plain_sweep.cuh: the largest one is what the others leave.
//
// Slots of arcs that start before frame 0 or end behind the end are padding: they count as weights of 0.
#pragma once

#include "transducer/cuda/strip.cuh"

namespace warpalign::detail::transducer {

// kArcs: at most so many. kAhead: steps whose slots are on their way; divides kGroup.
template <class Real_, int kArcs, int kAhead>
class ArcsSweep {
  static_assert(kGroup % kAhead == 0);

 public:
  using Real = Real_;

  // Of a strip: alpha of its columns and of the one on the left.
  static WARPALIGN_ANYWHERE constexpr int shared_bytes(int history) {
    return history * kColumns * static_cast<int>(sizeof(State<Real>));
  }

  __device__ __forceinline__ ArcsSweep(const Strip<Real>& strip, unsigned char* shared)
      : strip_(strip),
        rows_(strip.frames + kStrip - 1),
        history_(strip.p.history),
        alpha_(reinterpret_cast<State<Real>*>(shared)),
        // Lanes behind the last column read what that one reads, and write nothing.
        slots_(strip.slots +
               min(strip.utterance.labels - strip.column, 0) * strip.utterance.layout.lane_stride()),
        arc_stride_(strip.utterance.layout.arc_stride()) {
    const ArcTable& table = table_of(strip.p.batch, strip.utterance);
    arcs_ = uniform(table.arcs());
    first_label_ = uniform(table.blanks);
    longest_ = uniform(table.longest);
#pragma unroll
    for (int arc = 0; arc < kArcs; ++arc) frames_[arc] = uniform(arc < arcs_ ? table.frames[arc] : 0);
  }

  __device__ __forceinline__ void begin_forward() {
    __syncwarp();
    for (int k = strip_.lane; k < history_ * kColumns; k += kStrip) alpha_[k] = State<Real>::zero();
    __syncwarp();
    place_ = place_of(-strip_.lane);
    load_weights(0);
  }

  __device__ __forceinline__ void forward_group(int first, const Border<Real>* left, Border<Real>* right) {
    const bool inside = first > kStrip - 1 + longest_ && first + kGroup <= strip_.frames;
#pragma unroll 1
    for (int at = first; at < first + kGroup; at += kAhead) {
      Real weights[kAhead][kArcs];
      bool is_nan = false;
#pragma unroll
      for (int q = 0; q < kAhead; ++q) {
        is_nan |= isnan(check_[q]);
#pragma unroll
        for (int arc = 0; arc < kArcs; ++arc) weights[q][arc] = next_[q][arc];
      }
      invalid_ |= is_nan;
      load_weights(at + kAhead);
#pragma unroll
      for (int q = 0; q < kAhead; ++q) {
        const int s = at + q;
        if (!inside) take_out_padding(s - strip_.lane, weights[q]);
        const State<Real> alpha = forward_step(s, weights[q], left, inside);
        if (strip_.lane == kStrip - 1 && strip_.has_right()) {
          right[(s + 1) % kBorderFrames] = {alpha.mantissa, 0, alpha.exponent};
        }
      }
    }
  }

  [[nodiscard]] __device__ __forceinline__ State<Real> end() const { return end_; }
  [[nodiscard]] __device__ __forceinline__ bool invalid() const { return strip_.exists && invalid_; }

  // last: the first step that is taken.
  __device__ __forceinline__ void begin_reverse(int last) {
    __syncwarp();
    for (int k = strip_.lane; k < history_ * kColumns; k += kStrip) gamma()[k] = 0;
    __syncwarp();
    place_ = place_of(last - strip_.lane);
    load_shares(last);
  }

  // right: gamma of the column on the right of the strip, left: of its first one, by frame modulo
  // kBorderFrames.
  __device__ __forceinline__ void reverse_group(int first, const Real* right, Real* left) {
    const bool inside = first > kStrip - 1 && first + kGroup + longest_ <= strip_.frames;
#pragma unroll 1
    for (int at = first + kGroup - 1; at >= first; at -= kAhead) {
      Real shares[kAhead][kArcs];
#pragma unroll
      for (int q = 0; q < kAhead; ++q) {
#pragma unroll
        for (int arc = 0; arc < kArcs; ++arc) shares[q][arc] = next_[q][arc];
      }
      load_shares(at - kAhead);
#pragma unroll
      for (int q = 0; q < kAhead; ++q) {
        const int s = at - q;
        const Real result = reverse_step(s, shares[q], right, inside);
        if (strip_.lane == 0) left[s % kBorderFrames] = result;
      }
    }
  }

 private:
  static constexpr int kColumns = kStrip + 1;

  // Of frame t, which is above -kStrip.
  [[nodiscard]] __device__ __forceinline__ int place_of(int t) const {
    return (t + kStrip * history_) % history_;
  }
  [[nodiscard]] __device__ __forceinline__ int before(int frames) const {
    const int place = place_ - frames;
    return place < 0 ? place + history_ : place;
  }
  [[nodiscard]] __device__ __forceinline__ int behind(int frames) const {
    const int place = place_ + frames;
    return place >= history_ ? place - history_ : place;
  }
  [[nodiscard]] __device__ __forceinline__ bool is_label(int arc) const { return arc >= first_label_; }
  [[nodiscard]] __device__ __forceinline__ bool has_row(int row) const { return row >= 0 && row < rows_; }
  [[nodiscard]] __device__ __forceinline__ Real* slot(int row, int arc) const {
    return slots_ + static_cast<std::int64_t>(row) * strip_.utterance.layout.row_stride() + arc * arc_stride_;
  }

  // ---- Forward

  // Of the arcs that end at steps first ... first + kAhead - 1; and the first slot of the nodes of these
  // steps.
  __device__ __forceinline__ void load_weights(int first) {
#pragma unroll
    for (int q = 0; q < kAhead; ++q) {
#pragma unroll
      for (int arc = 0; arc < kArcs; ++arc) {
        const int row = first + q - frames_[arc];
        next_[q][arc] = 0;
        if (arc < arcs_ && has_row(row)) next_[q][arc] = *slot(row, arc);
      }
      const int t = first + q - strip_.lane;
      check_[q] = 0;
      if (t >= 0 && t < strip_.frames) check_[q] = *slot(first + q, 0);
    }
  }

  __device__ __forceinline__ void take_out_padding(int t, Real (&weights)[kArcs]) const {
#pragma unroll
    for (int arc = 0; arc < kArcs; ++arc) {
      const bool exists = t >= frames_[arc] &&
                          (t < strip_.frames || (t == strip_.frames && !is_label(arc) && strip_.is_last));
      if (!exists) weights[arc] = -static_cast<Real>(CUDART_INF);
    }
  }

  __device__ __forceinline__ State<Real> forward_step(int s, const Real (&weights)[kArcs],
                                                      const Border<Real>* left, bool inside) {
    const int t = s - strip_.lane;
    if (strip_.lane == 0) alpha_[place_ * kColumns] = left[s % kBorderFrames].state();
    __syncwarp();
    State<Real> ways[kArcs];
    Exponent top = kNothing;
#pragma unroll
    for (int arc = 0; arc < kArcs; ++arc) {
      ways[arc] = State<Real>::zero();
      if (arc >= arcs_) continue;
      const int from = before(frames_[arc]) * kColumns + strip_.lane + !is_label(arc);
      ways[arc] = product(alpha_[from], Weight<Real>::of(weights[arc]));
      top = larger(top, ways[arc].exponent);
    }
    Real z[kArcs];
    Real sum = 0;
#pragma unroll
    for (int arc = 0; arc < kArcs; ++arc) {
      z[arc] = ways[arc].mantissa * scale_to<Real>(ways[arc].exponent, top);
      sum += z[arc];
    }
    State<Real> alpha = normal(State<Real>{sum, top});
    if (!inside) {
      // A NaN here reaches the end or has been seen in the first slot.
      if (strip_.column == 0 && t == 0) alpha = State<Real>::one();
      if (strip_.is_last && t == strip_.frames) end_ = alpha;
    }
    alpha_[place_ * kColumns + strip_.lane + 1] = alpha;
    place_ = place_ + 1 == history_ ? 0 : place_ + 1;
    store_shares(s, z, sum);
    return alpha;
  }

  __device__ __forceinline__ void store_shares(int s, const Real (&z)[kArcs], Real sum) const {
    if (!strip_.exists) return;
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
      const int row = s - frames_[arc];
      if (arc < arcs_ && has_row(row)) *slot(row, arc) = largest[arc] ? Real(1) - others : z[arc] * scale;
    }
  }

  // ---- Reverse: the arcs out of a node. A blank's slot is in the node's row of this lane, a label's in the
  // next column's, which is lane l + 1's next row or the next strip's first lane's.

  [[nodiscard]] __device__ __forceinline__ Real* gamma() const { return reinterpret_cast<Real*>(alpha_); }
  [[nodiscard]] __device__ __forceinline__ Real* slot_out(int s, int arc) const {
    if (!is_label(arc)) return slot(s, arc);
    if (strip_.lane < kStrip - 1) return slot(s + 1, arc) + strip_.utterance.layout.lane_stride();
    const std::int64_t strip = strip_.utterance.layout.strip_begin(1);
    return slot(s - (kStrip - 1), arc) + strip - (kStrip - 1) * strip_.utterance.layout.lane_stride();
  }
  // Whether it can be followed, and ends in a frame up to T.
  [[nodiscard]] __device__ __forceinline__ bool leads_on(int arc, int t) const {
    const int end = t + frames_[arc];
    if (is_label(arc)) return strip_.column < strip_.utterance.labels && end < strip_.frames;
    return end < strip_.frames || (end == strip_.frames && strip_.is_last);
  }

  // Of steps first, first - 1, ... first - kAhead + 1.
  __device__ __forceinline__ void load_shares(int first) {
#pragma unroll
    for (int q = 0; q < kAhead; ++q) {
      const int t = first - q - strip_.lane;
#pragma unroll
      for (int arc = 0; arc < kArcs; ++arc) {
        next_[q][arc] = 0;
        if (arc < arcs_ && strip_.exists && t >= 0 && leads_on(arc, t))
          next_[q][arc] = *slot_out(first - q, arc);
      }
    }
  }

  __device__ __forceinline__ Real reverse_step(int s, const Real (&shares)[kArcs], const Real* right,
                                               bool inside) {
    const int t = s - strip_.lane;
    if (strip_.lane == kStrip - 1) {
      gamma()[place_ * kColumns + kStrip] = strip_.has_right() ? right[(s + 1) % kBorderFrames] : Real(0);
    }
    __syncwarp();
    Real sum = 0;
#pragma unroll
    for (int arc = 0; arc < kArcs; ++arc) {
      if (arc >= arcs_) continue;
      const Real posterior =
          gamma()[behind(frames_[arc]) * kColumns + strip_.lane + is_label(arc)] * shares[arc];
      sum += posterior;
      if (strip_.exists && (inside ? !is_label(arc) || !strip_.is_last : t >= 0 && leads_on(arc, t))) {
        *slot_out(s, arc) = posterior;
      }
    }
    if (!inside && t >= strip_.frames) sum = strip_.is_last && t == strip_.frames ? Real(1) : Real(0);
    gamma()[place_ * kColumns + strip_.lane] = sum;
    place_ = place_ == 0 ? history_ - 1 : place_ - 1;
    return sum;
  }

  const Strip<Real>& strip_;
  const int rows_;
  const int history_;
  State<Real>* const alpha_;  // [history][33], of the column on the left first
  Real* const slots_;
  const std::int64_t arc_stride_;
  int arcs_, first_label_, longest_;
  int frames_[kArcs];
  int place_ = 0;  // of frame t
  State<Real> end_ = State<Real>::zero();
  bool invalid_ = false;
  Real next_[kAhead][kArcs];  // of the next steps
  Real check_[kAhead] = {};
};

}  // namespace warpalign::detail::transducer
