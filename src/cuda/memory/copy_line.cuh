// Asynchronous copies (copy_async.cuh) for threads that together read whole lines of 128 bytes.
#pragma once

#include "cuda/memory/copy_async.cuh"

namespace warpalign::cuda {

// As copy_async_l2_or_zero(), with a hint to fetch all 128 bytes of the line into the second-level cache.
template <class T>
__device__ __forceinline__ void copy_async_line_or_zero(T* shared, const T* global, bool exists) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  static_assert(sizeof(T) == 16);
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(
                   static_cast<unsigned>(__cvta_generic_to_shared(shared))),
               "l"(global), "r"(exists ? 16 : 0)
               : "memory");
#else
  copy_async_l2_or_zero(shared, global, exists);
#endif
}

}  // namespace warpalign::cuda
