// Where a tile's scaled costs c = C log2(e)/gamma come from, a vector of one anti-diagonal at a time.
namespace WARPALIGN_SIMD_NAMESPACE {

// (x - y)^2 summed over the features: kDim of them, or (0) as many as the pair has.
template <class Cell, int kDim>
class SeriesCost {
 public:
  using Real = typename Cell::Real;
  using V = typename Cell::V;

  SeriesCost(const typename Cell::Pair& p, int row0, int column0)
      : x_(p.x + row0),
        y_(p.y),
        x_stride_(p.x_stride),
        y_stride_(p.y_stride),
        y_corner_(p.m - 1 - column0),
        dim_(p.dim),
        scale_(p.scale) {}

  // Column d - r of the tile is element y_corner - d + r of the reversed series.
  WARPALIGN_INLINE void begin_diagonal(int d, int, int) { y_begin_ = y_corner_ - d; }

  WARPALIGN_INLINE V at(int r) const {
    const Real* x = x_ + r;
    const Real* y = y_ + (y_begin_ + r);
    if constexpr (kDim > 0) {
      V sum = squared(load(x) - load(y));
      for (int k = 1; k < kDim; ++k) sum += squared(load(x + k * x_stride_) - load(y + k * y_stride_));
      return sum * scale_;
    } else {
      return many_features(x, y) * scale_;
    }
  }

 private:
  static WARPALIGN_INLINE V squared(V v) { return v * v; }

  // Four sums at a time, because each waits for its last addition.
  WARPALIGN_INLINE V many_features(const Real* x, const Real* y) const {
    V sum[4] = {};
    int k = 0;
    for (; k + 4 <= dim_; k += 4) {
      for (int u = 0; u < 4; ++u) {
        sum[u] += squared(load(x) - load(y));
        x += x_stride_;
        y += y_stride_;
      }
    }
    for (; k < dim_; ++k) {
      sum[0] += squared(load(x) - load(y));
      x += x_stride_;
      y += y_stride_;
    }
    return (sum[0] + sum[1]) + (sum[2] + sum[3]);
  }

  const Real* const x_;
  const Real* const y_;
  const Index x_stride_;
  const Index y_stride_;
  const Index y_corner_;
  const int dim_;
  const Real scale_;
  Index y_begin_ = 0;
};

// The caller's matrix: an anti-diagonal is gathered before its vectors run. Neighbouring anti-diagonals share
// their cache lines.
template <class Cell>
class MatrixCost {
 public:
  using Real = typename Cell::Real;
  using V = typename Cell::V;

  MatrixCost(const typename Cell::Pair& p, int row0, int column0)
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
