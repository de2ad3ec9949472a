// The LSTM's sweeps in single blocks for bfloat16.
#include "recurrent/cuda/blocks/block_kernels.cuh"

namespace warpalign::detail::recurrent {

template struct BlockSweeps<cuda::BFloat16>;

}  // namespace warpalign::detail::recurrent
