// The best path to a state: the algebra of a strip (lattice/strip.cuh) for alignments.
//
// Values are float64 sums of x - prior. The normaliser of a frame is the same for all paths, and is
// subtracted from the final score. Among equal paths to a state, the one from the same state wins, then the
// one from the previous state; of the two final states the first wins.
#pragma once

#include "ctc/cuda/lattice/params.cuh"

namespace warpalign::detail::ctc {

// States are numbered 0 ... 2 U.
struct alignas(16) BestState {
  double value;
  int origin;  // the path's state at the last call of mark(), as a number; -1: it began
               // after that

  static __device__ __forceinline__ BestState zero() { return {-CUDART_INF, -1}; }
  static __device__ __forceinline__ BestState one() { return {0, -1}; }
  [[nodiscard]] __device__ __forceinline__ bool is_nan() const { return isnan(value); }
  __device__ __forceinline__ void become_nan() { value = CUDART_NAN; }

  static constexpr int kWords = 2;
  [[nodiscard]] __device__ __forceinline__ cuda::Word word(int k) const {
    const double v = isnan(value) ? CUDART_NAN : value;  // the bits of a NaN may be those of kNotYet
    return k == 0 ? static_cast<cuda::Word>(__double_as_longlong(v)) : static_cast<unsigned>(origin);
  }
  static __device__ __forceinline__ BestState of(const cuda::Word (&words)[kWords]) {
    return {__longlong_as_double(static_cast<long long>(words[0])), static_cast<int>(words[1])};
  }
};

// The best path of an utterance.
struct BestEnd {
  int outcome;
  int state;   // the path's last state
  int origin;  // as in BestState
};

struct LastState {
  BestState best;
  int number;
};

template <class Real>
struct BestResult {
  Real* score;    // (B,), or null
  BestEnd* ends;  // (B,)

  [[nodiscard]] __device__ __forceinline__ bool wanted() const { return true; }
  __device__ __forceinline__ void write(int b, const LastState& last, bool invalid, double log2_norms) const {
    BestEnd end{kPaths, last.number, last.best.origin};
    double value = last.best.value - log2_norms * kLn2<double>;
    if (last.best.value == -CUDART_INF) {
      end.outcome = kNoPath;
      value = -CUDART_INF;
    }
    if (invalid || last.best.is_nan()) {
      end.outcome = kInvalid;
      value = CUDART_NAN;
    }
    if (score) score[b] = static_cast<Real>(value);
    ends[b] = end;
  }
};

template <class Real_, bool kMarksFrames_ = false>
struct Best {
  using Real = Real_;
  using State = BestState;
  using Weight = double;
  using Bias = double;
  using Result = BestResult<Real>;
  static constexpr bool kHasBackward = false;
  static constexpr bool kMarksFrames = kMarksFrames_;

  static __device__ __forceinline__ Bias bias(Real prior) { return static_cast<double>(prior); }
  static __device__ __forceinline__ Weight weight(Real x, Real /*shift*/, Bias bias) {
    return static_cast<double>(x) - bias;
  }
  static __device__ __forceinline__ Weight of_lane(Weight w, int lane) { return cuda::shuffle(w, lane); }
  static __device__ __forceinline__ bool is_bad(Weight w) { return !(w < CUDART_INF); }
  static __device__ __forceinline__ double log2_norm(const cuda::RowSum<Real>& sum) {
    return static_cast<double>(sum.shift) + static_cast<double>(sum.log2_sum);
  }
  static __device__ __forceinline__ State join(const State& same, const State& before) {
    return same.value >= before.value ? same : before;
  }
  static __device__ __forceinline__ State join(const State& same, const State& before, const State& skipped,
                                               bool skips) {
    const State best = join(same, before);
    return skips && skipped.value > best.value ? skipped : best;
  }
  static __device__ __forceinline__ State weighted(const State& s, Weight w) {
    return {s.value + w, s.origin};
  }
  static __device__ __forceinline__ State at_group_end(const State& s) { return s; }
  static __device__ __forceinline__ void mark(State& s, int number) { s.origin = number; }
  static __device__ __forceinline__ LastState end(const State& last, const State& before, int labels) {
    if (before.value >= last.value) return {before, 2 * labels - 1};
    return {last, 2 * labels};
  }
};

}  // namespace warpalign::detail::ctc
