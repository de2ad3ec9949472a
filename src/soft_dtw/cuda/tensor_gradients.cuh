// Gradients from a tile of E on the matrix units, relative to the strip's origin:
//   grad_x[i] += 2 (sum_j E[i,j] x'[i] - sum_j E[i,j] y'[j]),
//   grad_y[j] += 2 (sum_i E[i,j] y'[j] - sum_i E[i,j] x'[i]).
#pragma once

#include "cuda/copy_async.cuh"
#include "soft_dtw/cuda/tensor_tile.cuh"

namespace warpalign::detail::soft_dtw {

// One of the kWarps warps that make gradients, with the members of GradientMaker. It makes those of its own
// share of the features. Sums for grad_y stay in registers for the whole strip.
template <class Memory, int kWarps>
class TensorGradients {
  static constexpr int kBlocks = kChunkBlocks / kWarps;  // blocks of features of a warp, at most

 public:
  __device__ TensorGradients(const Params& p, const Pair<float>& pair, int column0, int lane, int helper,
                             bool adds, Memory& memory, bool meets)
      : p_(p),
        pair_(pair),
        column0_(column0),
        lane_(lane),
        g_(lane / 4),
        t_(lane % 4),
        adds_(adds),
        meets_(meets),
        blocks_(p.dim <= kWarps * kBlockFeatures ? 1 : kBlocks),
        first_feature_(helper * blocks_ * kBlockFeatures),
        memory_(memory),
        rows_(memory.rows.of[helper]) {}

  // Starts to load x of the next tile, before the warp waits for the tile's E.
  __device__ __forceinline__ void look_ahead(int row0) {
    if (first_feature_ >= p_.dim || asked_ == row0) return;
    // The rows that were asked for last are not used: their tile had no cells, or belonged to another strip.
    // The new rows may have the same place.
    cuda::await_copies();
    ask_for_x(row0);
  }

  // await_right returns when what the strip on the right adds to these rows is there.
  template <class Await>
  __device__ __forceinline__ void add(int row0, int, const float* tile, const Await& await_right) {
    if (first_feature_ >= p_.dim) return;
    cuda::await_copies();
    __syncwarp();
    ask_for_x(row0 - kTileRows);  // the next tile's
    if (pair_.grad_x && adds_) {
      await_right();
      ask_for_gradients(row0);
    }
    if (pair_.grad_y) add_to_sums(row0, tile);
    if (pair_.grad_x) add_to_x(row0, tile);
  }

  // Writes the sums to grad_y, when the strip is over.
  __device__ void finish() const {
    if (first_feature_ >= p_.dim || !pair_.grad_y) return;
#pragma unroll
    for (int m = 0; m < 2; ++m) {
      const float of_column[2] = {cuda::reduce_sum<4>(weight_[m][0]), cuda::reduce_sum<4>(weight_[m][1])};
#pragma unroll
      for (int b = 0; b < kBlocks; ++b) {
        if (b >= blocks_) break;
        const int f = first_feature_ + b * kBlockFeatures + 4 * t_;
        if (f >= p_.dim) continue;
        Fragment<4> y[2];
#pragma unroll
        for (int s = 0; s < 2; ++s) y[s] = memory_.columns(p_, pair_, column0_, 16 * m + g_, f + 2 * s);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int j = pair_.true_column(column0_ + 16 * m + 8 * half + g_);
          if (j >= pair_.m) continue;
          float* const to = pair_.grad_y + static_cast<std::int64_t>(j) * p_.dim + f;
          float gradient[4];
#pragma unroll
          for (int k = 0; k < 4; ++k) {
            const int at = half + 2 * (k % 2);
            const float one = y[k / 2].hi[at] + y[k / 2].lo[at];
            gradient[k] = 2.0f * (of_column[half] * one - sums_[m][b][k % 2][2 * half + k / 2]);
          }
          if (meets_) {  // at most two sweeps add to a column: their order changes no bit
#pragma unroll
            for (int k = 0; k < 4; ++k) atomicAdd(to + k, gradient[k]);
          } else {
            __stcg(reinterpret_cast<float4*>(to), {gradient[0], gradient[1], gradient[2], gradient[3]});
          }
        }
      }
    }
  }

