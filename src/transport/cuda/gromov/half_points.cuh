// Sinkhorn between points that are rounded to binary16, with products by matrix units. For a fixed number of
// alternating iterations at a precision below that of float32.
//
//   x' = round(s (x - c)),   C = |x' - y'|^2 / s^2,   t[i,j] = w[i] + lambda + z[j] - k C[i,j]
//
// c is 0 for a coordinate with both signs, otherwise the middle of its range. s is a power of two, so that
// points that are on the grid do not change. Norms are those of the rounded points: all results are those of
// the exact costs between slightly moved points.
//
// A pass computes, for every point of one side, log2 sum_j 2^(slope (bias[j] + x'.y'[j])) with slope = 2 k /
// s^2 and slope bias[j] = z[j] + log2 b[j] - k |y'[j]|^2 / s^2. Products start at the biases. Passes:
// half_pass.cuh, half_groups.cuh. Sources of the update: sinkhorn.h.
//
// Rounded points are stored in the layout of matrix units: pieces of 8 points x 8 coordinates, with a point's
// 8 numbers contiguous. The next piece has the same points and the next coordinates.
#pragma once

#include "cuda/launch/kernel.cuh"
#include "cuda/numbers/half.cuh"
#include "cuda/numbers/math.cuh"
#include "transport/cuda/gromov/half_params.cuh"
#include "transport/cuda/solve/side.cuh"

