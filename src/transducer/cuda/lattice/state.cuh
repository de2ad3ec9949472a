// Alpha of a node, the sum of 2^(log2 weight) over the paths to it: mantissa times 2^exponent.
//
// The exponent is exact, so that accuracy does not depend on the magnitude of the weights. Mantissas change
// by a few powers of 2 between two calls of normal(). A mantissa may be 0 or NaN. A state of mantissa 0 has
// an exponent below that of any other.
#pragma once

#include <math_constants.h>

#include <cstdint>

#include "cuda/numbers/math.cuh"
#include "cuda/threads/warp.cuh"

namespace warpalign::detail::transducer {

__device__ __forceinline__ float exp2_of(float x) { return cuda::exp2_fast(x); }
__device__ __forceinline__ double exp2_of(double x) { return exp2(x); }
__device__ __forceinline__ float reciprocal_of(float x) { return cuda::reciprocal_fast(x); }
__device__ __forceinline__ double reciprocal_of(double x) { return 1.0 / x; }

// 2^exponent for -limit < exponent <= 127; exactly 0 at -limit.
template <class Real>
inline constexpr int kLeastPower = sizeof(Real) == 4 ? -127 : -1023;
__device__ __forceinline__ float power_of_2(int exponent, float) {
  return __int_as_float((exponent + 127) << 23);
}
__device__ __forceinline__ double power_of_2(int exponent, double) {
  return __hiloint2double((exponent + 1023) << 20, 0);
}
// The exponent of a mantissa: kLeastPower for 0, and for NaN one more than the largest of a number.
__device__ __forceinline__ int exponent_of(float m) { return ((__float_as_int(m) >> 23) & 0xff) - 127; }
__device__ __forceinline__ int exponent_of(double m) { return ((__double2hiint(m) >> 20) & 0x7ff) - 1023; }

using Exponent = std::int64_t;
inline constexpr Exponent kNothing = -(Exponent(1) << 62);  // exponent of a state of mantissa 0
inline constexpr Exponent kNoArc =
    -(Exponent(1) << 58);  // exponent of a weight of 0; a group adds few of them

__device__ __forceinline__ Exponent larger(Exponent a, Exponent b) { return a > b ? a : b; }

template <class Real>
struct State {
  Real mantissa;
  Exponent exponent;

  static __device__ __forceinline__ State zero() { return {0, kNothing}; }
  static __device__ __forceinline__ State one() { return {1, 0}; }
};

// 2^log2_weight: a factor in [2^-1/2, 2^1/2], or 0 or NaN, and a power of 2. Weights below 2^(-2^30) are
// treated as 0.
template <class Real>
struct Weight {
  Real factor;
  Exponent exponent;

  static __device__ __forceinline__ Weight of(Real log2_weight) {
    constexpr Real kMost = 1 << 30;
    const Real whole = fmin(fmax(rint(log2_weight), -kMost), kMost);
    if (log2_weight < -kMost) return {0, kNoArc};
    return {exp2_of(log2_weight - whole), static_cast<int>(whole)};
  }
};

template <class Real>
__device__ __forceinline__ State<Real> product(const State<Real>& s, const Weight<Real>& w) {
  return {s.mantissa * w.factor, s.exponent + w.exponent};
}

// 2^(exponent - top), exactly 0 if that is too small for a Real. exponent <= top.
template <class Real>
__device__ __forceinline__ Real scale_to(Exponent exponent, Exponent top) {
  const Exponent difference = exponent - top;
  const int power = difference < kLeastPower<Real> ? kLeastPower<Real> : static_cast<int>(difference);
  return power_of_2(power, Real());
}

// The state of the previous lane.
template <class Real>
__device__ __forceinline__ State<Real> shuffle_up(const State<Real>& s) {
  return {cuda::shuffle_up(s.mantissa), cuda::shuffle_up(s.exponent)};
}

template <class Real>
__device__ __forceinline__ State<Real> normal(const State<Real>& s) {
  if (s.mantissa == Real(0)) return State<Real>::zero();
  const int power = min(exponent_of(s.mantissa), -kLeastPower<Real> - 1);
  return {s.mantissa * power_of_2(-power, Real()), s.exponent + power};
}

}  // namespace warpalign::detail::transducer
