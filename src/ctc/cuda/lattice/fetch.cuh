// The weights of a strip's states, computed a group of frames at a time: a Fetcher starts to load logits
// before they are needed, and later stores weights to shared memory, from which a Strip reads them
// (strip.cuh). If another warp than the strip's does this, a step waits neither for global memory nor for
// exponentials.
#pragma once

#include "ctc/cuda/lattice/params.cuh"
#include "cuda/threads/warp.cuh"

namespace warpalign::detail::ctc {

// A group's weights, by frame. label[q][l + 1] is that of the label of the strip's pair l, label[q][0] that
// of the previous label. Weights of frames after the last one are undefined.
template <class Weight>
struct alignas(16) WeightGroup {
  Weight label[kGroup][kStrip + 1];
  Weight blank[kGroup];
};

// Which columns of WeightGroup::label are written: 1 to 32, 0 to 31, or all.
enum class Labels { kOfForward, kOfBackward, kOfBoth };

// Computes a strip's weights.
template <class Element, class Algebra, Labels kLabels>
class Fetcher {
 public:
  using Real = cuda::Sum<Element>;
  using Weight = typename Algebra::Weight;
  // A group that is being loaded. Lane q has the logits of blank and of the label before the strip, and the
  // log-sum, of frame q.
  struct Loaded {
    Element label[kGroup];
    Element blank, before;
    cuda::RowSum<Real> sum;
  };

  // The strip's pairs begin at first_pair, its frames end before `last`.
  __device__ __forceinline__ Fetcher(const Batch& batch, const Emissions<Element>& from,
                                     const Utterance& utterance, int b, int first_pair, int last)
      : lane_(static_cast<int>(threadIdx.x) % cuda::kWarpSize),
        last_(last),
        is_bfloat16_(from.is_bfloat16),
        frame_stride_(from.stride[1]),
        blank_(column(from, b, batch.blank, batch.labels)),
        label_(column(batch, from, utterance, b, first_pair + lane_ - (kOfPairsBefore ? 1 : 0))) {
    if constexpr (kLabels == Labels::kOfBoth) {
      before_ = column(batch, from, utterance, b, first_pair - 1);
    }
    has_star_ = __any_sync(cuda::kFullWarp, label_.star || before_.star);
    invalid_ = isnan(label_.bias);
    if (from.sums) sums_ = from.sums + static_cast<std::int64_t>(b) * batch.frames;
  }

  // Starts to load the group that begins at frame `begin`, a multiple of kGroup. Frames from `last` on are
  // read as frame last - 1. There is one load for each register: with two, of which one runs, the second
  // would wait for the first.
  __device__ __forceinline__ void load(int begin, Loaded& to) const {
    if (begin >= last_) return;
    const int t = frame(begin + lane_ % kGroup);
    to.blank = blank_.at[t * frame_stride_];
    if constexpr (kLabels == Labels::kOfBoth) to.before = before_.at[t * frame_stride_];
    to.sum = sums_ ? sums_[t] : cuda::RowSum<Real>{0, 0};
    const Element* from = label_.at + begin * frame_stride_;
#pragma unroll
    for (int q = 0; q < kGroup; ++q) {
      to.label[q] = *from;
      if (begin + q + 1 < last_) from += frame_stride_;
    }
  }