namespace warpalign::detail::transport {

// Computes the smallest and the largest coordinates. A block owns a part of all points.
__global__ void __launch_bounds__(kHalfThreads) half_bounds_kernel(const __grid_constant__ HalfParams p) {
  __shared__ float2 parts[kHalfThreads];
  const int thread = static_cast<int>(threadIdx.x), block = static_cast<int>(blockIdx.x);
  const int columns = kHalfMostWidth, rows = kHalfThreads / columns;
  const int d = thread % columns;
  float2 range = {CUDART_INF_F, -CUDART_INF_F};
  for (const HalfSide& side : p.sides) {
    for (int i = block * rows + thread / columns; i < side.length && d < p.dim;
         i += kHalfBoundBlocks * rows) {
      const float v = side.points[i * side.stride[0] + d * side.stride[1]];
      range = {fminf(range.x, v), fmaxf(range.y, v)};
    }
  }
  parts[thread] = range;
  __syncthreads();
  if (thread >= p.dim) return;
  for (int k = 1; k < rows; ++k) {
    const float2 other = parts[thread + k * columns];
    range = {fminf(range.x, other.x), fmaxf(range.y, other.y)};
  }
  p.bounds[block * p.dim + thread] = range;
}

// A point's part of the logits of all its pairs, divided by the slope. A point with an infinite potential has
// logits of -inf in any case. k is divided by s^2.
__device__ __forceinline__ float half_bias(const HalfParams& p, double w, double weight, double k,
                                           float square) {
  const double reference = p.product ? log2(weight) : 0.0;
  const double bits = (w == CUDART_INF ? 0.0 : w) + reference - k * static_cast<double>(square);
  return static_cast<float>(bits / static_cast<double>(fmaxf(static_cast<float>(2 * k), kHalfLeastSlope)));
}
__device__ __forceinline__ double half_weight(const HalfSide& side, int i) {
  return side.weights ? static_cast<double>(side.weights[i]) : 1.0 / side.length;
}

// Rounds the points of both sides, and sets the initial potentials of the rows. A warp owns a point.
__global__ void __launch_bounds__(kHalfThreads) half_round_kernel(const __grid_constant__ HalfParams p) {
  __shared__ float centers[kHalfMostWidth];
  __shared__ float radii[kHalfMostWidth];
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32;
  if (thread < kHalfMostWidth) {
    float2 range = {CUDART_INF_F, -CUDART_INF_F};
    for (int k = 0; k < kHalfBoundBlocks && thread < p.dim; ++k) {
      const float2 part = p.bounds[k * p.dim + thread];
      range = {fminf(range.x, part.x), fmaxf(range.y, part.y)};
    }
    const bool known = range.x <= range.y, both_signs = range.x <= 0 && range.y >= 0;
    const float center = both_signs || !known ? 0.0F : range.x / 2 + range.y / 2;
    centers[thread] = center;
    radii[thread] = known ? fmaxf(range.y - center, center - range.x) : 0.0F;
  }
  __syncthreads();
  float radius = 0;
  for (int d = lane; d < kHalfMostWidth; d += 32) radius = fmaxf(radius, radii[d]);
  radius = cuda::reduce_max(radius);
  int exponent = 0;
  if (radius > 0 && !isinf(radius)) static_cast<void>(frexp(static_cast<double>(radius), &exponent));
  exponent = max(-60, min(exponent, 60));
  const float scale = static_cast<float>(ldexp(1.0, kHalfLargest - exponent));
  const double unit = ldexp(1.0, 2 * (exponent - kHalfLargest));
  if (blockIdx.x == 0 && thread == 0) {
    p.grid[0] = unit;
    p.grid[1] = 0;
  }
  const int point = static_cast<int>(blockIdx.x) * (kHalfThreads / 32) + thread / 32;
  const int rows = half_padded(p.sides[0].length);
  const bool is_row = point < rows;
  const HalfSide& side = p.sides[is_row ? 0 : 1];
  const int i = is_row ? point : point - rows;
  if (i >= half_padded(side.length)) return;
  const bool exists = i < side.length;
  float square = 0;
  for (int d = lane; d < p.width; d += 32) {
    const float v = exists && d < p.dim
                        ? (side.points[i * side.stride[0] + d * side.stride[1]] - centers[d]) * scale
                        : 0.0F;
    const Float16 rounded = cuda::narrow<Float16>(v);
    const std::int64_t piece = static_cast<std::int64_t>(i / 8) * (p.width / 8) + d / 8;
    side.rounded[piece * 64 + i % 8 * 8 + d % 8] = rounded;
    const float on_grid = cuda::widen(rounded);
    square = fma(on_grid, on_grid, square);
  }
  square = cuda::reduce_sum(square);
  if (lane > 0) return;
  side.squares[i] = square;
  if (!exists) side.bias[i] = -CUDART_INF_F;
  if (!is_row || !exists) return;
  const double w = side.start ? static_cast<double>(side.start[i]) * (kLog2E<double> / p.epsilon) : 0.0;
  side.bits[i] = w;
  side.bias[i] = half_bias(p, w, half_weight(side, i), p.k * unit, square);
}

// Joins the totals of a block's threads, in thread 0.
__device__ __forceinline__ HalfTotals half_block_totals(HalfTotals mine) {
  __shared__ HalfTotals warps[kHalfThreads / 32];
  const auto add = [](const HalfTotals& a, const HalfTotals& b) {
    return HalfTotals{a.mass + b.mass, a.linear + b.linear, a.value + b.value, a.reference + b.reference,
                      sum_in_bits(a.mass_bits, b.mass_bits)};
  };
  mine = cuda::reduce(mine, add);
  if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = mine;
  __syncthreads();
  HalfTotals all = kNoHalfTotals;
  if (threadIdx.x == 0) {
    for (const HalfTotals& part : warps) all = add(all, part);
  }
  __syncthreads();
  return all;
}

// Computes new potentials of a side from its sums.
__global__ void __launch_bounds__(kHalfThreads)
    half_update_kernel(const __grid_constant__ HalfParams p, int own_side) {
  const HalfSide& own = p.sides[own_side];
  const int i = static_cast<int>(blockIdx.x) * kHalfThreads + static_cast<int>(threadIdx.x);
  const double unit = p.grid[0], lambda = p.grid[1];
  HalfTotals mine = kNoHalfTotals;
  if (i < own.length) {
    float top = kHalfNothing;
    for (int split = 0; split < own.splits; ++split) {
      top = fmaxf(top, own.parts[static_cast<std::int64_t>(split) * own.length + i].top);
    }
    double sum = 0, linear = 0;
    for (int split = 0; split < own.splits; ++split) {
      const HalfPart part = own.parts[static_cast<std::int64_t>(split) * own.length + i];
      const float factor = cuda::exp2_fast(part.top - top);
      sum += static_cast<double>(factor * part.sum);
      linear += static_cast<double>(factor * part.linear);
    }
    const Marginal marginal{p.mass > 0, own.strength};
    const float square = own.squares[i];
    const double k = p.k * unit, weight = half_weight(own, i), reference = p.product ? weight : 1.0;
    const double base = lambda + static_cast<double>(top) - k * static_cast<double>(square);
    const double target = p.product ? 0.0 : log2(weight);
    const double to = marginal.updated(free_of(target, 0.0, base + log2(sum)), p.epsilon);
    own.bits[i] = to;
    own.bias[i] = half_bias(p, to, weight, k, square);
    if (!isinf(to)) {
      const double factor = reference == 0 ? 0.0 : reference * exp2(base + to);
      mine.mass = factor * sum;
      if (p.mass > 0 && reference > 0) mine.mass_bits = log2(reference) + base + to + log2(sum);
      mine.linear = factor * (linear + static_cast<double>(square) * sum) * unit;
    }
    mine.value = marginal.conjugate(p.epsilon / kLog2E<double> * to, weight);
    mine.reference = reference;
  }
  const HalfTotals all = half_block_totals(mine);
  if (threadIdx.x == 0) own.totals[blockIdx.x] = all;
}

__device__ __forceinline__ HalfTotals half_totals(const HalfSide& side) {
  HalfTotals mine = kNoHalfTotals;
  for (int k = static_cast<int>(threadIdx.x); k < cuda::div_up(side.length, kHalfThreads);
       k += kHalfThreads) {
    const HalfTotals part = side.totals[k];
    mine.mass += part.mass;
    mine.linear += part.linear;
    mine.value += part.value;
    mine.reference += part.reference;
    mine.mass_bits = sum_in_bits(mine.mass_bits, part.mass_bits);
  }
  return half_block_totals(mine);
}

// For partial transport: one block computes the lambda that restores the plan's mass.
__global__ void __launch_bounds__(kHalfThreads)
    half_mass_kernel(const __grid_constant__ HalfParams p, int own_side) {
  const HalfTotals all = half_totals(p.sides[own_side]);
  if (threadIdx.x == 0) p.grid[1] += log2(p.mass) - all.mass_bits;
}

// Writes the results. The rows were updated last.
__global__ void __launch_bounds__(kHalfThreads) half_results_kernel(const __grid_constant__ HalfParams p) {
  const double bits = p.epsilon / kLog2E<double>, lambda = p.grid[1];
  const int at = static_cast<int>(blockIdx.x) * kHalfThreads + static_cast<int>(threadIdx.x);
  const bool is_row = at < p.sides[0].length;
  const HalfSide& side = p.sides[is_row ? 0 : 1];
  const int i = is_row ? at : at - p.sides[0].length;
  if (i < side.length && side.potential) {
    side.potential[i] = static_cast<float>(bits * (side.bits[i] + (is_row ? lambda : 0.0)));
  }
  if (blockIdx.x > 0) return;
  const HalfTotals rows = half_totals(p.sides[0]), columns = half_totals(p.sides[1]);
  if (threadIdx.x > 0) return;
  // lambda has changed since the rows' sums.
  const double moved = p.mass > 0 ? p.mass / rows.mass : 1.0, mass = rows.mass * moved;
  double value = p.epsilon * (rows.reference * columns.reference - mass) + rows.value + columns.value;
  if (p.mass > 0) value += bits * lambda * p.mass;
  if (p.shift) *p.shift = static_cast<float>(bits * lambda);
  if (p.value) *p.value = static_cast<float>(value);
  if (p.linear) *p.linear = static_cast<float>(p.cost_scale * rows.linear * moved);
  if (p.done) *p.done = p.iterations;
}

}  // namespace warpalign::detail::transport
