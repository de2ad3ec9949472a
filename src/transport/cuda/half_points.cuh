// Sinkhorn between points that are rounded to binary16, whose products matrix units make. For a fixed number
// of alternating iterations, where a float32's digits are not asked for.
//
//   x' = round(s (x - c)),   C = |x' - y'|^2 / s^2,   t[i,j] = w[i] + lambda + z[j] - k C[i,j]
//
// c is 0 where a coordinate has both signs, else the middle of its range. s is a power of two. So points that
// lie on the grid already stay where they are, and the potentials belong to exactly the costs of x' and y'.
// Norms are made of the rounded points: the costs are those of a slightly moved cloud.
//
// A pass makes, for every point of one side, log2 sum_j 2^(h[j] + 2 k x'.y'[j]) with h[j] = z[j] + log2 b[j]
// - k |y'[j]|^2. Every thread keeps the largest logit it has seen as the shift of its sums (Milakov &
// Gimelshein, arXiv 1805.02867), and moves the shift only where a sum might overflow. Sources of the update:
// sinkhorn.h.
#pragma once

#include "cuda/copy_async.cuh"
#include "cuda/half.cuh"
#include "cuda/kernel.cuh"
#include "cuda/math.cuh"
#include "cuda/mma.cuh"
#include "cuda/shared.cuh"
#include "transport/cuda/half_points.h"
#include "transport/cuda/side.cuh"

namespace warpalign::detail::transport {

// The share of a part of the other side in a point's sum.
struct HalfPart {
  float top;     // the shift
  float sum;     // sum 2^(t - top)
  float linear;  // sum 2^(t - top) (|y'|^2 - 2 x'.y'), of the last pass
};

// The share of a block's points in the totals.
struct HalfTotals {
  double mass;       // of the plan
  double linear;     // <C, P>, C not scaled
  double value;      // the dual's
  double reference;  // of the reference's weights
  double mass_bits;  // log2(mass) of partial transport, whose first mass may be below any number
};
constexpr HalfTotals kNoHalfTotals{0, 0, 0, 0, -std::numeric_limits<double>::infinity()};

struct HalfSide {
  const float* points;  // (length, D)
  std::int64_t stride[2];
  const float* weights;  // (length); null: 1 / length
  const float* start;    // (length), a potential; null: 0
  float* potential;      // (length), a result; null: not wanted
  int length;
  double strength;
  int splits;          // parts of the other side
  Float16* rounded;    // (length, width), 0 behind the last coordinate
  float* squares;      // (length): |x'|^2
  double* bits;        // (length): w
  float* shift;        // (length): h
  HalfPart* parts;     // (splits, length)
  HalfTotals* totals;  // (blocks of an update)
};

struct HalfParams {
  HalfSide sides[2];
  int dim;
  int width;  // coordinates of a rounded point, a multiple of 16
  double k;   // log2(e) cost_scale / epsilon
  double epsilon;
  double cost_scale;
  double mass;
  bool product;
  int iterations;
  float2* bounds;  // (kHalfBoundBlocks, D): the least and the largest coordinate
  double* grid;    // 1 / s^2, lambda
  float* shift;
  float* value;
  float* linear;
  std::int32_t* done;  // iterations
};

// The least and the largest coordinates of a part of all points.
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

// What a point adds to the logits of all pairs that it is in. An infinite potential belongs to a point that
// every cost forbids: its logits are -inf already.
__device__ __forceinline__ float half_shift(const HalfParams& p, double w, double weight, double k,
                                            float square) {
  const double reference = p.product ? log2(weight) : 0.0;
  return static_cast<float>((w == CUDART_INF ? 0.0 : w) + reference - k * static_cast<double>(square));
}
__device__ __forceinline__ double half_weight(const HalfSide& side, int i) {
  return side.weights ? static_cast<double>(side.weights[i]) : 1.0 / side.length;
}

// Points of both sides on the grid; a warp has a point. Rows get the potentials to start from.
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
    const bool exists = range.x <= range.y, both_signs = range.x <= 0 && range.y >= 0;
    const float center = both_signs || !exists ? 0.0F : range.x / 2 + range.y / 2;
    centers[thread] = center;
    radii[thread] = exists ? fmaxf(range.y - center, center - range.x) : 0.0F;
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
  const bool is_row = point < p.sides[0].length;
  const HalfSide& side = p.sides[is_row ? 0 : 1];
  const int i = is_row ? point : point - p.sides[0].length;
  if (i >= side.length) return;
  float square = 0;
  for (int d = lane; d < p.width; d += 32) {
    const float v =
        d < p.dim ? (side.points[i * side.stride[0] + d * side.stride[1]] - centers[d]) * scale : 0.0F;
    const Float16 rounded = cuda::narrow<Float16>(v);
    side.rounded[static_cast<std::int64_t>(i) * p.width + d] = rounded;
    const float on_grid = cuda::widen(rounded);
    square = fma(on_grid, on_grid, square);
  }
  square = cuda::reduce_sum(square);
  if (lane > 0) return;
  side.squares[i] = square;
  if (!is_row) return;
  const double w = side.start ? static_cast<double>(side.start[i]) * (kLog2E<double> / p.epsilon) : 0.0;
  side.bits[i] = w;
  side.shift[i] = half_shift(p, w, half_weight(side, i), p.k * unit, square);
}

