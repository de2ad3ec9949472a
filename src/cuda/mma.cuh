// Products of small matrices on the matrix units, in TF32: factors have 10 bits of mantissa, products and
// sums are float32.
//
// A float32 is the sum of two TF32. Three products of TF32 make the product of two float32, but for some
// 2^-22 of its size (Markidis et al., "NVIDIA tensor core programmability, performance & precision", 2018).
#pragma once

#include <cstdint>

namespace warpalign::cuda {

// sum += a b. a is 16 x 8, b is 8 x 8; the units see the upper 19 bits of each float32. sm_80 and later. With
// g = lane / 4 and t = lane % 4, a lane has
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

}  // namespace warpalign::cuda
