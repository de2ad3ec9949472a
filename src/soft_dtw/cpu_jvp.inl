// One pair's directional derivatives: the tiles in the order of cpu_kernel.inl, each with its tangents.
namespace WARPALIGN_SIMD_NAMESPACE {

// A tile and its tangents.
struct DualTile {
  Tile<Cell64> primal;
  Tile<Tangent> tangent;
};

WARPALIGN_INLINE DualTile dual_tile(const CpuPair64& p, const CpuTangents& q, int strip, int k) {
  const CpuColumns columns = p.strips[strip];
  const int row0 = strip * p.tile;
  const int column0 = k * p.tile;
  const int h = smaller(p.tile, p.n - row0);
  const int w = smaller(p.tile, columns.end - column0);
  const Index top = strip * (p.m + Index{1}) + column0;
  DualTile t{{row0, column0, h, w, Border<Cell64>{p.row_mantissa, p.row_exponent} + top, {}, {}, {}},
             {row0, column0, h, w, tangent_border(q.row) + top, {}, {}, {}}};
  if (column0 > columns.begin) {
    const Index left = static_cast<Index>(k) * p.n + row0;
    t.primal.left = Border<Cell64>{p.column_mantissa, p.column_exponent} + left;
    t.tangent.left = tangent_border(q.column) + left;
  }
  return t;
}

inline void forward_dual(const CpuPair64& p, const CpuTangents& q, const DualTile& t, Cell64::Range& range) {
  forward_any_cost<Cell64, true>(p, t.primal, range);
  if (p.dim == 0) return tangent_tile(p, q, t.tangent, MatrixTangent(p, q, t.tangent));
  with_metric(p.metric, [&]<Metric kMetric>() {
    tangent_tile(p, q, t.tangent, SeriesTangent<kMetric>(p, q, t.tangent));
  });
}

// The forward sweep of R and its tangents. The transition weights exist for one tile at a time: its tangents
// are computed right after it.
inline CpuOutcome forward_jvp(const CpuPair64& p, const CpuTangents& q) {
  const FlushToZero flush;
  Border<Cell64> top{p.row_mantissa, p.row_exponent};
  Border<Tangent> top_tangent = tangent_border(q.row);
  const Index step = p.m + Index{1};
  top.set(0, Cell64::kStart, 0);
  top_tangent.set_dead(0);
  Cell64::Range range;
  int end = 0;  // number of columns of the top row that have been written
  for (int s = 0; s < tiles(p.n, p.tile); ++s) {
    const CpuColumns strip = p.strips[s];
    for (; end < strip.end; ++end) {
      top.set_dead(end + 1);
      top_tangent.set_dead(end + 1);
    }
    for (int k = strip.begin / p.tile; k < tiles(strip.end, p.tile); ++k) {
      DualTile t = dual_tile(p, q, s, k);
      t.primal.bottom = t.primal.top + step;
      t.tangent.bottom = t.tangent.top + step;
      t.primal.columns = {p.column_mantissa, p.column_exponent};
      t.tangent.columns = tangent_border(q.column);
      t.primal.goes_on = t.tangent.goes_on = k + 1 < tiles(strip.end, p.tile);
      forward_dual(p, q, t, range);
    }
    top = top + step;
    top_tangent = top_tangent + step;
    top.set_dead(strip.begin);  // only the corner above the first row is reachable
    top_tangent.set_dead(strip.begin);
  }
  return {top.mantissa[p.m], top.exponent[p.m], largest_cost<Cell64>(range)};
}

inline void series_jvp(const CpuPair64& p, const CpuTangents& q, const DualTile& t) {
  const bool plain = p.metric != Metric::kNorm && !p.x_weight;
  with_metric(p.metric, [&]<Metric kMetric>() {
    if (!plain) weigh_slopes<kMetric>(p, q, t.tangent);
    const double* const w = plain ? p.weight_up : p.weight_left;
    gradient_tangents<kMetric>(p, q, t.tangent, w, plain ? q.weight_up : q.weight_left);
    if (p.grad_x) stored_gradient_of<Cell64, kMetric>(p, t.primal, w, gradients_of<Cell64>(p, t.primal));
  });
}

inline void reverse_one_jvp(const CpuPair64& p, const CpuTangents& q, const DualTile& t,
                            const Flows<double>& flows, const Flows<double>& tangent_flows) {
  if (all_zero(flows.below, t.primal.w) && all_zero(flows.right, t.primal.h)) {
    return put_alignment<Cell64>(p, t.primal, nullptr);
  }
  Cell64::Range ignored;
  if (!is_one_tile<Cell64>(p)) forward_dual(p, q, t, ignored);
  reverse_tile_jvp(p, q, t.tangent, flows, tangent_flows);
  if (q.grad_x) series_jvp(p, q, t);
  put_alignment<Cell64>(p, t.primal, q.weight_up);
}

// The flows of E, or of E's tangent, into and out of one strip of tiles: rows of m + 1, and columns of a
// tile.
struct StripFlows {
  double* below;
  double* above;
  double* right;
  double* left;

  StripFlows(double* rows, double* columns, const CpuPair64& p)
      : below(rows), above(rows + p.m + 1), right(columns), left(columns + smaller(p.tile, p.n)) {
    for (int j = 0; j <= p.m; ++j) below[j] = 0;
  }
  void begin_strip(int m, int h) const {
    for (int r = 0; r < h; ++r) right[r] = 0;
    for (int j = 0; j <= m; ++j) above[j] = 0;
  }
  [[nodiscard]] Flows<double> at(int column0, int h) const {
    for (int r = 0; r < h; ++r) left[r] = 0;
    return {below + column0 + 1, right, above + column0, left};
  }
  void end_tile() { swap(right, left); }
  void end_strip() { swap(below, above); }

 private:
  static void swap(double*& a, double*& b) {
    double* const c = a;
    a = b;
    b = c;
  }
};

inline void reverse_jvp(const CpuPair64& p, const CpuTangents& q) {
  const FlushToZero flush;
  StripFlows flows(p.flow_below, p.flow_right, p);
  StripFlows tangent_flows(q.flow_below, q.flow_right, p);
  flows.below[p.m] = 1;
  for (int s = tiles(p.n, p.tile) - 1; s >= 0; --s) {
    const CpuColumns strip = p.strips[s];
    const int h = smaller(p.tile, p.n - s * p.tile);
    flows.begin_strip(p.m, h);
    tangent_flows.begin_strip(p.m, h);
    for (int k = tiles(strip.end, p.tile) - 1; k >= strip.begin / p.tile; --k) {
      const int column0 = k * p.tile;
      reverse_one_jvp(p, q, dual_tile(p, q, s, k), flows.at(column0, h), tangent_flows.at(column0, h));
      flows.end_tile();
      tangent_flows.end_tile();
    }
    flows.end_strip();
    tangent_flows.end_strip();
  }
}

}  // namespace WARPALIGN_SIMD_NAMESPACE
