// What the lattice's kernels take: weights of states, checkpoints, and edges of strips.
//
// A pair i of 0 ... U is the blank before label i, with label i (forward) or label i - 1 (backward). A strip
// is 32 pairs, a lane each.
#pragma once

#include "ctc/cuda/call/batch.cuh"
#include "ctc/cuda/lattice/state.cuh"
#include "cuda/memory/remote_access.cuh"
#include "cuda/threads/warp.cuh"

namespace warpalign::detail::ctc {

inline constexpr int kStrip = 32;  // pairs of a strip
inline constexpr int kGroup = 8;   // frames between two barriers of a block; groups begin at multiples of it
inline constexpr int kPanelStrips = 4;  // strips of a block, at most: one for each scheduler
inline constexpr int kSegment = 16;     // frames that a block of the gradient takes: between checkpoints
static_assert(kSegment % kGroup == 0);

WARPALIGN_ANYWHERE constexpr int strips_of(int labels) { return (labels + kStrip) / kStrip; }

// Where the log2 of weights comes from: x log2(e) - shift of the frame - prior of the class.
template <class Element>
struct Emissions {
  using Real = cuda::Sum<Element>;
  const Element* data;
  std::int64_t stride[3];  // utterance, frame, column
  // Column k is label k's, column U (the extent) blank's, and a star's is among them. Else: columns are
  // classes.
  bool by_label;
  const cuda::RowSum<Real>* sums;  // (B, T); null: log-probabilities
  const Real* stars;               // (B, T): log of the weight of star, plus the shift; null: no star
  const Real* prior;               // (C,), or null
};

// The states of a pair.
template <class State>
struct alignas(2 * sizeof(State)) Pair {
  State blank, label;
};

// States between two frames: of the paths that come from the start to all frames before a boundary (forward),
// or that go to the end from all frames on (backward). [utterance][direction][boundary - first][pair]
template <class State>
struct Checkpoints {
  Pair<State>* data;
  int every;       // frames between two boundaries: a multiple of kGroup. Boundary i is before frame i every
  int first;       // the boundary that comes first in memory
  int boundaries;  // of an utterance and direction, in memory
  int pairs;       // U + 1
  int directions;  // 2, or 1: forward alone

  [[nodiscard]] WARPALIGN_ANYWHERE std::int64_t size(int batch) const {
    return std::int64_t{directions} * batch * boundaries * pairs;
  }
  [[nodiscard]] __device__ __forceinline__ Pair<State>* at(int b, bool back, int boundary) const {
    return data + ((std::int64_t{directions} * b + back) * boundaries + (boundary - first)) * pairs;
  }
};

// States that cross from one strip to the next: forward the label of a strip's last pair, backward that of
// its first one, after each frame. [utterance][direction][boundary of strips][frame - first]
template <class State>
struct Edges {
  static constexpr int kWords = State::kWords;
  cuda::Word* data;
  int every;   // strips between two boundaries that are kept
  int first;   // frame
  int frames;  // in memory
  int count;   // boundaries of an utterance
  int directions;

  [[nodiscard]] WARPALIGN_ANYWHERE std::int64_t words(int batch) const {
    return std::int64_t{directions} * batch * count * frames * kWords;
  }
  // The boundary behind strip `strip` is kept, unless that is the utterance's last.
  [[nodiscard]] __device__ __forceinline__ bool keeps(int strip) const { return (strip + 1) % every == 0; }
  [[nodiscard]] __device__ __forceinline__ cuda::Word* at(int b, bool back, int strip) const {
    const std::int64_t line = (std::int64_t{directions} * b + back) * count + (strip + 1) / every - 1;
    return data + (line * frames - first) * kWords;
  }
};

enum Outcome : int { kPaths = 0, kNoPath = 1, kInvalid = 2 };  // invalid: NaN, or a label that cannot be

// What the loss says about an utterance.
struct Verdict {
  int outcome;
  int exponent;  // of the sum over all paths, relative to the shifts of the frames
};

// Where the loss goes.
template <class Real>
struct LossResult {
  Real* loss;         // (B,); null: none is wanted
  Verdict* verdicts;  // (B,), or null
  bool zero_infinity;

  [[nodiscard]] __device__ __forceinline__ bool wanted() const { return loss != nullptr; }
  // end: the sum over all paths. log2_norms: by how much it is too large.
  __device__ __forceinline__ void write(int b, const State<Real>& end, bool invalid,
                                        double log2_norms) const {
    Verdict verdict{kPaths, end.exponent};
    double value = (log2_norms - end.exponent - log2(static_cast<double>(end.mantissa))) * kLn2<double>;
    if (end.exponent < kLeastPath) {
      verdict.outcome = kNoPath;
      value = zero_infinity ? 0.0 : CUDART_INF;
    }
    if (invalid || isnan(end.mantissa)) {
      verdict.outcome = kInvalid;
      value = CUDART_NAN;
    }
    loss[b] = static_cast<Real>(value);
    if (verdicts) verdicts[b] = verdict;
  }
};

// What a strip computes with: sums over paths. The best path's counterpart is Best (align/best.cuh).
template <class Real_>
struct Sums {
  using Real = Real_;
  using State = ctc::State<Real>;
  using Weight = ctc::Weight<Real>;
  using Bias = Real;  // what the log2 of a class' weight has less
  using Result = LossResult<Real>;
  static constexpr bool kHasBackward = true;   // the pass is made from both ends
  static constexpr bool kMarksFrames = false;  // states are marked after each frame

  static __device__ __forceinline__ Bias bias(Real prior) { return prior * kLog2E<Real>; }
  static __device__ __forceinline__ Weight weight(Real x, Real shift, Bias bias) {
    return Weight::of(fma(x, kLog2E<Real>, -shift) - bias);
  }
  static __device__ __forceinline__ Weight of_lane(const Weight& w, int lane) {
    return {cuda::shuffle(w.factor, lane), cuda::shuffle(w.exponent, lane)};
  }
  static __device__ __forceinline__ bool is_bad(const Weight& w) { return isnan(w.factor); }
  // What a frame's weights leave out.
  static __device__ __forceinline__ double log2_norm(const cuda::RowSum<Real>& sum) {
    return static_cast<double>(sum.log2_sum);
  }
  // Of paths that stay in a state, come from the one before, or from the one before that.
  static __device__ __forceinline__ State join(const State& same, const State& before) {
    return sum(same, before);
  }
  static __device__ __forceinline__ State join(const State& same, const State& before, State skipped,
                                               bool skips) {
    if (!skips) skipped.exponent = kDead;
    return sum(same, before, skipped);
  }
  static __device__ __forceinline__ State weighted(const State& s, const Weight& w) { return product(s, w); }
  static __device__ __forceinline__ State at_group_end(const State& s) { return normal(s); }
  static __device__ __forceinline__ void mark(State&, int) {}
  // Of the last two states of `labels` labels.
  static __device__ __forceinline__ State end(const State& last, const State& before, int /*labels*/) {
    return normal(sum(last, before));
  }
};

}  // namespace warpalign::detail::ctc
