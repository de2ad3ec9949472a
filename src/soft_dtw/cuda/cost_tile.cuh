// Cost tiles: where they lie, and how a warp makes one.
#pragma once

#include "cuda/channel.cuh"
#include "soft_dtw/cuda/cost_range.cuh"
#include "soft_dtw/cuda/params.cuh"

namespace warpalign::softdtw {

constexpr int kTileRows = 16;
constexpr int kRingTiles = 8;
constexpr int kTilesBefore = 2;
constexpr int kGradientWarps = 2;  // of a strip
constexpr int kColumnStride = kTileRows + 4;
constexpr int kTileStride = 32 * kColumnStride + 16;

// Features that are staged in shared memory at a time.
template <class In>
constexpr int kChunk = 256 / sizeof(In);
template <class In>
constexpr int kStagedStride = kChunk<In> + 16 / sizeof(In);

// Rows of x and columns of y of a chunk.
template <class In>
struct Staged {
  In x[kTileRows * kStagedStride<In>];
  In y[32 * kStagedStride<In>];
};

// Shared memory of one strip.
template <class Cell, class In>
struct __align__(16) StripTiles {
  using Real = typename Cell::Real;
  Real ring[kRingTiles * kTileStride];
  Staged<In>
      staged[2];  // one per warp that makes costs; in the reverse sweep the second one holds sums of grad_y
  cuda::Barrier barriers[3 * kRingTiles];
  int rows_done[kGradientWarps];  // at the end of x, whose gradient is complete up to this strip
  __device__ Real* tile(int order) { return ring + order % kRingTiles * kTileStride; }
  // Costs are there; the wave is done with the tile; its memory can be used again (by every gradient warp).
  __device__ cuda::Barrier* full(int order) { return barriers + order % kRingTiles; }
  __device__ cuda::Barrier* done(int order) { return barriers + kRingTiles + order % kRingTiles; }
  __device__ cuda::Barrier* free(int order) { return barriers + 2 * kRingTiles + order % kRingTiles; }
};

template <class Cell, class In>
class CostMaker {
  using Real = typename Cell::Real;
  static constexpr int kVector = 16 / sizeof(In);

 public:
  __device__ CostMaker(const Params<In>& p, const Pair<In>& pair, int strip, int lane, Staged<In>& staged)
      : p_(p), pair_(pair), column0_(strip * 32), lane_(lane), staged_(staged) {}

  [[nodiscard]] __device__ int range_bits() const { return range_.bits; }

  // Costs of rows row0 + [0, kTileRows). Columns behind the pair's last one repeat it: harmless, and no new
  // extremes. Rows outside the pair cost 0, which the reverse sweep leaves standing as their E where it does
  // not reach.
  __device__ __forceinline__ void make(int row0, Real* tile) {
    if (row0 + kTileRows <= 0) {
      for (int k = lane_; k < kTileStride; k += 32) tile[k] = Real(0);
    } else if (p_.cost) {
      make_from_matrix(row0, tile);
    } else {
      make_squared_euclidean(row0, tile);
    }
  }

 private:
  [[nodiscard]] __device__ bool is_inside(int i) const { return i >= 0 && i < pair_.n; }
  [[nodiscard]] __device__ int row(int i) const { return min(max(i, 0), pair_.n - 1); }
  [[nodiscard]] __device__ int column(int j) const { return min(j, pair_.m - 1); }

  __device__ void make_from_matrix(int row0, Real* tile) {
    const In* const from = pair_.cost + column(column0_ + lane_) * p_.cost_stride[2];
#pragma unroll
    for (int r = 0; r < kTileRows; ++r) {
      const Real cost = range_.note(Real(__ldg(from + row(row0 + r) * p_.cost_stride[1])));
      tile[lane_ * kColumnStride + r] = is_inside(row0 + r) ? cost : Real(0);
    }
  }

  // Differences first: x^2 + y^2 - 2 x y would lose the digits of series far from 0. Each lane makes 4 rows
  // by 4 columns, so that a loaded value serves several cells. Squares are summed by four, then over a chunk
  // of features, then over chunks: the rounding error grows with the length of each of these sums, not with
  // the number of features.
  __device__ void make_squared_euclidean(int row0, Real* tile) {
    const int r0 = lane_ / 8 * 4;
    const int c0 = lane_ % 8;
    Real total[4][4];
    for (int d0 = 0; d0 < p_.dim; d0 += kChunk<In>) {
      const int length = min(kChunk<In>, p_.dim - d0);
      __syncwarp();
      stage(
          staged_.x, kTileRows, length,
          [&](int r) { return pair_.x + row(row0 + r) * p_.x_stride[1] + d0 * p_.x_stride[2]; },
          p_.x_stride[2]);
      if (p_.dim > kChunk<In> || !y_is_staged_) {
        stage(
            staged_.y, 32, length,
            [&](int c) { return pair_.y + column(column0_ + c) * p_.y_stride[1] + d0 * p_.y_stride[2]; },
            p_.y_stride[2]);
        y_is_staged_ = true;
      }
      __syncwarp();
      Real sum[4][4] = {};
      const In* const x = staged_.x + r0 * kStagedStride<In>;
      const In* const y = staged_.y + c0 * kStagedStride<In>;
#pragma unroll 1  // a loop that stays in the instruction cache
      for (int d = 0; d < length; d += 4) {
        In xv[4][4], yv[4][4];
#pragma unroll
        for (int k = 0; k < 4; ++k) {
          copy_four(xv[k], x + k * kStagedStride<In> + d);
          copy_four(yv[k], y + 8 * k * kStagedStride<In> + d);
        }
#pragma unroll
        for (int r = 0; r < 4; ++r) {
#pragma unroll
          for (int c = 0; c < 4; ++c) {
            const Real a = Real(xv[r][0]) - Real(yv[c][0]), b = Real(xv[r][1]) - Real(yv[c][1]);
            const Real e = Real(xv[r][2]) - Real(yv[c][2]), f = Real(xv[r][3]) - Real(yv[c][3]);
            sum[r][c] += a * a + b * b + (e * e + f * f);
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
      Real* const to = tile + (c0 + 8 * c) * kColumnStride + r0;
      Real out[4];
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        const Real cost = range_.note(total[r][c]);
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

  // Rows of `length` features, filled up with zeros to a multiple of 4.
  template <class At>
  __device__ __forceinline__ void stage(In* to, int rows, int length, const At& at,
                                        std::int64_t stride) const {
    if (p_.vectorized) {
      const int vectors = length / kVector;
      for (int i = lane_; i < rows * vectors; i += 32) {
        const int r = i / vectors;
        const int v = i - r * vectors;
        *reinterpret_cast<float4*>(to + r * kStagedStride<In> + v * kVector) =
            __ldg(reinterpret_cast<const float4*>(at(r)) + v);
      }
    } else {
      const int padded = (length + 3) / 4 * 4;
      for (int i = lane_; i < rows * padded; i += 32) {
        const int r = i / padded;
        const int d = i - r * padded;
        to[r * kStagedStride<In> + d] = d < length ? __ldg(at(r) + d * stride) : In(0);
      }
    }
  }

  const Params<In>& p_;
  const Pair<In>& pair_;
  const int column0_;
  const int lane_;
  Staged<In>& staged_;
  bool y_is_staged_ = false;
  CostRange<Cell> range_;
};

}  // namespace warpalign::softdtw
