// Traces the best path from its last state to its first, in two passes.
//
// At every boundary between pieces of frames, the sweep has stored each state's best value and the state in
// which its path was at the previous boundary (its origin). So the path's states at the boundaries take one
// dependent load each. Then all pieces are traced at once. A block owns a piece: it starts from the values at
// the boundary, and repeats the piece's frames for the pairs that the path can visit there, at most as many
// as the piece has frames. For each frame it stores the predecessor of each state, as bits in shared memory.
//
// States of other pairs are treated as unreachable. The values along the path are still those of the sweep,
// and competing values are at most those of the sweep, so that the choices along the path are the same.
#pragma once

#include "ctc/cuda/align/best.cuh"
#include "ctc/cuda/lattice/strip.cuh"
#include "cuda/launch/shared.cuh"

namespace warpalign::detail::ctc {

inline constexpr int kMostPiece = 512;  // the most frames of a piece; a multiple of kStrip

template <class Element>
struct TraceParams {
  using Real = cuda::Sum<Element>;
  Batch batch;
  Emissions<Element> from;
  Checkpoints<BestState> checkpoints;  // at the boundaries of pieces
  int piece, pieces;
  const BestEnd* ends;   // (B,)
  std::int32_t* states;  // (B, pieces + 1): before each piece, and after the utterance's last piece
  std::int32_t* labels;  // (B, T), or null
  Real* scores;          // (B, T), or null
  std::int32_t* spans;   // (B, U, 2), or of flat targets; or null
};

// The predecessors of a strip's states at a frame, a bit for each lane. No bit: the same state.
struct Moves {
  unsigned blank;    // from the previous label
  unsigned label;    // from the previous state
  unsigned skipped;  // from the state before the previous one
};

constexpr int trace_shared_bytes(int piece, int warps) {
  return (warps + 1) * 2 * kGroup * static_cast<int>(sizeof(BestState)) +
         warps * static_cast<int>(sizeof(WeightGroup<double>)) +
         piece * warps * static_cast<int>(sizeof(Moves)) + piece * static_cast<int>(sizeof(std::int32_t));
}

template <class Element>
class Trace {
  using Real = cuda::Sum<Element>;
  static constexpr int kRingFrames = 2 * kGroup;

 public:
  __device__ __forceinline__ Trace(const TraceParams<Element>& p, int b, int piece)
      : p_(p),
        b_(b),
        warps_(static_cast<int>(blockDim.x) / cuda::kWarpSize),
        warp_(cuda::shuffle(static_cast<int>(threadIdx.x) / cuda::kWarpSize, 0)),
        lane_(static_cast<int>(threadIdx.x) % cuda::kWarpSize),
        utterance_(utterance_at(p.batch, b)),
        piece_(piece),
        first_(piece * p.piece),
        last_(min(first_ + p.piece, utterance_.frames)),
        rings_(reinterpret_cast<BestState*>(cuda::dynamic_shared())),
        weights_(reinterpret_cast<WeightGroup<double>*>(rings_ + (warps_ + 1) * kRingFrames)),
        moves_(reinterpret_cast<Moves*>(weights_ + warps_)),
        path_(reinterpret_cast<std::int32_t*>(moves_ + p.piece * warps_)) {}

  __device__ __forceinline__ void run() const {
    if (first_ >= last_ || p_.ends[b_].outcome != kPaths) return;
    const std::int32_t* const states = p_.states + static_cast<std::int64_t>(b_) * (p_.pieces + 1) + piece_;
    const int before = states[0], end = states[1];
    const int first_pair = max(max(before, 0) / 2, end / 2 - p_.piece + 1);
    make_moves(first_pair, (end / 2 - first_pair) / kStrip + 1);
    if (threadIdx.x == 0) walk(first_pair, end);
    __syncthreads();
    for (int f = static_cast<int>(threadIdx.x); f < last_ - first_; f += static_cast<int>(blockDim.x)) {
      write(f, f > 0 ? path_[f - 1] : before);
    }
  }

 private:
  // Repeats the sweep over the piece's frames for `strips` strips from first_pair on, one warp each, and
  // stores the predecessors.
  __device__ __forceinline__ void make_moves(int first_pair, int strips) const {
    const bool works = warp_ < strips;
    const int pair = first_pair + warp_ * kStrip;
    Fetcher<Element, Best<Real, true>, Labels::kOfForward> fetcher(p_.batch, p_.from, utterance_, b_, pair,
                                                                   last_);
    typename decltype(fetcher)::Loaded ahead = {};
    fetcher.load(first_, ahead);
    Strip<Best<Real, true>, false> strip(p_.batch, utterance_, pair);
    if (first_ == 0) {
      strip.begin();
    } else {
      strip.begin(p_.checkpoints.at(b_, false, piece_));
    }
    strip.mark();
    if (warp_ == 0 && lane_ < kRingFrames) rings_[lane_] = BestState::zero();
    const int groups = (last_ - first_ + kGroup - 1) / kGroup;
#pragma unroll 1
    for (int k = 0; k < groups + strips - 1; ++k) {
      const int i = k - warp_, begin = first_ + i * kGroup;
      if (works && i >= 0 && i < groups) {
        fetcher.store(begin, ahead, weights_[warp_]);
        if (i + 1 < groups) fetcher.load(begin + kGroup, ahead);
        __syncwarp();
        pass(strip, pair + lane_, begin);
      }
      __syncthreads();
    }
  }

