// 16-bit float types on the device: elements are read as they are, sums are made in float32 (float64 for
// float64), and results are rounded once.
#pragma once

#include <type_traits>

#include "core/half.h"

namespace warpalign::cuda {

using detail::BFloat16;
using detail::Float16;

// What elements of type T are summed in.
template <class T>
using Sum = std::conditional_t<std::is_same_v<T, double>, double, float>;

// Exact.
__device__ __forceinline__ float widen(Float16 v) {
  float wide;
  asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(v.bits));
  return wide;
}
__device__ __forceinline__ float widen(BFloat16 v) {
  return __int_as_float(static_cast<int>(static_cast<unsigned>(v.bits) << 16));
}
__device__ __forceinline__ float widen(float v) { return v; }
__device__ __forceinline__ double widen(double v) { return v; }

// To the nearest value of T, of two equally near ones to the even one. NaN stays NaN; overflow gives
// infinity.
template <class T>
__device__ __forceinline__ T narrow(Sum<T> v) {
  return static_cast<T>(v);
}
template <>
__device__ __forceinline__ Float16 narrow<Float16>(float v) {
  Float16 rounded;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(rounded.bits) : "f"(v));
  return rounded;
}
template <>
__device__ __forceinline__ BFloat16 narrow<BFloat16>(float v) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  BFloat16 rounded;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(rounded.bits) : "f"(v));
  return rounded;
#else
  if (isnan(v)) return {0x7fff};
  const unsigned bits = static_cast<unsigned>(__float_as_int(v));
  return {static_cast<std::uint16_t>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16)};
#endif
}

}  // namespace warpalign::cuda
