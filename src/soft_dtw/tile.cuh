// Tiles of kPhase rows by one strip's columns in shared memory: costs in, expected alignment out. The
// wavefront knows nothing of the series behind a cost: another cost kind is another producer and another
// gradient here.
//
// A tile row holds the strip's 32 * W columns in order; row i of the matrix lives in ring row i mod
// kRingRows.
#pragma once

#include "soft_dtw/cost_range.cuh"
#include "soft_dtw/params.cuh"

namespace warpalign::softdtw {

// Non-negative remainder of a tile's first row: tiles are kPhase-aligned and never wrap inside the ring.
__device__ __forceinline__ int ring_row(int row) { return (row + 4 * kRingRows) % kRingRows; }

template <class Real, int W>
__device__ __forceinline__ void clear_tile(Real* tile, int lane) {
  for (int k = lane; k < kPhase * 32 * W; k += 32) tile[k] = Real(0);
}

// Squared differences are summed by four, then over a block of features, then over blocks: the rounding error
// grows with the length of each of these sums, not with the number of features.
constexpr int kFeatureBlock = 64;

// Adds |x[r] - y[c]|^2 over the features [d, end), read four at a time. Two sets of registers, so that the
// next features are on their way while these are worked on. end - d is a multiple of 4.
template <class Real, int R, int C>
__device__ __forceinline__ void add_squares_by_four(const float* const (&x)[R], const float* const (&y)[C],
                                                    int d, int end, Real (&sum)[R][C]) {
  const auto load = [&](int at, float4(&xv)[R], float4(&yv)[C]) {
#pragma unroll
    for (int r = 0; r < R; ++r) xv[r] = __ldg(reinterpret_cast<const float4*>(x[r] + at));
#pragma unroll
    for (int c = 0; c < C; ++c) yv[c] = __ldg(reinterpret_cast<const float4*>(y[c] + at));
  };
  const auto add = [&](const float4(&xv)[R], const float4(&yv)[C]) {
#pragma unroll
    for (int c = 0; c < C; ++c) {
#pragma unroll
      for (int r = 0; r < R; ++r) {
        const Real d0 = Real(xv[r].x) - Real(yv[c].x), d1 = Real(xv[r].y) - Real(yv[c].y);
        const Real d2 = Real(xv[r].z) - Real(yv[c].z), d3 = Real(xv[r].w) - Real(yv[c].w);
        sum[r][c] += d0 * d0 + d1 * d1 + (d2 * d2 + d3 * d3);
      }
    }
  };
  float4 xa[R], ya[C], xb[R], yb[C];
  load(d, xa, ya);
  for (d += 4; d < end; d += 8) {
    load(d, xb, yb);
    add(xa, ya);
    if (d + 4 < end) load(d + 4, xa, ya);
    add(xb, yb);
  }
  if (d == end) add(xa, ya);
}

// Squared Euclidean costs of rows [row0, row0 + kPhase) and columns [column0, column0 + 32 W), scaled to
// base 2. Each lane makes 4 rows by 4 W columns, so that a loaded value serves several cells. Columns beyond
// the pair repeat its last one: harmless, and no new extremes for CostRange. Rows beyond it cost 0, which a
// reverse sweep that does not reach their last lanes leaves standing as their E. Differences first: x^2 + y^2
// - 2xy would lose the digits of series far from 0.
template <class Cell, class In, int W>
__device__ __forceinline__ void squared_euclidean_tile(const Params<In>& p, const Pair<In>& pair, int row0,
                                                       int column0, int lane, typename Cell::Real* tile,
                                                       CostRange<Cell>& range) {
  using Real = typename Cell::Real;
  constexpr int C = 4 * W;
  const int local_row = lane / 8 * 4;
  const int local_column = lane % 8 * 4;
  const In* x[4];
  const In* y[C];
#pragma unroll
  for (int r = 0; r < 4; ++r) x[r] = pair.x + min(row0 + local_row + r, pair.n - 1) * p.x_stride[1];
#pragma unroll
  for (int c = 0; c < C; ++c) {
    y[c] = pair.y + min(column0 + c / 4 * 32 + local_column + c % 4, pair.m - 1) * p.y_stride[1];
  }
  for (int block = 0; block < p.dim; block += kFeatureBlock) {
    const int end = min(block + kFeatureBlock, p.dim);
    Real sum[4][C] = {};
    if constexpr (sizeof(In) == 4) {
      if (p.vectorized) add_squares_by_four(x, y, block, end, sum);
    }
    if (sizeof(In) != 4 || !p.vectorized) {
      for (int d = block; d < end; ++d) {
        Real xv[4];
#pragma unroll
        for (int r = 0; r < 4; ++r) xv[r] = Real(__ldg(x[r] + d * p.x_stride[2]));
#pragma unroll
        for (int c = 0; c < C; ++c) {
          const Real yv = Real(__ldg(y[c] + d * p.y_stride[2]));
#pragma unroll
          for (int r = 0; r < 4; ++r) sum[r][c] += (xv[r] - yv) * (xv[r] - yv);
        }
      }
    }
    const Real scale = static_cast<Real>(p.scale);
#pragma unroll
    for (int r = 0; r < 4; ++r) {
#pragma unroll
      for (int c = 0; c < C; ++c) {
        Real* cell = tile + (local_row + r) * 32 * W + c / 4 * 32 + local_column + c % 4;
        const Real total = block == 0 ? sum[r][c] : *cell + sum[r][c];
        const Real cost = end < p.dim ? total : range.note(total * scale);
        *cell = row0 + local_row + r < pair.n ? cost : Real(0);
      }
    }
  }
}

// The same from the caller's own cost matrix.
template <class Cell, class In, int W>
__device__ __forceinline__ void matrix_tile(const Params<In>& p, const Pair<In>& pair, int row0, int column0,
                                            int lane, typename Cell::Real* tile, CostRange<Cell>& range) {
  using Real = typename Cell::Real;
  const Real scale = static_cast<Real>(p.scale);
  for (int r = 0; r < kPhase; ++r) {
    const In* row = pair.cost + min(row0 + r, pair.n - 1) * p.cost_stride[1];
#pragma unroll
    for (int k = 0; k < W; ++k) {
      const int column = min(column0 + k * 32 + lane, pair.m - 1);
      const Real cost = range.note(Real(__ldg(row + column * p.cost_stride[2])) * scale);
      tile[r * 32 * W + k * 32 + lane] = row0 + r < pair.n ? cost : Real(0);
    }
  }
}

// Costs of the tile that starts at row0; 0 for rows before the first, which only border values pass through.
template <class Cell, class In, int W>
__device__ __forceinline__ void cost_tile(const Params<In>& p, const Pair<In>& pair, int row0, int column0,
                                          int lane, typename Cell::Real* ring, CostRange<Cell>& range) {
  typename Cell::Real* tile = ring + ring_row(row0) * 32 * W;
  if (row0 < 0) {
    clear_tile<typename Cell::Real, W>(tile, lane);
  } else if (p.cost) {
    matrix_tile<Cell, In, W>(p, pair, row0, column0, lane, tile, range);
  } else {
    squared_euclidean_tile<Cell, In, W>(p, pair, row0, column0, lane, tile, range);
  }
}

// E to the caller's (N, M) table.
template <class Real, class In, int W>
__device__ __forceinline__ void store_alignment(const Params<In>& p, const Pair<In>& pair, int row0,
                                                int column0, int lane, const Real* tile) {
  for (int r = 0; r < min(kPhase, pair.n - row0); ++r) {
    In* out = pair.alignment + static_cast<std::int64_t>(row0 + r) * p.m;
#pragma unroll
    for (int k = 0; k < W; ++k) {
      const int column = column0 + k * 32 + lane;
      if (column < pair.m) out[column] = static_cast<In>(tile[r * 32 * W + k * 32 + lane]);
    }
  }
}

// x - y, but 0 where the weight is 0: it silences an infinite difference too. Cell32 has none of those.
template <class Cell, class Real>
__device__ __forceinline__ Real weighted_difference(Real weight, Real difference) {
  if constexpr (sizeof(Real) == 8) return weight == Real(0) ? Real(0) : difference;
  return difference;
}

template <class In, class Real>
__device__ __forceinline__ void accumulate(In* target, Real amount, bool first) {
  *target = static_cast<In>(first ? amount : static_cast<Real>(*target) + amount);
}

// Sum over the warp of each of 16 values; lane t gets the sum of value t / 2. Halving exchanges: 16 shuffles,
// fixed order.
template <class Real>
__device__ __forceinline__ Real transposed_sum(Real (&v)[kPhase], int lane) {
  static_assert(kPhase == 16);
#pragma unroll
  for (int half = kPhase / 2, bit = 16; half >= 1; half /= 2, bit /= 2) {
    const bool upper = lane & bit;
#pragma unroll
    for (int r = 0; r < half; ++r) {
      const Real give = upper ? v[r] : v[r + half];
      const Real keep = upper ? v[r + half] : v[r];
      v[r] = keep + __shfl_xor_sync(cuda::kFullWarp, give, bit);
    }
  }
  return v[0] + __shfl_xor_sync(cuda::kFullWarp, v[0], 1);
}

// grad_x[i] += 2 sum_j E[i,j] (x[i] - y[j]) over this tile, grad_y[j] likewise with the opposite sign: lanes
// along the columns, for few features.
template <class Cell, class In, int W>
__device__ __forceinline__ void gradient_by_column(const Params<In>& p, const Pair<In>& pair, int row0,
                                                   int column0, int lane, const typename Cell::Real* tile,
                                                   bool first_x, bool first_y) {
  using Real = typename Cell::Real;
  for (int d = 0; d < p.dim; ++d) {
    Real by_row[kPhase] = {};
#pragma unroll
    for (int k = 0; k < W; ++k) {
      const int column = column0 + k * 32 + lane;
      const Real y = Real(__ldg(pair.y + min(column, pair.m - 1) * p.y_stride[1] + d * p.y_stride[2]));
      Real by_column = 0;
#pragma unroll
      for (int r = 0; r < kPhase; ++r) {
        const Real x = Real(__ldg(pair.x + min(row0 + r, pair.n - 1) * p.x_stride[1] + d * p.x_stride[2]));
        const Real e = Real(2) * tile[r * 32 * W + k * 32 + lane];
        const Real difference = weighted_difference<Cell>(e, x - y);
        by_row[r] += e * difference;
        by_column -= e * difference;
      }
      if (pair.grad_y && column < pair.m) {
        accumulate(pair.grad_y + static_cast<std::int64_t>(column) * p.dim + d, by_column, first_y);
      }
    }
    if (!pair.grad_x) continue;
    const Real sum = transposed_sum(by_row, lane);
    const int row = row0 + lane / 2;
    if (lane % 2 == 0 && row < pair.n) {
      accumulate(pair.grad_x + static_cast<std::int64_t>(row) * p.dim + d, sum, first_x);
    }
  }
}

// The same with lanes along the features, for many. Columns go kBlock at a time, with everything that they
// need loaded ahead of the sums.
template <class Cell, class In, int W>
__device__ __forceinline__ void gradient_by_feature(const Params<In>& p, const Pair<In>& pair, int row0,
                                                    int column0, int lane, const typename Cell::Real* tile,
                                                    bool first_x, bool first_y) {
  using Real = typename Cell::Real;
  constexpr int kBlock = 8;
  for (int d = lane; d < p.dim; d += 32) {
    Real x[kPhase];
    Real by_row[kPhase] = {};
#pragma unroll
    for (int r = 0; r < kPhase; ++r) {
      x[r] = Real(__ldg(pair.x + min(row0 + r, pair.n - 1) * p.x_stride[1] + d * p.x_stride[2]));
    }
    for (int block = 0; block < 32 * W; block += kBlock) {
      Real y[kBlock];
      Real before[kBlock];
      Real by_column[kBlock] = {};
      In* out = pair.grad_y + (static_cast<std::int64_t>(column0) + block) * p.dim + d;
#pragma unroll
      for (int c = 0; c < kBlock; ++c) {
        const int column = min(column0 + block + c, pair.m - 1);
        y[c] = Real(__ldg(pair.y + column * p.y_stride[1] + d * p.y_stride[2]));
        const bool adds = pair.grad_y && !first_y && column0 + block + c < pair.m;
        before[c] = adds ? static_cast<Real>(out[static_cast<std::int64_t>(c) * p.dim]) : Real(0);
      }
#pragma unroll
      for (int r = 0; r < kPhase; ++r) {
#pragma unroll
        for (int c = 0; c < kBlock; ++c) {
          const Real e = tile[r * 32 * W + block + c];
          const Real difference = weighted_difference<Cell>(e, x[r] - y[c]);
          by_row[r] += e * difference;
          by_column[c] -= e * difference;
        }
      }
#pragma unroll
      for (int c = 0; c < kBlock; ++c) {
        if (pair.grad_y && column0 + block + c < pair.m) {
          out[static_cast<std::int64_t>(c) * p.dim] = static_cast<In>(before[c] + Real(2) * by_column[c]);
        }
      }
    }
    if (!pair.grad_x) continue;
    In* out = pair.grad_x + static_cast<std::int64_t>(row0) * p.dim + d;
    Real before[kPhase];
#pragma unroll
    for (int r = 0; r < kPhase; ++r) {
      const bool adds = !first_x && row0 + r < pair.n;
      before[r] = adds ? static_cast<Real>(out[static_cast<std::int64_t>(r) * p.dim]) : Real(0);
    }
#pragma unroll
    for (int r = 0; r < kPhase; ++r) {
      if (row0 + r < pair.n)
        out[static_cast<std::int64_t>(r) * p.dim] = static_cast<In>(before[r] + Real(2) * by_row[r]);
    }
  }
}

// The source of costs, and the taker of E, for any number of features and for cost matrices.
template <class Cell, class In_, int W>
class TileSource {
  using In = In_;
  using Real = typename Cell::Real;

