// The sum of the weights of all paths to a state of the lattice, or from it: mantissa times 2^exponent.
//
// The exponent is exact (cuda/numbers/scaled_number.cuh): accuracy does not depend on the number of frames,
// and nothing underflows while exponents stay above kLeastPath. Mantissas are positive, and change by a
// factor of up to 2^17 between two calls of normal(). A mantissa may be NaN.
#pragma once

#include <math_constants.h>

#include "core/constants.h"
#include "cuda/memory/remote_access.cuh"
#include "cuda/numbers/half.cuh"
#include "cuda/numbers/math.cuh"
#include "cuda/numbers/scaled_number.cuh"
#include "cuda/rows/row_sum.cuh"

namespace warpalign::detail::ctc {

// Exponents. An unreachable state has kDead, a weight of 0 has kNoWeight. The exponent of a path with such a
// weight is below kLeastPath, as is that of every path whose probability is at most 2^-(2^28).
inline constexpr int kDead = -(1 << 30);
inline constexpr int kNoWeight = -(1 << 29);
inline constexpr int kLeastPath = -(1 << 28);

template <class Real>
struct alignas(2 * sizeof(Real)) State {
  Real mantissa;
  int exponent;

  static __device__ __forceinline__ State zero() { return {1, kDead}; }
  static __device__ __forceinline__ State one() { return {1, 0}; }
  [[nodiscard]] __device__ __forceinline__ bool is_nan() const { return isnan(mantissa); }
  __device__ __forceinline__ void become_nan() { mantissa = static_cast<Real>(CUDART_NAN); }

  // The number as words, none of which has all bits set (kNotYet): the sign that a NaN may have is cleared.
  static constexpr int kWords = sizeof(Real) / 4;
  [[nodiscard]] __device__ __forceinline__ cuda::Word word(int k) const {
    if constexpr (kWords == 1) {
      const unsigned bits = static_cast<unsigned>(__float_as_int(mantissa)) & 0x7fffffffu;
      return bits | static_cast<cuda::Word>(static_cast<unsigned>(exponent)) << 32;
    } else {
      const auto bits = static_cast<cuda::Word>(__double_as_longlong(mantissa)) & ~0ull >> 1;
      return k == 0 ? bits : static_cast<unsigned>(exponent);
    }
  }
  static __device__ __forceinline__ State of(const cuda::Word (&words)[kWords]) {
    if constexpr (kWords == 1) {
      return {__int_as_float(static_cast<int>(words[0])), static_cast<int>(words[0] >> 32)};
    } else {
      return {__longlong_as_double(static_cast<long long>(words[0])), static_cast<int>(words[1])};
    }
  }
};

// A Real from the biased exponent's bits; exactly 0 for biased = 0.
__device__ __forceinline__ float power_of_bits(int biased, float) { return __int_as_float(biased << 23); }
__device__ __forceinline__ double power_of_bits(int biased, double) {
  return __hiloint2double(biased << 20, 0);
}
template <class Real>
inline constexpr int kBias = sizeof(Real) == 4 ? 127 : 1023;

// The mantissa of s for the exponent kBias - from_top; 0 if that is far above the exponent of s.
template <class Real>
__device__ __forceinline__ Real scaled(const State<Real>& s, int from_top) {
  return s.mantissa * power_of_bits(cuda::add_max(s.exponent, from_top, 0), Real());
}

// a + b, and a + b + c: the sums before the frame's weight.
template <class Real>
__device__ __forceinline__ State<Real> sum(const State<Real>& a, const State<Real>& b) {
  const int top = max(a.exponent, b.exponent), from_top = kBias<Real> - top;
  return {scaled(a, from_top) + scaled(b, from_top), top};
}
template <class Real>
__device__ __forceinline__ State<Real> sum(const State<Real>& a, const State<Real>& b, const State<Real>& c) {
  const int top = __vimax3_s32(a.exponent, b.exponent, c.exponent), from_top = kBias<Real> - top;
  return {scaled(a, from_top) + scaled(b, from_top) + scaled(c, from_top), top};
}

// A mantissa in [1, 2), or NaN.
__device__ __forceinline__ State<float> normal(const State<float>& s) {
  if (isnan(s.mantissa)) return s;
  const int bits = __float_as_int(s.mantissa);
  return {__int_as_float(cuda::with_exponent_of_one(bits)),
          cuda::add_max(s.exponent, (bits >> 23) - 127, kDead)};
}
__device__ __forceinline__ State<double> normal(const State<double>& s) {
  if (isnan(s.mantissa)) return s;
  const int high = __double2hiint(s.mantissa);
  return {__hiloint2double((high & 0x000fffff) | 0x3ff00000, __double2loint(s.mantissa)),
          cuda::add_max(s.exponent, (high >> 20) - 1023, kDead)};
}

// The weight of a class at a frame: a factor in [2^-1/2, 2^1/2] times a power of 2.
template <class Real>
struct Weight {
  Real factor;
  int exponent;

  // 2^log2_weight. Weights below 2^-(2^21) are treated as 0; for NaN and +inf the factor is NaN.
  static __device__ __forceinline__ Weight of(Real log2_weight) {
    const bool counts = !(log2_weight < Real(-(1 << 21)));
    // Adding 1.5 * 2^23 (2^52) rounds to an integer, which is then in the low bits.
    constexpr Real kRound = sizeof(Real) == 4 ? Real(12582912.0) : Real(6755399441055744.0);
    const Real rounded = log2_weight + kRound;
    const Real factor = cuda::exp2_of(log2_weight - (rounded - kRound));
    return {counts ? factor : Real(1), counts ? integer_of(rounded) : kNoWeight};
  }

 private:
  static __device__ __forceinline__ int integer_of(float rounded) {
    return __float_as_int(rounded) - 0x4B400000;
  }
  static __device__ __forceinline__ int integer_of(double rounded) { return __double2loint(rounded); }
};

template <class Real>
__device__ __forceinline__ State<Real> product(const State<Real>& s, const Weight<Real>& w) {
  return {s.mantissa * w.factor, cuda::add_max(s.exponent, w.exponent, kDead)};
}

}  // namespace warpalign::detail::ctc
