// A strip of the lattice: a warp owns 32 pairs, and goes through the frames forward or backward.
//
//   forward    pair i = blank before label i, and label i;      the neighbour is pair i - 1
//   backward   pair i = blank before label i, and label i - 1;  the neighbour is pair i + 1
//   blank(t) = (blank + neighbour's label) w[t, blank]
//   label(t) = (label + blank + neighbour's label, if the two labels differ) w[t, label]
//
// where the right side has the states of the previous frame (forward) or the next frame (backward). Both
// directions run the same code, and each pair passes one state to its neighbour. The forward pass starts with
// the value 1 for the missing neighbour of pair 0, the backward pass for that of pair U: a path begins, and
// ends, in a blank or a label.
#pragma once

#include "ctc/cuda/lattice/params.cuh"
#include "cuda/threads/warp.cuh"

namespace warpalign::detail::ctc {

// An element that is not converted yet: the conversion would wait for the load.
template <class Element>
struct Unconverted {
  Element bits;
  static __device__ __forceinline__ Unconverted of_star(Element star) { return {star}; }
  __device__ __forceinline__ Element value(bool) const { return bits; }
};
template <class Half>
struct RawHalf {
  unsigned bits;
  static __device__ __forceinline__ RawHalf of_star(float star) {
    return {static_cast<unsigned>(__float_as_int(star))};
  }
  __device__ __forceinline__ float value(bool is_star) const {
    return is_star ? __int_as_float(static_cast<int>(bits))
                   : cuda::widen(Half{static_cast<std::uint16_t>(bits)});
  }
};
template <>
struct Unconverted<cuda::Float16> : RawHalf<cuda::Float16> {};
template <>
struct Unconverted<cuda::BFloat16> : RawHalf<cuda::BFloat16> {};
template <class Element>
__device__ __forceinline__ Unconverted<Element> unconverted(Element v) {
  if constexpr (sizeof(Element) == 2) {
    return {{v.bits}};
  } else {
    return {v};
  }
}

// Algebra: Sums, or Best. kAhead: the number of groups whose logits are being loaded.
template <class Element, class Algebra, bool kBack, int kAhead = 3>
class Strip {
 public:
  using Real = cuda::Sum<Element>;
  using State = typename Algebra::State;
  using Pair = ctc::Pair<State>;

  // The strip's pairs begin at first_pair. It will go through frames first ... last - 1.
  __device__ __forceinline__ Strip(const Batch& batch, const Emissions<Element>& from,
                                   const Utterance& utterance, int b, int first_pair, int first, int last)
      : lane_(static_cast<int>(threadIdx.x) % cuda::kWarpSize),
        first_pair_(first_pair),
        pair_(first_pair + lane_),
        labels_(utterance.labels),
        first_(first),
        last_(last),
        frame_stride_(from.stride[1]) {
    const int k = kBack ? pair_ - 1 : pair_;
    const int label = utterance.label(batch, k);
    const int other = utterance.label(batch, kBack ? k + 1 : k - 1);
    skips_ = label != other;
    takes_border_ = kBack ? lane_ == kStrip - 1 || pair_ == labels_ : lane_ == 0;
    const Element* const base = from.data + b * from.stride[0];
    const int blank_column = from.by_label ? batch.labels : batch.blank;
    blank_ = base + blank_column * from.stride[2];
    label_ = blank_;
    blank_bias_ = Algebra::bias(from.prior ? from.prior[batch.blank] : Real(0));
    bias_ = static_cast<Bias>(CUDART_INF);  // weight 0
    if (label == kInvalidLabel) bias_ = static_cast<Bias>(CUDART_NAN);
    invalid_ = label == kInvalidLabel;
    const bool is_star = batch.star >= 0 && label == batch.star;
    if (label >= 0) {
      bias_ = Algebra::bias(from.prior && !is_star ? from.prior[label] : Real(0));
      if (from.by_label || !is_star) label_ = base + (from.by_label ? k : label) * from.stride[2];
    }
    const std::int64_t row = static_cast<std::int64_t>(b) * batch.frames;
    sums_ = from.sums ? from.sums + row : nullptr;
    star_ = is_star && !from.by_label ? from.stars + row : nullptr;
    states_ = {State::zero(), State::zero()};
    before_ = State::zero();
  }

