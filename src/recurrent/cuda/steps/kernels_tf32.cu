// The LSTM's forward steps of float32 by one product of TF32 for each of float32.
#include "recurrent/cuda/steps/tiled_steps.cuh"

namespace warpalign::detail::recurrent {

template void sweep_by_tiles<1>(Queue&, const LstmProblem&, StepParams<float>&, Places, StepTiles);

}  // namespace warpalign::detail::recurrent
