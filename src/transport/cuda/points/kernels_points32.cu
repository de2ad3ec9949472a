// Sinkhorn on points, float32.
#include "transport/cuda/points/point_sums.cuh"
#include "transport/cuda/solve/kernels.cuh"

namespace warpalign::detail::transport {
namespace {

constexpr SinkhornKernel<float> kKernel = points_entry<float>();

}  // namespace

template <>
const SinkhornKernel<float>& points_kernel<float>() {
  return kKernel;
}

}  // namespace warpalign::detail::transport
