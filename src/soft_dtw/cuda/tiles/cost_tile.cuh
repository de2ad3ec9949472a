// Tiles of costs: their places in shared memory, and how a warp makes one.
#pragma once

#include <type_traits>

#include "cuda/threads/barrier.cuh"
#include "soft_dtw/cuda/call/params.cuh"
#include "soft_dtw/cuda/tiles/crew.cuh"
#include "soft_dtw/cuda/tiles/metric.cuh"

namespace warpalign::detail::soft_dtw {

constexpr int kTilesBefore = 2;
constexpr int kTileGroups = 4;  // groups between two stored states

// The elements of series: numbers, or numbers and their tangents. tangent_at: null if tangents are 0.
template <class Cell, class In>
using Element = std::conditional_t<Cell::kDual, Dual, typename Storage<In>::Value>;
template <class Cell, class Address, class TangentAddress>
__device__ __forceinline__ auto load_element(Address at, TangentAddress tangent_at) {
  if constexpr (Cell::kDual) {
    return Dual(load_input(at), tangent_at ? load_input(tangent_at) : 0.0);
  } else {
    return load_input(at);
  }
}

// Elements that are staged in shared memory at a time.
template <class Element>
constexpr int kChunk = 256 / sizeof(Element);
template <class Element>
constexpr int kStagedStride = kChunk<Element> + 16 / sizeof(Element);

// Rows of x or columns of y of a chunk.
template <class Element, int kCount>
struct __align__(16) Staged {
  Element of[kCount * kStagedStride<Element>];
};

// A warp's data for the features whose gradients it makes at a time: y and the sums of grad_y of a strip, and
// the sums of grad_x so far of a tile.
template <class Real>
constexpr int kGradientFeatures = 128 / sizeof(Real);
template <class Real>
struct GradientMemory {
  Real y[32 * kGradientFeatures<Real>];
  Real sums[32 * kGradientFeatures<Real>];
  Real before_x[kTileRows * kGradientFeatures<Real>];
};

// The ring of tiles that a strip has in shared memory: their number, and the place of a tile.
//
// Each column has its rows of all tiles one after another, followed by a copy of the first eight, so that a
// lane's rows of a group never wrap around. Columns are `stride` apart: there are no bank conflicts if lanes
// access their columns in different rows, or four rows of 16 bytes. kRingTiles: a constant of the kernel.
struct FixedRing {
  static constexpr int kTiles = kRingTiles;
  static constexpr int kStride = ring_stride(kTiles);
  static __device__ __forceinline__ constexpr int rows(const Params&) { return kTiles * kTileRows; }
  static __device__ __forceinline__ constexpr int stride(const Params&) { return kStride; }
  // The place of a tile, and the number of earlier tiles in this place.
  static __device__ __forceinline__ int place(const Params&, int tile) { return tile % kTiles; }
  static __device__ __forceinline__ int turn(const Params&, int tile) { return tile / kTiles; }
};
// The number of tiles is a power of two that the layout has chosen, at most kRingTiles.
struct LaidOutRing {
  static __device__ __forceinline__ int rows(const Params& p) { return kTileRows << p.layout.ring_log2; }
  static __device__ __forceinline__ int stride(const Params& p) {
    return ring_stride(1 << p.layout.ring_log2);
  }
  static __device__ __forceinline__ int place(const Params& p, int tile) {
    return tile & ((1 << p.layout.ring_log2) - 1);
  }
  static __device__ __forceinline__ int turn(const Params& p, int tile) { return tile >> p.layout.ring_log2; }
};

// Shared memory of one strip, after its ring.
template <class Real_, class Ring_, class Crew>
struct __align__(16) StripBarriers {
  using Real = Real_;
  using Ring = Ring_;
  cuda::Barrier barriers[3 * kRingTiles];
  SegmentWeights<Real, kTileGroups, Crew::kWeighing> weights;
  Several<int, Crew::kGradients>
      rows_done;  // rows at the end of x whose gradient is complete up to this strip
  // Barriers of a place in the ring: full (costs have been written), the wave has ended with the tile, and
  // every gradient warp has, so that the memory can be reused.
  __device__ cuda::Barrier* full(int place) { return barriers + place; }
  __device__ cuda::Barrier* done(int place) { return barriers + kRingTiles + place; }
  __device__ cuda::Barrier* free(int place) { return barriers + 2 * kRingTiles + place; }
};
// Further memory of the makers of costs and gradients.
template <class Cell, class In, class Ring, class Crew>
struct __align__(16) StripTiles : StripBarriers<typename Cell::Real, Ring, Crew> {
  using Rows = Staged<Element<Cell, In>, kTileRows>;
  using Columns = Staged<Element<Cell, In>, 32>;
  cuda::Barrier is_staged;  // y has been staged, if all warps that make costs share one chunk of it
  union {
    struct {  // the x of a warp that makes costs, and y if it is not shared
      Columns y[Crew::kForwardCosts];
      Rows x[Crew::kMakers];
    } forward;
    struct {
      Columns y[Crew::kCosts];
      Rows x[Crew::kCosts];
      Several<GradientMemory<typename Cell::Real>, Crew::kGradients> gradients;
    } reverse;
  };
  __device__ void init(int lane) {
    if (lane == 0) cuda::barrier_init<cuda::kWarpSize>(&is_staged);
  }
  __device__ void reset(int lane) {
    if (lane == 0) cuda::barrier_reset<cuda::kWarpSize>(&is_staged);
  }
  __device__ void prepare(const Params&, const Pair<In>&, int, int, int) const {}
};

// One bit per row of a tile, or per column of a strip: set if the step does not exist or is missing.
template <class In>
__device__ __forceinline__ unsigned absent_rows(const Params& p, const Pair<In>& pair, int row0, int end_row,
                                                int lane) {
  const int row = row0 + lane % kTileRows;
  const bool inside = row >= 0 && row < end_row;
  return __ballot_sync(cuda::kFullWarp, !inside || is_missing(p.x_mask, pair.index, p.n, row));
}
template <class In>
__device__ __forceinline__ unsigned absent_columns(const Params& p, const Pair<In>& pair, int column0,
                                                   int lane) {
  const int column = column0 + lane;
  const bool inside = column < pair.m;
  return __ballot_sync(cuda::kFullWarp, !inside || is_missing(p.y_mask, pair.index, p.m, column));
}

template <class Cell, class In, Options kOptions_, class Ring>
class CostMaker {
  static constexpr bool kOptions = kOptions_ != Options::kNone;
  static constexpr bool kAll = kOptions_ == Options::kAll;
  using Real = typename Cell::Real;
  using Element = soft_dtw::Element<Cell, In>;
  using Input = typename Storage<In>::Input;
  static constexpr int kVector = 16 / sizeof(Element);

