// Mathematical functions of one GPU instruction each.
#pragma once

namespace warpalign::cuda {

// 2^x, relative error 2^-22, denormal results flushed to 0.
__device__ __forceinline__ float exp2_fast(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// 1/x to 1 ulp for normal x.
__device__ __forceinline__ float reciprocal_fast(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// The square root of x to 1 ulp; 0 for denormal x. Its reciprocal, relative error 2^-22, for normal x.
__device__ __forceinline__ float sqrt_fast(float x) {
  float y;
  asm("sqrt.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
__device__ __forceinline__ float reciprocal_root_fast(float x) {
  float y;
  asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// The mantissa of a float with the exponent of 1: (bits & 0x007fffff) | 0x3f800000 in one instruction.
__device__ __forceinline__ int with_exponent_of_one(int bits) {
  int result;
  asm("lop3.b32 %0, %1, 0x007fffff, %2, 0xEA;" : "=r"(result) : "r"(bits), "r"(0x3f800000));
  return result;
}

}  // namespace warpalign::cuda
