// The list of the transducer's kernels: each puts itself into it where it is launched.
#pragma once

#include "cuda/launch/kernel.cuh"

namespace warpalign::detail::transducer {

inline constinit cuda::KernelList kKernels;

}  // namespace warpalign::detail::transducer
