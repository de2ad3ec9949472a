// Posteriors of labels. A block owns a segment: it writes the posteriors of the segment's frames, and divides
// each frame's by their sum afterwards.
#pragma once

#include "ctc/cuda/gradient/segment.cuh"
#include "cuda/launch/shared.cuh"

namespace warpalign::detail::ctc {

template <class Element>
class LabelPosteriors {
  using Real = cuda::Sum<Element>;

 public:
  __device__ __forceinline__ explicit LabelPosteriors(const PosteriorParams<Element>& p)
      : p_(p),
        batch_(p.segment.batch),
        b_(static_cast<int>(blockIdx.x) / p.segment.segments),
        warps_(static_cast<int>(blockDim.x) / cuda::kWarpSize),
        warp_(cuda::shuffle(static_cast<int>(threadIdx.x) / cuda::kWarpSize, 0)),
        lane_(static_cast<int>(threadIdx.x) % cuda::kWarpSize),
        segment_(p.segment, b_, p.segment.first_segment + static_cast<int>(blockIdx.x) % p.segment.segments),
        sums_(reinterpret_cast<Real*>(cuda::dynamic_shared())),
        strips_(reinterpret_cast<StripMemory<Real>*>(sums_ + kSegment)) {}

  __device__ __forceinline__ void run() const {
    const int outcome = p_.segment.verdicts[b_].outcome;
    const bool live = segment_.frames() > 0 && outcome == kPaths;
    if (live) write_rounds();
    const int rows = min(kSegment, batch_.frames - segment_.first());
    const int labels = true_length(batch_.target_lengths, b_, batch_.extent);
    for (int f = warp_; f < rows; f += warps_) {
      const bool counts = f < segment_.frames();
      const Real value = counts && outcome == kInvalid ? static_cast<Real>(CUDART_NAN) : Real(0);
      Real* const to = row_of(f);
      for (int k = lane_; k < batch_.extent; k += cuda::kWarpSize) {
        const bool is_label = k < labels;
        if (live && counts && is_label) {
          to[k] /= sums_[f];
        } else {
          to[k] = is_label ? value : Real(0);
        }
      }
    }
  }

 private:
  [[nodiscard]] __device__ __forceinline__ Real* row_of(int f) const {
    return p_.labels + (static_cast<std::int64_t>(b_) * batch_.frames + segment_.first() + f) * batch_.extent;
  }

  // Writes posteriors that are not divided yet. Warp f % warps_ writes frame f in every round.
  __device__ __forceinline__ void write_rounds() const {
    if (threadIdx.x < kSegment) sums_[threadIdx.x] = 0;
    for (int round = 0; round < segment_.strips(); round += warps_) {
      if (round + warp_ < segment_.strips()) segment_.solve(round + warp_, strips_[warp_]);
      __syncthreads();
      const int strips = min(warps_, segment_.strips() - round);
      for (int f = warp_; f < segment_.frames(); f += warps_) {
        Real all = 0;
        for (int j = 0; j < strips; ++j) {
          const int k = (round + j) * kStrip + lane_ - 1;
          const Real label = strips_[j].label_posterior(f, lane_);
          all += strips_[j].blank_posterior(f, lane_) + label;
          if (k >= 0 && k < segment_.utterance().labels) row_of(f)[k] = label;
        }
        all = cuda::reduce_sum(all);
        if (lane_ == 0) sums_[f] += all;
      }
      __syncthreads();
    }
  }

  const PosteriorParams<Element>& p_;
  const Batch& batch_;
  const int b_, warps_, warp_, lane_;
  const Segment<Element> segment_;
  Real* const sums_;  // [frame]: sum of all posteriors
  StripMemory<Real>* const strips_;
};

template <class Element>
__global__ void __launch_bounds__(kSegmentWarps * 32, sizeof(cuda::Sum<Element>) == 4 ? 2 : 1)
    posteriors_kernel(const __grid_constant__ PosteriorParams<Element> p) {
  LabelPosteriors<Element>(p).run();
}

}  // namespace warpalign::detail::ctc
