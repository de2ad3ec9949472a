// Sinkhorn on float64 costs that are given.
#include "transport/cuda/kernels.cuh"

namespace warpalign::detail::transport {
namespace {

constexpr SinkhornKernel<double> kFew = entry<Dense<double, 4>>("few columns");
constexpr SinkhornKernel<double> kMany = entry<Dense<double, 12>>("many columns");

}  // namespace

template <>
const SinkhornKernel<double>& dense_kernel_for<double>(int columns) {
  return columns <= 32 * kFew.columns_of_thread ? kFew : kMany;
}

}  // namespace warpalign::detail::transport
