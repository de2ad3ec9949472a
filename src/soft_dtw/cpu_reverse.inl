// The reverse sweep over one tile whose transition weights forward_tile() has stored.
//
// A cell divides its E among three predecessors. The shares are in buffers, indexed by the row of the cell
// that sends them. `up` and `left` are read one anti-diagonal later, `diagonal` two later, so that there are
// two buffers of it. Each element is read before it is overwritten.
namespace WARPALIGN_SIMD_NAMESPACE {

// E that flows over the tile's borders: in from below and from the right, out to the top and to the left.
template <class Real>
struct Flows {
  const Real* below;  // [c]
  const Real* right;  // [r]
  Real* top;          // [1 + c], [0] is the corner; added to
  Real* left;         // [r]; added to
};

// The sums to which a tile adds its gradients, one row per feature. The gradient of row r is at x[r]. That of
// column c is at y[w - 1 - c], because y runs backwards. Vectors also add zeros to some elements after the
// last one, which belong to neighbouring tiles. If several workers share a pair, another worker may be
// writing them, so a tile adds to copies.
template <class Cell>
struct TileGradients {
  typename Cell::Real* x;
  typename Cell::Real* y;
  Index x_stride;
  Index y_stride;
};

template <class Cell>
WARPALIGN_INLINE TileGradients<Cell> gradients_in_place(const typename Cell::Pair& p, const Tile<Cell>& t) {
  return {p.grad_x + t.row0, p.grad_y + (p.m - t.column0 - t.w), p.x_stride, p.y_stride};
}

template <class Cell>
WARPALIGN_INLINE TileGradients<Cell> gradients_of(const typename Cell::Pair& p, const Tile<Cell>& t) {
  if (!p.grad_x) return {};
  if (!p.tile_grad_x) return gradients_in_place<Cell>(p, t);
  return {p.tile_grad_x, p.tile_grad_y, kCpuTileStride, kCpuTileStride};
}

template <class Cell>
void copy_gradients(const Tile<Cell>& t, int dim, TileGradients<Cell> from, TileGradients<Cell> to) {
  for (int k = 0; k < dim; ++k) {
    __builtin_memcpy(to.x + k * to.x_stride, from.x + k * from.x_stride, t.h * sizeof(*to.x));
    __builtin_memcpy(to.y + k * to.y_stride, from.y + k * from.y_stride, t.w * sizeof(*to.y));
  }
}

template <class Real>
struct FlowBuffers {
  Real* up;
  Real* left;
  Real* diagonal[2];
};

// Adds E times the metric's derivative with respect to x (half of it for kSquared) to both gradients, for a
// vector of cells. The driver sets the sign of y's gradient. E = 0 adds 0 even if the difference is infinite,
// which occurs in Cell64 only.
template <class Cell, Metric kMetric = Metric::kSquared>
WARPALIGN_INLINE void add_gradient(typename Cell::V e, const typename Cell::Real* x,
                                   const typename Cell::Real* y, typename Cell::Real* grad_x,
                                   typename Cell::Real* grad_y) {
  using V = typename Cell::V;
  const V difference = load(x) - load(y);
  V g = e * difference;
  if constexpr (kMetric == Metric::kAbsolute) g = difference > 0 ? e : (difference < 0 ? -e : V{});
  if constexpr (kMetric == Metric::kHuber) g = difference > 1 ? e : (difference < -1 ? -e : g);
  if constexpr (sizeof(typename Cell::Real) == 8) g = e == V{} ? V{} : g;
  store(grad_x, load(grad_x) + g);
  store(grad_y, load(grad_y) + g);
}

template <class Real>
WARPALIGN_INLINE void enter_borders(int d, int h, int w, const Flows<Real>& flows,
                                    const FlowBuffers<Real>& buffers, Real* diagonal) {
  if (d >= h - 1) {
    buffers.up[h] = flows.below[d - h + 1];
    diagonal[h] = 0;
  }
  if (d >= w - 1) {
    buffers.left[d - w + 1] = flows.right[d - w + 1];
    diagonal[d - w + 2] = 0;
  }
}

template <class Real>
WARPALIGN_INLINE void leave_borders(int d, Rows rows, const Flows<Real>& flows,
                                    const FlowBuffers<Real>& buffers, const Real* diagonal) {
  if (rows.low == 0) {  // row 0
    flows.top[d + 1] += buffers.up[0];
    flows.top[d] += diagonal[0];
  }
  if (rows.high == d) {  // column 0; row 0 has sent the corner's diagonal share
    flows.left[d] += buffers.left[d];
    if (d > 0) flows.left[d - 1] += diagonal[d];
  }
}

// The cells beside the band's part of an anti-diagonal send nothing.
template <class Real>
WARPALIGN_INLINE void close_band(Rows rows, const FlowBuffers<Real>& buffers, Real* diagonal) {
  buffers.up[rows.high + 1] = 0;
  diagonal[rows.high + 1] = 0;
  if (rows.low > 0) {
    buffers.left[rows.low - 1] = 0;
    diagonal[rows.low - 1] = 0;
  }
}

// part log2(part) for shares from 0 to 1.
template <class V>
WARPALIGN_INLINE V times_log2(V part) {
  return part * log2_of(part);
}

// kDim: the number of features whose gradients are accumulated in the sweep; 0: none. kStoreE: E replaces the
// `up` weights. kEntropy: sums the entropy of the distribution of paths, E times the entropy of the choice of
// a predecessor over all cells.
template <class Cell, int kDim, bool kStoreE, bool kEntropy>
void reverse_tile(const typename Cell::Pair& p, const Tile<Cell>& t, const Flows<typename Cell::Real>& flows,
                  const TileGradients<Cell> gradients) {
  using Real = typename Cell::Real;
  using V = typename Cell::V;
  const int slots = t.h + 2 * kCpuPad;
  Real* const flow = p.diagonal_flow;
  for (int k = 0; k < 4 * slots; ++k) flow[k] = 0;
  const FlowBuffers<Real> buffers{flow, flow + slots, {flow + 2 * slots, flow + 3 * slots}};
  const auto lane = lanes(V{});
  // Local copies: the compiler must assume that a vector's store changes any member of p.
  const Real* const x = kDim > 0 ? p.x + t.row0 : nullptr;
  const Index x_stride = p.x_stride;
  const Index y_stride = p.y_stride;

  Index offset = 0;
  for (int d = 0; d < t.h + t.w - 1; ++d) offset += slots_of<Cell>(rows_of<Cell>(p, t, d));
  for (int d = t.h + t.w - 2; d >= 0; --d) {
    const Rows rows = rows_of<Cell>(p, t, d);
    offset -= slots_of<Cell>(rows);
    Real* const diagonal = buffers.diagonal[d & 1];
    enter_borders(d, t.h, t.w, flows, buffers, diagonal);
    Real* const weight_up = p.weight_up + offset;
    const Real* const weight_left = p.weight_left + offset;
    const Real* const y = kDim > 0 ? p.y + (p.m - 1 - t.column0 - d) : nullptr;
    Real* const grad_y = kDim > 0 ? gradients.y + (t.w - 1 - d) : nullptr;
    V entropy{};
    for (int r = rows.low; r <= rows.high; r += Cell::kLanes) {
      V e = load(buffers.up + r + 1) + load(buffers.left + r) + load(diagonal + r + 1);
      if (r + Cell::kLanes > rows.high + 1) e = lane <= rows.high - r ? e : V{};
      const V up = e * load(weight_up + (r - rows.low));
      const V rest = e - up;
      const V left = min(e * load(weight_left + (r - rows.low)), rest);
      store(buffers.up + r, up);
      store(buffers.left + r, left);
      store(diagonal + r, rest - left);
      if constexpr (kEntropy) {
        entropy += times_log2(e) - times_log2(up) - times_log2(left) - times_log2(rest - left);
      }
      if constexpr (kStoreE) store(weight_up + (r - rows.low), e);
      for (int k = 0; k < kDim; ++k) {
        add_gradient<Cell>(e, x + k * x_stride + r, y + k * y_stride + r,
                           gradients.x + k * gradients.x_stride + r, grad_y + k * gradients.y_stride + r);
      }
    }
    if constexpr (kEntropy) {
      double& sum = p.entropy[t.row0 / p.tile];
      for (int k = 0; k < Cell::kLanes; ++k) sum += static_cast<double>(entropy[k]);
    }
    if (rows.low <= rows.high) leave_borders(d, rows, flows, buffers, diagonal);
    if (p.band) close_band(rows, buffers, diagonal);
  }
}

// The factors of the differences of the series in the gradients, laid out like the E that reverse_tile() has
// stored: E itself, or E without missing steps and divided by the norm. The latter replaces the `left`
// weights, which are no longer needed.
template <class Cell>
const typename Cell::Real* gradient_weights(const typename Cell::Pair& p, const Tile<Cell>& t) {
  using V = typename Cell::V;
  const bool norm = p.metric == Metric::kNorm;
  if (!norm && !p.x_weight) return p.weight_up;
  BufferedCost<Cell> cost(p, t.row0, t.column0, t.h);
  Index offset = 0;
  for (int d = 0; d < t.h + t.w - 1; ++d) {
    const Rows rows = rows_of<Cell>(p, t, d);
    if (rows.low > rows.high) continue;
    if (norm) cost.begin_diagonal(d, rows.low, rows.high);
    const Index y_begin = p.m - 1 - t.column0 - d;
    for (int r = rows.low; r <= rows.high; r += Cell::kLanes, offset += Cell::kLanes) {
      V e = load(p.weight_up + offset);
      if (norm) {  // the cost in lanes without E is undefined
        const V c = cost.at(r);
        e = ((e != 0) & (c > 0)) ? e * (p.scale / c) : V{};
      }
      if (p.x_weight) e *= load(p.x_weight + t.row0 + r) * load(p.y_weight + y_begin + r);
      store(p.weight_left + offset, e);
    }
  }
  return p.weight_left;
}

// Gradients from the E that reverse_tile() has stored: a few features at a time, so that their four rows stay
// in the first-level cache. Most vectors of E are zero unless gamma is large.
template <class Cell, Metric kMetric>
void stored_gradient_of(const typename Cell::Pair& p, const Tile<Cell>& t, const typename Cell::Real* weights,
                        const TileGradients<Cell> gradients) {
  using V = typename Cell::V;
  constexpr int kFeatures = 8;
  const Index x_stride = p.x_stride;
  const Index y_stride = p.y_stride;
  for (int first = 0; first < p.dim; first += kFeatures) {
    const int count = smaller(kFeatures, p.dim - first);
    const typename Cell::Real* e_next = weights;
    for (int d = 0; d < t.h + t.w - 1; ++d) {
      const Rows rows = rows_of<Cell>(p, t, d);
      for (int r = rows.low; r <= rows.high; r += Cell::kLanes) {
        const V e = load(e_next);
        e_next += Cell::kLanes;
        if (!any_bit(e)) continue;
        const typename Cell::Real* x = p.x + first * p.x_stride + t.row0 + r;
        const typename Cell::Real* y = p.y + first * p.y_stride + (p.m - 1 - t.column0 - d + r);
        typename Cell::Real* grad_x = gradients.x + first * gradients.x_stride + r;
        typename Cell::Real* grad_y = gradients.y + first * gradients.y_stride + (t.w - 1 - d + r);
        for (int k = 0; k < count; ++k) {
          add_gradient<Cell, kMetric>(e, x, y, grad_x, grad_y);
          x += x_stride;
          y += y_stride;
          grad_x += gradients.x_stride;
          grad_y += gradients.y_stride;
        }
      }
    }
  }
}

template <class Cell>
void stored_gradient(const typename Cell::Pair& p, const Tile<Cell>& t,
                     const TileGradients<Cell>& gradients) {
  const typename Cell::Real* const weights = gradient_weights<Cell>(p, t);
  with_metric(p.metric,
              [&]<Metric kMetric>() { stored_gradient_of<Cell, kMetric>(p, t, weights, gradients); });
}

// Copies the tile's E, as reverse_tile() has stored it, to the caller's matrix.
template <class Cell, class Storage>
void write_alignment(const typename Cell::Pair& p, const Tile<Cell>& t, const typename Cell::Real* e,
                     Storage* alignment) {
  Storage* const corner = alignment + t.row0 * p.alignment_stride + t.column0;
  for (int d = 0; d < t.h + t.w - 1; ++d) {
    const Rows rows = rows_of<Cell>(p, t, d);
    for (int r = rows.low; r <= rows.high; ++r) {
      corner[r * p.alignment_stride + d - r] = static_cast<Storage>(e[r - rows.low]);
    }
    e += slots_of<Cell>(rows);
  }
}

template <class Cell, class Storage>
void zero_alignment(const typename Cell::Pair& p, const Tile<Cell>& t, Storage* alignment) {
  for (int r = 0; r < t.h; ++r) {
    Storage* const row = alignment + (t.row0 + r) * p.alignment_stride + t.column0;
    for (int c = 0; c < t.w; ++c) row[c] = 0;
  }
}

}  // namespace WARPALIGN_SIMD_NAMESPACE