 public:
  static constexpr int kColumns = W;
  static constexpr int kCarried = 0;

  __device__ TileSource(const Params<In>& p, int lane, Real* ring) : p_(p), lane_(lane), ring_(ring) {}

  [[nodiscard]] __device__ int2 range_bits() const { return {range_.bits, 0}; }
  static __device__ float largest_cost(int2 bits, const Params<In>&) { return __int_as_float(bits.x); }

  __device__ void begin_forward(const Pair<In>& pair, int column0) {
    pair_ = &pair;
    column0_ = column0;
    __syncwarp();  // every lane has left the tiles of the strip before
    make_tile(-2 * kPhase);
    make_tile(-kPhase);
  }

  __device__ void begin_forward_phase(int start) {
    __syncwarp();
    if (start < pair_->n) make_tile(start);
    __syncwarp();
  }

  __device__ void begin_reverse(const Pair<In>& pair, int column0, int phases) {
    pair_ = &pair;
    column0_ = column0;
    __syncwarp();
    make_tile((phases - 1) * kPhase);
    make_tile((phases - 2) * kPhase);
  }

  __device__ void begin_reverse_phase(int start) {
    make_tile(start - 2 * kPhase);
    __syncwarp();
  }

  __device__ __forceinline__ void begin_group(int s0) { row0_ = ring_row(s0 - lane_); }
  __device__ __forceinline__ void begin_noted_group(int s0) { begin_group(s0); }

