// Sinkhorn on float32 costs that are given.
#include <iterator>

#include "transport/cuda/kernels.cuh"
#include "transport/cuda/streamed_rows.cuh"

namespace warpalign::detail::transport {
namespace {

// The kernels, in order of rising numbers of columns.
constexpr SinkhornKernel<float> kByColumns[] = {
    entry<SolveKernel<Dense<float, 8, 32>>>(Dense<float, 8, 32>::kShape),
    entry<SolveKernel<Dense<float, 8, 128>>>(Dense<float, 8, 128>::kShape),
    entry<SolveKernel<Dense<float, 16, 384>>>(Dense<float, 16, 384>::kShape),
    entry<SolveKernel<StreamedRows<32, 384, 2>>>(StreamedRows<32, 384, 2>::kShape),
};

}  // namespace

template <>
const SinkhornKernel<float>& dense_kernel_for<float>(int columns, bool) {
  const SinkhornKernel<float>* kernel = kByColumns;
  while (kernel->shape.columns() < columns && kernel + 1 < std::end(kByColumns)) ++kernel;
  return *kernel;
}

}  // namespace warpalign::detail::transport
