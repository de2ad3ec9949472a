// The LSTM's kernels of one step without a tape in float32, by one product of TF32 for each of float32.
#include "recurrent/cuda/stream/single_unit_step.cuh"

namespace warpalign::detail::recurrent {

template bool launch_single_units<1>(Queue&, const CudaTuning&, const SingleStepParams<float>&,
                                     const cuda::LaunchConfig&);

}  // namespace warpalign::detail::recurrent
