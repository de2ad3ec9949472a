// Products of small matrices on the matrix units (mma.cuh) whose sums start at given numbers.
#pragma once

#include "cuda/products/mma.cuh"

namespace warpalign::cuda {

// product = a b + first. All rows of a column start at the same number; `first` has it for the lane's two
// columns.
template <class Half>
__device__ __forceinline__ void mma_half_from(float (&product)[4], const std::uint32_t (&a)[4],
                                              const std::uint32_t (&b)[2], float2 first) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  static_assert(std::is_same_v<Half, detail::Float16>);
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%10, %11, %10, %11};"
      : "=f"(product[0]), "=f"(product[1]), "=f"(product[2]), "=f"(product[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "f"(first.x), "f"(first.y));
#else
  __trap();
#endif
}

}  // namespace warpalign::cuda
