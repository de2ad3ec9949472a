// The rows pass for every type of logits.
#include "transducer/cuda/call/kernels.cuh"
#include "transducer/cuda/call/launch.h"

namespace warpalign::detail::transducer {
namespace {

template <class Storage>
const cuda::Kernel kRows{kKernels, "rows", cuda::type_name<Storage>(), rows_kernel<Storage>};

}  // namespace

template <class Storage>
Status launch_rows(const RowsParams<Storage>& params, int blocks, cudaStream_t stream) {
  return cuda::launch(kRows<Storage>, {blocks, kRowThreads, 0, stream}, params);
}

template Status launch_rows(const RowsParams<float>&, int, cudaStream_t);
template Status launch_rows(const RowsParams<double>&, int, cudaStream_t);
template Status launch_rows(const RowsParams<cuda::Float16>&, int, cudaStream_t);
template Status launch_rows(const RowsParams<cuda::BFloat16>&, int, cudaStream_t);

}  // namespace warpalign::detail::transducer
