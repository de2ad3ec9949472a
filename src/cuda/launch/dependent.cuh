// Programmatic dependent launches (LaunchConfig::programmatic): a kernel may begin before the previous launch
// of its stream has ended. sm_90 and later. On other devices, and in other launches, both functions do
// nothing.
//
// Before wait_for_launch_before() a kernel must neither read what the previous launch writes nor write what
// it reads. Every thread of every such kernel calls it, so that the end of a launch implies the end of all
// earlier launches.
#pragma once

namespace warpalign::cuda {

// Returns when the previous launch has ended. This thread then sees everything that launch wrote.
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
