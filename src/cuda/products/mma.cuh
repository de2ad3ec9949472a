// Products of small matrices on the matrix units. Factors are TF32 (10 bits of mantissa), binary16 or
// bfloat16; products and sums are float32. sm_80 and later; on other devices the functions trap.
//
// A float32 is the sum of two TF32. Three products of TF32 give the product of two float32 with a relative
// error of about 2^-22 (Markidis et al., "NVIDIA tensor core programmability, performance & precision",
// 2018).
#pragma once

#include <cstdint>
#include <type_traits>

#include "core/half.h"

namespace warpalign::cuda {

// sum += a b. a is 16 x 8, b is 8 x 8; the units read the upper 19 bits of each float32. With g = lane / 4
// and t = lane % 4, a lane holds the elements
//   a: (g, t), (g + 8, t), (g, t + 4), (g + 8, t + 4);   b: (t, g), (t + 4, g);
//   sum: (g, 2t), (g, 2t + 1), (g + 8, 2t), (g + 8, 2t + 1).
__device__ __forceinline__ void mma_tf32(float (&sum)[4], const float (&a)[4], const float (&b)[2]) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
      : "r"(__float_as_int(a[0])), "r"(__float_as_int(a[1])), "r"(__float_as_int(a[2])),
        "r"(__float_as_int(a[3])), "r"(__float_as_int(b[0])), "r"(__float_as_int(b[1])));
#else
  __trap();
#endif
}

// sum += a b of Half = detail::Float16 or detail::BFloat16. a is 16 x 16, b is 16 x 8. Each register has two
// elements, the first one in its lower half. With g = lane / 4 and t = lane % 4, a lane holds the elements
//   a: (g, 2t .. 2t + 1), (g + 8, 2t ..), (g, 2t + 8 ..), (g + 8, 2t + 8 ..);
//   b: (2t .. 2t + 1, g), (2t + 8 .., g);   sum: as mma_tf32().
template <class Half>
__device__ __forceinline__ void mma_half(float (&sum)[4], const std::uint32_t (&a)[4],
                                         const std::uint32_t (&b)[2]) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  if constexpr (std::is_same_v<Half, detail::BFloat16>) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  } else {
    static_assert(std::is_same_v<Half, detail::Float16>);
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  }
#else
  __trap();
#endif
}

// product = a b: mma_half() with a sum of 0, which needs no registers for the zeros.
template <class Half>
__device__ __forceinline__ void mma_half_product(float (&product)[4], const std::uint32_t (&a)[4],
                                                 const std::uint32_t (&b)[2]) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  if constexpr (std::is_same_v<Half, detail::BFloat16>) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%10, %10, %10, %10};"
        : "=f"(product[0]), "=f"(product[1]), "=f"(product[2]), "=f"(product[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "f"(0.0f));
  } else {
    static_assert(std::is_same_v<Half, detail::Float16>);
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%10, %10, %10, %10};"
        : "=f"(product[0]), "=f"(product[1]), "=f"(product[2]), "=f"(product[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "f"(0.0f));
  }
#else
  __trap();
#endif
}

// Four 8 x 8 matrices of 16-bit elements from shared memory, one register each. `row` of lane l is where row
// l % 8 of matrix l / 8 begins: 8 neighbouring elements, aligned to 16 bytes. The lane gets elements
// (g, 2t .. 2t + 1) of each matrix; with kTransposed (2t .. 2t + 1, g). So the matrices of a 16 x 16 block at
// rows 0 and 8 of columns 0 to 7, then at rows 0 and 8 of columns 8 to 15, are mma_half()'s a. All lanes take
// part.
template <bool kTransposed = false>
__device__ __forceinline__ void load_matrices(std::uint32_t (&to)[4], const void* row) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 750
  const auto address = static_cast<unsigned>(__cvta_generic_to_shared(row));
  if constexpr (kTransposed) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(address)
                 : "memory");
  } else {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(address)
                 : "memory");
  }
#else
  __trap();
#endif
}

}  // namespace warpalign::cuda
