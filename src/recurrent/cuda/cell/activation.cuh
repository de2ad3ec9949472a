// The cell's activations and their derivatives, which are taken from the stored values.
#pragma once

#include <cuda_runtime.h>

#include "cuda/numbers/half.cuh"
#include "cuda/numbers/math.cuh"
#include "recurrent/cuda/cell/unroll.cuh"

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

  // i, f, g, o of some steps or units. One branch for all of them, so that soft ones are computed side by
  // side.
  template <int kCount>
  __device__ __forceinline__ void gates(const Real (&z)[kCount][4], Real (&values)[kCount][4]) const {
    if (hard) {
      unroll<kCount>([&](int k) { hard_gates(z[k], values[k]); });
    } else {
      unroll<kCount>([&](int k) { soft_gates(z[k], values[k]); });
    }
  }
  __device__ __forceinline__ void gates(const Real (&z)[4], Real (&values)[4]) const {
    if (hard) {
      hard_gates(z, values);
    } else {
      soft_gates(z, values);
    }
  }
  // One of them, g where it squashes, u(c), and a derivative. Nothing here branches: lanes with different
  // gates compute side by side, and other work goes on meanwhile.
  __device__ __forceinline__ Real gate(Real z, bool squashes) const {
    const Real soft = soft_gate(z, squashes);
    const Real squashed = beside_rails(hard_squash(z)), gated = hard_gate(z);
    const Real sharp = squashes ? squashed : gated;
    return hard ? sharp : soft;
  }
  __device__ __forceinline__ Real flat_squash(Real c) const {
    const Real soft = soft_gate(c, true), sharp = hard_squash(c);
    return hard ? sharp : soft;
  }
  __device__ __forceinline__ Real slope_of(Real value, bool squashes) const {
    const Real soft = (squashes ? 1 + value : value) * (1 - value), rail = squashes ? Real(-1) : Real(0);
    const Real sharp = value == 1 || value == rail ? Real(0) : squashes ? Real(1) : slope;
    return hard ? sharp : soft;
  }
  // The derivatives of i, f, g, o by z, from the values.
  __device__ __forceinline__ void slopes(const Real (&values)[4], Real (&to)[4]) const {
    const Real i = values[0], f = values[1], g = values[2], o = values[3];
    if (hard) {
      to[0] = hard_slope(i), to[1] = hard_slope(f), to[3] = hard_slope(o);
      to[2] = g == -1 || g == 1 ? Real(0) : Real(1);
    } else {
      to[0] = i * (1 - i), to[1] = f * (1 - f), to[3] = o * (1 - o);
      to[2] = (1 - g) * (1 + g);
    }
  }
  __device__ __forceinline__ Real gate_slope(Real s) const { return hard ? hard_slope(s) : s * (1 - s); }
  __device__ __forceinline__ Real squash(Real x) const {
    return hard ? hard_squash(x) : hyperbolic_tangent(x);
  }
  // The derivative with respect to x, from the value u.
  __device__ __forceinline__ Real squash_slope(Real u) const {
    if (!hard) return (1 - u) * (1 + u);
    return u == -1 || u == 1 ? Real(0) : Real(1);
  }

 private:
  __device__ __forceinline__ void hard_gates(const Real (&z)[4], Real (&values)[4]) const {
    values[0] = hard_gate(z[0]), values[1] = hard_gate(z[1]), values[3] = hard_gate(z[3]);
    values[2] = beside_rails(hard_squash(z[2]));
  }
  // What is stored of g, which is on a rail only where it was.
  static __device__ __forceinline__ Real beside_rails(Real g) {
    constexpr Real kMost = BesideRails<T>::kOne;
    if (sizeof(T) > 2) return g;
    g = g > kMost && g < 1 ? kMost : g;
    return g < -kMost && g > -1 ? -kMost : g;
  }
  static __device__ __forceinline__ void soft_gates(const Real (&z)[4], Real (&values)[4]) {
    values[0] = logistic(z[0]), values[1] = logistic(z[1]), values[3] = logistic(z[3]);
    values[2] = hyperbolic_tangent(z[2]);
  }
  // g is 1 - 2 logistic(-2 z), and near 0 the polynomial that tanhf() has there.
  static __device__ __forceinline__ double soft_gate(double z, bool squashes) {
    return squashes ? hyperbolic_tangent(z) : logistic(z);
  }
  static __device__ __forceinline__ float soft_gate(float z, bool squashes) {
    constexpr float kLog2e = 1.44269502f, kNearZero = 0.6f;
    const float r = cuda::reciprocal_fast(1.0f + cuda::exp2_fast((squashes ? 2 * kLog2e : -kLog2e) * z));
    const float far = squashes ? fma(-2.0f, r, 1.0f) : r, square = z * z;
    const float bend =
        fma(square, fma(square, fma(square, 0.0157396831f, -0.0523039624f), 0.133152977f), -0.333327681f);
    const float near = fma(z * square, bend, z);
    const bool is_near = abs(z) < kNearZero;
    return squashes & is_near ? near : far;
  }
  __device__ __forceinline__ Real hard_gate(Real z) const {
    // Strictly inside, the stored value must not be on a rail: the derivative is taken from it.
    Real line = slope * z + offset;
    line = line < BesideRails<T>::kZero ? BesideRails<T>::kZero : line;
    line = line > BesideRails<T>::kOne ? BesideRails<T>::kOne : line;
    line = z >= high ? Real(1) : line;
    return z <= low ? Real(0) : line;
  }
  static __device__ __forceinline__ Real hard_squash(Real x) {
    return x <= -1 ? Real(-1) : x >= 1 ? Real(1) : x;
  }
  __device__ __forceinline__ Real hard_slope(Real s) const { return s == 0 || s == 1 ? Real(0) : slope; }
};

}  // namespace warpalign::detail::recurrent
