// Anchors of sampled Gromov-Wasserstein transport: samples from a plan's rows, and distances to the sampled
// points.
#pragma once

#include <math_constants.h>

#include "core/philox.h"
#include "cuda/launch/device.h"
#include "cuda/launch/kernel.cuh"
#include "cuda/numbers/half.cuh"
#include "cuda/threads/warp.cuh"
#include "transport/anchors.h"

namespace warpalign::detail::transport {

inline constexpr int kAnchorThreads = 256;
inline constexpr int kAnchorTile = 32;  // points, anchors and features at a time

struct AnchorColumnsParams {
  int n, m, dim, count, parts;
  const float* x;
  const float* y;
  const float* g;
  const float* b;
  const std::int64_t* rows;
  float cost_over_epsilon;
  float inverse_epsilon;
  std::uint64_t seed;
  unsigned long long* keys;  // (count, parts)
  std::int64_t* columns;
};

// Gumbel noise, -log of an exponential random number. Small values of the word keep their relative precision.
__device__ __forceinline__ float gumbel(std::uint32_t word) {
  const float uniform = (static_cast<float>(word) + 0.5F) * 0x1p-32F;
  return -log(-log1p(-uniform));
}

// A key whose order is that of scores, among equal scores that of descending columns; 0 for NaN and -inf.
__device__ __forceinline__ unsigned long long key_of(float score, int column) {
  if (!(score > -CUDART_INF_F)) return 0;
  const auto bits = static_cast<unsigned>(__float_as_int(score));
  const unsigned ordered = bits >> 31 ? ~bits : bits | 0x80000000u;
  return static_cast<unsigned long long>(ordered) << 32 | (0xffffffffu - static_cast<unsigned>(column));
}

// Finds the best column in parts of rows. A block owns a part of a row's columns. A warp takes 32 columns at
// a time, and computes their squared distances one by one, with its lanes sharing the coordinates.
__global__ void __launch_bounds__(kAnchorThreads)
    anchor_columns_kernel(const __grid_constant__ AnchorColumnsParams p) {
  __shared__ unsigned long long best_of_warp[kAnchorThreads / 32];
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32;
  const int draw = static_cast<int>(blockIdx.x) / p.parts, part = static_cast<int>(blockIdx.x) % p.parts;
  const std::int64_t given = p.rows[draw];
  const std::int64_t row = given < 0 ? 0 : given >= p.n ? p.n - 1 : given;
  float own[4];
#pragma unroll
  for (int k = 0; k < 4; ++k) own[k] = 32 * k + lane < p.dim ? p.x[row * p.dim + 32 * k + lane] : 0.0F;
  const int first = static_cast<int>(static_cast<std::int64_t>(p.m) * part / p.parts);
  const int last = static_cast<int>(static_cast<std::int64_t>(p.m) * (part + 1) / p.parts);
  unsigned long long best = 0;
  for (int begin = first + 32 * warp; begin < last; begin += kAnchorThreads) {
    float mine = 0;
#pragma unroll 4
    for (int c = 0; c < 32; ++c) {
      const std::int64_t j = min(begin + c, last - 1);
      float square = 0;
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        if (32 * k + lane >= p.dim) continue;
        const float difference = own[k] - p.y[j * p.dim + 32 * k + lane];
        square = fma(difference, difference, square);
      }
      square = cuda::reduce_sum(square);
      if (lane == c) mine = square;
    }
    const int j = begin + lane;
    if (j >= last) continue;
    float score = p.g[j] * p.inverse_epsilon - p.cost_over_epsilon * mine;
    if (p.b) score += log(p.b[j]);
    const PhiloxWords words =
        philox({{static_cast<std::uint32_t>(j), static_cast<std::uint32_t>(draw), 0, 0}}, p.seed);
    const unsigned long long key = key_of(score + gumbel(words.word[0]), j);
    best = key > best ? key : best;
  }
  const auto larger_key = [](unsigned long long a, unsigned long long b) { return a > b ? a : b; };
  best = cuda::reduce(best, larger_key);
  if (lane == 0) best_of_warp[warp] = best;
  __syncthreads();
  if (thread > 0) return;
  for (const unsigned long long key : best_of_warp) best = larger_key(best, key);
  p.keys[static_cast<std::int64_t>(draw) * p.parts + part] = best;
}

__global__ void __launch_bounds__(kAnchorThreads)
    anchor_join_kernel(const __grid_constant__ AnchorColumnsParams p) {
  const int draw = static_cast<int>(blockIdx.x) * kAnchorThreads + static_cast<int>(threadIdx.x);
  if (draw >= p.count) return;
  unsigned long long best = 0;
  for (int part = 0; part < p.parts; ++part) {
    const unsigned long long key = p.keys[static_cast<std::int64_t>(draw) * p.parts + part];
    best = key > best ? key : best;
  }
  p.columns[draw] = best == 0 ? 0 : static_cast<std::int64_t>(0xffffffffu - static_cast<unsigned>(best));
}

// Distances of points to anchors. A block owns 32 points and 32 anchors, a thread four points of one anchor.
template <AnchorDistance kDistance>
__global__ void __launch_bounds__(kAnchorThreads)
    anchor_coordinates_kernel(const __grid_constant__ AnchorCoordinates p) {
  constexpr bool kLargest = kDistance == AnchorDistance::kLargestDifference;
  __shared__ float own[kAnchorTile][kAnchorTile + 1];
  __shared__ float anchors[kAnchorTile][kAnchorTile + 1];
  const auto* const points = static_cast<const float*>(p.points);
  const int thread = static_cast<int>(threadIdx.x), column = thread % kAnchorTile, row = thread / kAnchorTile;
  const int groups = cuda::div_up(p.count, kAnchorTile);
  const std::int64_t begin = static_cast<std::int64_t>(static_cast<int>(blockIdx.x) / groups) * kAnchorTile;
  const int first = static_cast<int>(blockIdx.x) % groups * kAnchorTile;
  float sums[4] = {};
  for (int feature = 0; feature < p.dim; feature += kAnchorTile) {
    __syncthreads();
    const bool exists = feature + column < p.dim;
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const int at = row + 8 * k;
      const std::int64_t i = min(static_cast<int>(begin) + at, p.n - 1);
      const std::int64_t given = p.anchors[min(first + at, p.count - 1)];
      const std::int64_t anchor = given < 0 ? 0 : given >= p.n ? p.n - 1 : given;
      own[at][column] = exists ? points[i * p.dim + feature + column] : 0.0F;
      anchors[at][column] = exists ? points[anchor * p.dim + feature + column] : 0.0F;
    }
    __syncthreads();
#pragma unroll 8
    for (int d = 0; d < kAnchorTile; ++d) {
      const float of_anchor = anchors[column][d];
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        const float difference = own[row + 8 * k][d] - of_anchor;
        if constexpr (kLargest) {
          const float size = abs(difference);
          sums[k] = size > sums[k] || isnan(size) ? size : sums[k];
        } else {
          sums[k] = fma(difference, difference, sums[k]);
        }
      }
    }
  }
  const float inverse = 1 / *static_cast<const float*>(p.unit);
  auto* const to = static_cast<float*>(p.coordinates);
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    const std::int64_t i = begin + row + 8 * k;
    if (i >= p.n || first + column >= p.count) continue;
    const float distance = kDistance == AnchorDistance::kEuclidean ? sqrt(sums[k]) : sums[k];
    to[i * p.count + first + column] = cuda::widen(cuda::narrow<Float16>(distance * inverse - 0.5F));
  }
}

}  // namespace warpalign::detail::transport
