// Conversion of float32 numbers to TF32, the factors of mma_tf32(): 11 bits of mantissa, one of them
// implicit.
#pragma once

namespace warpalign::cuda {

// A float32 as hi + lo: hi is the nearest TF32, and lo has at most 12 bits of mantissa. If the number is NaN,
// at least one part is NaN; if it is infinite, lo is NaN.
struct Tf32Parts {
  float hi;
  float lo;
};
__device__ __forceinline__ Tf32Parts split_tf32(float v) {
  const auto bits = static_cast<unsigned>(__float_as_int(v));
  const float hi = __int_as_float(static_cast<int>((bits + 0x1000u) & ~0x1fffu));
  return {hi, v - hi};
}

// split_tf32(v).hi, or NaN if v is not finite: rounding the NaN whose bits are all set would overflow to 0.
__device__ __forceinline__ float rounded_tf32(float v) { return split_tf32(v).hi + (v - v); }

// v as a factor of mma_tf32(), which reads the upper 19 bits: they are those of the TF32 nearest to v. NaN
// stays NaN and infinity stays infinity.
__device__ __forceinline__ float tf32_factor(float v) {
  const bool is_finite = fabsf(v) < __int_as_float(0x7f800000);
  return is_finite ? __int_as_float(__float_as_int(v) + 0x1000) : v;
}

// The same in one instruction, but a v close to the middle of two TF32 numbers may be rounded to either. The
// product is v plus 0.35 to 0.7 units in the last place of a TF32, so that truncation rounds.
__device__ __forceinline__ float near_tf32_factor(float v) { return v * 1.000345267f; }

}  // namespace warpalign::cuda
