// The rows pass for every type of logits, the offsets of flat targets, and equal labels.
#include "ctc/cuda/call/kernels.cuh"
#include "ctc/cuda/call/launch.h"
#include "ctc/cuda/rows/equal_labels.cuh"
#include "ctc/cuda/rows/offsets.cuh"

namespace warpalign::detail::ctc {
namespace {

template <class Element>
const cuda::Kernel kRows{kKernels, "rows", cuda::type_name<Element>(), rows_kernel<Element>};
const cuda::Kernel kOffsets{kKernels, "offsets of flat targets", nullptr, offsets_kernel};
const cuda::Kernel kEqual{kKernels, "equal labels", nullptr, equal_labels_kernel};

}  // namespace

template <class Element>
Status launch_rows(const RowsParams<Element>& params, cudaStream_t stream) {
  const std::int64_t rows = params.last_row - params.first_row;
  if (rows == 0) return {};
  const int of_block = kRowThreads / params.lanes;
  const int blocks = static_cast<int>(cuda::div_up(rows, std::int64_t{of_block}));
  return cuda::launch(kRows<Element>, {blocks, kRowThreads, 0, stream}, params);
}

Status launch_offsets(const Batch& batch, std::int64_t* offsets, cudaStream_t stream) {
  return cuda::launch(kOffsets, {1, kOffsetThreads, 0, stream}, batch, offsets);
}

Status launch_equal_labels(const Batch& batch, std::int64_t stride, std::int32_t* first, std::int32_t* next,
                           cudaStream_t stream) {
  const auto blocks = batch.batch * cuda::div_up(stride, std::int64_t{kEqualWarps});
  if (blocks == 0) return {};
  return cuda::launch(kEqual, {static_cast<int>(blocks), kEqualThreads, 0, stream},
                      EqualParams{batch, stride, first, next});
}

template Status launch_rows(const RowsParams<float>&, cudaStream_t);
template Status launch_rows(const RowsParams<double>&, cudaStream_t);
template Status launch_rows(const RowsParams<cuda::Float16>&, cudaStream_t);
template Status launch_rows(const RowsParams<cuda::BFloat16>&, cudaStream_t);

}  // namespace warpalign::detail::ctc
