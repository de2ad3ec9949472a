// Sinkhorn on float64 costs that are given.
#include <iterator>

#include "transport/cuda/costs/cluster_rows.cuh"
#include "transport/cuda/solve/kernels.cuh"

namespace warpalign::detail::transport {
namespace {

// The kernels, in order of rising numbers of columns.
constexpr SinkhornKernel<double> kByColumns[] = {
    entry<SolveKernel<Dense<double, 4, 32>>>(Dense<double, 4, 32>::kShape),
    entry<SolveKernel<Dense<double, 4, 128>>>(Dense<double, 4, 128>::kShape),
    entry<SolveKernel<Dense<double, 16, 384>>>(Dense<double, 16, 384>::kShape),
};
constexpr SinkhornKernel<double> of_two_blocks() {
  SinkhornKernel<double> kernel =
      entry<SolveKernel<ClusterRows<16, 384, 2, 2>>>(ClusterRows<16, 384, 2, 2>::kShape);
  kernel.cluster = 2;
  return kernel;
}
constexpr SinkhornKernel<double> kOfTwoBlocks = of_two_blocks();

}  // namespace

template <>
const SinkhornKernel<double>& dense_kernel_for<double>(int columns, bool streams) {
  const int most = kOfTwoBlocks.cluster * kOfTwoBlocks.shape.columns();
  if (streams && columns > kOfTwoBlocks.shape.columns() && columns <= most) return kOfTwoBlocks;
  const SinkhornKernel<double>* kernel = kByColumns;
  while (kernel->shape.columns() < columns && kernel + 1 < std::end(kByColumns)) ++kernel;
  return *kernel;
}

}  // namespace warpalign::detail::transport
