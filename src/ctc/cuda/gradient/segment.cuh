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

#include "ctc/cuda/gradient/params.cuh"
#include "ctc/cuda/lattice/strip.cuh"

namespace warpalign::detail::ctc {

// A warp's shared memory.
template <class Real>
struct StripMemory {
  // alpha, by frame. label[f][l] is of the strip's pair l - 1, so that label[f][0] is the state left of the
  // strip.
  State<Real> label[kSegment][kStrip + 1];
  // alpha of blanks, later overwritten by the posteriors of the lane's blank and label.
  State<Real> blank[kSegment][kStrip];
  unsigned same[kStrip];  // mask of the lanes whose label has the same slot; 0: no label
  int slot[kStrip];

  __device__ __forceinline__ Real& blank_posterior(int f, int lane) { return part(f, lane)[0]; }
  __device__ __forceinline__ Real& label_posterior(int f, int lane) { return part(f, lane)[1]; }

 private:
  __device__ __forceinline__ Real* part(int f, int lane) { return reinterpret_cast<Real*>(&blank[f][lane]); }
};

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
    forward(index, memory);
    __syncwarp();
    backward(index, memory);
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

  __device__ __forceinline__ void forward(int index, StripMemory<Real>& memory) const {
    Strip<Element, Sums<Real>, false, 2> strip(p_.batch, p_.from, utterance_, b_, index * kStrip, first_,
                                               last_);
    if (first_ == 0) {
      strip.begin();
    } else {
      strip.begin(p_.checkpoints.at(b_, false, number_));
    }
    const State<Real> left = border(false, index - 1);
    strip.prefetch(first_);
    if (lane_ < kSegment) memory.label[lane_][0] = left;
#pragma unroll 1
    for (int begin = first_; begin < last_; begin += kGroup) {
      const int f = begin - first_;
      strip.pass(
          begin, [&](int q) { return cuda::shuffle(left, f + q); },
          [](int, const State<Real>&, const State<Real>&) {},
          [&](int q, const Pair<State<Real>>& pair) {
            memory.label[f + q][lane_ + 1] = pair.label;
            memory.blank[f + q][lane_] = pair.blank;
          });
    }
  }

  __device__ __forceinline__ void backward(int index, StripMemory<Real>& memory) const {
    Strip<Element, Sums<Real>, true, 2> strip(p_.batch, p_.from, utterance_, b_, index * kStrip, first_,
                                              last_);
    if (last_ == utterance_.frames) {
      strip.begin();
    } else {
      strip.begin(p_.checkpoints.at(b_, true, number_ + 1));
    }
    const State<Real> right = border(true, index);
    const int last_group = (last_ - 1) / kGroup * kGroup;
    strip.prefetch(last_group);
    const bool exists = index * kStrip + lane_ <= utterance_.labels;
#pragma unroll 1
    for (int begin = last_group; begin >= first_; begin -= kGroup) {
      const int f = begin - first_;
      strip.pass(
          begin, [&](int q) { return cuda::shuffle(right, f + q); },
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
