// Scales of kept_rows.cuh and long_rows.cuh: how they follow from sums, and the exponentials that they are
// factors of.
#pragma once

#include <math_constants.h>

#include "core/constants.h"
#include "transport/cuda/costs/pass.cuh"
#include "transport/cuda/costs/short_rows.cuh"
#include "transport/cuda/solve/side.cuh"

namespace warpalign::detail::transport {

// What a team joins behind the last iteration: the largest magnitudes of both sides' potentials, and of the
// rows' after one more update, and whether that update was out of range.
struct KeptEnds {
  float top[2] = {0, 0};
  float updated = 0;
  float out_of_range = 0;

  __device__ __forceinline__ void join(const KeptEnds& other) {
    top[0] = larger(top[0], other.top[0]);
    top[1] = larger(top[1], other.top[1]);
    updated = larger(updated, other.updated);
    out_of_range = larger(out_of_range, other.out_of_range);
  }
  // ends: whether rows were updated once more.
  __device__ __forceinline__ void tell(bool ends, ShortIterations& found) const {
    found.ends = ends && out_of_range == 0 ? 1 : 0;
    found.last.top[0] = found.ends > 0 ? updated : top[0];
    found.last.top[1] = top[1];
  }
};

template <class Real>
struct KeptScales {
  static constexpr int kMostBits = 24;
  static constexpr Real kHigh = 1 << kMostBits, kLow = Real(1) / kHigh;
  // Sums in range. Exponentials of smaller ones may have lost digits.
  static constexpr Real kLeastSum = 0x1p-60, kMostSum = 0x1p100;
  // From here on a relative change is not log2 of the quotient in first order.
  static constexpr double kCoarse = 0x1p-10;

  // How a side's scales follow from their sums.
  struct Law {
    bool is_hard;
    Real slope;  // 0: scales do not depend on sums
  };
  static __device__ __forceinline__ Law law_of(const Side<Real>& side, double epsilon) {
    const Marginal& m = side.marginal;
    return {m.is_hard(), static_cast<Real>(m.is_hard() ? 1.0 : m.strength / (m.strength + epsilon))};
  }
  // Of a point: numbers that do not change between two times at which E is made. The scale is target / sum on
  // a hard side, 2^(target - slope log2 sum) on a relaxed one, and target where the slope is 0. It stays 1 at
  // an infinite potential, of which target is none_of(law).
  //
  // Weights that no caller gives, and targets that follow from them, have the number of points as a factor:
  // they are 1, and not rounded. Otherwise the two sides' masses would differ by a rounding error, and each
  // iteration would move all potentials of one side against those of the other by log(a mass / the other).
  struct alignas(2 * sizeof(Real)) Point {
    Real target;
    Real reference;  // weight in the reference
  };
  static __device__ __forceinline__ Real none_of(const Law& law) {
    return law.is_hard ? Real(-1) : static_cast<Real>(CUDART_INF);
  }
  static __device__ __forceinline__ Point point_of(const Side<Real>& side, const Side<Real>& other,
                                                   const Law& law, double at, double weight) {
    const double slope = static_cast<double>(law.slope);
    const double own = side.p.weights ? 1 : side.count, of_other = other.p.weights ? 1 : other.count;
    const double of_sums = side.product ? of_other : own;  // the factor of the side's sums
    double target = of_sums * (side.product ? 1.0 : weight);
    if (law.slope == 0) {
      target = isinf(at) ? CUDART_NAN : exp2(-at);
    } else if (isinf(at)) {
      target = static_cast<double>(none_of(law));
    } else if (!law.is_hard) {
      target = slope * (at + side.target(weight) + log2(of_sums)) - at;
    }
    const double reference = side.reference(weight) * (side.product ? own : of_other);
    return {static_cast<Real>(target), static_cast<Real>(reference)};
  }
  // 1 / v, rounded without a bias: one of all scales would add up over iterations.
  static __device__ __forceinline__ Real reciprocal(Real v) {
    if constexpr (sizeof(Real) == 8) return 1 / v;
    const Real r = cuda::reciprocal_fast(v);
    return fma(fma(-v, r, Real(1)), r, r);
  }
  static __device__ __forceinline__ Real root(Real v) {
    if constexpr (sizeof(Real) == 4) return cuda::sqrt_fast(v);
    return sqrt(v);
  }

