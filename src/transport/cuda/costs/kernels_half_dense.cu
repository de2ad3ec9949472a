// Sinkhorn on given costs, binary16.
#include "transport/cuda/costs/streamed_rows.cuh"
#include "transport/cuda/kept/long_rows.cuh"
#include "transport/cuda/solve/kernels.cuh"

namespace warpalign::detail::transport {
namespace {

// The kernels, by ascending number of columns.
using Few = Dense<float, 8, 128, cuda::Float16>;
using Many = LongKept<StreamedRows<48, 256, 6, cuda::Float16>>;
constexpr SinkhornKernel<float> kFew = entry<SolveKernel<Few>>(Few::kShape);
constexpr SinkhornKernel<float> kMany = entry<SolveKernel<Many>>(Many::kShape);

}  // namespace

const SinkhornKernel<float>& half_long_rows_kernel() { return kMany; }

const SinkhornKernel<float>* half_dense_kernel_for(int columns, RowThreads threads) {
  if (threads == RowThreads::kWarp || threads == RowThreads::kCluster) return nullptr;
  return columns <= kFew.shape.columns() ? &kFew : &kMany;
}

}  // namespace warpalign::detail::transport
