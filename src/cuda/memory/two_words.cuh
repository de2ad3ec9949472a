// Two neighbouring words of global memory that other blocks write at the same time.
#pragma once

#include "cuda/memory/remote_access.cuh"

namespace warpalign::cuda {

struct alignas(16) TwoWords {
  Word first, second;
};

// The read of each word is atomic, that of both together is not.
__device__ __forceinline__ TwoWords load_relaxed(const TwoWords* p) {
  TwoWords v;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 700
  asm volatile("ld.relaxed.gpu.global.v2.u64 {%0, %1}, [%2];"
               : "=l"(v.first), "=l"(v.second)
               : "l"(p)
               : "memory");
#else
  v = {load_relaxed(&p->first), load_relaxed(&p->second)};
#endif
  return v;
}

}  // namespace warpalign::cuda
