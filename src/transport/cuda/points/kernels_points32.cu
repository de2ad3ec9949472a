// Sinkhorn on points, float32.
#include "transport/cuda/kernels.cuh"
#include "transport/cuda/point_sums.cuh"

namespace warpalign::detail::transport {
namespace {

constexpr SinkhornKernel<float> kKernel = points_entry<float>();

}  // namespace

template <>
const SinkhornKernel<float>& points_kernel<float>() {
  return kKernel;
}

}  // namespace warpalign::detail::transport