// The sums of every point of side `own` over a part of the other side: a block has 128 points and one part.
// kSteps: a point's width / 16.
template <int kSteps, bool kLast>
__global__ void __launch_bounds__(kHalfPassThreads, kHalfPassBlocks)
    half_pass_kernel(const __grid_constant__ HalfParams p, int own_side) {
  constexpr int kWidth = 16 * kSteps, kStride = kWidth + 8;  // of shared memory: spreads rows over banks
  constexpr int kTile = kHalfTile, kStages = kHalfStages;
  struct Stage {
    std::uint16_t points[kTile][kStride];
    float shift[kTile];
    float squares[kTile];
  };
  struct alignas(16) Chunk {
    std::uint32_t words[4];
  };
  static_assert(sizeof(Stage) % 16 == 0 && sizeof(Stage) * kStages == half_shared_bytes(kSteps));
  auto* const stages = reinterpret_cast<Stage*>(cuda::dynamic_shared());
  const HalfSide &own = p.sides[own_side], &other = p.sides[1 - own_side];
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32;
  const int g = lane / 4, t = lane % 4;
  const int split = static_cast<int>(blockIdx.x) % own.splits;
  const int first = static_cast<int>(blockIdx.x) / own.splits * kHalfPassPoints + thread / 32 * 32;
  const int tiles = cuda::div_up(other.length, kTile);
  const int begin = static_cast<int>(static_cast<std::int64_t>(tiles) * split / own.splits);
  const int end = static_cast<int>(static_cast<std::int64_t>(tiles) * (split + 1) / own.splits);

  const auto fetch = [&](int tile) {
    if (tile < end) {
      Stage& to = stages[(tile - begin) % kStages];
      constexpr int kChunks = kWidth / 8;
      for (int at = thread; at < kTile * kChunks; at += kHalfPassThreads) {
        const int row = at / kChunks, chunk = at % kChunks, j = tile * kTile + row;
        const bool exists = j < other.length;
        const Float16* const from =
            other.rounded + static_cast<std::int64_t>(exists ? j : 0) * kWidth + chunk * 8;
        cuda::copy_async_l2_or_zero(reinterpret_cast<Chunk*>(&to.points[row][chunk * 8]),
                                    reinterpret_cast<const Chunk*>(from), exists);
      }
      for (int row = thread; row < kTile; row += kHalfPassThreads) {
        const int j = tile * kTile + row;
        to.shift[row] = j < other.length ? other.shift[j] : -CUDART_INF_F;
        if constexpr (kLast) to.squares[row] = j < other.length ? other.squares[j] : 0.0F;
      }
    }
    cuda::close_copies();
  };

  // The warp's 32 points, as two factors of 16.
  std::uint32_t points[2][kSteps][4];
#pragma unroll
  for (int block = 0; block < 2; ++block) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int i = min(first + block * 16 + half * 8 + g, own.length - 1);
      const auto* const from =
          reinterpret_cast<const std::uint32_t*>(own.rounded + static_cast<std::int64_t>(i) * kWidth);
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
        points[block][step][half] = from[step * 8 + t];
        points[block][step][half + 2] = from[step * 8 + t + 4];
      }
    }
  }
  const float twice_k = static_cast<float>(2 * p.k * p.grid[0]);
  float top[4], sum[4] = {}, linear[4] = {};
#pragma unroll
  for (float& v : top) v = kHalfNothing;

