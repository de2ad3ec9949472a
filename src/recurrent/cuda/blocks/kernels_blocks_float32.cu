// The LSTM's sweeps in single blocks for float32.
#include "recurrent/cuda/blocks/block_kernels.cuh"

namespace warpalign::detail::recurrent {

template void launch_blocks(Queue&, const LstmProblem&, bool, bool, const BlockParams<float>&);

}  // namespace warpalign::detail::recurrent
