// The LSTM's sweeps with layer norm for bfloat16.
#include "recurrent/cuda/layer_norm/cluster_norm_kernels.cuh"

namespace warpalign::detail::recurrent {

template struct NormSweeps<BFloat16>;

}  // namespace warpalign::detail::recurrent
