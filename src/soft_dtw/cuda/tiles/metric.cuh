// What a difference of two features means to each metric: its part of the cost, and its slope.
#pragma once

#include <cfloat>
#include <cmath>
#include <type_traits>

#include "soft_dtw/cuda/call/params.cuh"
#include "soft_dtw/cuda/second_order/dual.cuh"

namespace warpalign::detail::soft_dtw {

// t^2, |t| or h(t), as m (|t| - part m) where m is |t| within [least, most]. A Euclidean distance is the root
// of the sum of squares.
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

// The derivative of a metric by one difference, but for a factor: the difference itself, times `steepness`,
// within +-limit. It is always finite: where the weight is 0 so is the product, whatever the difference.
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
    // A steep one is a step, whose height is 1: differences of 1 are no reason to take it for straight.
    const bool is_straight = steepness == Scale(1) && slope == difference.value && weight.value != 0;
    return {slope, is_straight ? difference.tangent : 0.0};
  }
};

}  // namespace warpalign::detail::soft_dtw
