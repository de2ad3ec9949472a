// Second order: the recursions on dual numbers, each a value and its derivative along the caller's tangents.
//
// With L = log2 Z and the shares p of the predecessors k of a cell,
//   dL = sum_k p_k dL_k - dc,   dp_k = ln(2) p_k (dL_k - sum_l p_l dL_l),
// and the reverse sweep and the gradients are multiplications and additions of duals.
#pragma once

#include "soft_dtw/cuda/cell.cuh"
#include "soft_dtw/cuda/cost_range.cuh"

namespace warpalign::detail::soft_dtw {

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

  // Where there is no derivative it counts as 0.
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

template <class Real>
__device__ __forceinline__ Real shuffle_down(Real a) {
  return __shfl_down_sync(cuda::kFullWarp, a, 1);
}
__device__ __forceinline__ Dual shuffle_down(Dual a) {
  return {__shfl_down_sync(cuda::kFullWarp, a.value, 1), __shfl_down_sync(cuda::kFullWarp, a.tangent, 1)};
}
template <class Real>
__device__ __forceinline__ Real shuffle_xor(Real a, int bit) {
  return __shfl_xor_sync(cuda::kFullWarp, a, bit);
}
__device__ __forceinline__ Dual shuffle_xor(Dual a, int bit) {
  return {__shfl_xor_sync(cuda::kFullWarp, a.value, bit), __shfl_xor_sync(cuda::kFullWarp, a.tangent, bit)};
}

template <class Real>
__device__ __forceinline__ Real value_of(Real a) {
  return a;
}
__device__ __forceinline__ double value_of(Dual a) { return a.value; }

// What the caller gets of a number.
template <class Real>
__device__ __forceinline__ Real result_of(Real a) {
  return a;
}
__device__ __forceinline__ double result_of(Dual a) { return a.tangent; }

// Cell64 on dual numbers.
struct CellDual {
  using Real = Dual;
  using Scale = double;
  static constexpr bool kHard = false;
  static constexpr bool kCertifies = false;
  static constexpr bool kDual = true;
  struct __align__(8) State {
    double mantissa;
    double exponent;
    double tangent;  // of log2 Z
  };

  static __device__ __forceinline__ State dead() { return {1.0, Cell64::kDead, 0.0}; }
  static __device__ __forceinline__ State one() { return {1.0, 0.0, 0.0}; }
  static __device__ __forceinline__ State normal(State s) { return s; }

  using Penalty = Cell64::Penalty;
  static __device__ __forceinline__ Penalty penalty(double c) { return Cell64::penalty(c); }

  template <bool kWantWeights, bool kOptions>
  static __device__ __forceinline__ State advance(Dual cost, double scale, const Penalty& penalty, State up,
                                                  State left, State diagonal, Weights<Dual>* weights) {
    Weights<double> p{};
    const Cell64::State z = Cell64::advance<true, kOptions>(
        fmin(cost.value, Cell64::kForbidden), scale, penalty, {up.mantissa, up.exponent},
        {left.mantissa, left.exponent}, {diagonal.mantissa, diagonal.exponent}, &p);
    const double p_diagonal = (1.0 - p.up) - p.left;
    const double mean = p.up * up.tangent + p.left * left.tangent + p_diagonal * diagonal.tangent;
    if (kWantWeights) {
      constexpr double kLn2 = 0.69314718055994530942;
      *weights = {{p.up, kLn2 * p.up * (up.tangent - mean)}, {p.left, kLn2 * p.left * (left.tangent - mean)}};
    }
    const bool is_finite = cost.value < Cell64::kForbidden;
    return {z.mantissa, z.exponent, is_finite ? mean - cost.tangent * scale : mean};
  }

  static __device__ double log2_of(State s) { return s.exponent + log2(s.mantissa); }

  static __device__ __forceinline__ State shuffle_up(State s) {
    return {__shfl_up_sync(cuda::kFullWarp, s.mantissa, 1), __shfl_up_sync(cuda::kFullWarp, s.exponent, 1),
            __shfl_up_sync(cuda::kFullWarp, s.tangent, 1)};
  }
};

template <>
struct CostRange<CellDual> {
  int bits = 0;  // 1: a NaN was seen
  __device__ __forceinline__ Dual note(Dual cost) {
    if (isnan(cost.value)) bits = 1;
    return cost;
  }
};

}  // namespace warpalign::detail::soft_dtw