 public:
  template <class Memory>
  __device__ CostMaker(const Params& p, const Pair<In>& pair, int strip, int lane, Memory& memory, int helper,
                       bool is_forward)
      : p_(p),
        pair_(pair),
        column0_(strip * 32),
        lane_(lane),
        rows_(is_forward ? memory.forward.x[helper].of : memory.reverse.x[helper].of),
        columns_((is_forward ? memory.forward.y : memory.reverse.y)[shares_columns(p) ? 0 : helper].of) {
    if (shares_columns(p)) {
      if (helper == 0) {
        if (!p.cost) stage_columns(0, p.dim);
        cuda::barrier_arrive(&memory.is_staged);
      } else {
        cuda::barrier_wait(&memory.is_staged, 0);
      }
    }
    if (kAll) absent_columns_ = absent_columns(p, pair, column0_, lane);
  }

  // The number of warps of a crew that make costs in the forward sweep: all, if they share y and there is
  // enough work.
  template <class Crew>
  [[nodiscard]] static __device__ int makers(const Params& p) {
    return shares_columns(p) && p.dim > 8 ? Crew::kMakers : Crew::kForwardCosts;
  }
  [[nodiscard]] __device__ int range_bits() const { return range_.bits; }

  // Makes the costs of rows row0 + [0, kTileRows). Columns after the pair's last one repeat it, which does
  // not change the range of costs. Rows outside the pair have cost 0, which is then their E if the reverse
  // sweep does not write them.
  __device__ __forceinline__ void make(int row0, Real* tile) {
    if (kOptions) look_at_rows(row0);
    if (row0 + kTileRows <= 0) {
      fill(tile, Real(0));
    } else if (kOptions && !meets_band()) {
      fill(tile, Real(CUDART_INF));
    } else if (p_.cost) {
      make_from_matrix(row0, tile);
    } else if (!kAll || p_.metric == Metric::kSquared || p_.metric == Metric::kNorm) {
      make_from_series(row0, tile, [](Real& sum, const Real(&x)[4], const Real(&y)[4]) {
        const Real a = x[0] - y[0], b = x[1] - y[1], e = x[2] - y[2], f = x[3] - y[3];
        sum += a * a + b * b + e * e + f * f;
      });
    } else if (p_.metric == Metric::kAbsolute) {
      make_from_series(row0, tile, [](Real& sum, const Real(&x)[4], const Real(&y)[4]) {
        sum += abs(x[0] - y[0]) + abs(x[1] - y[1]) + (abs(x[2] - y[2]) + abs(x[3] - y[3]));
      });
    } else {
      const Distance<Real> distance(p_.metric);
      make_from_series(row0, tile, [&](Real& sum, const Real(&x)[4], const Real(&y)[4]) {
        sum += distance.of(x[0] - y[0]) + distance.of(x[1] - y[1]) +
               (distance.of(x[2] - y[2]) + distance.of(x[3] - y[3]));
      });
    }
  }

