// The LSTM's kernels and calls for bfloat16.
#include "recurrent/cuda/call/path.cuh"

namespace warpalign::detail::recurrent {

template struct CudaPath<BFloat16>;

}  // namespace warpalign::detail::recurrent