  // Starts before the first frame.
  __device__ __forceinline__ void begin() {
    const bool has_end = kBack ? first_pair_ <= labels_ && labels_ < first_pair_ + kStrip : first_pair_ == 0;
    if (has_end) before_ = State::one();
  }
  // Starts from the states at a boundary, and the edge of the neighbouring strip.
  __device__ __forceinline__ void begin(const Pair* from) {
    if (pair_ <= labels_) states_ = from[pair_];
    const int border = kBack ? first_pair_ + kStrip : first_pair_ - 1;
    if (border >= 0 && border <= labels_) before_ = from[border].label;
  }
  __device__ __forceinline__ void save(Pair* to) const {
    if (pair_ <= labels_) to[pair_] = states_;
  }

  // Records each path's current state as its origin (forward alone).
  __device__ __forceinline__ void mark() {
    Algebra::mark(states_.blank, 2 * pair_);
    Algebra::mark(states_.label, 2 * pair_ + 1);
    Algebra::mark(before_, 2 * first_pair_ - 1);
  }

  // Starts to load the first kAhead groups. begin: the first frame of the first group.
  __device__ __forceinline__ void prefetch(int begin) {
#pragma unroll
    for (int k = 0; k < kAhead; ++k) fetch(k, begin + (kBack ? -k : k) * kGroup);
  }

  // Goes through the frames begin ... begin + 7 that are in first ... last - 1.
  //   edge(q)                         the border's state after frame begin + q; not read where there is none
  //   visit(q, blank, label)          states of frame begin + q without the frame's weights
  //   publish(q, pair)                states after frame begin + q
  template <class Edge, class Visit, class Publish>
  __device__ __forceinline__ void pass(int begin, const Edge& edge, const Visit& visit,
                                       const Publish& publish) {
    if (begin >= first_ && begin + kGroup <= last_) {
      pass_group<true>(begin, edge, visit, publish);
    } else {
      pass_group<false>(begin, edge, visit, publish);
    }
  }

  // Algebra's join of the two final states, after the last frame of a forward pass. Valid in the lane of pair
  // U.
  [[nodiscard]] __device__ __forceinline__ auto end() const {
    return Algebra::end(states_.blank, neighbours(), labels_);
  }
  [[nodiscard]] __device__ __forceinline__ bool has_end() const { return pair_ == labels_; }
  // Whether this lane has read a NaN, or has an invalid label.
  [[nodiscard]] __device__ __forceinline__ bool invalid() const { return invalid_; }
  // The sum of Algebra::log2_norm() over the frames, in every lane.
  [[nodiscard]] __device__ __forceinline__ double log2_norms() const { return cuda::reduce_sum(log2_norms_); }

 private:
  using Weight = typename Algebra::Weight;
  using Bias = typename Algebra::Bias;
  struct Frame {
    Unconverted<Element> blank;
    cuda::RowSum<Real> sum;
  };

