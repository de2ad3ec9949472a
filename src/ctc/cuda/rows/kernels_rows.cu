// The rows pass for every type of logits, and the offsets of flat targets.
#include "ctc/cuda/call/kernels.cuh"
#include "ctc/cuda/call/launch.h"
#include "ctc/cuda/rows/offsets.cuh"

namespace warpalign::detail::ctc {
namespace {

template <class Element>
const cuda::Kernel kRows{kKernels, "rows", cuda::type_name<Element>(), rows_kernel<Element>};
const cuda::Kernel kOffsets{kKernels, "offsets of flat targets", nullptr, offsets_kernel};

}  // namespace

template <class Element>
Status launch_rows(const RowsParams<Element>& params, cudaStream_t stream) {
  const std::int64_t rows = static_cast<std::int64_t>(params.batch.batch) * params.batch.frames;
  if (rows == 0) return {};
  const int of_block = kRowThreads / params.lanes;
  const int blocks = static_cast<int>(cuda::div_up(rows, std::int64_t{of_block}));
  return cuda::launch(kRows<Element>, {blocks, kRowThreads, 0, stream}, params);
}

Status launch_offsets(const Batch& batch, std::int64_t* offsets, cudaStream_t stream) {
  return cuda::launch(kOffsets, {1, kOffsetThreads, 0, stream}, batch, offsets);
}

template Status launch_rows(const RowsParams<float>&, cudaStream_t);
template Status launch_rows(const RowsParams<double>&, cudaStream_t);
template Status launch_rows(const RowsParams<cuda::Float16>&, cudaStream_t);
template Status launch_rows(const RowsParams<cuda::BFloat16>&, cudaStream_t);

}  // namespace warpalign::detail::ctc