#pragma unroll
  for (int ahead = 0; ahead < kStages - 1; ++ahead) fetch(begin + ahead);
  for (int tile = begin; tile < end; ++tile) {
    cuda::await_copy_groups<kStages - 2>();
    __syncthreads();
    fetch(tile + kStages - 1);
    const Stage& stage = stages[(tile - begin) % kStages];
#pragma unroll
    for (int columns = 0; columns < kTile; columns += 32) {
      float products[2][4][4] = {};
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
#pragma unroll
        for (int pair = 0; pair < 2; ++pair) {
          std::uint32_t both[4];
          const int row = columns + pair * 16 + lane / 16 * 8 + lane % 8;
          cuda::load_matrices(both, &stage.points[row][step * 16 + lane / 8 % 2 * 8]);
#pragma unroll
          for (int n = 0; n < 2; ++n) {
            const std::uint32_t factor[2] = {both[2 * n], both[2 * n + 1]};
#pragma unroll
            for (int block = 0; block < 2; ++block) {
              cuda::mma_half<Float16>(products[block][2 * pair + n], points[block][step], factor);
            }
          }
        }
      }
      float2 shifts[4];
#pragma unroll
      for (int n = 0; n < 4; ++n) {
        shifts[n] = *reinterpret_cast<const float2*>(&stage.shift[columns + n * 8 + 2 * t]);
      }
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        float logits[8];
        float largest = kHalfNothing;
#pragma unroll
        for (int n = 0; n < 4; ++n) {
          const float* const product = &products[r / 2][n][r % 2 * 2];
          logits[2 * n] = fma(twice_k, product[0], shifts[n].x);
          logits[2 * n + 1] = fma(twice_k, product[1], shifts[n].y);
          largest = fmaxf(largest, fmaxf(logits[2 * n], logits[2 * n + 1]));
        }
        if (largest > top[r] + kHalfSlack) {
          const float factor = cuda::exp2_fast(top[r] - largest);
          sum[r] *= factor;
          if constexpr (kLast) linear[r] *= factor;
          top[r] = largest;
        }
#pragma unroll
        for (int n = 0; n < 4; ++n) {
          const float one = cuda::exp2_fast(logits[2 * n] - top[r]);
          const float two = cuda::exp2_fast(logits[2 * n + 1] - top[r]);
          sum[r] += one + two;
          if constexpr (kLast) {
            const float* const product = &products[r / 2][n][r % 2 * 2];
            const float2 squares = *reinterpret_cast<const float2*>(&stage.squares[columns + n * 8 + 2 * t]);
            linear[r] = fma(one, fma(-2.0F, product[0], squares.x), linear[r]);
            linear[r] = fma(two, fma(-2.0F, product[1], squares.y), linear[r]);
          }
        }
      }
    }
  }
  // Four lanes have a point.
#pragma unroll
  for (int r = 0; r < 4; ++r) {
    const float all = cuda::reduce_max<4>(top[r]);
    const float factor = cuda::exp2_fast(top[r] - all);
    const float total = cuda::reduce_sum<4>(sum[r] * factor);
    const float total_linear = cuda::reduce_sum<4>(linear[r] * factor);
    const int i = first + r / 2 * 16 + r % 2 * 8 + g;
    if (t == 0 && i < own.length) {
      own.parts[static_cast<std::int64_t>(split) * own.length + i] = {all, total, total_linear};
    }
  }
}

// Totals of a block's threads, in thread 0.
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

// New potentials of a side, from its sums.
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
    own.shift[i] = half_shift(p, to, weight, k, square);
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

// One block gives the plan of partial transport its mass back.
__global__ void __launch_bounds__(kHalfThreads)
    half_mass_kernel(const __grid_constant__ HalfParams p, int own_side) {
  const HalfTotals all = half_totals(p.sides[own_side]);
  if (threadIdx.x == 0) p.grid[1] += log2(p.mass) - all.mass_bits;
}

// Results; the rows were updated last.
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
  // lambda has moved since the rows' sums.
  const double moved = p.mass > 0 ? p.mass / rows.mass : 1.0, mass = rows.mass * moved;
  double value = p.epsilon * (rows.reference * columns.reference - mass) + rows.value + columns.value;
  if (p.mass > 0) value += bits * lambda * p.mass;
  if (p.shift) *p.shift = static_cast<float>(bits * lambda);
  if (p.value) *p.value = static_cast<float>(value);
  if (p.linear) *p.linear = static_cast<float>(p.cost_scale * rows.linear * moved);
  if (p.done) *p.done = p.iterations;
}

}  // namespace warpalign::detail::transport
