// The LSTM's kernels and calls for float16.
#include "recurrent/cuda/call/path.cuh"

namespace warpalign::detail::recurrent {

template struct CudaPath<Float16>;

}  // namespace warpalign::detail::recurrent
