// Tangents over one tile, for directional derivatives of value and gradients: forward mode over the reverse
// mode of the other sweeps. A prime is the derivative along the inputs' tangents; p_k are the shares of the
// three predecessors k that forward_tile() has stored.
//
//   R'[i,j] = C'[i,j] + sum_k p_k R'_k,    p'_k = -p_k (R'_k - sum_l p_l R'_l) / gamma,
//   E'[i,j] = sum over the cells that (i, j) is a predecessor of: p' E + p E'.
//
// Everything is linear in the tangents and needs no exponential. A penalty is a constant, and p contains it.
namespace WARPALIGN_SIMD_NAMESPACE {

// R' at the borders of tiles, as a cell type for the forward sweep's functions. R' has no exponent: both
// pointers of a border are the same.
struct Tangent {
  using Real = double;
  using Exponent = double;
  using Pair = CpuPair64;
  static constexpr double kDeadMantissa = 0;  // unreachable: its share is exactly 0
  static constexpr double kDead = 0;
};
WARPALIGN_INLINE Border<Tangent> tangent_border(double* values) { return {values, values}; }

// The derivative of the metric with respect to one feature's difference, without the factor
// CpuTangents::cost_factor; and its second derivative.
template <Metric kMetric>
WARPALIGN_INLINE F64 slope_of(F64 difference) {
  if constexpr (kMetric == Metric::kAbsolute)
    return difference > 0 ? splat(1.0) : (difference < 0 ? splat(-1.0) : F64{});
  if constexpr (kMetric == Metric::kHuber) return max(min(difference, splat(1.0)), splat(-1.0));
  return difference;
}
template <Metric kMetric>
WARPALIGN_INLINE F64 bend_of(F64 difference) {
  if constexpr (kMetric == Metric::kAbsolute) return F64{};
  if constexpr (kMetric == Metric::kHuber) return (max(difference, -difference) <= 1) ? splat(1.0) : F64{};
  return splat(1.0);
}

// C' of two series, for kCpuCostDiagonals anti-diagonals at a time, as in BufferedCost.
template <Metric kMetric>
class SeriesTangent {
 public:
  SeriesTangent(const CpuPair64& p, const CpuTangents& q, const Tile<Tangent>& t)
      : p_(p), q_(q), row0_(t.row0), h_(t.h), y_corner_(p.m - 1 - t.column0), slots_(t.h + 2 * kCpuPad) {}

  WARPALIGN_INLINE void begin_diagonal(int d, int low, int high) {
    if (d >= first_ + kCpuCostDiagonals) compute(d, low, smaller(high + kCpuCostDiagonals, h_) - 1);
    diagonal_ = (d - first_) * slots_;
  }

  WARPALIGN_INLINE F64 at(int r) const { return load(q_.diagonal_cost + diagonal_ + r); }

  // For kNorm: 1 / C; 0 where C = 0, which has no derivative.
  WARPALIGN_INLINE F64 inverse_at(int r) const { return load(q_.diagonal_inverse + diagonal_ + r); }

 private:
  void compute(int d, int low, int high) {
    first_ = d;
    for (int r = low; r < high + Cell64::kLanes; r += Cell64::kLanes) {
      const double* x = p_.x + row0_ + r;
      const double* y = p_.y + (y_corner_ - d + r);
      const Index x_tangent = q_.x - p_.x;
      const Index y_tangent = q_.y - p_.y;
      F64 sum[kCpuCostDiagonals] = {};
      F64 squares[kCpuCostDiagonals] = {};
      for (int k = 0; k < p_.dim; ++k, x += p_.x_stride, y += p_.y_stride) {
        const F64 here = load(x);
        const F64 moving = load(x + x_tangent);
        for (int u = 0; u < kCpuCostDiagonals; ++u) {
          const F64 difference = here - load(y - u);
          sum[u] += slope_of<kMetric>(difference) * (moving - load(y + y_tangent - u));
          if constexpr (kMetric == Metric::kNorm) squares[u] += squared(difference);
        }
      }
      for (int u = 0; u < kCpuCostDiagonals; ++u) put(d + u, r, sum[u] * q_.cost_factor, squares[u]);
    }
  }

