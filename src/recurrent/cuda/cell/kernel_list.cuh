// The list of the LSTM's kernels: each puts itself into it where it is launched.
#pragma once

#include "cuda/launch/kernel.cuh"

namespace warpalign::detail::recurrent {

inline constinit cuda::KernelList kKernels;

}  // namespace warpalign::detail::recurrent
