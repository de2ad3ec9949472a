#include "soft_dtw/cuda/unit_steps.h"

#include <algorithm>
#include <cfloat>

#include "cuda/check.h"
#include "cuda/math.cuh"

namespace warpalign::softdtw {
namespace {

constexpr int kThreads = 256;
constexpr int kMostBlocks = 1 << 20;

__device__ double largest_in_warp(double v) {
  for (int bit = 1; bit < cuda::kWarpSize; bit *= 2) v = fmax(v, __shfl_xor_sync(cuda::kFullWarp, v, bit));
  return v;
}
__device__ double sum_over_warp(double v) {
  for (int bit = 1; bit < cuda::kWarpSize; bit *= 2) v += __shfl_xor_sync(cuda::kFullWarp, v, bit);
  return v;
}

// A step of the series, or nothing where it is missing or behind the true length.
template <class In>
struct Step {
  const In* data;
  std::int64_t stride;
  double length;  // 0 where there is nothing

  __device__ Step(const UnitSteps& side, std::int64_t row, int lane) {
    const std::int64_t b = row / side.length;
    const int i = static_cast<int>(row % side.length);
    data = static_cast<const In*>(side.series.data) + b * side.series.stride[0] + i * side.series.stride[1];
    stride = side.series.stride[2];
    length = 0;
    if ((side.lengths && i >= min(max(side.lengths[b], 1), side.length)) || (side.mask && side.mask[row])) {
      return;
    }
    double largest = 0;
    for (int d = lane; d < side.dim; d += cuda::kWarpSize) largest = fmax(largest, fabs(at(d)));
    largest = largest_in_warp(largest);
    constexpr double kLeast = sizeof(In) == 4 ? FLT_MIN : DBL_MIN;
    const double unit = largest < kLeast ? 1.0 : largest;
    double squares = 0;
    for (int d = lane; d < side.dim; d += cuda::kWarpSize) squares += at(d) / unit * (at(d) / unit);
    squares = sum_over_warp(squares);
    if (largest >= kLeast || isnan(squares)) length = unit * sqrt(squares);
  }
  [[nodiscard]] __device__ double at(int d) const { return static_cast<double>(data[d * stride]); }
  [[nodiscard]] __device__ In unit(int d) const { return static_cast<In>(at(d) / length); }
};

// One warp per step.
template <class In, class Act>
__device__ void for_each_step(const UnitSteps& side, const Act& act) {
  const int lane = threadIdx.x % cuda::kWarpSize;
  const std::int64_t rows = static_cast<std::int64_t>(side.batch) * side.length;
  const std::int64_t warps = static_cast<std::int64_t>(gridDim.x) * (blockDim.x / cuda::kWarpSize);
  std::int64_t row =
      static_cast<std::int64_t>(blockIdx.x) * (blockDim.x / cuda::kWarpSize) + threadIdx.x / cuda::kWarpSize;
  for (; row < rows; row += warps) act(row, lane, Step<In>(side, row, lane));
}

template <class In>
__global__ void unit_steps_kernel(const UnitSteps side) {
  const int features = unit_features(side.dim);
  for_each_step<In>(side, [&](std::int64_t row, int lane, const Step<In>& step) {
    In* const to = static_cast<In*>(side.units) + row * features;
    const int own = side.dim + side.is_y;
    for (int d = lane; d < features; d += cuda::kWarpSize) {
      const bool nowhere = step.length == 0;
      to[d] = d < side.dim ? (nowhere ? In(0) : step.unit(d)) : (nowhere && d == own ? In(1) : In(0));
    }
  });
}

template <class In>
__global__ void unit_gradient_kernel(const UnitSteps side, const In* unit_gradient, In* gradient) {
  const int features = unit_features(side.dim);
  for_each_step<In>(side, [&](std::int64_t row, int lane, const Step<In>& step) {
    const In* const from = unit_gradient + row * features;
    In* const to = gradient + row * side.dim;
    double along = 0;
    for (int d = lane; step.length != 0 && d < side.dim; d += cuda::kWarpSize) {
      along += static_cast<double>(from[d]) * static_cast<double>(step.unit(d));
    }
    along = sum_over_warp(along);
    const double factor = 0.5 / step.length;
    for (int d = lane; d < side.dim; d += cuda::kWarpSize) {
      to[d] = step.length == 0 ? In(0) : static_cast<In>((from[d] - along * step.unit(d)) * factor);
    }
  });
}

int blocks_for(const UnitSteps& side) {
  const std::int64_t rows = static_cast<std::int64_t>(side.batch) * side.length;
  const std::int64_t warps = kThreads / cuda::kWarpSize;
  return static_cast<int>(std::min<std::int64_t>((rows + warps - 1) / warps, kMostBlocks));
}

}  // namespace

Status make_unit_steps(const UnitSteps& side, cudaStream_t stream) {
  if (side.dtype == DType::kFloat32) {
    unit_steps_kernel<float><<<blocks_for(side), kThreads, 0, stream>>>(side);
  } else {
    unit_steps_kernel<double><<<blocks_for(side), kThreads, 0, stream>>>(side);
  }
  return cuda::to_status(cudaGetLastError());
}

Status from_unit_gradient(const UnitSteps& side, const void* unit_gradient, void* gradient,
                          cudaStream_t stream) {
  if (side.dtype == DType::kFloat32) {
    unit_gradient_kernel<<<blocks_for(side), kThreads, 0, stream>>>(
        side, static_cast<const float*>(unit_gradient), static_cast<float*>(gradient));
  } else {
    unit_gradient_kernel<<<blocks_for(side), kThreads, 0, stream>>>(
        side, static_cast<const double*>(unit_gradient), static_cast<double*>(gradient));
  }
  return cuda::to_status(cudaGetLastError());
}

}  // namespace warpalign::softdtw
