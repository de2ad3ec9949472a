// The list of the transducer's kernels. A kernel registers itself in the file that launches it.
#pragma once

#include "cuda/launch/kernel.cuh"

namespace warpalign::detail::transducer {

inline constinit cuda::KernelList kKernels;

}  // namespace warpalign::detail::transducer
