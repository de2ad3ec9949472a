// Sinkhorn on points.
#include "transport/cuda/kernels.cuh"
#include "transport/cuda/points.cuh"

namespace warpalign::detail::transport {
namespace {

template <class Real>
constexpr SinkhornKernel<Real> kKernel = entry<SolveKernel<Points<Real>>>();

}  // namespace

template <>
const SinkhornKernel<float>& points_kernel<float>() {
  return kKernel<float>;
}
template <>
const SinkhornKernel<double>& points_kernel<double>() {
  return kKernel<double>;
}

}  // namespace warpalign::detail::transport
