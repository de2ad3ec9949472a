// Posteriors of a segment's frames, a few strips at a time: alpha forward from the segment's start, stored in
// shared memory, then beta backward from its end,
//
//   g[t,s] = alpha[t,s] (beta[t,s] without the frame's weight) / Z
//
// in units of 2^exponent of Z: up to rounding, the posteriors of a frame sum to the mantissa of Z. Division
// by their actual sum removes the rounding errors that all states of a frame share.
//
// Between two barriers of the block a warp owns one strip. Lane l of strip j owns pair p = 32 j + l: the
// blank before label p, and (backward) label p - 1, whose alpha lane l - 1 has computed.
#pragma once

#include "ctc/cuda/gradient/memory.cuh"
#include "ctc/cuda/lattice/strip.cuh"

namespace warpalign::detail::ctc {

// a b / 2^exponent.
template <class Real>
__device__ __forceinline__ Real posterior(const State<Real>& a, const State<Real>& b, int exponent) {
  const int shifted = cuda::add_max(a.exponent, -exponent, kNoWeight);
  return a.mantissa * b.mantissa * power_of_bits(cuda::add_max(shifted + b.exponent, kBias<Real>, 0), Real());
}

template <class Element>
class Segment {
 public:
  using Real = cuda::Sum<Element>;
  static constexpr int kWords = State<Real>::kWords;

  __device__ __forceinline__ Segment(const SegmentParams<Element>& p, int b, int number)
      : p_(p),
        b_(b),
        number_(number),
        lane_(static_cast<int>(threadIdx.x) % cuda::kWarpSize),
        first_(number * kSegment),
        utterance_(utterance_at(p.batch, b)),
        last_(min(first_ + kSegment, utterance_.frames)),
        strips_(strips_of(utterance_.labels)),
        exponent_(p.verdicts[b].exponent) {}

  [[nodiscard]] __device__ __forceinline__ int first() const { return first_; }
  [[nodiscard]] __device__ __forceinline__ int frames() const {
    return last_ - first_;
  }  // true frames, without padding
  [[nodiscard]] __device__ __forceinline__ int strips() const { return strips_; }
  [[nodiscard]] __device__ __forceinline__ const Utterance& utterance() const { return utterance_; }

  // This warp computes the posteriors of strip `index`, and stores them in `memory`.
  __device__ __forceinline__ void solve(int index, StripMemory<Real>& memory) const {
    Fetcher<Element, Sums<Real>, Labels::kOfBoth> fetcher(p_.batch, p_.from, utterance_, b_, index * kStrip,
                                                          last_);
    typename decltype(fetcher)::Loaded groups[kSegmentGroups] = {};
#pragma unroll
    for (int k = 0; k < kSegmentGroups; ++k) fetcher.load(first_ + k * kGroup, groups[k]);
    const State<Real> left = border(false, index - 1), right = border(true, index);
    Strip<Sums<Real>, false> forward(p_.batch, utterance_, index * kStrip);
    if (first_ == 0) {
      forward.begin();
    } else {
      forward.begin(p_.checkpoints.at(b_, false, number_));
    }
    Strip<Sums<Real>, true> backward(p_.batch, utterance_, index * kStrip);
    if (last_ == utterance_.frames) {
      backward.begin();
    } else {
      backward.begin(p_.checkpoints.at(b_, true, number_ + 1));
    }
#pragma unroll
    for (int k = 0; k < kSegmentGroups; ++k) fetcher.store(first_ + k * kGroup, groups[k], memory.weights[k]);
    if (lane_ < kSegment) memory.label[lane_][0] = memory.edges[lane_] = left;
    __syncwarp();
    pass(forward, memory);
    __syncwarp();
    if (lane_ < kSegment) memory.edges[lane_] = right;
    __syncwarp();
    pass(backward, index * kStrip + lane_ <= utterance_.labels, memory);
  }

 private:
  // The edge of strip `strip` after frame first_ + f, in lane f.
  __device__ __forceinline__ State<Real> border(bool back, int strip) const {
    cuda::Word words[kWords];
    const bool exists = strip >= 0 && strip + 1 < strips_ && lane_ < last_ - first_;
    if (!exists) return State<Real>::zero();
    const cuda::Word* const from =
        p_.edges.at(b_, back, strip) + static_cast<std::int64_t>(first_ + lane_) * kWords;
#pragma unroll
    for (int k = 0; k < kWords; ++k) words[k] = from[k];
    return State<Real>::of(words);
  }

  __device__ __forceinline__ void pass(Strip<Sums<Real>, false>& forward, StripMemory<Real>& memory) const {
#pragma unroll 1
    for (int f = 0; f < last_ - first_; f += kGroup) {
      forward.pass(
          memory.weights[f / kGroup], memory.edges + f, last_ - first_ - f,
          [](int, const State<Real>&, const State<Real>&) {},
          [&](int q, const Pair<State<Real>>& pair) {
            memory.label[f + q][lane_ + 1] = pair.label;
            memory.blank[f + q][lane_] = pair.blank;
          });
    }
  }

  // exists: the lane's pair does.
  __device__ __forceinline__ void pass(Strip<Sums<Real>, true>& backward, bool exists,
                                       StripMemory<Real>& memory) const {
#pragma unroll 1
    for (int f = (last_ - first_ - 1) / kGroup * kGroup; f >= 0; f -= kGroup) {
      backward.pass(
          memory.weights[f / kGroup], memory.edges + f, last_ - first_ - f,
          [&](int q, const State<Real>& blank, const State<Real>& label) {
            const Real of_blank = posterior(memory.blank[f + q][lane_], blank, exponent_);
            const Real of_label = posterior(memory.label[f + q][lane_], label, exponent_);
            memory.blank_posterior(f + q, lane_) = exists ? of_blank : Real(0);
            memory.label_posterior(f + q, lane_) = exists ? of_label : Real(0);
          },
          [](int, const Pair<State<Real>>&) {});
    }
  }

  const SegmentParams<Element>& p_;
  const int b_, number_, lane_;
  const int first_;
  const Utterance utterance_;
  const int last_, strips_, exponent_;
};

}  // namespace warpalign::detail::ctc
