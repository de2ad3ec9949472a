// Products of a panel's tiles on the matrix units, with TF32 factors: a block's 8 warps make 64 x 64 sums,
// 16 x 32 each.
//
// Factors are in shared memory as float32, and are split when they are read. Series are taken relative to an
// origin near the tile's own steps, x' = x - origin, so that series far from 0 keep their digits.
#pragma once

#include "cuda/mma.cuh"
#include "cuda/tf32.cuh"
#include "soft_dtw/cuda/panel_tile.cuh"

namespace warpalign::detail::soft_dtw {

// A warp's part of a 64 x 64 matrix: rows row() and row() + 8, in each of 4 blocks of 8 columns the columns
// column() and column() + 1. sum[k][i]: row() + i / 2 * 8, column(k) + i % 2.
struct UnitPlace {
  int row0;
  int column0;
  int g;
  int t;

  __device__ UnitPlace()
      : row0(static_cast<int>(threadIdx.x) / 64 * 16),
        column0(static_cast<int>(threadIdx.x) / 32 % 2 * 32),
        g(static_cast<int>(threadIdx.x) % 32 / 4),
        t(static_cast<int>(threadIdx.x) % 4) {}
  [[nodiscard]] __device__ __forceinline__ int row(int i) const { return row0 + g + i / 2 * 8; }
  [[nodiscard]] __device__ __forceinline__ int column(int k, int i) const {
    return column0 + 8 * k + 2 * t + i % 2;
  }
};

// Fragments of 8 terms of a product: a warp's 16 rows and 32 columns, split.
struct UnitFragments {
  float left_hi[4], left_lo[4], right_hi[4][2], right_lo[4][2];

  // left(m, k), right(k, n): the factors, k < 8; m and n count the block's rows and columns.
  template <class Left, class Right>
  __device__ __forceinline__ UnitFragments(const UnitPlace& at, const Left& left, const Right& right) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const cuda::Tf32Parts s = cuda::split_tf32(left(at.row0 + at.g + i % 2 * 8, at.t + i / 2 * 4));
      left_hi[i] = s.hi, left_lo[i] = s.lo;
    }
#pragma unroll
    for (int k = 0; k < 4; ++k) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const cuda::Tf32Parts s = cuda::split_tf32(right(at.t + i * 4, at.column0 + 8 * k + at.g));
        right_hi[k][i] = s.hi, right_lo[k][i] = s.lo;
      }
    }
  }

  // sum += left right.
  __device__ __forceinline__ void multiply(bool three_terms, float (&sum)[4][4]) const {
    if (three_terms) {  // the small ones first
#pragma unroll
      for (int k = 0; k < 4; ++k) cuda::mma_tf32(sum[k], left_lo, right_hi[k]);
#pragma unroll
      for (int k = 0; k < 4; ++k) cuda::mma_tf32(sum[k], left_hi, right_lo[k]);
    }
#pragma unroll
    for (int k = 0; k < 4; ++k) cuda::mma_tf32(sum[k], left_hi, right_hi[k]);
  }
  // sum += the sums of left's rows, in elements 0 and 2.
  __device__ __forceinline__ void add_rows(bool three_terms, float (&sum)[4]) const {
    constexpr float kOnes[2] = {1.0f, 1.0f};
    if (three_terms) cuda::mma_tf32(sum, left_lo, kOnes);
    cuda::mma_tf32(sum, left_hi, kOnes);
  }
};

// The mean of four steps of a tile, feature f: an origin near all of its steps.
__device__ __forceinline__ float mean_of_tile(const Series& series, int f) {
  constexpr int kApart = kPanelRows / 4;
  float sum = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) sum += series.at(i * kApart, f);
  return 0.25f * sum;
}

}  // namespace warpalign::detail::soft_dtw