 private:
  [[nodiscard]] static __device__ bool shares_columns(const Params& p) { return p.dim <= kChunk<Element>; }
  // Finds for every row the columns of this strip that are in the band, and whether the row exists. Lane r
  // has the result of row r.
  __device__ void look_at_rows(int row0) {
    if (kAll) absent_rows_ = absent_rows(p_, pair_, row0, pair_.n, lane_);
    if (p_.band.kind == BandKind::kNone) return;
    const auto columns = band_columns(p_.band, row(row0 + lane_ % kTileRows), pair_.n, pair_.m);
    // Lanes after the pair's last column repeat it.
    band_begin_ = columns.begin - column0_;
    band_end_ = columns.end == pair_.m ? 32 : columns.end - column0_;
  }
  // Whether any row of the tile has a cell of this strip in the band.
  [[nodiscard]] __device__ bool meets_band() const {
    if (p_.band.kind == BandKind::kNone) return true;
    return __any_sync(cuda::kFullWarp, max(band_begin_, 0) < min(band_end_, 32)) != 0;
  }
  __device__ void fill(Real* tile, Real cost) const {
    for (int r = 0; r < kTileRows; ++r) tile[lane_ * Ring::stride(p_) + r] = cost;
  }
  // The cost of the cell in row r of the tile and column c of the strip, from the cost of its steps: 0 for
  // missing steps, and forbidden outside the band.
  [[nodiscard]] __device__ __forceinline__ Real final_cost(Real cost, int r, int c) {
    if constexpr (kOptions) {
      if (kAll && !p_.cost && p_.metric == Metric::kNorm) cost = sqrt(cost);
      if (kAll && (absent_rows_ >> r & 1 || absent_columns_ >> c & 1)) cost = Real(0);
      if (p_.band.kind != BandKind::kNone) {
        const int begin = __shfl_sync(cuda::kFullWarp, band_begin_, r);
        const int end = __shfl_sync(cuda::kFullWarp, band_end_, r);
        if (c < begin || c >= end) {
          // No path uses the cell, but the gradients use its differences.
          if (Cell::kCertifies && !p_.cost && !(value_of(cost) <= FLT_MAX)) range_.note(cost);
          return Real(CUDART_INF);
        }
      }
    }
    return range_.note(cost);
  }

  [[nodiscard]] __device__ bool is_inside(int i) const { return i >= 0 && i < pair_.n; }
  [[nodiscard]] __device__ int row(int i) const { return pair_.true_row(min(max(i, 0), pair_.n - 1)); }
  [[nodiscard]] __device__ int column(int j) const { return min(pair_.true_column(j), pair_.m - 1); }

  __device__ void make_from_matrix(int row0, Real* tile) {
    const int j = column(column0_ + lane_);
    const auto tangent = behind(pair_.cost_tangent, j * p_.tangents.cost_stride[2]);
    with_pointer(pair_.cost + j * p_.cost_stride[2], [&](const auto* from) {
#pragma unroll
      for (int r = 0; r < kTileRows; ++r) {
        const int i = row(row0 + r);
        const Real cost =
            final_cost(Real(load_element<Cell>(from + i * p_.cost_stride[1],
                                               behind(tangent, i * p_.tangents.cost_stride[1]))),
                       r, lane_);
        tile[lane_ * Ring::stride(p_) + r] = is_inside(row0 + r) ? cost : Real(0);
      }
    });
  }

