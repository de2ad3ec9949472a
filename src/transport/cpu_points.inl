// The kernels of cpu_kernel.h for points: costs, gradients and their derivatives. Vectors run over the points
// of the other side.
namespace WARPALIGN_SIMD_NAMESPACE {
namespace {

using warpalign::CostKind;
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

// Four vectors at a time, so that a feature of x is used four times.
template <CostKind kKind, class Real>
void costs_of(const PointRow<Real>& row, Real* cost) {
  using V = typename VectorOf<Real>::Type;
  constexpr int kStep = kLanes<Real>;
  const auto finished = [](V sum) -> V {
    if constexpr (kKind == CostKind::kEuclidean) return root(sum);
    if constexpr (kKind == CostKind::kCosine) return 1 - sum;
    return sum;
  };
  int j = 0;
  for (; j + 4 * kStep <= row.m; j += 4 * kStep) {
    V sum[4] = {};
    const Real* y = row.y_t + j;
    for (int d = 0; d < row.dim; ++d, y += row.stride) {
      for (int k = 0; k < 4; ++k) sum[k] += part_of<kKind>(row.x[d], load(y + k * kStep));
    }
    for (int k = 0; k < 4; ++k) store(cost + j + k * kStep, finished(sum[k]));
  }
  for (; j < row.m; j += kStep) {
    V sum{};
    const Real* y = row.y_t + j;
    for (int d = 0; d < row.dim; ++d, y += row.stride) sum += part_of<kKind>(row.x[d], load(y));
    store(cost + j, finished(sum));
  }
}

template <CostKind kKind, class Real>
void gradient_of(const PointRow<Real>& row, const Real* cost, const Real* plan, double* gradient) {
  using V = typename VectorOf<Real>::Type;
  constexpr int kStep = kLanes<Real>;
  for (int d = 0; d < row.dim; ++d) {
    const Real* const y = row.y_t + d * row.stride;
    Real x{};
    if constexpr (kKind != CostKind::kCosine) x = row.x[d];  // row.x may be null otherwise
    double sum = 0;
    for (int begin = 0; begin < row.m; begin += kChunk) {
      V lanes_sum{};
      const int end = begin + kChunk < row.m ? begin + kChunk : row.m;
      for (int j = begin; j < end; j += kStep) {
        V p = load(plan + j);  // 0 in the padding
        if constexpr (kKind == CostKind::kEuclidean) {
          const V distance = load(cost + j);
          p = distance > 0 ? p / distance : V{};
        }
        lanes_sum += p == 0 ? V{} : p * slope_of<kKind>(x, load(y + j));
      }
      sum += sum_of_lanes<Real>(lanes_sum);
    }
    gradient[d] = sum;
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
  using V = typename VectorOf<Real>::Type;
  for (int j = 0; j < row.m; j += kLanes<Real>) {
    V sum{};
    for (int d = 0; d < row.dim; ++d) sum += load(row.y_t + d * row.stride + j) * row.x[d];
    store(to + j, sum);
  }
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
void costs(const PointRow<Real>& row, Real* cost) {
  with_kind(row.kind, [&]<CostKind kKind>() { costs_of<kKind>(row, cost); });
}

template <class Real>
void gradient(const PointRow<Real>& row, const Real* cost, const Real* plan_row, double* to) {
  with_kind(row.kind, [&]<CostKind kKind>() { gradient_of<kKind>(row, cost, plan_row, to); });
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
