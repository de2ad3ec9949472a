// Scores of the joint network, for every row (hypothesis, frame): a product of hidden rows with the output
// layer's weights. A block owns a tile of rows and columns, a thread a few of its sums. One thread computes a
// sum, in the order j = 0, 1, ..., so that it depends bitwise on the row alone.
#pragma once

#include <cmath>
#include <cstdint>

#include "cuda/rows/ragged.h"
#include "cuda/threads/warp.cuh"
#include "transducer/decode.h"

namespace warpalign::detail::transducer {

constexpr int kScoreThreads = 128;
constexpr int kScoreRows = 16;     // rows of a tile: 4 for each warp
constexpr int kScoreColumns = 64;  // columns of a tile: 2 for each lane
constexpr int kScoreDepth = 32;    // terms j in shared memory at a time

// A tile's rows and weights in shared memory, [j][row] and [j][column]. The strides avoid bank conflicts of
// stores, and align groups of four rows.
template <class Real>
struct ScoreTile {
  static constexpr int kRowStride = kScoreRows + 4;
  static constexpr int kColumnStride = kScoreColumns + 1;
  alignas(32) Real hidden[kScoreDepth][kRowStride];
  Real weight[kScoreDepth][kColumnStride];
  // The addresses of the rows; null: no row.
  const Real* encoder[kScoreRows];
  const Real* predictor[kScoreRows];
};

template <class Real>
struct alignas(4 * sizeof(Real)) Four {
  Real value[4];
};

template <class Real>
__device__ __forceinline__ Real activated(Real v, Activation activation) {
  if (activation == Activation::kTanh) return std::tanh(v);
  return v > Real(0) || v != v ? v : Real(0);  // NaN stays NaN
}

template <class Real>
__device__ __forceinline__ void find_rows(const TransducerScores& p, std::int64_t first,
                                          ScoreTile<Real>& tile) {
  const int r = static_cast<int>(threadIdx.x);
  if (r >= kScoreRows) return;
  const std::int64_t row = first + r, n = row / p.window;
  const std::int64_t b = n / p.beams;
  tile.encoder[r] = tile.predictor[r] = nullptr;
  if (b >= p.batch) return;
  const std::int32_t start = p.frame[n * p.frame_stride];
  const std::int64_t t = start + row % p.window;
  if (start < 0 || t >= cuda::true_length(p.lengths, static_cast<int>(b), p.frames, 0)) return;
  const StridedTensor& encoder = p.joint.encoder;
  tile.encoder[r] = static_cast<const Real*>(encoder.data) + b * encoder.stride[0] + t * encoder.stride[1];
  tile.predictor[r] = static_cast<const Real*>(p.joint.predictor) + n * p.joint.hidden;
}

// The elements that a thread loads for the next terms of the sums.
template <class Real>
struct ScoreLoad {
  static constexpr int kHidden = kScoreRows * kScoreDepth / kScoreThreads;
  static constexpr int kWeights = kScoreColumns * kScoreDepth / kScoreThreads;
  Real hidden[kHidden];
  Real weight[kWeights];

  // Neighbouring lanes read along j.
  __device__ __forceinline__ void read(const TransducerScores& p, const ScoreTile<Real>& tile,
                                       int first_column, int first) {
    const int warp = static_cast<int>(threadIdx.x) / cuda::kWarpSize;
    const int j = first + static_cast<int>(threadIdx.x) % cuda::kWarpSize;
    const bool inside = j < p.joint.hidden;
    const auto* const weights = static_cast<const Real*>(p.joint.weight);
#pragma unroll
    for (int k = 0; k < kHidden; ++k) {
      const int r = warp * kHidden + k;
      hidden[k] = Real(0);
      if (inside && tile.encoder[r]) {
        hidden[k] = activated(tile.encoder[r][j] + tile.predictor[r][j], p.joint.activation);
      }
    }
#pragma unroll
    for (int k = 0; k < kWeights; ++k) {
      const int c = first_column + warp * kWeights + k;
      weight[k] =
          inside && c < p.columns ? weights[static_cast<std::int64_t>(c) * p.joint.hidden + j] : Real(0);
    }
  }
  __device__ __forceinline__ void write(ScoreTile<Real>& tile) const {
    const int warp = static_cast<int>(threadIdx.x) / cuda::kWarpSize;
    const int j = static_cast<int>(threadIdx.x) % cuda::kWarpSize;
#pragma unroll
    for (int k = 0; k < kHidden; ++k) tile.hidden[j][warp * kHidden + k] = hidden[k];
#pragma unroll
    for (int k = 0; k < kWeights; ++k) tile.weight[j][warp * kWeights + k] = weight[k];
  }
};

template <class Real>
__global__ void __launch_bounds__(kScoreThreads) scores_kernel(const TransducerScores p) {
  static_assert(kScoreThreads / cuda::kWarpSize * 4 == kScoreRows && 2 * cuda::kWarpSize == kScoreColumns);
  static_assert(kScoreDepth == cuda::kWarpSize);
  __shared__ ScoreTile<Real> tile;
  const int column_tiles = (p.columns + kScoreColumns - 1) / kScoreColumns;
  const std::int64_t first_row = std::int64_t{blockIdx.x / column_tiles} * kScoreRows;
  const int first_column = static_cast<int>(blockIdx.x % column_tiles) * kScoreColumns;
  const int warp = static_cast<int>(threadIdx.x) / cuda::kWarpSize;
  const int lane = static_cast<int>(threadIdx.x) % cuda::kWarpSize;
  find_rows(p, first_row, tile);
  __syncthreads();

  Real sum[4][2] = {};
  ScoreLoad<Real> next;
  next.read(p, tile, first_column, 0);
  for (int first = 0; first < p.joint.hidden; first += kScoreDepth) {
    next.write(tile);
    __syncthreads();
    if (first + kScoreDepth < p.joint.hidden) next.read(p, tile, first_column, first + kScoreDepth);
#pragma unroll 8
    for (int j = 0; j < kScoreDepth; ++j) {
      const auto h = *reinterpret_cast<const Four<Real>*>(&tile.hidden[j][4 * warp]);
      const Real w[2] = {tile.weight[j][lane], tile.weight[j][lane + cuda::kWarpSize]};
#pragma unroll
      for (int r = 0; r < 4; ++r) {
#pragma unroll
        for (int c = 0; c < 2; ++c) sum[r][c] = fma(h.value[r], w[c], sum[r][c]);
      }
    }
    __syncthreads();
  }

  const auto* const bias = static_cast<const Real*>(p.joint.bias);
  auto* const scores = static_cast<Real*>(p.scores);
  const std::int64_t rows = static_cast<std::int64_t>(p.batch) * p.beams * p.window;
#pragma unroll
  for (int r = 0; r < 4; ++r) {
    const std::int64_t row = first_row + 4 * warp + r;
    if (row >= rows) break;
    const bool wanted = tile.encoder[4 * warp + r] != nullptr;
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      const int column = first_column + lane + c * cuda::kWarpSize;
      if (column >= p.columns) continue;
      scores[row * p.columns + column] = wanted ? sum[r][c] + (bias ? bias[column] : Real(0)) : Real(0);
    }
  }
}

}  // namespace warpalign::detail::transducer
