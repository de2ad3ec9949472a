// Additions to global memory whose result the thread does not wait for. Callers see to it that a number has
// one writer at a time, so that the order of its sum is fixed.
#pragma once

namespace warpalign::cuda {

// to[0] += first, to[1] += second; to is aligned to 8 bytes.
__device__ __forceinline__ void add_pair(float* to, float first, float second) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("red.global.add.v2.f32 [%0], {%1, %2};" ::"l"(to), "f"(first), "f"(second) : "memory");
#else
  atomicAdd(to, first);
  atomicAdd(to + 1, second);
#endif
}

}  // namespace warpalign::cuda
