// The LSTM's sweeps in single blocks for float64.
#include "recurrent/cuda/blocks/block_kernels.cuh"

namespace warpalign::detail::recurrent {

template struct BlockSweeps<double>;

}  // namespace warpalign::detail::recurrent
