// Second order: the recursions on dual numbers. A tangent is the derivative along the caller's tangents.
//
// With L = log2 Z and the shares p of the predecessors k of a cell,
//   dL = sum_k p_k dL_k - dc,   dp_k = ln(2) p_k (dL_k - sum_l p_l dL_l),
// and the reverse sweep and the gradients are multiplications and additions of duals.
#pragma once

#include "core/constants.h"
#include "cuda/numbers/dual.cuh"
#include "soft_dtw/cuda/results/cost_range.cuh"
#include "soft_dtw/cuda/sweep/cell.cuh"

namespace warpalign::detail::soft_dtw {

using cuda::Dual;
using cuda::value_of;

// The part of a number that is the caller's result: the tangent of a dual.
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
      *weights = {{p.up, kLn2<double> * p.up * (up.tangent - mean)},
                  {p.left, kLn2<double> * p.left * (left.tangent - mean)}};
    }
    const bool is_finite = cost.value < Cell64::kForbidden;
    return {z.mantissa, z.exponent, is_finite ? mean - cost.tangent * scale : mean};
  }

  static __device__ double log2_of(State s) { return s.exponent + log2(s.mantissa); }
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
