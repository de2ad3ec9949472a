// Monotonic alignment search: Q[t,s] = max(Q[t-1,s], Q[t-1,s-1]) + x[s,t], and the best path back.
//
// A block owns an item, a warp 32 neighbouring positions, a lane one position. Warps go through groups of 8
// frames with a barrier of the block after each group. At that barrier a warp is one group later than the
// previous warp, whose last position it reads from a ring in shared memory. If there are more positions than
// the block has lanes, the block makes several rounds, and the last position of a round goes through global
// memory. For each frame and position one bit is stored: whether the best path comes from the previous
// position. One warp then follows these bits backward, 32 frames at a time.
#pragma once

#include <math_constants.h>

#include "ctc/cuda/call/batch.cuh"
#include "cuda/memory/streaming.cuh"
#include "cuda/numbers/half.cuh"
#include "cuda/threads/warp.cuh"

namespace warpalign::detail::ctc {

inline constexpr int kSearchWarps = 16;  // the most of a block
inline constexpr int kSearchGroup = 8;   // frames between two barriers of the block

template <class Element>
struct SearchParams {
  using Real = cuda::Sum<Element>;
  int positions, frames;  // extents
  Integers text_lengths, frame_lengths;
  const Element* scores;
  std::int64_t stride[3];   // item, position, frame
  Real* score;              // (B,), or null
  std::int32_t* durations;  // (B, S) of zeros, or null
  std::uint8_t* path;       // (B, S, T) of zeros, or null
  unsigned* moves;          // (B, T, strips): bit s % 32 of strip s / 32
  double* borders;          // (B, 2, T): the last position of a round; null if one round is enough
  std::int32_t* begins;     // (B, S): the first frame of each position
};

// A group of 8 elements of a row, not converted yet. Each way has one load for each register: with two, of
// which one runs, the second would wait for the first.
template <class Element>
struct Octet {
  Element x[kSearchGroup];

  // 8 neighbouring elements at a multiple of 16 bytes.
  __device__ __forceinline__ void load_vectors(const Element* from) {
    constexpr int kVectors = kSearchGroup * static_cast<int>(sizeof(Element)) / 16;
    cuda::Bits128 bits[kVectors];
#pragma unroll
    for (int k = 0; k < kVectors; ++k) {
      bits[k] = cuda::load_streaming(reinterpret_cast<const cuda::Bits128*>(from) + k);
    }
    memcpy(x, bits, sizeof(x));
  }
  // Elements at from, from + stride, ... The last one is element count - 1 > -1, which stands for all later
  // ones.
  __device__ __forceinline__ void load_each(const Element* from, std::int64_t stride, int count) {
#pragma unroll
    for (int q = 0; q < kSearchGroup; ++q) x[q] = from[min(q, count - 1) * stride];
  }
};

template <class Element>
class Search {
 public:
  static constexpr int kRing = 2 * kSearchGroup;

  // rings: one for each warp and one more.
  __device__ __forceinline__ Search(const SearchParams<Element>& p, int b, double (*rings)[kRing])
      : p_(p),
        b_(b),
        warps_(static_cast<int>(blockDim.x) / cuda::kWarpSize),
        warp_(cuda::shuffle(static_cast<int>(threadIdx.x) / cuda::kWarpSize, 0)),
        lane_(static_cast<int>(threadIdx.x) % cuda::kWarpSize),
        positions_(true_length(p.text_lengths, b, p.positions)),
        frames_(true_length(p.frame_lengths, b, p.frames)),
        strips_((p.positions + cuda::kWarpSize - 1) / cuda::kWarpSize),
        rings_(rings) {}

  __device__ __forceinline__ void run() const {
    __shared__ double end;
    if (threadIdx.x == 0) end = positions_ == 0 && frames_ == 0 ? 0.0 : -CUDART_INF;
    __syncthreads();
    bool bad = false;
    const bool in_vectors = has_vectors();
    for (int first = 0; first < positions_; first += warps_ * cuda::kWarpSize) {
      bad |= in_vectors ? make_moves<true>(first, end) : make_moves<false>(first, end);
    }
    bad = __syncthreads_or(bad);
    const double score = bad ? CUDART_NAN : end;
    if (threadIdx.x == 0 && p_.score) p_.score[b_] = static_cast<cuda::Sum<Element>>(score);
    if (!(score > -CUDART_INF) || frames_ == 0 || (!p_.durations && !p_.path)) return;
    if (warp_ == 0) walk();
    __syncthreads();
    if (p_.durations) write_durations();
  }

