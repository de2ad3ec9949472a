#include <algorithm>
#include <cfloat>

#include "cuda/rows/ragged.h"
#include "cuda/threads/warp.cuh"
#include "soft_dtw/cuda/call/kernel_list.cuh"
#include "soft_dtw/cuda/series/unit_steps.h"

namespace warpalign::detail::soft_dtw {
namespace {

constexpr int kThreads = 256;
constexpr int kMostBlocks = 1 << 20;

// One step of the series. It is empty if the step is missing or after the true length.
template <class In>
struct Step {
  const In* data;
  std::int64_t stride;
  const In* tangents;
  std::int64_t tangent_stride;
  double length;  // 0: the step is empty

  __device__ Step(const UnitSteps& side, std::int64_t row, int lane) {
    const std::int64_t b = row / side.length;
    const int i = static_cast<int>(row % side.length);
    data = static_cast<const In*>(side.series.data) + b * side.series.stride[0] + i * side.series.stride[1];
    stride = side.series.stride[2];
    tangents = static_cast<const In*>(side.tangents.data);
    if (tangents) tangents += b * side.tangents.stride[0] + i * side.tangents.stride[1];
    tangent_stride = side.tangents.stride[2];
    length = 0;
    if (i >= cuda::true_length(side.lengths, b, side.length) || (side.mask && side.mask[row])) return;
    double largest = 0;
    for (int d = lane; d < side.dim; d += cuda::kWarpSize) largest = fmax(largest, fabs(at(d)));
    largest = cuda::reduce_max(largest);
    constexpr double kLeast = sizeof(In) == 4 ? FLT_MIN : DBL_MIN;
    const double unit = largest < kLeast ? 1.0 : largest;
    double squares = 0;
    for (int d = lane; d < side.dim; d += cuda::kWarpSize) squares += at(d) / unit * (at(d) / unit);
    squares = cuda::reduce_sum(squares);
    if (largest >= kLeast || isnan(squares)) length = unit * sqrt(squares);
  }
  [[nodiscard]] __device__ double at(int d) const { return static_cast<double>(data[d * stride]); }
  [[nodiscard]] __device__ In unit(int d) const { return static_cast<In>(at(d) / length); }
  [[nodiscard]] __device__ double tangent(int d) const {
    return tangents ? static_cast<double>(tangents[d * tangent_stride]) : 0.0;
  }
  // The sum of of(d) over all features d, by the whole warp; 0 for an empty step.
  template <class Of>
  [[nodiscard]] __device__ double sum(int dim, int lane, const Of& of) const {
    double total = 0;
    for (int d = lane; length != 0 && d < dim; d += cuda::kWarpSize) total += of(d);
    return cuda::reduce_sum(total);
  }
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
    if (!side.unit_tangents) return;
    In* const tangent = static_cast<In*>(side.unit_tangents) + row * features;
    const double along = step.sum(side.dim, lane, [&](int d) { return step.unit(d) * step.tangent(d); });
    for (int d = lane; d < features; d += cuda::kWarpSize) {
      tangent[d] = d < side.dim && step.length != 0
                       ? static_cast<In>((step.tangent(d) - step.unit(d) * along) / step.length)
                       : In(0);
    }
  });
}

template <class In>
__global__ void unit_gradient_kernel(const UnitSteps side, const In* unit_gradient, In* gradient) {
  const int features = unit_features(side.dim);
  for_each_step<In>(side, [&](std::int64_t row, int lane, const Step<In>& step) {
    const In* const from = unit_gradient + row * features;
    In* const to = gradient + row * side.dim;
    const double along =
        step.sum(side.dim, lane, [&](int d) { return static_cast<double>(from[d]) * step.unit(d); });
    const double factor = 0.5 / step.length;
    for (int d = lane; d < side.dim; d += cuda::kWarpSize) {
      to[d] = step.length == 0 ? In(0) : static_cast<In>((from[d] - along * step.unit(d)) * factor);
    }
  });
}

