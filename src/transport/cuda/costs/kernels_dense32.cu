// Sinkhorn on given costs, float32.
#include "transport/cuda/costs/streamed_rows.cuh"
#include "transport/cuda/kept/long_rows.cuh"
#include "transport/cuda/solve/kernels.cuh"

namespace warpalign::detail::transport {
namespace {

using Medium = LongKept<StreamedRows<24, 256, 6>>;
using Long = StreamedRows<48, 256, 3>;

constexpr SinkhornKernel<float> kMedium = entry<SolveKernel<Medium>>(Medium::kShape);
// The kernels, by ascending number of columns.
constexpr SinkhornKernel<float> kByColumns[] = {
    entry<SolveKernel<Dense<float, 8, 32>>>(Dense<float, 8, 32>::kShape),
    entry<SolveKernel<Dense<float, 8, 128>>>(Dense<float, 8, 128>::kShape),
    kMedium,
    entry<SolveKernel<Long>>(Long::kShape),
};

}  // namespace

template <>
const SinkhornKernel<float>& long_rows_kernel<float>() {
  return kMedium;
}

template <>
const SinkhornKernel<float>* dense_kernel_for<float>(int columns, bool streams, RowThreads threads) {
  if (threads == RowThreads::kCluster) return nullptr;
  if (threads == RowThreads::kWarp) return kByColumns->shape.columns() < columns ? nullptr : kByColumns;
  // The last one needs more shared memory than devices without bulk copies have; there, longer rows are
  // divided into segments.
  const SinkhornKernel<float>* const last = kByColumns + (streams ? 3 : 2);
  const SinkhornKernel<float>* kernel = kByColumns + (threads == RowThreads::kBlock ? 1 : 0);
  while (kernel->shape.columns() < columns && kernel < last) ++kernel;
  return kernel;
}

}  // namespace warpalign::detail::transport
