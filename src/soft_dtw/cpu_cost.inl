// Sources of a tile's scaled costs c = C log2(e)/gamma, a vector of one anti-diagonal at a time.
namespace WARPALIGN_SIMD_NAMESPACE {

// (x - y)^2 summed over few features, on the fly.
template <class V>
WARPALIGN_INLINE V squared(V v) {
  return v * v;
}

template <class Cell, int kDim>
class SeriesCost {
 public:
  using Real = typename Cell::Real;
  using V = typename Cell::V;

  SeriesCost(const typename Cell::Pair& p, int row0, int column0, int)
      : x_(p.x + row0),
        y_(p.y),
        x_stride_(p.x_stride),
        y_stride_(p.y_stride),
        y_corner_(p.m - 1 - column0),
        scale_(p.scale) {}

  // Column d - r of the tile is element y_corner - d + r of the reversed series.
  WARPALIGN_INLINE void begin_diagonal(int d, int, int) { y_begin_ = y_corner_ - d; }

  WARPALIGN_INLINE V at(int r) const {
    const Real* x = x_ + r;
    const Real* y = y_ + (y_begin_ + r);
    V sum = squared(load(x) - load(y));
    for (int k = 1; k < kDim; ++k) sum += squared(load(x + k * x_stride_) - load(y + k * y_stride_));
    return sum * scale_;
  }

 private:
  const Real* const x_;
  const Real* const y_;
  const Index x_stride_;
  const Index y_stride_;
  const Index y_corner_;
  const Real scale_;
  Index y_begin_ = 0;
};

// One feature's part of a cost, by the difference.
template <Metric kMetric, class V>
WARPALIGN_INLINE V metric_term(V difference) {
  if constexpr (kMetric == Metric::kSquared || kMetric == Metric::kNorm) return squared(difference);
  const V magnitude = max(difference, -difference);
  if constexpr (kMetric == Metric::kAbsolute) return magnitude;
  const V inner = magnitude < 1 ? magnitude : V{} + 1;
  return inner * (magnitude - inner / 2);
}

// Calls body.template operator()<metric>().
template <class Body>
WARPALIGN_INLINE void with_metric(Metric metric, Body body) {
  switch (metric) {
    case Metric::kSquared:
      return body.template operator()<Metric::kSquared>();
    case Metric::kNorm:
      return body.template operator()<Metric::kNorm>();
    case Metric::kAbsolute:
      return body.template operator()<Metric::kAbsolute>();
    case Metric::kHuber:
      return body.template operator()<Metric::kHuber>();
  }
}

// Costs for many features, for any metric, with or without missing steps: those of kCpuCostDiagonals
// anti-diagonals at a time. A vector of x is then loaded once for all of them, their vectors of y share cache
// lines, and there are enough independent sums to hide the adder's latency. Costs outside an anti-diagonal's
// own rows are undefined, and the sweep does not use them.
template <class Cell>
class BufferedCost {
 public:
  using Real = typename Cell::Real;
  using V = typename Cell::V;

  BufferedCost(const typename Cell::Pair& p, int row0, int column0, int h)
      : p_(p), row0_(row0), h_(h), y_corner_(p.m - 1 - column0), slots_(h + 2 * kCpuPad) {}

  WARPALIGN_INLINE void begin_diagonal(int d, int low, int high) {
    if (d >= first_ + kCpuCostDiagonals) compute(d, low, high);
    diagonal_ = p_.diagonal_cost + (d - first_) * slots_;
  }

  WARPALIGN_INLINE V at(int r) const { return load(diagonal_ + r); }

 private:
  // Computes anti-diagonal d, which has the rows low to high, and those that follow. From one to the next the
  // rows grow by at most 1.
  void compute(int d, int low, int high) {
    first_ = d;
    high = high + kCpuCostDiagonals - 1 < h_ - 1 ? high + kCpuCostDiagonals - 1 : h_ - 1;
    const Real scale = p_.scale;
    with_metric(p_.metric, [&]<Metric kMetric>() { compute_metric<kMetric>(d, low, high, scale); });
    if (p_.x_weight) forget_missing(d, low, high);
  }

