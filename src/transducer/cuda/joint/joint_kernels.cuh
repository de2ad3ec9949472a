// The three products of the joint network, each over a chunk of nodes.
//
//   logits    x = h Wᵀ, the bias as column H of W and 1 as column H of h. A bias that TF32
//             would round is added in float32 instead, because the blank's bias is in every node
//   pull back dh = act' (G W), G the gradient with respect to logits
//   outer     W's sums += Gᵀ h; column H is that of the bias
#pragma once

#include "transducer/cuda/joint/joint_product.cuh"
#include "transducer/cuda/joint/joint_rows.cuh"

namespace warpalign::detail::transducer {

template <class Storage>
struct JointProducts {
  using Real = cuda::Sum<Storage>;
  JointRows<Storage> rows;
  JointChunk chunk;
  const Storage* weight;  // (columns, h_stride), packed
  const Storage* bias;    // only with TF32; null: no bias, or it is W's column H
  std::int32_t columns;   // V + D
  Real* dh;               // (chunk, h_stride)
  Real* weight_sums;      // (parts, columns, h_stride)
  std::int32_t parts;     // parts of a chunk, each with its own sums
  bool three_terms;       // with TF32, whether a product of float32 is three of TF32

  [[nodiscard]] __device__ __forceinline__ Factor<Storage> h(int count) const {
    return {rows.h, rows.h_stride, count, static_cast<std::int32_t>(rows.h_stride)};
  }
  [[nodiscard]] __device__ __forceinline__ Factor<Storage> x(int count) const {
    return {rows.logits, rows.logit_stride, count, static_cast<std::int32_t>(rows.logit_stride)};
  }
  [[nodiscard]] __device__ __forceinline__ Factor<Storage> w() const {
    return {weight, rows.h_stride, columns, static_cast<std::int32_t>(rows.h_stride)};
  }
};

// A block's tile. Consecutive blocks have neighbouring columns of the result.
template <class Shape>
struct TilePlace {
  static constexpr int kTile = Shape::kTile;
  int row, column, part;

  __device__ __forceinline__ TilePlace(int rows, int columns) {
    const int column_tiles = (columns + kTile - 1) / kTile, row_tiles = (rows + kTile - 1) / kTile;
    const int block = static_cast<int>(blockIdx.x), tile = block / column_tiles;
    column = block % column_tiles * kTile;
    row = tile % row_tiles * kTile;
    part = tile / row_tiles;
  }
};

// Two neighbouring elements, aligned to their common size.
template <class T>
__device__ __forceinline__ void write_pair(T* to, cuda::Sum<T> first, cuda::Sum<T> second) {
  struct alignas(2 * sizeof(T)) Pair {
    T first, second;
  };
  *reinterpret_cast<Pair*>(to) = {cuda::narrow<T>(first), cuda::narrow<T>(second)};
}

template <class Shape>
__global__ void __launch_bounds__(Shape::kThreads, Shape::kBlocks)
    joint_logits_kernel(const __grid_constant__ JointProducts<typename Shape::Storage> p) {
  const int count = p.chunk.rows(), columns = static_cast<int>(p.rows.logit_stride);
  const TilePlace<Shape> tile(p.chunk.most, columns);
  if (tile.row >= count) return;
  multiply<Shape, false, false>(p.h(count), p.w(), tile.row, tile.column, 0, p.rows.hidden + 1, p.three_terms,
                                [&](int r, int n, auto first, auto second) {
                                  if (r >= count || n >= columns) return;  // columns is even
                                  if constexpr (std::is_same_v<Shape, Tf32Shape>) {
                                    if (p.bias && n < p.columns) first += p.bias[n];
                                    if (p.bias && n + 1 < p.columns) second += p.bias[n + 1];
                                  }
                                  write_pair(p.rows.logits + r * p.rows.logit_stride + n, first, second);
                                });
}

template <class Shape>
__global__ void __launch_bounds__(Shape::kThreads, Shape::kBlocks)
    joint_back_kernel(const __grid_constant__ JointProducts<typename Shape::Storage> p) {
  using Real = cuda::Sum<typename Shape::Storage>;
  const int count = p.chunk.rows();
  const TilePlace<Shape> tile(p.chunk.most, p.rows.hidden);
  if (tile.row >= count) return;
  multiply<Shape, false, true>(
      p.x(count), p.w(), tile.row, tile.column, 0, p.columns, p.three_terms,
      [&](int r, int n, Real first, Real second) {
        if (r >= count || n >= p.rows.hidden) return;
        const std::int64_t at = r * p.rows.h_stride + n;  // an even number; h has a column H
        const auto slope = [&](typename Shape::Storage activated) {
          return p.rows.dropout.slope(static_cast<Real>(cuda::widen(activated)), p.rows.is_tanh);
        };
        write_pair(p.dh + at, first * slope(p.rows.h[at]), second * slope(p.rows.h[at + 1]));
      });
}

template <class Shape>
__global__ void __launch_bounds__(Shape::kThreads, Shape::kBlocks)
    joint_outer_kernel(const __grid_constant__ JointProducts<typename Shape::Storage> p) {
  using Real = cuda::Sum<typename Shape::Storage>;
  const int count = p.chunk.rows();
  const TilePlace<Shape> tile(p.columns, p.rows.hidden + 1);
  const int share = p.chunk.most / p.parts, begin = tile.part * share;
  const int end = min(begin + share, count);
  if (begin >= end) return;
  Real* const sums = p.weight_sums + tile.part * (p.columns * p.rows.h_stride);
  multiply<Shape, true, true>(p.x(end), p.h(end), tile.row, tile.column, begin, end, p.three_terms,
                              [&](int k, int j, Real first, Real second) {
                                if (k >= p.columns || j > p.rows.hidden) return;
                                Real* const to = sums + k * p.rows.h_stride + j;  // rows have an even length
                                write_pair(to, to[0] + first, to[1] + second);
                              });
}

}  // namespace warpalign::detail::transducer