  WARPALIGN_INLINE void put(int d, int r, F64 sum, F64 squares) {
    const Index to = (d - first_) * slots_ + r;
    if constexpr (kMetric == Metric::kNorm) {
      F64 norm;
      for (int k = 0; k < Cell64::kLanes; ++k) norm[k] = __builtin_sqrt(squares[k]);
      const F64 inverse = norm > 0 ? 1.0 / norm : F64{};
      store(q_.diagonal_inverse + to, inverse);
      sum *= inverse;
    }
    if (p_.x_weight) {
      const F64 counts = load(p_.x_weight + row0_ + r) * load(p_.y_weight + (y_corner_ - d + r));
      sum = counts == 0 ? F64{} : sum;
    }
    store(q_.diagonal_cost + to, sum);
  }

  const CpuPair64& p_;
  const CpuTangents& q_;
  const int row0_;
  const int h_;
  const Index y_corner_;
  const int slots_;
  int first_ = -kCpuCostDiagonals;  // the first anti-diagonal whose tangents are in the buffer
  Index diagonal_ = 0;
};

// C' from the caller's matrix. It is 0 for cells of cost inf.
class MatrixTangent {
 public:
  MatrixTangent(const CpuPair64& p, const CpuTangents& q, const Tile<Tangent>& t)
      : p_(p), q_(q), row0_(t.row0), column0_(t.column0) {}

  WARPALIGN_INLINE void begin_diagonal(int d, int low, int high) {
    p_.float_storage ? gather<float>(d, low, high) : gather<double>(d, low, high);
    for (int k = 1; k < Cell64::kLanes; ++k) q_.diagonal_cost[high + k] = 0;
  }

  WARPALIGN_INLINE F64 at(int r) const { return load(q_.diagonal_cost + r); }

 private:
  template <class Storage>
  WARPALIGN_INLINE void gather(int d, int low, int high) {
    const Storage* const cost = corner<Storage>(p_.cost, p_.cost_stride, d);
    const Storage* const tangent = corner<Storage>(q_.cost, q_.cost_stride, d);
    const Index step = p_.cost_stride[0] - p_.cost_stride[1];
    const Index tangent_step = q_.cost_stride[0] - q_.cost_stride[1];
    for (int r = low; r <= high; ++r) {
      const bool forbidden = cost[r * step] == static_cast<Storage>(__builtin_inf());
      q_.diagonal_cost[r] = forbidden ? 0.0 : static_cast<double>(tangent[r * tangent_step]);
    }
  }

  template <class Storage>
  WARPALIGN_INLINE const Storage* corner(const void* from, const Index* stride, int d) const {
    return static_cast<const Storage*>(from) + row0_ * stride[0] + (column0_ + d) * stride[1];
  }

