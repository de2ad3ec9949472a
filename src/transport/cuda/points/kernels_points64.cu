// Sinkhorn on points, float64.
#include "transport/cuda/kernels.cuh"
#include "transport/cuda/point_sums.cuh"

namespace warpalign::detail::transport {
namespace {

constexpr SinkhornKernel<double> kKernel = points_entry<double>();

}  // namespace

template <>
const SinkhornKernel<double>& points_kernel<double>() {
  return kKernel;
}

}  // namespace warpalign::detail::transport
