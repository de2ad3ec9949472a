// The LSTM's sweeps in single blocks for bfloat16.
#include "recurrent/cuda/blocks/block_kernels.cuh"

namespace warpalign::detail::recurrent {

template void launch_blocks(Queue&, const LstmProblem&, bool, bool, const BlockParams<cuda::BFloat16>&);

}  // namespace warpalign::detail::recurrent
