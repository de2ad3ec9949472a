// One feature's summand in the cost of two points.
#pragma once

#include "cuda/numbers/math.cuh"
#include "warpalign/cost_kind.h"

namespace warpalign::detail::transport {

// A sum of squares for kSquaredEuclidean and kEuclidean, of products for kCosine.
template <CostKind kKind, class Real>
__device__ __forceinline__ Real with_feature(Real sum, Real x, Real y) {
  if constexpr (kKind == CostKind::kCosine) return fma(x, y, sum);
  const Real difference = x - y;
  if constexpr (kKind == CostKind::kSquaredEuclidean || kKind == CostKind::kEuclidean) {
    return fma(difference, difference, sum);
  }
  const Real size = abs(difference);
  if constexpr (kKind == CostKind::kL1) return sum + size;
  const Real inner = size > 1 ? Real(1) : size;  // kHuber
  return fma(inner, size - inner / 2, sum);
}

// The derivative of such a summand with respect to x, without the factor that is the same for all features:
// the other point's feature for a cosine, otherwise a function of the difference.
template <CostKind kKind, class Real>
__device__ __forceinline__ Real slope_of(Real x, Real y) {
  if constexpr (kKind == CostKind::kCosine) return y;
  const Real difference = x - y;
  if constexpr (kKind == CostKind::kL1) {
    return difference > 0 ? Real(1) : difference < 0 ? Real(-1) : difference;
  }
  if constexpr (kKind == CostKind::kHuber) {
    return difference > 1 ? Real(1) : difference < -1 ? Real(-1) : difference;
  }
  return difference;
}
// The same of a kind that is known when the kernel runs.
template <class Real>
__device__ __forceinline__ Real slope_of(CostKind kind, Real x, Real y) {
  switch (kind) {
    case CostKind::kCosine:
      return slope_of<CostKind::kCosine>(x, y);
    case CostKind::kL1:
      return slope_of<CostKind::kL1>(x, y);
    case CostKind::kHuber:
      return slope_of<CostKind::kHuber>(x, y);
    default:
      return slope_of<CostKind::kSquaredEuclidean>(x, y);
  }
}

}  // namespace warpalign::detail::transport