 private:
  [[nodiscard]] __device__ __forceinline__ unsigned* moves(int t) const {
    return p_.moves + (static_cast<std::int64_t>(b_) * p_.frames + t) * strips_;
  }
  [[nodiscard]] __device__ __forceinline__ double* border(int round) const {
    return p_.borders + (static_cast<std::int64_t>(2) * b_ + round % 2) * p_.frames;
  }

  // A lane's position in one round, and its state.
  struct Round {
    int number, position;
    bool exists, leaves;   // the lane has a position; it is the warp's last one
    double value, before;  // Q of the lane, and of the position before the warp's first one
    bool bad;              // whether a NaN or +inf has been read
  };

  // Whether all groups of all rows are whole vectors.
  [[nodiscard]] __device__ __forceinline__ bool has_vectors() const {
    constexpr int kElements = 16 / static_cast<int>(sizeof(Element));  // of a vector
    return p_.stride[2] == 1 && p_.frames % kSearchGroup == 0 && p_.stride[0] % kElements == 0 &&
           p_.stride[1] % kElements == 0 && reinterpret_cast<std::uintptr_t>(p_.scores) % 16 == 0;
  }

  // Goes through all frames of positions first ... first + 32 warps - 1. Returns whether this lane has read a
  // NaN or +inf.
  template <bool kVectors>
  __device__ __forceinline__ bool make_moves(int first, double& end) const {
    constexpr int kAhead = sizeof(Element) == 8 ? 2 : 3;
    const int position = first + warp_ * cuda::kWarpSize + lane_;
    const bool works = first + warp_ * cuda::kWarpSize < positions_;
    const int active = min(warps_, (positions_ - first + cuda::kWarpSize - 1) / cuda::kWarpSize);
    Round r{first / (warps_ * cuda::kWarpSize),
            position,
            position < positions_,
            lane_ == cuda::kWarpSize - 1,
            -CUDART_INF,
            position == 0 ? 0.0 : -CUDART_INF,
            false};
    // A lane without a position reads the last one's row, and a group after the last one is the last one.
    const Element* const row = p_.scores + b_ * p_.stride[0] + min(position, positions_ - 1) * p_.stride[1];
    const int groups = (frames_ + kSearchGroup - 1) / kSearchGroup;
    Octet<Element> ahead[kAhead] = {};
    const auto fetch = [&](Octet<Element>& to, int group) {
      const int t = min(group, groups - 1) * kSearchGroup;
      if constexpr (kVectors) {
        to.load_vectors(row + t);
      } else {
        to.load_each(row + t * p_.stride[2], p_.stride[2], frames_ - t);
      }
    };
#pragma unroll
    for (int k = 0; k < kAhead; ++k) {
      if (groups > 0) fetch(ahead[k], k);
    }
    // A warp is one group later than the previous warp.
    const int behind = min(warp_, active);
    for (int k = 0; k < behind; ++k) __syncthreads();
#pragma unroll 1
    for (int i = 0; i < groups; i += kAhead) {
#pragma unroll
      for (int k = 0; k < kAhead; ++k) {
        if (i + k >= groups) break;
        if (works) {
          pass(r, ahead[k], (i + k) * kSearchGroup);
          fetch(ahead[k], i + k + kAhead);
        }
        __syncthreads();
      }
    }
    for (int k = behind; k < active; ++k) __syncthreads();
    if (position == positions_ - 1 && frames_ > 0) end = r.value;
    __syncthreads();
    return r.bad;
  }

