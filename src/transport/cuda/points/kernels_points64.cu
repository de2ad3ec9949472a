// Sinkhorn on points, float64.
#include "transport/cuda/points/point_sums.cuh"
#include "transport/cuda/solve/kernels.cuh"

namespace warpalign::detail::transport {
namespace {

constexpr SinkhornKernel<double> kKernel = points_entry<double>();

}  // namespace

template <>
const SinkhornKernel<double>& points_kernel<double>() {
  return kKernel;
}

}  // namespace warpalign::detail::transport
