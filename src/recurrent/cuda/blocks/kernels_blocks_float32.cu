// The LSTM's sweeps in single blocks for float32.
#include "recurrent/cuda/blocks/block_kernels.cuh"

namespace warpalign::detail::recurrent {

template struct BlockSweeps<float>;

}  // namespace warpalign::detail::recurrent
