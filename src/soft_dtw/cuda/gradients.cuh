// From a tile of E to what the caller wants of it: the alignment itself, or the gradients with respect to the
// series,
//   grad_x[i] += 2 sum_j E[i,j] (x[i] - y[j]),   grad_y[j] += 2 sum_i E[i,j] (y[j] - x[i]),
// and with other metrics than the squared distance likewise with their slope.
#pragma once

#include "soft_dtw/cuda/cost_tile.cuh"

namespace warpalign::softdtw {

// E to the caller's (N, M) table.
template <class Real, class In>
__device__ __forceinline__ void store_alignment(const Params<In>& p, const Pair<In>& pair, int row0,
                                                int end_row, int column0, int lane, const Real* tile) {
  const int column = column0 + lane;
  if (column >= pair.m) return;
  for (int r = max(0, -row0); r < min(kTileRows, end_row - row0); ++r) {
    pair.alignment[static_cast<std::int64_t>(row0 + r) * p.m + column] =
        static_cast<In>(tile[lane * kColumnStride + r]);
  }
}

// The derivative of a metric by one difference, but for a factor: the difference itself, times `steepness`,
// within +-limit. 0 where the weight is 0, which silences an infinite difference and missing steps.
template <class Real>
struct Slope {
  Real steepness;
  Real limit;
  Real factor;

  __device__ explicit Slope(Metric metric)
      : steepness(metric == Metric::kAbsolute ? static_cast<Real>(sizeof(Real) == 4 ? 0x1p126 : 0x1p1000)
                                              : Real(1)),
        limit(metric == Metric::kAbsolute || metric == Metric::kHuber ? Real(1)
                                                                      : static_cast<Real>(INFINITY)),
        factor(metric == Metric::kSquared ? Real(2) : Real(1)) {}

