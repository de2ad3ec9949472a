// The list of soft-DTW's kernels: sweeps over pairs (registry.h), costs and gradients of panels, and
// conversions of series.
#pragma once

#include "cuda/launch/kernel.cuh"

namespace warpalign::detail::soft_dtw {

inline constinit cuda::KernelList kKernels;

}  // namespace warpalign::detail::soft_dtw