 private:
  // Rows of a tile are copied to shared memory without waiting. A lane copies four features of every
  // kRowsAtOnce-th row.
  static constexpr int kLanesOfRow = kBlocks * kBlockFeatures / 4;
  static constexpr int kRowsAtOnce = 32 / kLanesOfRow;
  [[nodiscard]] __device__ __forceinline__ float* x_of(int row0) const { return rows_.x[row0 >> 4 & 1]; }
  __device__ __forceinline__ void ask_for_x(int row0) {
    asked_ = row0;
    const int f = lane_ % kLanesOfRow * 4;
    const int r0 = lane_ / kLanesOfRow;
    float* to = x_of(row0) + r0 * TensorGradientRows::kStride + f;
    if (first_feature_ + f >= p_.dim) {
#pragma unroll
      for (int r = 0; r < kTileRows; r += kRowsAtOnce, to += kRowsAtOnce * TensorGradientRows::kStride)
        *reinterpret_cast<float4*>(to) = {0, 0, 0, 0};
      return;
    }
    const float* const x = pair_.x + first_feature_ + f;
    if (row0 >= 0 && row0 + kTileRows <= pair_.n) {
      const float* from = x + pair_.true_row(row0 + r0) * p_.x_stride[1];
      const std::int64_t step = kRowsAtOnce * (pair_.from_back ? -p_.x_stride[1] : p_.x_stride[1]);
#pragma unroll
      for (int r = 0; r < kTileRows; r += kRowsAtOnce, from += step) copy_row(to, r, from);
    } else {
#pragma unroll
      for (int r = 0; r < kTileRows; r += kRowsAtOnce) {
        const int row = pair_.true_row(min(max(row0 + r0 + r, 0), pair_.n - 1));
        copy_row(to, r, x + row * p_.x_stride[1]);
      }
    }
  }
  // Starts to load the sums in grad_x so far. Rows outside the pair are left out: nothing reads them.
  __device__ __forceinline__ void ask_for_gradients(int row0) const {
    const int f = lane_ % kLanesOfRow * 4;
    const int r0 = lane_ / kLanesOfRow;
    if (first_feature_ + f >= p_.dim) return;
    const float* from = pair_.grad_x + static_cast<std::int64_t>(row0 + r0) * p_.dim + (first_feature_ + f);
    float* const to = rows_.before + r0 * TensorGradientRows::kStride + f;
#pragma unroll
    for (int r = 0; r < kTileRows; r += kRowsAtOnce, from += kRowsAtOnce * p_.dim) {
      const int row = row0 + r0 + r;
      if (row >= 0 && row < pair_.n) copy_row(to, r, from);
    }
  }
  static __device__ __forceinline__ void copy_row(float* to, int r, const float* from) {
    cuda::copy_async(reinterpret_cast<float4*>(to + r * TensorGradientRows::kStride),
                     reinterpret_cast<const float4*>(from));
  }

  // sums_ += E^T x'. A lane's fragments have rows 4t to 4t + 3 of the tile, and columns g and g + 8.
  __device__ __forceinline__ void add_to_sums(int row0, const float* tile) {
    Fragment<4> e[2][2];  // [m][s]: columns 16 m + g and 16 m + g + 8, rows 4t + 2s and 4t + 2s + 1
#pragma unroll
    for (int m = 0; m < 2; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float rows[4];
        unpack(*reinterpret_cast<const float4*>(tile + (16 * m + 8 * half + g_) * Memory::Ring::kStride +
                                                4 * t_),
               rows);
        weight_[m][half] += (rows[0] + rows[1]) + (rows[2] + rows[3]);
#pragma unroll
        for (int r = 0; r < 4; ++r) e[m][r / 2].set(half + 2 * (r % 2), split(rows[r]));
      }
    }
    const float* const x_at = x_of(row0) + 4 * t_ * TensorGradientRows::kStride + 2 * g_;
#pragma unroll
    for (int b = 0; b < kBlocks; ++b) {
      if (b >= blocks_) break;
      float origin[2];
      memory_.origin(first_feature_ + b * kBlockFeatures + 2 * g_, origin);
      Fragment<2> x[2][2];  // [f][s]: feature 2g + f, rows 4t + 2s and 4t + 2s + 1
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        const float2 v =
            *reinterpret_cast<const float2*>(x_at + r * TensorGradientRows::kStride + b * kBlockFeatures);
        x[0][r / 2].set(r % 2, split(v.x - origin[0]));
        x[1][r / 2].set(r % 2, split(v.y - origin[1]));
      }
      float of_tile[4][4] = {};  // [2 m + f]
#pragma unroll
      for (int s = 0; s < 2; ++s) {
        multiply(
            of_tile, p_.three_terms, [&](int k) -> const Fragment<4>& { return e[k / 2][s]; },
            [&](int k) -> const Fragment<2>& { return x[k % 2][s]; });
      }
#pragma unroll
      for (int k = 0; k < 16; ++k) sums_[k / 8][b][k / 4 % 2][k % 4] += of_tile[k / 4][k % 4];
    }
  }

  // Adds E y' of the tile to grad_x. A lane's fragments have rows g and g + 8. Their columns are 2t and 2t +
  // 8, or 2t + 1 and 2t + 9.
  __device__ __forceinline__ void add_to_x(int row0, const float* tile) {
    float product[kBlocks][2][4] = {};
    float weight[2] = {};
#pragma unroll
    for (int q = 0; q < 4; ++q) {
      const int j = q / 2 * 16 + q % 2 + 2 * t_;
      Fragment<4> e;
#pragma unroll
      for (int c = 0; c < 2; ++c) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const float one = tile[(j + 8 * c) * Memory::Ring::kStride + 8 * half + g_];
          weight[half] += one;
          e.set(half + 2 * c, split(one));
        }
      }
