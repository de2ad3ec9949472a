// The LSTM's kernels and calls for float32.
#include "recurrent/cuda/call/path.cuh"

namespace warpalign::detail::recurrent {

template struct CudaPath<float>;

}  // namespace warpalign::detail::recurrent