  [[nodiscard]] __device__ __forceinline__ Real of(Real weight, Real difference) const {
    return weight == Real(0) ? Real(0) : max(min(difference * steepness, limit), -limit);
  }
};

// What a warp that makes gradients from E has to know of its strip.
template <class Cell_, class In>
struct GradientTask {
  using Cell = Cell_;
  const Params<In>& p;
  const Pair<In>& pair;
  int column0;
  int lane;
  bool adds;                  // to what grad_x is already
  typename Cell::Real* sums;  // of grad_y, (32, D) in shared memory; null: they are kept in grad_y itself
  unsigned absent_columns;
  bool first_tile = true;  // of this strip, from below
  bool last_tile = false;
};

// Feature d0 + lane % width: lanes along the features, in 32 / width groups that share the columns.
// await_right returns when what the strip on the right adds to these rows is there.
template <bool kOptions, class Cell, class In, class Await>
__device__ __forceinline__ void add_feature_gradients(const GradientTask<Cell, In>& t, int row0,
                                                      const typename Cell::Real* tile, unsigned absent_rows,
                                                      int d0, int width, const Await& await_right) {
  using Real = typename Cell::Real;
  const int groups = 32 / width;
  constexpr int kBlock = 2;  // columns at once: few, so that the loop stays in the instruction cache
  const Params<In>& p = t.p;
  const Pair<In>& pair = t.pair;
  const int feature = d0 + (t.lane & (width - 1));
  const bool in_range = feature < p.dim;
  const int d = min(feature, p.dim - 1);
  const Slope<Real> slope(kOptions ? p.metric : Metric::kSquared);
  const auto is_inside = [&](int r) { return row0 + r >= 0 && row0 + r < pair.n; };

  Real x[kTileRows];
  Real by_row[kTileRows];
  Real before_x[kTileRows];
  In* const out_x = pair.grad_x + static_cast<std::int64_t>(row0) * p.dim + d;
#pragma unroll
  for (int r = 0; r < kTileRows; ++r) {
    x[r] = Real(__ldg(pair.x + min(max(row0 + r, 0), pair.n - 1) * p.x_stride[1] + d * p.x_stride[2]));
    by_row[r] = Real(0);
    before_x[r] = Real(0);
  }
  if (pair.grad_x && t.adds) {
    await_right();
#pragma unroll
    for (int r = 0; r < kTileRows; ++r) {
      if (is_inside(r)) before_x[r] = static_cast<Real>(__ldcg(out_x + static_cast<std::int64_t>(r) * p.dim));
    }
  }
  const int columns = min(32, pair.m - t.column0);
  In* const out_y = pair.grad_y + static_cast<std::int64_t>(t.column0) * p.dim + d;
  for (int block = t.lane / width; block < columns; block += kBlock * groups) {
    Real y[kBlock];
    Real before_y[kBlock];
#pragma unroll
    for (int c = 0; c < kBlock; ++c) {
      const int column = min(block + c * groups, columns - 1);
      y[c] = Real(__ldg(pair.y + (t.column0 + column) * p.y_stride[1] + d * p.y_stride[2]));
      before_y[c] = Real(0);
      if (pair.grad_y && in_range && !t.first_tile && block + c * groups < columns) {
        before_y[c] = t.sums ? t.sums[column * p.dim + d]
                             : static_cast<Real>(out_y[static_cast<std::int64_t>(column) * p.dim]);
      }
    }
#pragma unroll
    for (int c = 0; c < kBlock; ++c) {
      const int column = block + c * groups;
      if (column >= columns) break;
      Real e[kTileRows];
#pragma unroll
      for (int r = 0; r < kTileRows; r += 16 / sizeof(Real)) {
        *reinterpret_cast<float4*>(e + r) =
            *reinterpret_cast<const float4*>(tile + column * kColumnStride + r);
      }
      if (kOptions && (absent_rows | t.absent_columns)) {
        const bool all = t.absent_columns >> column & 1;
#pragma unroll
        for (int r = 0; r < kTileRows; ++r) e[r] = all || absent_rows >> r & 1 ? Real(0) : e[r];
      }
      Real by_column[4] = {};
#pragma unroll
      for (int r = 0; r < kTileRows; ++r) {
        Real difference = x[r] - y[c];
        if (kOptions) difference = slope.of(e[r], difference);
        by_row[r] += e[r] * difference;
        by_column[r % 4] += e[r] * difference;
      }
      if (pair.grad_y && in_range) {
        const Real sum = by_column[0] + by_column[1] + (by_column[2] + by_column[3]);
        const Real total = before_y[c] - slope.factor * sum;
        if (t.sums && !t.last_tile) {
          t.sums[column * p.dim + d] = total;
        } else {
          out_y[static_cast<std::int64_t>(column) * p.dim] = static_cast<In>(total);
        }
      }
    }
  }
  __syncwarp();
  if (!pair.grad_x) return;
  for (int bit = width; bit < 32; bit *= 2) {
#pragma unroll
    for (int r = 0; r < kTileRows; ++r) by_row[r] += __shfl_xor_sync(cuda::kFullWarp, by_row[r], bit);
  }
  if (t.lane >= width || !in_range) return;
#pragma unroll
  for (int r = 0; r < kTileRows; ++r) {
    if (is_inside(r)) {
      __stcg(out_x + static_cast<std::int64_t>(r) * p.dim,
             static_cast<In>(before_x[r] + slope.factor * by_row[r]));
    }
  }
}

// Of every `helpers` blocks of features the one that is this helper's.
template <bool kOptions, class Cell, class In, class Await>
__device__ __forceinline__ void add_gradients(const GradientTask<Cell, In>& t, int row0,
                                              const typename Cell::Real* tile, unsigned absent_rows,
                                              int helper, int helpers, const Await& await_right) {
  const int width = t.p.dim <= 8 ? 8 : t.p.dim <= 16 ? 16 : 32;
  for (int d0 = width * helper; d0 < t.p.dim; d0 += width * helpers) {
    add_feature_gradients<kOptions>(t, row0, tile, absent_rows, d0, width, await_right);
    __syncwarp();
  }
}

}  // namespace warpalign::softdtw
