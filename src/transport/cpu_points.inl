// The kernels of cpu_kernel.h for points: costs, gradients and their derivatives. Vectors run over the points
// of the other side.
namespace WARPALIGN_SIMD_NAMESPACE {
namespace {

using warpalign::CostKind;
using warpalign::detail::transport::PlanRows;
using warpalign::detail::transport::PointRow;
using warpalign::detail::transport::PointTangents;

template <class V>
WARPALIGN_INLINE V magnitude(V v) {
  return v > 0 ? v : -v;
}

WARPALIGN_INLINE F32 root(F32 v) {
  for (int k = 0; k < kLanes<float>; ++k) v[k] = __builtin_sqrtf(v[k]);
  return v;
}
WARPALIGN_INLINE F64 root(F64 v) {
  for (int k = 0; k < kLanes<double>; ++k) v[k] = __builtin_sqrt(v[k]);
  return v;
}

// One feature's part of a cost.
template <CostKind kKind, class V, class Real>
WARPALIGN_INLINE V part_of(Real x, V y) {
  if constexpr (kKind == CostKind::kCosine) return y * x;
  const V difference = y - x;
  if constexpr (kKind == CostKind::kSquaredEuclidean || kKind == CostKind::kEuclidean) {
    return difference * difference;
  }
  const V size = magnitude(difference);
  if constexpr (kKind == CostKind::kL1) return size;
  const V inner = size < 1 ? size : V{} + 1;
  return inner * (size - inner / 2);
}

// Its derivative with respect to x, without the factor that all features share.
template <CostKind kKind, class V, class Real>
WARPALIGN_INLINE V slope_of(Real x, V y) {
  if constexpr (kKind == CostKind::kCosine) return y;
  const V difference = x - y;
  if constexpr (kKind == CostKind::kSquaredEuclidean) return difference * 2;
  if constexpr (kKind == CostKind::kEuclidean) return difference;
  const V one = V{} + 1;
  if constexpr (kKind == CostKind::kL1) return difference > 0 ? one : (difference < 0 ? -one : V{});
  return difference > 1 ? one : (difference < -1 ? -one : difference);
}

// How features make a cost.
template <CostKind kKind>
struct SumOfParts {
  template <class V, class Real>
  static WARPALIGN_INLINE V with(V sum, Real x, V y) {
    return sum + part_of<kKind>(x, y);
  }
  template <class V>
  static WARPALIGN_INLINE V finished(V sum) {
    if constexpr (kKind == CostKind::kEuclidean) return root(sum);
    if constexpr (kKind == CostKind::kCosine) return 1 - sum;
    return sum;
  }
};
struct SumOfProducts {
  template <class V, class Real>
  static WARPALIGN_INLINE V with(V sum, Real x, V y) {
    return sum + y * x;
  }
  template <class V>
  static WARPALIGN_INLINE V finished(V sum) {
    return sum;
  }
};
struct LargestPart {
  template <class V, class Real>
  static WARPALIGN_INLINE V with(V top, Real x, V y) {
    return max_or_nan(magnitude(V(y - x)), top);  // in this order, 0 stays 0 beside -0
  }
  template <class V>
  static WARPALIGN_INLINE V finished(V top) {
    return top;
  }
};

// The costs of kRows points x and kVectors vectors of y from j on.
template <class Parts, int kRows, int kVectors, class Real>
WARPALIGN_INLINE void tile_of_costs(const PointRow<Real>& points, int j, Real* cost, std::ptrdiff_t stride) {
  using V = typename VectorOf<Real>::Type;
  constexpr int kStep = kLanes<Real>;
  V sum[kRows][kVectors] = {};
  const Real* y = points.y_t + j;
  for (int d = 0; d < points.dim; ++d, y += points.stride) {
    for (int k = 0; k < kVectors; ++k) {
      const V of_y = load(y + k * kStep);
      for (int i = 0; i < kRows; ++i) {
        sum[i][k] = Parts::with(sum[i][k], points.x[static_cast<std::ptrdiff_t>(i) * points.dim + d], of_y);
      }
    }
  }
  for (int i = 0; i < kRows; ++i) {
    for (int k = 0; k < kVectors; ++k) store(cost + i * stride + j + k * kStep, Parts::finished(sum[i][k]));
  }
}

template <class Parts, int kRows, int kVectors, class Real>
void rows_of_costs(const PointRow<Real>& points, Real* cost, std::ptrdiff_t stride) {
  constexpr int kStep = kLanes<Real>;
  int j = 0;
  for (; j + kVectors * kStep <= points.m; j += kVectors * kStep) {
    tile_of_costs<Parts, kRows, kVectors>(points, j, cost, stride);
  }
  for (; j < points.m; j += kStep) tile_of_costs<Parts, kRows, 1>(points, j, cost, stride);
}

template <class Parts, class Real>
void costs_of(PointRow<Real> points, int rows, Real* cost, std::ptrdiff_t stride) {
  using warpalign::detail::transport::kCpuRows;
  if (rows == kCpuRows) return rows_of_costs<Parts, kCpuRows, 2>(points, cost, stride);
  for (int i = 0; i < rows; ++i, points.x += points.dim) {
    rows_of_costs<Parts, 1, 4>(points, cost + i * stride, stride);
  }
}

// Features d to d + kFeatures of the gradients of kRows points.
template <CostKind kKind, int kRows, int kFeatures, class Real>
WARPALIGN_INLINE void tile_of_gradients(const PointRow<Real>& points, int d, const PlanRows<Real>& of,
                                        double* gradient) {
  using V = typename VectorOf<Real>::Type;
  constexpr int kStep = kLanes<Real>;
  // A squared distance has twice the slope of a distance times its length.
  constexpr bool kIsSquare = kKind == CostKind::kSquaredEuclidean;
  constexpr CostKind kSlope = kIsSquare ? CostKind::kEuclidean : kKind;
  Real x[kRows][kFeatures] = {};
  for (int i = 0; i < kRows && kKind != CostKind::kCosine; ++i) {  // else x is null
    for (int k = 0; k < kFeatures; ++k) x[i][k] = points.x[i * points.dim + d + k];
  }
  const Real* const y = points.y_t + d * points.stride;
  double sums[kRows][kFeatures] = {};
  for (int begin = 0; begin < points.m; begin += kChunk) {
    V sum[kRows][kFeatures] = {};
    const int end = begin + kChunk < points.m ? begin + kChunk : points.m;
    for (int j = begin; j < end; j += kStep) {
      V of_y[kFeatures];
      for (int k = 0; k < kFeatures; ++k) of_y[k] = load(y + k * points.stride + j);
      for (int i = 0; i < kRows; ++i) {
        V p = load(of.plan + i * of.plan_stride + j);  // 0 in the padding
        if constexpr (kKind == CostKind::kEuclidean) {
          const V distance = load(of.cost + i * of.cost_stride + j);
          p = distance > 0 ? p / distance : V{};
        }
        for (int k = 0; k < kFeatures; ++k) {
          const V slope = slope_of<kSlope>(x[i][k], of_y[k]);
          sum[i][k] += p * (p == 0 ? V{} : slope);  // a slope may be infinite there
        }
      }
    }
    for (int i = 0; i < kRows; ++i) {
      for (int k = 0; k < kFeatures; ++k) sums[i][k] += sum_of_lanes<Real>(sum[i][k]);
    }
  }
  for (int i = 0; i < kRows; ++i) {
    for (int k = 0; k < kFeatures; ++k) {
      gradient[i * points.dim + d + k] = kIsSquare ? 2 * sums[i][k] : sums[i][k];
    }
  }
}

template <CostKind kKind, int kRows, int kFeatures, class Real>
void rows_of_gradients(const PointRow<Real>& points, const PlanRows<Real>& of, double* gradient) {
  int d = 0;
  for (; d + kFeatures <= points.dim; d += kFeatures) {
    tile_of_gradients<kKind, kRows, kFeatures>(points, d, of, gradient);
  }
  for (; d < points.dim; ++d) tile_of_gradients<kKind, kRows, 1>(points, d, of, gradient);
}

// Several rows share the features of y, and several features an entry of the plan. The Euclidean distance
// divides entries, which more features share.
template <CostKind kKind, class Real>
void gradients_of(PointRow<Real> points, PlanRows<Real> of, double* gradient) {
  using warpalign::detail::transport::kCpuRows;
  if constexpr (kKind != CostKind::kEuclidean) {
    if (of.count == kCpuRows) return rows_of_gradients<kKind, kCpuRows, 2>(points, of, gradient);
  }
  for (int i = 0; i < of.count; ++i) {
    rows_of_gradients<kKind, 1, 4>(points, of, gradient + static_cast<std::ptrdiff_t>(i) * points.dim);
    if constexpr (kKind != CostKind::kCosine) points.x += points.dim;
    of.plan += of.plan_stride;
    of.cost += of.cost_stride;
  }
}

template <CostKind kKind, class Real>
void cost_tangents_of(const PointRow<Real>& row, const PointTangents<Real>& along, const Real* cost,
                      Real* to) {
  using V = typename VectorOf<Real>::Type;
  for (int j = 0; j < row.m; j += kLanes<Real>) {
    V sum{};
    for (int d = 0; d < row.dim; ++d) {
      const V y = load(row.y_t + d * row.stride + j);
      const V moved = load(along.y_t + d * row.stride + j);
      if constexpr (kKind == CostKind::kCosine) {
        sum -= y * along.x[d] + moved * row.x[d];
      } else {
        sum += slope_of<kKind>(row.x[d], y) * (along.x[d] - moved);
      }
    }
    if constexpr (kKind == CostKind::kEuclidean) {
      const V distance = load(cost + j);
      sum = distance > 0 ? sum / distance : V{};
    }
    store(to + j, sum);
  }
}

// The derivative of one feature's part of a gradient: slope and its own derivative, times plan and tangent.
template <CostKind kKind, class V, class Real>
WARPALIGN_INLINE V bent(Real x, V y, Real x_moved, V y_moved, V distance, V distance_moved, V p, V p_moved) {
  if constexpr (kKind == CostKind::kCosine) return p_moved * y + p * y_moved;
  const V slope = slope_of<kKind>(x, y);
  const V moved = x_moved - y_moved;
  if constexpr (kKind == CostKind::kSquaredEuclidean) return p_moved * slope + p * moved * 2;
  if constexpr (kKind == CostKind::kEuclidean) {
    const V unit = slope / distance;
    const V all = p_moved * unit + p * (moved - unit * distance_moved) / distance;
    return distance > 0 ? all : V{};
  }
  if constexpr (kKind == CostKind::kL1) return p_moved * slope;
  const V size = magnitude(V(x - y));
  return p_moved * slope + (size <= 1 ? p * moved : V{});
}

template <CostKind kKind, class Real>
void gradient_tangent_of(const PointRow<Real>& row, const PointTangents<Real>& along, const Real* cost,
                         const Real* cost_tangent, const Real* plan, const Real* plan_tangent,
                         double* gradient) {
  using V = typename VectorOf<Real>::Type;
  constexpr int kStep = kLanes<Real>;
  for (int d = 0; d < row.dim; ++d) {
    const Real* const y = row.y_t + d * row.stride;
    const Real* const moved = along.y_t + d * row.stride;
    double sum = 0;
    for (int begin = 0; begin < row.m; begin += kChunk) {
      V lanes_sum{};
      const int end = begin + kChunk < row.m ? begin + kChunk : row.m;
      for (int j = begin; j < end; j += kStep) {
        lanes_sum += bent<kKind>(row.x[d], load(y + j), along.x[d], load(moved + j), load(cost + j),
                                 load(cost_tangent + j), load(plan + j), load(plan_tangent + j));
      }
      sum += sum_of_lanes<Real>(lanes_sum);
    }
    gradient[d] = sum;
  }
}

template <class Real>
void products(const PointRow<Real>& row, Real* to) {
  costs_of<SumOfProducts>(row, 1, to, 0);
}

// Calls body.template operator()<kind>().
template <class Body>
WARPALIGN_INLINE void with_kind(CostKind kind, Body body) {
  switch (kind) {
    case CostKind::kSquaredEuclidean:
      return body.template operator()<CostKind::kSquaredEuclidean>();
    case CostKind::kEuclidean:
      return body.template operator()<CostKind::kEuclidean>();
    case CostKind::kL1:
      return body.template operator()<CostKind::kL1>();
    case CostKind::kCosine:
      return body.template operator()<CostKind::kCosine>();
    case CostKind::kHuber:
      return body.template operator()<CostKind::kHuber>();
  }
}

template <class Real>
void costs(const PointRow<Real>& points, int rows, Real* cost, std::ptrdiff_t stride) {
  with_kind(points.kind, [&]<CostKind kKind>() { costs_of<SumOfParts<kKind>>(points, rows, cost, stride); });
}

template <class Real>
void largest_differences(const PointRow<Real>& points, int rows, Real* to, std::ptrdiff_t stride) {
  costs_of<LargestPart>(points, rows, to, stride);
}

template <class Real>
void gradient(const PointRow<Real>& points, const PlanRows<Real>& of, double* to) {
  with_kind(points.kind, [&]<CostKind kKind>() { gradients_of<kKind>(points, of, to); });
}

template <class Real>
void cost_tangents(const PointRow<Real>& row, const PointTangents<Real>& along, const Real* cost, Real* to) {
  with_kind(row.kind, [&]<CostKind kKind>() { cost_tangents_of<kKind>(row, along, cost, to); });
}

template <class Real>
void gradient_tangent(const PointRow<Real>& row, const PointTangents<Real>& along, const Real* cost,
                      const Real* cost_tangent, const Real* plan, const Real* plan_tangent, double* to) {
  with_kind(row.kind, [&]<CostKind kKind>() {
    gradient_tangent_of<kKind>(row, along, cost, cost_tangent, plan, plan_tangent, to);
  });
}

}  // namespace
}  // namespace WARPALIGN_SIMD_NAMESPACE
