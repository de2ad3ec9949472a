// Sinkhorn on given costs, float64.
#include <iterator>

#include "transport/cuda/costs/cluster_rows.cuh"
#include "transport/cuda/kept/long_rows.cuh"
#include "transport/cuda/solve/kernels.cuh"

namespace warpalign::detail::transport {
namespace {

using Long = LongKept<Dense<double, 16, 384>>;

constexpr SinkhornKernel<double> kLong = entry<SolveKernel<Long>>(Long::kShape);
// The kernels, by ascending number of columns.
constexpr SinkhornKernel<double> kByColumns[] = {
    entry<SolveKernel<Dense<double, 4, 128>>>(Dense<double, 4, 128>::kShape),
    kLong,
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
const SinkhornKernel<double>& long_rows_kernel<double>() {
  return kLong;
}

template <>
const SinkhornKernel<double>* dense_kernel_for<double>(int columns, bool streams, RowThreads threads) {
  const int most = kOfTwoBlocks.cluster * kOfTwoBlocks.shape.columns();
  const bool in_cluster = streams && columns > kOfTwoBlocks.shape.columns() && columns <= most;
  if (threads == RowThreads::kCluster) return in_cluster ? &kOfTwoBlocks : nullptr;
  if (threads == RowThreads::kWarp) return nullptr;
  if (in_cluster && threads == RowThreads::kAny) return &kOfTwoBlocks;
  const SinkhornKernel<double>* kernel = kByColumns;
  while (kernel->shape.columns() < columns && kernel + 1 < std::end(kByColumns)) ++kernel;
  return kernel;
}

}  // namespace warpalign::detail::transport
