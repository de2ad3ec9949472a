// Launches that begin before the launch in front of them has ended (LaunchConfig::programmatic), on sm_90 and
// later. Elsewhere, and in launches without it, both functions do nothing.
//
// What a kernel does before wait_for_launch_before() must not depend on the launch in front, nor change what
// that one reads. Every thread of every such kernel calls it: then the end of a launch is also the end of all
// launches in front of it.
#pragma once

namespace warpalign::cuda {

// Behind it the launch in front has ended, and all that it wrote is seen.
__device__ __forceinline__ void wait_for_launch_before() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// The next launch may begin, once all blocks of this one have called it or ended.
__device__ __forceinline__ void let_next_launch_begin() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

}  // namespace warpalign::cuda