  [[nodiscard]] __device__ __forceinline__ Real cost(int q, int k) const { return cells(q)[k]; }

  __device__ __forceinline__ void take(int q, int k, Real e, Real*) const { cells(q)[k] = e; }
  template <class Rows>
  __device__ void finish_rows(int, const Rows&) const {}

  // The phase's first tile has all of its E now.
  __device__ void end_reverse_phase(int start, bool first_strip) {
    __syncwarp();
    if (start < pair_->n) consume(start, first_strip, start + kPhase >= pair_->n);
    __syncwarp();
  }
  __device__ void end_reverse() const {}

 private:
  static constexpr int kFewFeatures = 8;

  [[nodiscard]] __device__ __forceinline__ Real* cells(int q) const {
    int row = row0_ + q;
    row = row >= kRingRows ? row - kRingRows : row;
    return ring_ + row * 32 * W + lane_ * W;
  }

  __device__ void make_tile(int row0) {
    cost_tile<Cell, In, W>(p_, *pair_, row0, column0_, lane_, ring_, range_);
  }

  __device__ void consume(int start, bool first_strip, bool first_tile) const {
    const Real* tile = ring_ + ring_row(start) * 32 * W;
    if (pair_->alignment) store_alignment<Real, In, W>(p_, *pair_, start, column0_, lane_, tile);
    if (!pair_->grad_x && !pair_->grad_y) return;
    if (p_.dim <= kFewFeatures) {
      gradient_by_column<Cell, In, W>(p_, *pair_, start, column0_, lane_, tile, first_strip, first_tile);
    } else {
      gradient_by_feature<Cell, In, W>(p_, *pair_, start, column0_, lane_, tile, first_strip, first_tile);
    }
  }

  const Params<In>& p_;
  const int lane_;
  Real* ring_;
  CostRange<Cell> range_;
  const Pair<In>* pair_ = nullptr;
  int column0_ = 0;
  int row0_ = 0;  // ring row of this lane at the group's first step
};

}  // namespace warpalign::softdtw