// The derivative along the tangents of (g - <u, g> u) / |x|, with u = x / |x| and g the gradient with respect
// to u. Names that end in _dot are derivatives along the tangents.
template <class In>
__global__ void unit_tangent_kernel(const UnitSteps side, const In* unit_gradient,
                                    const In* unit_gradient_dot, In* tangent) {
  const int features = unit_features(side.dim);
  for_each_step<In>(side, [&](std::int64_t row, int lane, const Step<In>& step) {
    const In* const g = unit_gradient + row * features;
    const In* const g_dot = unit_gradient_dot + row * features;
    const In* const u_dot = static_cast<const In*>(side.unit_tangents) + row * features;
    const int dim = side.dim;
    const double length_dot =
        step.sum(dim, lane, [&](int d) { return step.unit(d) * step.tangent(d); }) / step.length;
    const double along = step.sum(dim, lane, [&](int d) { return static_cast<double>(g[d]) * step.unit(d); });
    const double along_dot = step.sum(dim, lane, [&](int d) {
      return static_cast<double>(g_dot[d]) * step.unit(d) + static_cast<double>(g[d]) * u_dot[d];
    });
    In* const to = tangent + row * dim;
    for (int d = lane; d < dim; d += cuda::kWarpSize) {
      const double u = step.unit(d);
      const double orthogonal = g[d] - along * u;
      const double orthogonal_dot = g_dot[d] - along_dot * u - along * u_dot[d];
      to[d] = step.length == 0
                  ? In(0)
                  : static_cast<In>(0.5 * (orthogonal_dot - orthogonal * length_dot) / step.length);
    }
  });
}

template <class In>
inline const cuda::Kernel kUnitSteps{kKernels, "unit_steps", cuda::type_name<In>(), unit_steps_kernel<In>};
template <class In>
inline const cuda::Kernel kUnitGradient{kKernels, "unit_gradient", cuda::type_name<In>(),
                                        unit_gradient_kernel<In>};
template <class In>
inline const cuda::Kernel kUnitTangent{kKernels, "unit_tangent", cuda::type_name<In>(),
                                       unit_tangent_kernel<In>};

int blocks_for(const UnitSteps& side) {
  const std::int64_t rows = static_cast<std::int64_t>(side.batch) * side.length;
  return static_cast<int>(
      std::min<std::int64_t>(cuda::div_up(rows, kThreads / cuda::kWarpSize), kMostBlocks));
}

// Calls act(In{}) with the type of the elements.
template <class Act>
Status in_its_type(const UnitSteps& side, const Act& act) {
  return side.dtype == DType::kFloat32 ? act(float{}) : act(double{});
}

}  // namespace

Status make_unit_steps(const UnitSteps& side, cudaStream_t stream) {
  return in_its_type(side, [&]<class In>(In) {
    return cuda::launch(kUnitSteps<In>, {blocks_for(side), kThreads, 0, stream}, side);
  });
}

Status from_unit_gradient(const UnitSteps& side, const void* unit_gradient, void* gradient,
                          cudaStream_t stream) {
  return in_its_type(side, [&]<class In>(In) {
    return cuda::launch(kUnitGradient<In>, {blocks_for(side), kThreads, 0, stream}, side,
                        static_cast<const In*>(unit_gradient), static_cast<In*>(gradient));
  });
}

Status from_unit_tangent(const UnitSteps& side, const void* unit_gradient, const void* unit_gradient_tangent,
                         void* tangent, cudaStream_t stream) {
  return in_its_type(side, [&]<class In>(In) {
    return cuda::launch(kUnitTangent<In>, {blocks_for(side), kThreads, 0, stream}, side,
                        static_cast<const In*>(unit_gradient), static_cast<const In*>(unit_gradient_tangent),
                        static_cast<In*>(tangent));
  });
}

}  // namespace warpalign::detail::soft_dtw
