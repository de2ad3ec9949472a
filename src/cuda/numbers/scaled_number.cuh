// Positive numbers of any magnitude: a float32 mantissa and an integer exponent of its own,
//   value = mantissa * 2^exponent.
//
// The exponent is exact: products and sums have the relative errors of float32. Nothing underflows or
// overflows while |exponent| < 2^29 for std::int32_t, or 2^61 for std::int64_t. Zero is the mantissa 1 with
// the least exponent; smaller exponents are clamped to it.
//
// Mantissas are positive floats. A number is normal if its mantissa is in [1, 2). Each function says whether
// it needs normal numbers, and whether its result is one.
#pragma once

#include <cstdint>

#include "cuda/numbers/math.cuh"

namespace warpalign::cuda {

template <class Exponent_>
struct alignas(sizeof(Exponent_) == 4 ? 8 : 16) ScaledNumber {
  using Exponent = Exponent_;
  static_assert(sizeof(Exponent) == 4 || sizeof(Exponent) == 8);
  static constexpr Exponent kZeroExponent = -(Exponent(1) << (8 * sizeof(Exponent) - 2));

  float mantissa;
  Exponent exponent;

  static __device__ __forceinline__ ScaledNumber zero() { return {1.0f, kZeroExponent}; }
  static __device__ __forceinline__ ScaledNumber one() { return {1.0f, 0}; }
};

// max(a + b, c).
__device__ __forceinline__ std::int32_t add_max(std::int32_t a, std::int32_t b, std::int32_t c) {
  return __viaddmax_s32(a, b, c);
}
__device__ __forceinline__ std::int64_t add_max(std::int64_t a, std::int64_t b, std::int64_t c) {
  return a + b > c ? a + b : c;
}

// The exponent of the normal number of this value. The mantissa of s is any normal float.
template <class Exponent>
__device__ __forceinline__ Exponent exponent_of(ScaledNumber<Exponent> s) {
  const Exponent of_mantissa = (__float_as_int(s.mantissa) >> 23) - 127;
  return add_max(s.exponent, of_mantissa, ScaledNumber<Exponent>::kZeroExponent);
}
template <class Exponent>
__device__ __forceinline__ ScaledNumber<Exponent> normal(ScaledNumber<Exponent> s) {
  return {__int_as_float(with_exponent_of_one(__float_as_int(s.mantissa))), exponent_of(s)};
}

// The product of normal numbers. Its mantissa is in [1, 4).
template <class Exponent>
__device__ __forceinline__ ScaledNumber<Exponent> product(ScaledNumber<Exponent> a,
                                                          ScaledNumber<Exponent> b) {
  return {a.mantissa * b.mantissa, add_max(a.exponent, b.exponent, ScaledNumber<Exponent>::kZeroExponent)};
}

// The mantissa that s would have with this exponent: exactly 0 where that is below 2^-126 times its own. The
// result must be a float: exponent >= s.exponent - 127, as the largest of several exponents is.
template <class Exponent>
__device__ __forceinline__ float scaled(ScaledNumber<Exponent> s, Exponent exponent) {
  const Exponent biased = add_max(s.exponent, 127 - exponent, Exponent(0));
  return s.mantissa * __int_as_float(static_cast<int>(biased) << 23);
}

// The mantissa is at most the sum of both mantissas.
template <class Exponent>
__device__ __forceinline__ ScaledNumber<Exponent> sum(ScaledNumber<Exponent> a, ScaledNumber<Exponent> b) {
  const Exponent top = a.exponent > b.exponent ? a.exponent : b.exponent;
  return {scaled(a, top) + scaled(b, top), top};
}

// log2 of the value. Zero gives kZeroExponent.
template <class Exponent>
__device__ __forceinline__ double log2_of(ScaledNumber<Exponent> s) {
  return static_cast<double>(s.exponent) + log2(static_cast<double>(s.mantissa));
}

}  // namespace warpalign::cuda
