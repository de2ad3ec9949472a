// Cost tiles on the matrix units: |x - y|^2 = |x'|^2 + |y'|^2 - 2 <x', y'>. x' and y' are relative to the
// strip's origin (tensor_tile.cuh).
#pragma once

#include "soft_dtw/cuda/cost_range.cuh"
#include "soft_dtw/cuda/tensor_tile.cuh"

namespace warpalign::detail::soft_dtw {

template <bool kKept, class Memory>
class TensorCosts {
 public:
  __device__ TensorCosts(const Params& p, const Pair<float>& pair, int strip, int lane, Memory& memory, int,
                         bool)
      : p_(p),
        pair_(pair),
        column0_(strip * 32),
        g_(lane / 4),
        t_(lane % 4),
        low_(p.three_terms ? 1.0f : 0.0f),
        memory_(memory) {
    float sum[4] = {};
#pragma unroll 1
    for (int f = 4 * t_; f < p.dim; f += kBlockFeatures) {
#pragma unroll
      for (int s = 0; s < 4; s += 2) {
#pragma unroll
        for (int m = 0; m < 2; ++m) {
          const Fragment<4> y = memory.columns(p, pair, column0_, 16 * m + g_, f + s);
#pragma unroll
          for (int k = 0; k < 4; ++k) add_square(sum[2 * m + k % 2], y.hi[k], y.lo[k]);
        }
      }
    }
#pragma unroll
    for (int k = 0; k < 4; ++k) y_norm_[k] = cuda::reduce_sum<4>(sum[k]);
  }

  template <class Crew>
  [[nodiscard]] static __device__ int makers(const Params&) {
    return Crew::kForwardCosts;
  }
  [[nodiscard]] __device__ int range_bits() const { return range_.bits; }

  // Makes the costs of rows row0 + [0, kTileRows). Rows outside the pair cost 0, as in CostMaker::make().
  __device__ __forceinline__ void make(int row0, float* tile) {
    if (row0 + kTileRows <= 0) {
      for (int r = 0; r < kTileRows; ++r) tile[(g_ * 4 + t_) * Memory::Ring::kStride + r] = 0;
      return;
    }
    float product[4][4] = {};  // [2 m + n]: columns 16 m + [0, 16), rows 8 n + [0, 8)
    float x_norm[2] = {};      // |x'|^2 of rows g and g + 8, over the lane's own features
    if constexpr (kKept) {
      add_chunk(row0, 0, product, x_norm);
    } else {
#pragma unroll 1
      for (int d0 = 0; d0 < p_.dim; d0 += kChunkFeatures) add_chunk(row0, d0, product, x_norm);
    }
    float norm[2][2];  // [n][i]: |x'|^2 of row 8 n + 2 t + i
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      const float whole = cuda::reduce_sum<4>(x_norm[n]);
      norm[n][0] = __shfl_sync(cuda::kFullWarp, whole, 8 * t_);
      norm[n][1] = __shfl_sync(cuda::kFullWarp, whole, 8 * t_ + 4);
    }
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      const int row = row0 + 8 * n + 2 * t_;
      const bool is_inside[2] = {row >= 0 && row < pair_.n, row + 1 >= 0 && row + 1 < pair_.n};
#pragma unroll
      for (int k = 0; k < 4; ++k) {  // columns g + 8 k
        float* const to = tile + (8 * k + g_) * Memory::Ring::kStride + 2 * t_ + 8 * n;
        float cost[2];
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const float c =
              range_.note(fmaf(-2.0f, product[k / 2 * 2 + n][k % 2 * 2 + i], norm[n][i] + y_norm_[k]));
          cost[i] = is_inside[i] ? fmaxf(c, 0.0f) : 0.0f;
        }
        *reinterpret_cast<float2*>(to) = {cost[0], cost[1]};
      }
    }
  }

 private:
  // Squares the number that the products see. If a number is NaN, at least one of its halves is NaN.
  __device__ __forceinline__ void add_square(float& sum, float hi, float lo) const {
    const float v = fmaf(lo, low_, hi);
    sum = fmaf(v, v, sum);
  }

  // Products of up to kChunkFeatures features, from d0 on. The products of low halves have sums of their own.
  __device__ __forceinline__ void add_chunk(int row0, int d0, float (&product)[4][4], float (&x_norm)[2]) {
    float x[2][kChunkBlocks][4];
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      const int i = min(max(row0 + g_ + 8 * n, 0), pair_.n - 1);
      const int row = kKept ? pair_.true_row(i) : i;
      const float* const step = pair_.x + row * p_.x_stride[1];
#pragma unroll
      for (int b = 0; b < kChunkBlocks; ++b)
        load_features(step, d0 + b * kBlockFeatures + 4 * t_, p_.dim, x[n][b]);
    }
    float large[4][4] = {};
    float small[4][4] = {};
#pragma unroll
    for (int b = 0; b < kChunkBlocks; ++b) {
      const int f = d0 + b * kBlockFeatures + 4 * t_;
      if (d0 + b * kBlockFeatures >= p_.dim) break;
      float origin[4];
      memory_.origin(f, origin);
#pragma unroll
      for (int s = 0; s < 4; s += 2) {
        Fragment<2> rows[2];
#pragma unroll
        for (int n = 0; n < 2; ++n) {
#pragma unroll
          for (int k = 0; k < 2; ++k) {
            const Split v = split(x[n][b][s + k] - origin[s + k]);
            add_square(x_norm[n], v.hi, v.lo);
            rows[n].set(k, v);
          }
        }
        const Fragment<4> columns[2] = {memory_.columns(p_, pair_, column0_, g_, f + s),
                                        memory_.columns(p_, pair_, column0_, 16 + g_, f + s)};
#pragma unroll
        for (int k = 0; k < 4; ++k) cuda::mma_tf32(large[k], columns[k / 2].hi, rows[k % 2].hi);
        if (p_.three_terms) {
#pragma unroll
          for (int k = 0; k < 4; ++k) cuda::mma_tf32(small[k], columns[k / 2].lo, rows[k % 2].hi);
#pragma unroll
          for (int k = 0; k < 4; ++k) cuda::mma_tf32(small[k], columns[k / 2].hi, rows[k % 2].lo);
        }
      }
    }
#pragma unroll
    for (int k = 0; k < 4; ++k) {
#pragma unroll
      for (int i = 0; i < 4; ++i) product[k][i] += large[k][i] + small[k][i];
    }
  }

  const Params& p_;
  const Pair<float>& pair_;
  const int column0_;
  const int g_;
  const int t_;
  const float low_;  // 1 if the low halves count, else 0
  Memory& memory_;
  float y_norm_[4];  // |y'|^2 of columns g, g + 8, g + 16 and g + 24
  CostRange<Cell32> range_;
};

}  // namespace warpalign::detail::soft_dtw