  const CpuPair64& p_;
  const CpuTangents& q_;
  const int row0_;
  const int column0_;
};

// The shares of `up` and `left` as the reverse sweep uses them: `left` gets at most what `up` leaves over
// (WeightsOf in cpu_cell.inl).
WARPALIGN_INLINE WeightsOf<F64> shares_at(const CpuPair64& p, Index offset) {
  const F64 up = load(p.weight_up + offset);
  return {up, min(load(p.weight_left + offset), 1.0 - up)};
}

// R' of a tile whose shares forward_tile() has stored, and the tangents of those shares.
template <class Cost>
void tangent_tile(const CpuPair64& p, const CpuTangents& q, const Tile<Tangent>& t, Cost cost) {
  const int slots = t.h + 2 * kCpuPad;
  const Border<Tangent> buffers = tangent_border(q.diagonal);
  for (int k = 0; k < 3 * slots; ++k) buffers.set_dead(k);
  Border<Tangent> before_previous = buffers;
  Border<Tangent> previous = buffers + slots;
  Border<Tangent> current = previous + slots;
  before_previous.copy(0, t.top, 0);
  previous.copy(0, t.top, 1);
  if (t.left.mantissa) previous.copy(1, t.left, 0);

  Index offset = 0;
  for (int d = 0; d < t.h + t.w - 1; ++d) {
    const Rows rows = rows_of<Tangent>(p, t, d);
    if (rows.low <= rows.high) cost.begin_diagonal(d, rows.low, rows.high);
    for (int r = rows.low; r <= rows.high; r += Cell64::kLanes, offset += Cell64::kLanes) {
      const F64 up = load(previous.mantissa + r);
      const F64 left = load(previous.mantissa + r + 1);
      const F64 diagonal = load(before_previous.mantissa + r);
      const auto share = shares_at(p, offset);
      const F64 mean = share.up * up + share.left * left + (1.0 - share.up - share.left) * diagonal;
      store(current.mantissa + r + 1, cost.at(r) + mean);
      store(q.weight_up + offset, share.up * (mean - up) * q.inverse_gamma);
      store(q.weight_left + offset, share.left * (mean - left) * q.inverse_gamma);
    }
    exchange_borders<Tangent>(p, t, d, rows, current);
    const Border<Tangent> oldest = before_previous;
    before_previous = previous;
    previous = current;
    current = oldest;
  }
}

WARPALIGN_INLINE FlowBuffers<double> cleared_flows(double* flow, int slots) {
  for (int k = 0; k < 4 * slots; ++k) flow[k] = 0;
  return {flow, flow + slots, {flow + 2 * slots, flow + 3 * slots}};
}

WARPALIGN_INLINE F64 inflow(const FlowBuffers<double>& buffers, const double* diagonal, int r) {
  return load(buffers.up + r + 1) + load(buffers.left + r) + load(diagonal + r + 1);
}

// E below this is set to 0, as in float32. At least 1 flows through every row and column, so the error is
// negligible, and most of a table is skipped.
constexpr double kNegligibleFlow = 0x1p-126;

// The reverse sweep of E and E' together. They replace the `up` weights and their tangents.
inline void reverse_tile_jvp(const CpuPair64& p, const CpuTangents& q, const Tile<Tangent>& t,
                             const Flows<double>& flows, const Flows<double>& tangent_flows) {
  const int slots = t.h + 2 * kCpuPad;
  const FlowBuffers<double> buffers = cleared_flows(p.diagonal_flow, slots);
  const FlowBuffers<double> tangents = cleared_flows(q.diagonal_flow, slots);
  const auto lane = lanes(F64{});

  Index offset = 0;
  for (int d = 0; d < t.h + t.w - 1; ++d) offset += slots_of<Cell64>(rows_of<Tangent>(p, t, d));
  for (int d = t.h + t.w - 2; d >= 0; --d) {
    const Rows rows = rows_of<Tangent>(p, t, d);
    offset -= slots_of<Cell64>(rows);
    double* const diagonal = buffers.diagonal[d & 1];
    double* const diagonal_tangent = tangents.diagonal[d & 1];
    enter_borders(d, t.h, t.w, flows, buffers, diagonal);
    enter_borders(d, t.h, t.w, tangent_flows, tangents, diagonal_tangent);
    Index at = offset;
    for (int r = rows.low; r <= rows.high; r += Cell64::kLanes, at += Cell64::kLanes) {
      F64 e = inflow(buffers, diagonal, r);
      F64 e_dot = inflow(tangents, diagonal_tangent, r);
      const auto counts = (lane <= rows.high - r) & (e > kNegligibleFlow);
      e = counts ? e : F64{};
      e_dot = counts ? e_dot : F64{};
      const auto share = shares_at(p, at);
      // Without a diagonal share `left` takes the rest, so that exactly 0 remains.
      const auto three = share.up + share.left < 1;
      const F64 up = e * share.up;
      const F64 rest = e - up;
      const F64 left = three ? min(e * share.left, rest) : rest;
      const F64 up_dot = e_dot * share.up + e * load(q.weight_up + at);
      const F64 rest_dot = e_dot - up_dot;
      const F64 left_dot = three ? e_dot * share.left + e * load(q.weight_left + at) : rest_dot;
      store(buffers.up + r, up);
      store(buffers.left + r, left);
      store(diagonal + r, rest - left);
      store(tangents.up + r, up_dot);
      store(tangents.left + r, left_dot);
      store(diagonal_tangent + r, rest_dot - left_dot);
      store(p.weight_up + at, e);
      store(q.weight_up + at, e_dot);
    }
    if (rows.low <= rows.high) {
      leave_borders(d, rows, flows, buffers, diagonal);
      leave_borders(d, rows, tangent_flows, tangents, diagonal_tangent);
    }
    if (p.band) {
      close_band(rows, buffers, diagonal);
      close_band(rows, tangents, diagonal_tangent);
    }
  }
}

// The factors w and w' of the slopes, if they are not E and E': 0 for missing steps, and w = E / C for kNorm.
// They replace the `left` weights and their tangents.
template <Metric kMetric>
void weigh_slopes(const CpuPair64& p, const CpuTangents& q, const Tile<Tangent>& t) {
  SeriesTangent<kMetric> cost(p, q, t);
  Index offset = 0;
  for (int d = 0; d < t.h + t.w - 1; ++d) {
    const Rows rows = rows_of<Tangent>(p, t, d);
    if (kMetric == Metric::kNorm && rows.low <= rows.high) cost.begin_diagonal(d, rows.low, rows.high);
    for (int r = rows.low; r <= rows.high; r += Cell64::kLanes, offset += Cell64::kLanes) {
      F64 e = load(p.weight_up + offset);
      F64 e_dot = load(q.weight_up + offset);
      if constexpr (kMetric == Metric::kNorm) {
        const F64 inverse = cost.inverse_at(r);
        e *= inverse;
        e_dot = (e_dot - e * cost.at(r)) * inverse;
      }
      if (p.x_weight) {
        const F64 counts = load(p.x_weight + t.row0 + r) * load(p.y_weight + p.m - 1 - t.column0 - d + r);
        e *= counts;
        e_dot *= counts;
      }
      store(p.weight_left + offset, e);
      store(q.weight_left + offset, e_dot);
    }
  }
}

// Adds w' slope + w bend (x' - y') to the tangents of both gradients, a few features at a time, as
// stored_gradient_of() does.
template <Metric kMetric>
void gradient_tangents(const CpuPair64& p, const CpuTangents& q, const Tile<Tangent>& t, const double* w,
                       const double* w_dot) {
  constexpr int kFeatures = 4;
  for (int first = 0; first < p.dim; first += kFeatures) {
    const int count = smaller(kFeatures, p.dim - first);
    Index offset = 0;
    for (int d = 0; d < t.h + t.w - 1; ++d) {
      const Rows rows = rows_of<Tangent>(p, t, d);
      for (int r = rows.low; r <= rows.high; r += Cell64::kLanes, offset += Cell64::kLanes) {
        const F64 e = load(w + offset);
        const F64 e_dot = load(w_dot + offset);
        if (!any_bit(e) && !any_bit(e_dot)) continue;
        const auto none = (e == 0) & (e_dot == 0);
        Index i = first * p.x_stride + t.row0 + r;
        Index j = first * p.y_stride + p.m - 1 - t.column0 - d + r;
        for (int k = 0; k < count; ++k, i += p.x_stride, j += p.y_stride) {
          const F64 difference = load(p.x + i) - load(p.y + j);
          const F64 tangent = load(q.x + i) - load(q.y + j);
          F64 g = e_dot * slope_of<kMetric>(difference) + e * bend_of<kMetric>(difference) * tangent;
          g = none ? F64{} : g;
          store(q.grad_x + i, load(q.grad_x + i) + g);
          store(q.grad_y + j, load(q.grad_y + j) + g);
        }
      }
    }
  }
}

}  // namespace WARPALIGN_SIMD_NAMESPACE
