// Dual numbers: a value and its derivative along one direction. The code that computes a function of numbers,
// run on duals, also computes its derivative.
#pragma once

#include <cmath>

namespace warpalign::cuda {

struct __align__(16) Dual {
  double value;
  double tangent;

  Dual() = default;
  __device__ __forceinline__ Dual(double v, double t = 0.0)  // NOLINT: numbers are duals
      : value(v), tangent(t) {}

  __device__ __forceinline__ friend Dual operator+(Dual a, Dual b) {
    return {a.value + b.value, a.tangent + b.tangent};
  }
  __device__ __forceinline__ friend Dual operator-(Dual a, Dual b) {
    return {a.value - b.value, a.tangent - b.tangent};
  }
  __device__ __forceinline__ friend Dual operator*(Dual a, Dual b) {
    return {a.value * b.value, a.value * b.tangent + a.tangent * b.value};
  }
  __device__ __forceinline__ friend Dual operator/(Dual a, Dual b) {
    const double quotient = a.value / b.value;
    return {quotient, (a.tangent - quotient * b.tangent) / b.value};
  }
  __device__ __forceinline__ Dual& operator+=(Dual a) { return *this = *this + a; }
  __device__ __forceinline__ Dual& operator-=(Dual a) { return *this = *this - a; }

  // The derivative at 0, where there is none, is 0.
  __device__ __forceinline__ friend Dual abs(Dual a) {
    return a.value == 0 ? Dual(0) : a.value < 0 ? Dual(0) - a : a;
  }
  __device__ __forceinline__ friend Dual min(Dual a, Dual b) { return a.value < b.value ? a : b; }
  __device__ __forceinline__ friend Dual max(Dual a, Dual b) { return a.value > b.value ? a : b; }
  __device__ __forceinline__ friend Dual sqrt(Dual a) {
    const double root = ::sqrt(a.value);
    return {root, root > 0 ? 0.5 * a.tangent / root : 0.0};
  }
};

// The value of a number or of a dual (value_of), and the derivative of a dual.
template <class Real>
__device__ __forceinline__ Real value_of(Real a) {
  return a;
}
__device__ __forceinline__ double value_of(Dual a) { return a.value; }

}  // namespace warpalign::cuda
