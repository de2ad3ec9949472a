// The LSTM's sweeps with layer norm for float16.
#include "recurrent/cuda/layer_norm/cluster_norm_kernels.cuh"

namespace warpalign::detail::recurrent {

template struct NormSweeps<Float16>;

}  // namespace warpalign::detail::recurrent