  template <Metric kMetric>
  WARPALIGN_INLINE void compute_metric(int d, int low, int high, Real scale) {
    // One vector more than the rows need: the sweep's vectors may begin at a later row than `low`.
    for (int r = low; r < high + Cell::kLanes; r += Cell::kLanes) {
      const Real* x = p_.x + row0_ + r;
      const Real* y = p_.y + (y_corner_ - d + r);
      V sum[kCpuCostDiagonals] = {};
      for (int k = 0; k < p_.dim; ++k, x += p_.x_stride, y += p_.y_stride) {
        const V here = load(x);
        for (int u = 0; u < kCpuCostDiagonals; ++u) sum[u] += metric_term<kMetric>(here - load(y - u));
      }
      Real* const to = p_.diagonal_cost + r;
      for (int u = 0; u < kCpuCostDiagonals; ++u) {
        Real* const costs = to + u * slots_;
        store(costs, kMetric == Metric::kNorm ? sum[u] : sum[u] * scale);
        if constexpr (kMetric == Metric::kNorm) {
          for (int k = 0; k < Cell::kLanes; ++k) costs[k] = scale * root(costs[k]);
        }
      }
    }
  }

  void forget_missing(int d, int low, int high) {
    for (int r = low; r < high + Cell::kLanes; r += Cell::kLanes) {
      const V here = load(p_.x_weight + row0_ + r);
      for (int u = 0; u < kCpuCostDiagonals; ++u) {
        const V weight = here * load(p_.y_weight + (y_corner_ - d + r - u));
        Real* const costs = p_.diagonal_cost + r + u * slots_;
        store(costs, weight == 0 ? V{} : load(costs));
      }
    }
  }

  static WARPALIGN_INLINE float root(float v) { return __builtin_sqrtf(v); }
  static WARPALIGN_INLINE double root(double v) { return __builtin_sqrt(v); }

  const typename Cell::Pair& p_;
  const int row0_;
  const int h_;
  const Index y_corner_;
  const int slots_;
  int first_ = -kCpuCostDiagonals;  // the first anti-diagonal whose costs are in the buffer
  const Real* diagonal_ = nullptr;
};

// Costs from the caller's matrix. An anti-diagonal is gathered before its vectors run. Neighbouring
// anti-diagonals share cache lines.
template <class Cell>
class MatrixCost {
 public:
  using Real = typename Cell::Real;
  using V = typename Cell::V;

  MatrixCost(const typename Cell::Pair& p, int row0, int column0, int)
      : p_(p),
        offset_(row0 * p.cost_stride[0] + column0 * p.cost_stride[1]),
        diagonal_(p.diagonal_cost),
        scale_(p.scale) {}

  WARPALIGN_INLINE void begin_diagonal(int d, int low, int high) {
    p_.float_storage ? gather<float>(d, low, high) : gather<double>(d, low, high);
    for (int k = 1; k < Cell::kLanes; ++k) diagonal_[high + k] = diagonal_[high];
  }

  WARPALIGN_INLINE V at(int r) const { return load(diagonal_ + r) * scale_; }

 private:
  template <class Storage>
  WARPALIGN_INLINE void gather(int d, int low, int high) {
    const Storage* from = static_cast<const Storage*>(p_.cost) + offset_ + d * p_.cost_stride[1];
    const Index step = p_.cost_stride[0] - p_.cost_stride[1];
    for (int r = low; r <= high; ++r) diagonal_[r] = static_cast<Real>(from[r * step]);
  }

  const typename Cell::Pair& p_;
  const Index offset_;
  Real* const diagonal_;
  const Real scale_;
};

}  // namespace WARPALIGN_SIMD_NAMESPACE
