// The steps of a lane that are cells within the band, for sources whose costs do not mark other cells.
#pragma once

#include "soft_dtw/cuda/sweep/wave.cuh"

namespace warpalign::detail::soft_dtw {

// Steps begin <= step < end of a lane.
struct Steps {
  int begin;
  int end;
};

// The rows begin <= i < end, counted in this lane's steps.
template <class Wave>
__device__ __forceinline__ Steps rows_as_steps(const Wave& w, int begin, int end) {
  return {begin + w.shift + w.lane, max(begin, end) + w.shift + w.lane};
}

// One bit for each step of the group: whether it is one of `steps`.
__device__ __forceinline__ unsigned steps_of_group(Steps steps, int group) {
  const int first = group * kGroup;
  const int begin = min(max(steps.begin - first, 0), kGroup);
  const int end = min(max(steps.end - first, 0), kGroup);
  return (1u << end) - (1u << begin);
}

// The cells of a lane's W columns.
template <int W>
class BandSteps {
 public:
  // column: the lane's first one.
  template <class Wave>
  __device__ __forceinline__ void begin_strip(const Wave& w, int column) {
#pragma unroll
    for (int k = 0; k < W; ++k) {
      const IndexRange rows = rows_in_band(w, column + k);
      rows_[k] = rows_as_steps(w, rows.begin, rows.end);
    }
  }
  __device__ __forceinline__ void begin_group(int group) {
#pragma unroll
    for (int k = 0; k < W; ++k) allowed_[k] = steps_of_group(rows_[k], group);
  }
  // Whether step q of the group, column k of the lane, is in the band.
  [[nodiscard]] __device__ __forceinline__ bool hold(int q, int k) const { return allowed_[k] >> q & 1; }

 private:
  Steps rows_[W];
  unsigned allowed_[W];
};

}  // namespace warpalign::detail::soft_dtw