  __device__ __forceinline__ void pass(Strip<Best<Real, true>, false>& strip, int pair, int begin) const {
    const BestState* const in = rings_ + warp_ * kRingFrames + begin % kRingFrames;
    BestState* const out = rings_ + (warp_ + 1) * kRingFrames + begin % kRingFrames;
    Moves* const moves = moves_ + (begin - first_) * warps_ + warp_;
    strip.pass(
        weights_[warp_], in, last_ - begin,
        [&](int q, const BestState& blank, const BestState& label) {
          const unsigned blank_moves = __ballot_sync(cuda::kFullWarp, blank.origin != 2 * pair);
          const unsigned label_moves = __ballot_sync(cuda::kFullWarp, label.origin == 2 * pair);
          const unsigned skips =
              __ballot_sync(cuda::kFullWarp, label.origin != 2 * pair && label.origin != 2 * pair + 1);
          if (lane_ == 0) moves[q * warps_] = {blank_moves, label_moves, skips};
        },
        [&](int q, const Pair<BestState>& states) {
          if (lane_ == kStrip - 1) out[q] = states.label;
        });
  }

  // Follows the predecessors from the state after the piece to its first frame.
  __device__ __forceinline__ void walk(int first_pair, int state) const {
    for (int f = last_ - first_ - 1; f >= 0; --f) {
      path_[f] = state;
      const int place = state / 2 - first_pair, lane = place % kStrip;
      const Moves moves = moves_[f * warps_ + max(place, 0) / kStrip];
      if (state % 2 == 0) {
        state -= static_cast<int>(moves.blank >> lane & 1u);
      } else {
        state -= static_cast<int>((moves.label >> lane & 1u) + 2 * (moves.skipped >> lane & 1u));
      }
    }
  }

  // Writes the results of frame first_ + f. before: the path's state at the previous frame.
  __device__ __forceinline__ void write(int f, int before) const {
    const int t = first_ + f, state = path_[f];
    const Batch& batch = p_.batch;
    const std::int64_t row = static_cast<std::int64_t>(b_) * batch.frames + t;
    const int label = state % 2 == 0 ? batch.blank : utterance_.label(batch, state / 2);
    if (p_.labels) p_.labels[row] = label;
    if (p_.scores) p_.scores[row] = static_cast<Real>(weight(label, t, row));
    if (!p_.spans) return;
    std::int32_t* const spans =
        p_.spans + 2 * (batch.offsets ? utterance_.first : static_cast<std::int64_t>(b_) * batch.extent);
    if (state != before) {
      if (state % 2 == 1) spans[state / 2 * 2] = t;
      if (before >= 0 && before % 2 == 1) spans[before / 2 * 2 + 1] = t - 1;
    }
    if (t == utterance_.frames - 1 && state % 2 == 1) spans[state / 2 * 2 + 1] = t;
  }

  // w[t, label]
  __device__ __forceinline__ double weight(int label, int t, std::int64_t row) const {
    const Batch& batch = p_.batch;
    double w = 0;
    if (batch.star >= 0 && label == batch.star) {
      w = static_cast<double>(p_.from.stars[row]);
    } else {
      const Element* const at = p_.from.data + b_ * batch.stride[0] + t * batch.stride[1];
      w = static_cast<double>(widened(at[label * batch.stride[2]], p_.from.is_bfloat16));
      if (p_.from.prior) w -= static_cast<double>(p_.from.prior[label]);
    }
    if (p_.from.sums) w -= Best<Real>::log2_norm(p_.from.sums[row]) * kLn2<double>;
    return w;
  }

  const TraceParams<Element>& p_;
  const int b_, warps_, warp_, lane_;
  const Utterance utterance_;
  const int piece_, first_, last_;      // frames first_ ... last_ - 1
  BestState* const rings_;              // what leads to each warp, and from the last one
  WeightGroup<double>* const weights_;  // of each warp
  Moves* const moves_;                  // [frame][warp]
  std::int32_t* const path_;            // states, by frame
};

template <class Element>
__global__ void __launch_bounds__(kMostPiece) trace_kernel(const __grid_constant__ TraceParams<Element> p) {
  Trace<Element>(p, static_cast<int>(blockIdx.x) / p.pieces, static_cast<int>(blockIdx.x) % p.pieces).run();
}

}  // namespace warpalign::detail::ctc
