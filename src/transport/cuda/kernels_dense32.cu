// Sinkhorn on float32 costs that are given.
#include "transport/cuda/kernels.cuh"

namespace warpalign::detail::transport {
namespace {

constexpr SinkhornKernel<float> kFew = entry<Dense<float, 8>>("few columns");
constexpr SinkhornKernel<float> kMany = entry<Dense<float, 24>>("many columns");

}  // namespace

template <>
const SinkhornKernel<float>& dense_kernel_for<float>(int columns) {
  return columns <= 32 * kFew.columns_of_thread ? kFew : kMany;
}

}  // namespace warpalign::detail::transport
