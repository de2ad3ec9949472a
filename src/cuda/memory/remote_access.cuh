// Accesses to global memory that other blocks write at the same time.
#pragma once

namespace warpalign::cuda {

using Word = unsigned long long;

__device__ __forceinline__ Word load_relaxed(const Word* p) {
  Word v;
#if __CUDA_ARCH__ >= 700
  asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(v) : "l"(p) : "memory");
#else
  v = *const_cast<const volatile Word*>(p);
#endif
  return v;
}

__device__ __forceinline__ void store_relaxed(Word* p, Word v) {
  asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(p), "l"(v) : "memory");
}

__device__ __forceinline__ int load_acquire(const int* p) {
  int v;
  asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
  return v;
}

// Whoever acquires the sum sees what this thread, and what threads that it has waited for, wrote before.
__device__ __forceinline__ void add_release(int* p, int v) {
  asm volatile("red.release.gpu.global.add.s32 [%0], %1;" ::"l"(p), "r"(v) : "memory");
}

}  // namespace warpalign::cuda