  // Goes through frames begin ... begin + 7, as far as they exist.
  __device__ __forceinline__ void pass(Round& r, const Octet<Element>& x, int begin) const {
    double* const in = rings_[warp_] + begin % kRing;
    double* const out = rings_[warp_ + 1] + begin % kRing;
    const bool mine = lane_ < kSearchGroup && begin + lane_ < frames_;  // the lane has a frame
    if (warp_ == 0) {
      if (mine) in[lane_] = r.number > 0 ? border(r.number - 1)[begin + lane_] : -CUDART_INF;
      __syncwarp();
    }
    const unsigned bits = begin + kSearchGroup <= frames_ ? pass_frames<true>(r, x, begin, in, out)
                                                          : pass_frames<false>(r, x, begin, in, out);
    if (mine) moves(begin + lane_)[r.position / cuda::kWarpSize] = bits;
    if (warp_ == warps_ - 1 && p_.borders) {
      __syncwarp();
      if (mine) border(r.number)[begin + lane_] = out[lane_];
    }
  }
  // Returns in lane q a bit for each lane: whether its path to frame begin + q comes from the previous
  // position.
  template <bool kAll>
  __device__ __forceinline__ unsigned pass_frames(Round& r, const Octet<Element>& x, int begin,
                                                  const double* in, double* out) const {
    double edges[kSearchGroup], scores[kSearchGroup];
#pragma unroll
    for (int q = 0; q < kSearchGroup; ++q) {
      edges[q] = in[q];
      scores[q] = static_cast<double>(cuda::widen(x.x[q]));
    }
    unsigned bits = 0;
#pragma unroll
    for (int q = 0; q < kSearchGroup; ++q) {
      if (!kAll && begin + q >= frames_) break;
      double other = cuda::shuffle_up(r.value);
      if (lane_ == 0) other = r.before;
      r.before = edges[q];
      r.bad |= r.exists && !(scores[q] < CUDART_INF);
      const bool moves_on = other > r.value;
      const unsigned all = __ballot_sync(cuda::kFullWarp, moves_on);
      r.value = (moves_on ? other : r.value) + scores[q];
      if (lane_ == q) bits = all;
      if (r.leaves) out[q] = r.value;
    }
    return bits;
  }

  // Called by one warp. Goes from the last frame to the first in windows of 32 frames: lane j loads the words
  // of frame hi - 1 - j, of at most two strips, because a path visits no more in a window. The next window's
  // words are loaded while the warp follows the path through this one.
  __device__ __forceinline__ void walk() const {
    constexpr int kWords = 3;
    int s = positions_ - 1;
    unsigned next[kWords];
    const auto ask = [&](int hi, int top) {
      const int t = hi - 1 - lane_;
#pragma unroll
      for (int k = 0; k < kWords; ++k) next[k] = t >= 0 && top - k >= 0 ? moves(t)[top - k] : 0;
    };
    int asked = s / cuda::kWarpSize;
    ask(frames_, asked);
    for (int hi = frames_; hi > 0; hi -= cuda::kWarpSize) {
      const bool is_below = s / cuda::kWarpSize < asked;
      const unsigned high = is_below ? next[1] : next[0], low = is_below ? next[2] : next[1];
      // Bit 31 - k: whether the path to position s - k comes from the previous position.
      const auto both = static_cast<std::uint64_t>(high) << 32 | low;
      const auto bits = static_cast<unsigned>(both << (31 - s % cuda::kWarpSize) >> 32);
      asked = s / cuda::kWarpSize;
      ask(hi - cuda::kWarpSize, asked);
      int place = 31, mine = 0;
#pragma unroll
      for (int j = 0; j < cuda::kWarpSize; ++j) {  // frames before the first one have no bits
        const unsigned word = cuda::shuffle(bits, j);
        if (lane_ == j) mine = place;
        place -= static_cast<int>(word >> place & 1u);
      }
      const int t = hi - 1 - lane_, position = s - (31 - mine);
      s -= 31 - place;
      if (t < 0) continue;
      if (p_.path) {
        p_.path[(static_cast<std::int64_t>(b_) * p_.positions + position) * p_.frames + t] = 1;
      }
      const bool moved = bits >> mine & 1u;
      if (moved || t == 0) p_.begins[static_cast<std::int64_t>(b_) * p_.positions + position] = t;
    }
  }

  __device__ __forceinline__ void write_durations() const {
    const std::int64_t first = static_cast<std::int64_t>(b_) * p_.positions;
    for (int s = static_cast<int>(threadIdx.x); s < positions_; s += static_cast<int>(blockDim.x)) {
      const int end = s + 1 < positions_ ? p_.begins[first + s + 1] : frames_;
      p_.durations[first + s] = end - p_.begins[first + s];
    }
  }

  const SearchParams<Element>& p_;
  const int b_, warps_, warp_, lane_;
  const int positions_, frames_;  // true extents
  const int strips_;              // number of strips of the padded positions
  double (*const rings_)[kRing];
};

template <class Element>
__global__ void __launch_bounds__(kSearchWarps * 32)
    search_kernel(const __grid_constant__ SearchParams<Element> p) {
  __shared__ double rings[kSearchWarps + 1][Search<Element>::kRing];
  Search<Element>(p, static_cast<int>(blockIdx.x), rings).run();
}

}  // namespace warpalign::detail::ctc
