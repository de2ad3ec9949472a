// For each metric, the contribution of a feature's difference to the cost, and its derivative (slope).
#pragma once

#include <cfloat>
#include <cmath>
#include <type_traits>

#include "soft_dtw/cuda/call/params.cuh"
#include "soft_dtw/cuda/second_order/dual.cuh"

namespace warpalign::detail::soft_dtw {

// t^2, |t| or h(t), as m (|t| - part m) with m = |t| clamped to [least, most]. A Euclidean distance is the
// root of the sum of squares.
template <class Real>
struct Distance {
  using Scale = std::conditional_t<std::is_same_v<Real, Dual>, double, Real>;
  Scale least;
  Scale most;
  Scale part;

  __device__ explicit Distance(Metric metric)
      : least(metric == Metric::kAbsolute ? Scale(1) : Scale(0)),
        most(metric == Metric::kAbsolute || metric == Metric::kHuber ? Scale(1)
                                                                     : static_cast<Scale>(INFINITY)),
        part(metric == Metric::kHuber ? Scale(0.5) : Scale(0)) {}

  [[nodiscard]] __device__ __forceinline__ Real of(Real difference) const {
    const Real t = abs(difference);
    const Real m = max(min(t, Real(most)), Real(least));
    return m * (t - Real(part) * m);
  }
};

// The derivative of a metric with respect to one difference, up to a constant factor: the difference times
// `steepness`, clamped to +-limit. It is always finite, so that its product with a weight of 0 is 0.
template <class Scale>
struct Slope {
  Scale steepness;
  Scale limit;
  Scale factor;

  __device__ explicit Slope(Metric metric)
      : steepness(metric == Metric::kAbsolute ? static_cast<Scale>(sizeof(Scale) == 4 ? 0x1p126 : 0x1p1000)
                                              : Scale(1)),
        limit(metric == Metric::kAbsolute || metric == Metric::kHuber
                  ? Scale(1)
                  : static_cast<Scale>(sizeof(Scale) == 4 ? FLT_MAX : DBL_MAX)),
        factor(metric == Metric::kSquared ? Scale(2) : Scale(1)) {}

  [[nodiscard]] __device__ __forceinline__ Scale of(Scale /*weight*/, Scale difference) const {
    return max(min(difference * steepness, limit), -limit);  // limit for NaN
  }
  [[nodiscard]] __device__ __forceinline__ Dual of(Dual weight, Dual difference) const {
    const double slope = of(weight.value, difference.value);
    // A slope with steepness > 1 is a sign function: differences of 1 do not make it a difference.
    const bool is_straight = steepness == Scale(1) && slope == difference.value && weight.value != 0;
    return {slope, is_straight ? difference.tangent : 0.0};
  }
};

}  // namespace warpalign::detail::soft_dtw