#pragma unroll
      for (int b = 0; b < kBlocks; ++b) {
        if (b >= blocks_) break;
        const Fragment<4> y =
            memory_.columns(p_, pair_, column0_, j, first_feature_ + b * kBlockFeatures + 2 * g_);
        const Fragment<2> of_feature[2] = {{{y.hi[0], y.hi[1]}, {y.lo[0], y.lo[1]}},
                                           {{y.hi[2], y.hi[3]}, {y.lo[2], y.lo[3]}}};
        multiply(
            product[b], p_.three_terms, [&](int) -> const Fragment<4>& { return e; },
            [&](int k) -> const Fragment<2>& { return of_feature[k]; });
      }
    }
    if (adds_) {
      cuda::await_copies();
      __syncwarp();
    }
    const float* const x_at = x_of(row0) + 4 * t_;
    const float* const before_at = rows_.before + 4 * t_;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float of_row = cuda::reduce_sum<4>(weight[half]);
      const int r = 8 * half + g_;
      const int row = row0 + r;
      if (row < 0 || row >= pair_.n) continue;
      float* const to = pair_.grad_x + static_cast<std::int64_t>(row) * p_.dim + first_feature_ + 4 * t_;
#pragma unroll
      for (int b = 0; b < kBlocks; ++b) {
        const int f = b * kBlockFeatures;
        if (b >= blocks_ || first_feature_ + f + 4 * t_ >= p_.dim) break;
        float x[4], origin[4], gradient[4], before[4] = {};
        unpack(*reinterpret_cast<const float4*>(x_at + r * TensorGradientRows::kStride + f), x);
        memory_.origin(first_feature_ + f + 4 * t_, origin);
        if (adds_) {
          const float* const at = before_at + r * TensorGradientRows::kStride + f;
          unpack(*reinterpret_cast<const float4*>(at), before);
        }
#pragma unroll
        for (int k = 0; k < 4; ++k) {
          const float half_of_it = of_row * (x[k] - origin[k]) - product[b][k % 2][2 * half + k / 2];
          gradient[k] = fmaf(2.0f, half_of_it, before[k]);
        }
        __stcg(reinterpret_cast<float4*>(to + f), {gradient[0], gradient[1], gradient[2], gradient[3]});
      }
    }
    __syncwarp();
  }

  const Params& p_;
  const Pair<float>& pair_;
  const int column0_;
  const int lane_;
  const int g_;
  const int t_;
  const bool adds_;
  const bool meets_;
  const int blocks_;
  const int first_feature_;
  Memory& memory_;
  TensorGradientRows& rows_;
  int asked_ = INT_MIN;  // the first row of the tile whose x was asked for last
  // weight_[m][h]: the sum of E over the lane's rows, of column 16 m + 8 h + g. sums_[m][b][f]: a fragment of
  // E^T x', of columns 16 m + [0, 16) and the features 2 c + f of block b.
  float weight_[2][2] = {};
  float sums_[2][kBlocks][2][4] = {};
};

}  // namespace warpalign::detail::soft_dtw
