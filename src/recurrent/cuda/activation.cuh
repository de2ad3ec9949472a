// The cell's activations and their derivatives, which are taken from the stored values.
#pragma once

#include <cuda_runtime.h>

#include "cuda/half.cuh"
#include "cuda/math.cuh"

namespace warpalign::detail::recurrent {

using cuda::Sum;

__device__ __forceinline__ float logistic(float z) {
  constexpr float kLog2e = 1.44269502f;
  return cuda::reciprocal_fast(1.0f + cuda::exp2_fast(-kLog2e * z));
}
__device__ __forceinline__ double logistic(double z) { return 1.0 / (1.0 + ::exp(-z)); }
__device__ __forceinline__ float hyperbolic_tangent(float x) { return ::tanhf(x); }
__device__ __forceinline__ double hyperbolic_tangent(double x) { return ::tanh(x); }

// The neighbours of the rails 0 and 1 within (0, 1), as T has them: the smallest normal number, and the
// largest number below 1.
template <class T>
struct BesideRails;
template <>
struct BesideRails<float> {
  static constexpr float kZero = 0x1p-126f, kOne = 0x1.fffffep-1f;
};
template <>
struct BesideRails<double> {
  static constexpr double kZero = 0x1p-1022, kOne = 0x1.fffffffffffffp-1;
};
template <>
struct BesideRails<cuda::Float16> {
  static constexpr float kZero = 0x1p-14f, kOne = 0x1.ffcp-1f;
};
template <>
struct BesideRails<cuda::BFloat16> {
  static constexpr float kZero = 0x1p-126f, kOne = 0x1.fep-1f;
};

// Activations in Sum<T>, of values that are stored as T. NaN stays NaN.
template <class T>
struct Activation {
  using Real = Sum<T>;

  bool hard;
  Real slope, offset, low, high;  // hard gates are slope z + offset for low < z < high

  __device__ __forceinline__ Real gate(Real z) const {
    if (!hard) return logistic(z);
    if (z <= low) return 0;
    if (z >= high) return 1;
    const Real line = slope * z + offset;
    // Strictly inside, the stored value must not be on a rail: the derivative is taken from it.
    if (line < BesideRails<T>::kZero) return BesideRails<T>::kZero;
    return line > BesideRails<T>::kOne ? BesideRails<T>::kOne : line;
  }
  __device__ __forceinline__ Real squash(Real x) const {
    if (!hard) return hyperbolic_tangent(x);
    return x <= -1 ? Real(-1) : x >= 1 ? Real(1) : x;
  }
  // squash() of what is stored.
  __device__ __forceinline__ Real stored_squash(Real x) const {
    const Real value = squash(x);
    if (!hard || value == -1 || value == 1) return value;
    constexpr Real kMost = BesideRails<T>::kOne;
    return value > kMost ? kMost : value < -kMost ? -kMost : value;
  }
  // The derivative by z, from the activation's value.
  __device__ __forceinline__ Real gate_slope(Real s) const {
    if (!hard) return s * (1 - s);
    return s == 0 || s == 1 ? Real(0) : slope;
  }
  __device__ __forceinline__ Real squash_slope(Real u) const {
    if (!hard) return (1 - u) * (1 + u);
    return u == -1 || u == 1 ? Real(0) : Real(1);
  }
};

}  // namespace warpalign::detail::recurrent