  // What decides how iterations go on.
  struct Course {
    bool symmetric;
    bool checks;     // whether moves are looked at
    bool is_coarse;  // the tolerance is
    Real tolerance;  // in bits

    // What is told of the last iteration's moves: whether they were below the tolerance.
    [[nodiscard]] __device__ __forceinline__ float moved(bool is_over) const {
      return is_over ? 0 : larger(1e-30F, 1.001F * static_cast<float>(tolerance));
    }
  };
  static __device__ __forceinline__ Course course_of(bool symmetric, double tolerance) {
    return {symmetric, tolerance > 0, tolerance >= kCoarse, static_cast<Real>(tolerance)};
  }
  // A potential with its scale. Raises the largest magnitude.
  static __device__ __forceinline__ double taken_in(float& top, double at, Real scale) {
    const double w = at + log2(static_cast<double>(scale));
    raise(top, w);
    return w;
  }
  // The new scales of kCount points, from their sums. goes_on: whether one moves by the tolerance. Leaves
  // flags of a scale or a sum out of range.
  template <int kCount>
  static __device__ __forceinline__ void update(const Course& course, const Law& law,
                                                const Point (&points)[kCount], const Real (&old)[kCount],
                                                const Real (&sums)[kCount], int* flags, bool& goes_on,
                                                Real (&to)[kCount]) {
    if (law.is_hard) {
#pragma unroll
      for (int r = 0; r < kCount; ++r) to[r] = points[r].target * reciprocal(sums[r]);
    } else {
#pragma unroll
      for (int r = 0; r < kCount; ++r) {
        to[r] = law.slope == 0 ? points[r].target : exp2_of(points[r].target - law.slope * log2(sums[r]));
      }
    }
    bool in_range = true;
#pragma unroll
    for (int r = 0; r < kCount; ++r) {
      in_range = in_range && to[r] >= kLow && to[r] <= kHigh && sums[r] >= kLeastSum && sums[r] <= kMostSum;
    }
    if (!in_range) {
#pragma unroll
      for (int r = 0; r < kCount; ++r) {
        const bool is_none = law.slope != 0 && points[r].target == none_of(law);
        if (is_none) to[r] = 1;
        const bool has_sum = sums[r] <= kMostSum && (is_none || law.slope == 0 || sums[r] >= kLeastSum);
        if (!has_sum || isnan(to[r])) flags[2] = 1;
        if (!(has_sum && to[r] >= kLow && to[r] <= kHigh)) flags[0] = 1;
      }
    }
    if (course.checks) {
#pragma unroll
      for (int r = 0; r < kCount; ++r) {
        const Real change = (to[r] - old[r]) * reciprocal(old[r]);
        const Real bits = course.is_coarse ? log2(1 + change) : change * kLog2E<Real>;
        goes_on = goes_on || !(abs(bits) < course.tolerance);
      }
    }
    if (!course.symmetric) return;
#pragma unroll
    for (int r = 0; r < kCount; ++r) to[r] = root(old[r] * to[r]);
  }

  // 2^(s - k c + low), where s is exact and low far below s. The exponent has the digits of two numbers:
  // scales reach 2^kMostBits, and one number's rounding error would be 1e-6 of an element that matters.
  static __device__ __forceinline__ Real exponential(Real k, Real c, Real s, Real low) {
    const Real product = -k * c, high = s + product;
    if (isinf(high)) return exp2_of(high);
    const Real of_product = high - s;
    // What the product's and the sum's rounding have left out.
    low += fma(-k, c, -product) + ((s - (high - of_product)) + (product - of_product));
    const Real t = high + low;
    return fma(exp2_of(t), (low - (t - high)) * kLn2<Real>, exp2_of(t));
  }
};

}  // namespace warpalign::detail::transport
