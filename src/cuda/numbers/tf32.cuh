// float32 numbers as TF32 numbers, which have 11 bits of mantissa with the implicit one: factors of
// mma_tf32().
#pragma once

namespace warpalign::cuda {

// A float32 is hi + lo: hi is the TF32 nearest to it, and lo has at most 12 bits. Of NaN at least one part is
// NaN. Of an infinite number lo is NaN.
struct Tf32Parts {
  float hi;
  float lo;
};
__device__ __forceinline__ Tf32Parts split_tf32(float v) {
  const auto bits = static_cast<unsigned>(__float_as_int(v));
  const float hi = __int_as_float(static_cast<int>((bits + 0x1000u) & ~0x1fffu));
  return {hi, v - hi};
}

// split_tf32(v).hi; NaN where v is not finite, because a NaN of all bits would overflow to 0 there.
__device__ __forceinline__ float rounded_tf32(float v) { return split_tf32(v).hi + (v - v); }

// v as a factor of mma_tf32(), which sees the upper 19 bits alone: they are those of the TF32 nearest to v.
// NaN and infinite numbers stay what they are.
__device__ __forceinline__ float tf32_factor(float v) {
  const bool is_finite = fabsf(v) < __int_as_float(0x7f800000);
  return is_finite ? __int_as_float(__float_as_int(v) + 0x1000) : v;
}

// The same in one instruction: the TF32 nearest to v, or the other neighbour where v is near their middle.
// The multiplication adds 0.7 to 1.4 halves of a TF32's last place, so that cutting rounds.
__device__ __forceinline__ float near_tf32_factor(float v) { return v * 1.000345267f; }

}  // namespace warpalign::cuda