  // Costs come from differences: x^2 + y^2 - 2 x y would be inaccurate for series far from 0. Each lane owns
  // 4 rows by 4 columns, so that a loaded value is used for several cells. Squares are summed by four, then
  // over a chunk of features, then over chunks: the rounding error grows with the length of each of these
  // sums, not with the number of features.
  template <class Add>
  __device__ __forceinline__ void make_from_series(int row0, Real* tile, const Add& add) {
    const int r0 = lane_ / 8 * 4;
    const int c0 = lane_ % 8;
    Real total[4][4];
    for (int d0 = 0; d0 < p_.dim; d0 += kChunk<Element>) {
      const int length = min(kChunk<Element>, p_.dim - d0);
      __syncwarp();
      stage<kTileRows>(rows_, d0, length, pair_.x, p_.x_stride, pair_.x_tangent, p_.tangents.x_stride,
                       [&](int r) { return row(row0 + r); });
      if (!shares_columns(p_)) stage_columns(d0, length);
      __syncwarp();
      Real sum[4][4] = {};
      const Element* const x = rows_ + r0 * kStagedStride<Element>;
      const Element* const y = columns_ + c0 * kStagedStride<Element>;
      // Rows of x are loaded one row in advance, columns of y directly after their last use.
      const auto row = [&](Element(&to)[4], int r, int d) {
        copy_four(to, x + r * kStagedStride<Element> + d);
      };
      const auto column = [&](Element(&to)[4], int c, int d) {
        copy_four(to, y + 8 * c * kStagedStride<Element> + d);
      };
      Element xv[2][4], yv[4][4];
      row(xv[0], 0, 0);
#pragma unroll
      for (int c = 0; c < 4; ++c) column(yv[c], c, 0);
#pragma unroll 1  // so that the loop fits into the instruction cache
      for (int d = 0; d < length; d += 4) {
        const int next = d + 4 < length ? d + 4 : d;
#pragma unroll
        for (int r = 0; r < 4; ++r) {
          row(xv[(r + 1) % 2], (r + 1) % 4, r < 3 ? d : next);
          const Element(&here)[4] = xv[r % 2];
#pragma unroll
          for (int c = 0; c < 4; ++c) {
            const Real a[4] = {Real(here[0]), Real(here[1]), Real(here[2]), Real(here[3])};
            const Real b[4] = {Real(yv[c][0]), Real(yv[c][1]), Real(yv[c][2]), Real(yv[c][3])};
            add(sum[r][c], a, b);
            if (r == 3) column(yv[c], c, next);
          }
        }
      }
#pragma unroll
      for (int r = 0; r < 4; ++r) {
#pragma unroll
        for (int c = 0; c < 4; ++c) total[r][c] = d0 == 0 ? sum[r][c] : total[r][c] + sum[r][c];
      }
    }
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      Real* const to = tile + (c0 + 8 * c) * Ring::stride(p_) + r0;
      Real out[4];
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        const Real cost = final_cost(total[r][c], r0 + r, c0 + 8 * c);
        out[r] = is_inside(row0 + r0 + r) ? cost : Real(0);
      }
      copy_four(to, out);
    }
  }

  template <class T>
  static __device__ __forceinline__ void copy_four(T* to, const T* from) {
#pragma unroll
    for (int k = 0; k < 4; k += 16 / sizeof(T)) {
      *reinterpret_cast<float4*>(to + k) = *reinterpret_cast<const float4*>(from + k);
    }
  }

  __device__ __forceinline__ void stage_columns(int d0, int length) const {
    stage<32>(columns_, d0, length, pair_.y, p_.y_stride, pair_.y_tangent, p_.tangents.y_stride,
              [&](int c) { return column(column0_ + c); });
  }
  // Copies `length` features, from d0 on, of kRows rows, padded with zeros to a multiple of 4: 16 bytes per
  // lane and half a warp per row if possible, otherwise one feature per lane. row_of(r): the row's number in
  // the series.
  template <int kRows, class RowOf>
  __device__ __forceinline__ void stage(Element* to, int d0, int length, Input series,
                                        const std::int64_t (&stride)[3], Input tangents,
                                        const std::int64_t (&tangent_stride)[3], const RowOf& row_of) const {
    if constexpr (std::is_same_v<Element, float>) {  // only float series are vectorized
      if (p_.vectorized) {
        static_assert(kChunk<Element> / kVector == 16);
        const int first = lane_ / 16;
        const int v = lane_ % 16 * kVector;
#pragma unroll 8
        for (int r = 0; r < kRows; r += 2) {
          const float* const at = series + row_of(first + r) * stride[1] + d0;
          if (v < length) {
            *reinterpret_cast<float4*>(to + (first + r) * kStagedStride<Element> + v) =
                __ldg(reinterpret_cast<const float4*>(at + v));
          }
        }
        return;
      }
    }
    with_pointer(series, [&](const auto* from) {
      for (int d = lane_; d < (length + 3) / 4 * 4; d += 32) {
        const auto* const at = from + (d0 + d) * stride[2];
        const auto tangent_at = behind(tangents, (d0 + d) * tangent_stride[2]);
#pragma unroll 8
        for (int r = 0; r < kRows; ++r) {
          const int i = row_of(r);
          to[r * kStagedStride<Element> + d] =
              d < length
                  ? Element(load_element<Cell>(at + i * stride[1], behind(tangent_at, i * tangent_stride[1])))
                  : Element(0);
        }
      }
    });
  }

  const Params& p_;
  const Pair<In>& pair_;
  const int column0_;
  const int lane_;
  Element* const rows_;  // staged
  Element* const columns_;
  unsigned absent_rows_ = 0;
  unsigned absent_columns_ = 0;
  int band_begin_ = 0;
  int band_end_ = 0;
  CostRange<Cell> range_;
};

}  // namespace warpalign::detail::soft_dtw
