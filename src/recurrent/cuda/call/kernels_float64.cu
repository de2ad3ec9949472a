// The LSTM's kernels and calls for float64.
#include "recurrent/cuda/call/path.cuh"

namespace warpalign::detail::recurrent {

template struct CudaPath<double>;

}  // namespace warpalign::detail::recurrent
