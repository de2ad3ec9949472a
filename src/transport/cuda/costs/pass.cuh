// The arguments of a pass over costs, its sums over the plan, and powers and logarithms of base 2.
#pragma once

#include "cuda/numbers/math.cuh"

namespace warpalign::detail::transport {

enum class PassKind { kSums, kLargest, kEvaluate };

// The arguments of a pass.
struct Pass {
  bool rows;                 // compute the rows' sums
  bool columns;              // compute the columns' sums
  bool updates_rows;         // the columns' sums use the updated potentials of the rows
  const double* rows_at;     // potentials; null: 0
  const double* columns_at;  // potentials; null: 0
  double lambda;
  double largest;  // bound of the potentials' magnitudes
  double rounder;  // rounds potentials to their grid
  double k;        // log2(e) cost_scale / epsilon
  double epsilon;
  bool is_nan;  // kEvaluate: write NaN as the plan
};

// Sums over the plan, of one thread or, after joining, of all.
struct PlanSums {
  double linear = 0;  // sum P C, C not scaled
  double logits = 0;  // sum P t

  __device__ __forceinline__ void join(const PlanSums& other) {
    linear += other.linear;
    logits += other.logits;
  }
};

__device__ __forceinline__ float exp2_of(float x) { return cuda::exp2_fast(x); }
// 2^x with a relative error of at most 1.1 * 2^-53; 0 below 2^-1022. Without branches, so that a thread's
// numbers are computed in parallel, which the library's exp2() prevents.
__device__ __forceinline__ double exp2_of(double x) {
  constexpr double kRounder = 0x1.8p52;
  const double t = x > 1024 ? 1024.0 : x < -1023 ? -1023.0 : x;  // NaN stays
  const double shifted = t + kRounder;
  const double r = t - (shifted - kRounder);
  // (2^r - 1) / r for |r| <= 1/2, interpolated at the Chebyshev nodes.
  double q = 0x1.e9d3fe3952179p-32;
  q = fma(q, r, 0x1.e6063f7217bc6p-28);
  q = fma(q, r, 0x1.b524fae627834p-24);
  q = fma(q, r, 0x1.62bfd47773353p-20);
  q = fma(q, r, 0x1.ffcbfc670dcd4p-17);
  q = fma(q, r, 0x1.430913096fd9fp-13);
  q = fma(q, r, 0x1.5d87fe78a5276p-10);
  q = fma(q, r, 0x1.3b2ab6fba1ddap-7);
  q = fma(q, r, 0x1.c6b08d704a0c2p-5);
  q = fma(q, r, 0x1.ebfbdff82c598p-3);
  q = fma(q, r, 0x1.62e42fefa39efp-1);
  // 2^whole: 0 for -1023, infinity for 1024.
  const unsigned whole = static_cast<unsigned>(__double2loint(shifted));
  return fma(q, r, 1.0) * __hiloint2double(static_cast<int>((whole + 1023) << 20), 0);
}

// log2 and 2^x with the precision of Real but float64's range.
template <class Real>
__device__ __forceinline__ double log2_in(double v) {
  if constexpr (sizeof(Real) == 8) return log2(v);
  if (!(v > 0) || isinf(v)) return log2(v);
  int exponent;
  const double mantissa = frexp(v, &exponent);
  return exponent + static_cast<double>(log2(static_cast<float>(mantissa)));
}
template <class Real>
__device__ __forceinline__ double exp2_in(double x) {
  if constexpr (sizeof(Real) == 8) return exp2(x);
  if (!(abs(x) < 1000)) return exp2(x);
  const double whole = rint(x);
  return ldexp(static_cast<double>(cuda::exp2_fast(static_cast<float>(x - whole))), static_cast<int>(whole));
}

}  // namespace warpalign::detail::transport