  // kInside: all frames of the group are in first ... last - 1.
  template <bool kInside, class Edge, class Visit, class Publish>
  __device__ __forceinline__ void pass_group(int begin, const Edge& edge, const Visit& visit,
                                             const Publish& publish) {
    const Frame mine = frames_[0];  // lane q has frame begin + q
    Unconverted<Element> x[kGroup];
#pragma unroll
    for (int q = 0; q < kGroup; ++q) x[q] = x_[0][q];
    advance(begin);
    const bool exists = lane_ < kGroup && begin + lane_ >= first_ && begin + lane_ < last_;
    const Real shift = exists ? mine.sum.shift : Real(0);
    const Weight blank = Algebra::weight(mine.blank.value(false), shift, blank_bias_);
    if (exists) {
      log2_norms_ += Algebra::log2_norm(mine.sum);
      invalid_ |= Algebra::is_bad(blank);
    }
#pragma unroll
    for (int step = 0; step < kGroup; ++step) {
      const int q = kBack ? kGroup - 1 - step : step;
      if (!kInside && (begin + q < first_ || begin + q >= last_)) continue;
      const Weight by_blank = Algebra::of_lane(blank, q);
      const Weight by_label = Algebra::weight(x[q].value(star_ != nullptr), cuda::shuffle(shift, q), bias_);
      invalid_ |= Algebra::is_bad(by_label);
      const State neighbour = neighbours();
      before_ = edge(q);
      const State to_blank = Algebra::join(states_.blank, neighbour);
      const State to_label = Algebra::join(states_.label, states_.blank, neighbour, skips_);
      visit(q, to_blank, to_label);
      states_ = {Algebra::weighted(to_blank, by_blank), Algebra::weighted(to_label, by_label)};
      if constexpr (Algebra::kMarksFrames) mark();
      publish(q, states_);
    }
    states_ = {Algebra::at_group_end(states_.blank), Algebra::at_group_end(states_.label)};
    invalid_ |= takes_border_ && before_.is_nan();
  }

  [[nodiscard]] __device__ __forceinline__ State neighbours() const {
    const State neighbour = kBack ? cuda::shuffle_down(states_.label) : cuda::shuffle_up(states_.label);
    return takes_border_ ? before_ : neighbour;
  }

  __device__ __forceinline__ void advance(int begin) {
#pragma unroll
    for (int k = 0; k + 1 < kAhead; ++k) {
      frames_[k] = frames_[k + 1];
#pragma unroll
      for (int q = 0; q < kGroup; ++q) x_[k][q] = x_[k + 1][q];
    }
    fetch(kAhead - 1, begin + (kBack ? -kAhead : kAhead) * kGroup);
  }
  __device__ __forceinline__ void fetch(int k, int begin) {
    const int t = begin + lane_;
    if (lane_ < kGroup && t >= first_ && t < last_) {
      frames_[k].blank = unconverted(blank_[t * frame_stride_]);
      frames_[k].sum = sums_ ? sums_[t] : cuda::RowSum<Real>{0, 0};
    }
    if (begin >= first_ && begin + kGroup <= last_) {
      fetch_labels<true>(k, begin);
    } else {
      fetch_labels<false>(k, begin);
    }
  }
  template <bool kInside>
  __device__ __forceinline__ void fetch_labels(int k, int begin) {
    if (star_) {
#pragma unroll
      for (int q = 0; q < kGroup; ++q) {
        if (!kInside && (begin + q < first_ || begin + q >= last_)) continue;
        x_[k][q] = Unconverted<Element>{Unconverted<Element>::of_star(star_[begin + q])};
      }
      return;
    }
    const Element* from = label_ + begin * frame_stride_;
#pragma unroll
    for (int q = 0; q < kGroup; ++q, from += frame_stride_) {
      if (kInside || (begin + q >= first_ && begin + q < last_)) x_[k][q] = unconverted(*from);
    }
  }

  const int lane_, first_pair_, pair_, labels_, first_, last_;
  const std::int64_t frame_stride_;
  const Element* blank_;
  const Element* label_;
  const Real* star_;
  const cuda::RowSum<Real>* sums_;
  Bias bias_, blank_bias_;
  bool skips_, takes_border_, invalid_;
  double log2_norms_ = 0;
  Pair states_;
  State before_;  // the neighbouring strip's edge after the previous frame
  Frame frames_[kAhead] = {};
  Unconverted<Element> x_[kAhead][kGroup] = {};
};

}  // namespace warpalign::detail::ctc
