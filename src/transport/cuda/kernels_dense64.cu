// Sinkhorn on float64 costs that are given.
#include <iterator>

#include "transport/cuda/dense.cuh"
#include "transport/cuda/kernels.cuh"

namespace warpalign::detail::transport {
namespace {

// The kernels, in order of rising numbers of columns.
constexpr SinkhornKernel<double> kByColumns[] = {
    entry<SolveKernel<Dense<double, 4, 32>>>(Dense<double, 4, 32>::kShape),
    entry<SolveKernel<Dense<double, 4, 128>>>(Dense<double, 4, 128>::kShape),
    entry<SolveKernel<Dense<double, 16, 384>>>(Dense<double, 16, 384>::kShape),
};

}  // namespace

template <>
const SinkhornKernel<double>& dense_kernel_for<double>(int columns) {
  const SinkhornKernel<double>* kernel = kByColumns;
  while (kernel->shape.columns() < columns && kernel + 1 < std::end(kByColumns)) ++kernel;
  return *kernel;
}

}  // namespace warpalign::detail::transport
