// The list of CTC's kernels, which count their launches.
#pragma once

#include "cuda/launch/kernel.cuh"

namespace warpalign::detail::ctc {

inline constinit cuda::KernelList kKernels;

}  // namespace warpalign::detail::ctc
