// 16-bit float types on the device. Elements are converted to float32 when they are read, sums are float32
// (float64 for float64), and results are rounded once.
#pragma once

#include <type_traits>

#include "core/half.h"

namespace warpalign::cuda {

using detail::BFloat16;
using detail::Float16;

// The type in which elements of type T are summed.
template <class T>
using Sum = std::conditional_t<std::is_same_v<T, double>, double, float>;

// An element in the type of sums. The conversion is exact.
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

// Rounds to the nearest value of T, ties to even. NaN stays NaN; overflow gives infinity.
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

// Two neighbouring elements in one register, the first one in the lower half.
template <class Half>
__device__ __forceinline__ void widen_pair(std::uint32_t pair, float& first, float& second) {
  if constexpr (std::is_same_v<Half, BFloat16>) {
    first = __int_as_float(static_cast<int>(pair << 16));
    second = __int_as_float(static_cast<int>(pair & 0xffff0000u));
  } else {
    asm("{ .reg .b16 low, high; mov.b32 {low, high}, %2; cvt.f32.f16 %0, low; cvt.f32.f16 %1, high; }"
        : "=f"(first), "=f"(second)
        : "r"(pair));
  }
}
template <class Half>
__device__ __forceinline__ std::uint32_t narrow_pair(float first, float second) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  std::uint32_t pair;
  if constexpr (std::is_same_v<Half, BFloat16>) {
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
  } else {
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
  }
  return pair;
#else
  return static_cast<std::uint32_t>(narrow<Half>(first).bits) |
         static_cast<std::uint32_t>(narrow<Half>(second).bits) << 16;
#endif
}

// The element-wise maximum of two pairs. A number is larger than NaN.
template <class Half>
__device__ __forceinline__ std::uint32_t larger_pair(std::uint32_t a, std::uint32_t b) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  std::uint32_t pair;
  if constexpr (std::is_same_v<Half, BFloat16>) {
    asm("max.bf16x2 %0, %1, %2;" : "=r"(pair) : "r"(a), "r"(b));
  } else {
    asm("max.f16x2 %0, %1, %2;" : "=r"(pair) : "r"(a), "r"(b));
  }
  return pair;
#else
  float first[2], second[2];
  widen_pair<Half>(a, first[0], second[0]);
  widen_pair<Half>(b, first[1], second[1]);
  return narrow_pair<Half>(fmaxf(first[0], first[1]), fmaxf(second[0], second[1]));
#endif
}

}  // namespace warpalign::cuda