  // Stores the weights of a group that was loaded. The weights of all frames are computed before any is
  // stored, and star's logits are loaded before: so the frames are independent, and none waits for another
  // one's load, exponential or store.
  __device__ __forceinline__ void store(int begin, const Loaded& from, WeightGroup<Weight>& to) {
    if (begin >= last_) return;
    Real label[kGroup], before = 0;
#pragma unroll
    for (int q = 0; q < kGroup; ++q) label[q] = widened(from.label[q], is_bfloat16_);
    if constexpr (kLabels == Labels::kOfBoth) before = widened(from.before, is_bfloat16_);
    if (has_star_) take_stars(begin, label, before);
    Weight weights[kGroup];
#pragma unroll
    for (int q = 0; q < kGroup; ++q) {
      weights[q] = weight(label_, label[q], cuda::shuffle(from.sum.shift, q));
    }
    const Weight blank = weight(blank_, widened(from.blank, is_bfloat16_), from.sum.shift);
#pragma unroll
    for (int q = 0; q < kGroup; ++q) to.label[q][lane_ + (kOfPairsBefore ? 0 : 1)] = weights[q];
    if (lane_ < kGroup) to.blank[lane_] = blank;
    if constexpr (kLabels == Labels::kOfBoth) {
      const Weight of_before = weight(before_, before, from.sum.shift);
      if (lane_ < kGroup) to.label[lane_][0] = of_before;
    }
    if (lane_ < kGroup && begin + lane_ < last_) log2_norms_ += Algebra::log2_norm(from.sum);
  }

  // Whether the warp has read a NaN so far, or has an invalid label.
  [[nodiscard]] __device__ __forceinline__ bool invalid() const {
    return __any_sync(cuda::kFullWarp, invalid_);
  }
  // The sum of Algebra::log2_norm() over the frames so far, in every lane.
  [[nodiscard]] __device__ __forceinline__ double log2_norms() const { return cuda::reduce_sum(log2_norms_); }

 private:
  using Bias = typename Algebra::Bias;
  static constexpr bool kOfPairsBefore = kLabels == Labels::kOfBackward;

  // The logits of a class.
  struct Column {
    const Element* at;  // of frame 0
    const Real* star;   // (T,): for star, what to use in place of `at`; null for classes
    Bias bias;          // +inf: the weight is 0, whatever the logits are
  };
  // Of a class; by_label is its column if columns are labels.
  [[nodiscard]] static __device__ __forceinline__ Column column(const Emissions<Element>& from, int b,
                                                                int label, int by_label) {
    const Element* const base = from.data + b * from.stride[0];
    return {base + (from.by_label ? by_label : label) * from.stride[2], nullptr,
            Algebra::bias(from.prior ? from.prior[label] : Real(0))};
  }
  // Of label k.
  [[nodiscard]] static __device__ __forceinline__ Column column(const Batch& batch,
                                                                const Emissions<Element>& from,
                                                                const Utterance& utterance, int b, int k) {
    const int label = utterance.label(batch, k);
    if (label >= 0 && label != batch.star) return column(from, b, label, k);
    Column c = column(from, b, batch.blank, batch.labels);  // any that can be read
    c.bias = static_cast<Bias>(CUDART_INF);
    if (label == kInvalidLabel) c.bias = static_cast<Bias>(CUDART_NAN);
    if (label >= 0) {
      c.bias = 0;
      if (from.by_label) {
        c.at = from.data + b * from.stride[0] + k * from.stride[2];
      } else {
        c.star = from.stars + static_cast<std::int64_t>(b) * batch.frames;
      }
    }
    return c;
  }
  [[nodiscard]] __device__ __forceinline__ int frame(int t) const { return min(t, last_ - 1); }
  // Replaces the logits of star.
  __device__ __forceinline__ void take_stars(int begin, Real (&label)[kGroup], Real& before) const {
#pragma unroll
    for (int q = 0; q < kGroup; ++q) {
      if (label_.star) label[q] = label_.star[frame(begin + q)];
    }
    if (before_.star) before = before_.star[frame(begin + lane_ % kGroup)];
  }
  // The weight for logit x.
  [[nodiscard]] __device__ __forceinline__ Weight weight(const Column& c, Real x, Real shift) {
    const Weight w = Algebra::weight(x, shift, c.bias);
    invalid_ |= Algebra::is_bad(w);
    return w;
  }

  const int lane_, last_;
  const bool is_bfloat16_;
  const std::int64_t frame_stride_;
  const Column blank_, label_;
  Column before_ = {};
  const cuda::RowSum<Real>* sums_ = nullptr;
  bool has_star_;  // of any lane
  bool invalid_;
  double log2_norms_ = 0;
};

}  // namespace warpalign::detail::ctc
