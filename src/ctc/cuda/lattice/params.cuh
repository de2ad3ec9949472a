// Arguments of the lattice's kernels: weights of states, checkpoints, and edges of strips.
//
// Pair i, 0 <= i <= U, is the blank before label i, with label i (forward) or label i - 1 (backward). A strip
// is 32 pairs; a lane owns a pair.
#pragma once

#include "ctc/cuda/call/batch.cuh"
#include "ctc/cuda/lattice/state.cuh"
#include "cuda/launch/kernel.cuh"
#include "cuda/memory/remote_access.cuh"
#include "cuda/threads/warp.cuh"

namespace warpalign::detail::ctc {

inline constexpr int kStrip = 32;  // pairs of a strip
inline constexpr int kGroup = 8;   // frames between two barriers of a block; groups begin at multiples of it
inline constexpr int kPanelStrips = 4;  // the most strips of a block: one for each warp scheduler
inline constexpr int kSegment = 16;     // frames that a block of the gradient owns
static_assert(kSegment % kGroup == 0);

WARPALIGN_ANYWHERE constexpr int strips_of(int labels) { return (labels + kStrip) / kStrip; }

// A float16 or a bfloat16: which of them is known at run time. For kernels that read few elements, of which
// one serves both types.
struct AnyHalf {
  std::uint16_t bits;
};
// The type as which such a kernel reads elements of type T.
template <class T>
using Stored = std::conditional_t<sizeof(T) == 2, AnyHalf, T>;
// Its name in the list of kernels.
template <class T>
constexpr const char* stored_name() {
  if constexpr (std::is_same_v<T, AnyHalf>) {
    return "half";
  } else {
    return cuda::type_name<T>();
  }
}
// An element in the type of sums. is_bfloat16: of AnyHalf.
template <class T>
__device__ __forceinline__ cuda::Sum<T> widened(T v, bool is_bfloat16) {
  if constexpr (std::is_same_v<T, AnyHalf>) {
    return is_bfloat16 ? cuda::widen(cuda::BFloat16{v.bits}) : cuda::widen(cuda::Float16{v.bits});
  } else {
    return cuda::widen(v);
  }
}

// The source of log2 of the weights: x log2(e) - the frame's shift - the class's prior.
template <class Element>
struct Emissions {
  using Real = cuda::Sum<Element>;
  const Element* data;
  std::int64_t stride[3];  // utterance, frame, column
  // If set, column k is of label k, a star included, and column U (the extent) of blank. Otherwise columns
  // are classes.
  bool by_label;
  const cuda::RowSum<Real>* sums;  // (B, T); null: log-probabilities
  const Real* stars;               // (B, T): log of the star's weight, plus the shift; null: no star
  const Real* prior;               // (C,), or null
  bool is_bfloat16;                // of elements of type AnyHalf
};

// The same source for a kernel that serves both half types.
template <class Element>
Emissions<Stored<Element>> stored(const Emissions<Element>& from) {
  const auto* const data = reinterpret_cast<const Stored<Element>*>(from.data);
  constexpr bool kIsBFloat16 = std::is_same_v<Element, cuda::BFloat16>;
  const auto& stride = from.stride;
  return {data,       {stride[0], stride[1], stride[2]}, from.by_label, from.sums, from.stars, from.prior,
          kIsBFloat16};
}

// The states of a pair.
template <class State>
struct alignas(2 * sizeof(State)) Pair {
  State blank, label;
};

// States at boundaries between frames: of paths through all frames before the boundary (forward), or through
// all frames after it (backward). [utterance][direction][boundary - first][pair]
template <class State>
struct Checkpoints {
  Pair<State>* data;
  int every;  // frames between two boundaries: a multiple of kGroup. Boundary i is before frame i * every
  int first;  // the first boundary in memory
  int boundaries;  // number in memory, of an utterance and direction
  int pairs;       // U + 1
  int directions;  // 2, or 1 for forward alone

  [[nodiscard]] WARPALIGN_ANYWHERE std::int64_t size(int batch) const {
    return std::int64_t{directions} * batch * boundaries * pairs;
  }
  [[nodiscard]] __device__ __forceinline__ Pair<State>* at(int b, bool back, int boundary) const {
    return data + ((std::int64_t{directions} * b + back) * boundaries + (boundary - first)) * pairs;
  }
};

// Edges: the states that a strip passes to the next one after each frame. Forward the label of its last pair,
// backward the label of its first pair. [utterance][direction][boundary of strips][frame - first]
template <class State>
struct Edges {
  static constexpr int kWords = State::kWords;
  cuda::Word* data;
  int every;   // strips between two boundaries whose edges are stored
  int first;   // frame
  int frames;  // number in memory
  int count;   // number of stored boundaries of an utterance
  int directions;

  [[nodiscard]] WARPALIGN_ANYWHERE std::int64_t words(int batch) const {
    return std::int64_t{directions} * batch * count * frames * kWords;
  }
  // Whether the edges after strip `strip` are stored. It is not the utterance's last strip.
  [[nodiscard]] __device__ __forceinline__ bool keeps(int strip) const { return (strip + 1) % every == 0; }
  [[nodiscard]] __device__ __forceinline__ cuda::Word* at(int b, bool back, int strip) const {
    const std::int64_t line = (std::int64_t{directions} * b + back) * count + (strip + 1) / every - 1;
    return data + (line * frames - first) * kWords;
  }
};

enum Outcome : int { kPaths = 0, kNoPath = 1, kInvalid = 2 };  // invalid: a NaN, or an invalid label

// The result of the sweep over an utterance.
struct Verdict {
  int outcome;
  int exponent;  // of the sum over all paths, relative to the shifts of the frames
};

// The outputs of a sweep over sums.
template <class Real>
struct LossResult {
  Real* loss;         // (B,); null: nothing is written
  Verdict* verdicts;  // (B,), or null
  bool zero_infinity;

  [[nodiscard]] __device__ __forceinline__ bool wanted() const { return loss != nullptr; }
  // end: the sum over all paths without the frames' normalisers. log2_norms: log2 of their product.
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

// The algebra of a strip for sums over paths. That for best paths is Best (align/best.cuh).
template <class Real_>
struct Sums {
  using Real = Real_;
  using State = ctc::State<Real>;
  using Weight = ctc::Weight<Real>;
  using Bias = Real;  // subtracted from log2 of a class's weight
  using Result = LossResult<Real>;
  static constexpr bool kHasBackward = true;   // sweeps run in both directions
  static constexpr bool kMarksFrames = false;  // states are marked after each frame

  static __device__ __forceinline__ Bias bias(Real prior) { return prior * kLog2E<Real>; }
  static __device__ __forceinline__ Weight weight(Real x, Real shift, Bias bias) {
    return Weight::of(fma(x, kLog2E<Real>, -shift) - bias);
  }
  static __device__ __forceinline__ Weight of_lane(const Weight& w, int lane) {
    return {cuda::shuffle(w.factor, lane), cuda::shuffle(w.exponent, lane)};
  }
  static __device__ __forceinline__ bool is_bad(const Weight& w) { return isnan(w.factor); }
  // log2 of the normaliser that a frame's weights leave out.
  static __device__ __forceinline__ double log2_norm(const cuda::RowSum<Real>& sum) {
    return static_cast<double>(sum.log2_sum);
  }
  // Joins the paths that stay in a state, come from the previous state, or from the one before it.
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
  // Joins the two final states of an utterance of `labels` labels.
  static __device__ __forceinline__ State end(const State& last, const State& before, int /*labels*/) {
    return normal(sum(last, before));
  }
};

}  // namespace warpalign::detail::ctc
