// A pass over pairs of points rounded to binary16. A warp owns 32 points of one side, and computes their
// products with tiles of the other side by mma.
//
// A thread's sums have a shift. Eight pairs are summed at a time; only if that sum is large, the shift is
// raised to their largest logit (after Milakov & Gimelshein, arXiv 1805.02867).
#pragma once

#include "cuda/launch/shared.cuh"
#include "cuda/memory/copy_async.cuh"
#include "cuda/products/mma_from.cuh"
#include "transport/cuda/gromov/half_params.cuh"

namespace warpalign::detail::transport {

// Loads a lane's 16 x 16 factor of the points from `first` on, in the layout of mma_half(). Points after the
// last tile are replaced by other points.
template <int kSteps>
__device__ __forceinline__ void half_factors(const HalfSide& side, int first,
                                             std::uint32_t (&points)[kSteps][4]) {
  const auto* const words = reinterpret_cast<const std::uint32_t*>(side.rounded);
  const std::int64_t row = first < side.length ? first / 8 : 0;
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
#pragma unroll
    for (int q = 0; q < 4; ++q) {
      const std::int64_t piece = (row + q % 2) * (2 * kSteps) + 2 * step + q / 2;
      points[step][q] = words[piece * 32 + lane];
    }
  }
}

// Joins the sums of the four lanes of a point, and writes them as a part.
__device__ __forceinline__ void half_keep_part(const HalfSide& own, int split, int i, float top, float sum,
                                               float linear) {
  const float all = cuda::reduce_max<4>(top);
  const float factor = cuda::exp2_fast(top - all);
  const float total = cuda::reduce_sum<4>(sum * factor);
  const float total_linear = cuda::reduce_sum<4>(linear * factor);
  if (threadIdx.x % 4 == 0 && i < own.length) {
    own.parts[static_cast<std::int64_t>(split) * own.length + i] = {all, total, total_linear};
  }
}

// The range of tiles of a part.
struct HalfRun {
  int begin, end;
  __device__ __forceinline__ HalfRun(int length, int split, int splits) {
    const std::int64_t tiles = cuda::div_up(length, kHalfTile);
    begin = static_cast<int>(tiles * split / splits);
    end = static_cast<int>(tiles * (split + 1) / splits);
  }
};

// A tile of the other side in shared memory.
template <int kSteps>
struct HalfStage {
  alignas(16) unsigned char points[half_tile_bytes(kSteps)];
  float bias[kHalfTile];
  float squares[kHalfTile];
};

// The products of a warp's 32 points and 32 of the stage's points, from `columns` on. They start at the
// biases.
template <int kSteps>
__device__ __forceinline__ void half_products(const HalfStage<kSteps>& stage, int columns,
                                              const std::uint32_t (&points)[2][kSteps][4],
                                              const float2 (&biases)[4], float (&products)[2][4][4]) {
  constexpr int kPieces = 2 * kSteps;  // pieces of 8 points
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
#pragma unroll
    for (int pair = 0; pair < 2; ++pair) {
      std::uint32_t both[4];
      const int piece = (columns / 8 + pair * 2 + lane / 16) * kPieces + 2 * step + lane / 8 % 2;
      cuda::load_matrices(both, &stage.points[piece * 128 + lane % 8 * 16]);
#pragma unroll
      for (int n = 0; n < 2; ++n) {
        const std::uint32_t factor[2] = {both[2 * n], both[2 * n + 1]};
#pragma unroll
        for (int block = 0; block < 2; ++block) {
          float(&product)[4] = products[block][2 * pair + n];
          if (step == 0) {
            cuda::mma_half_from<Float16>(product, points[block][step], factor, biases[2 * pair + n]);
          } else {
            cuda::mma_half<Float16>(product, points[block][step], factor);
          }
        }
      }
    }
  }
}

// A lane's sums for four of its warp's points: r = 0 ... 3.
template <bool kLast>
struct HalfSums {
  float top[4], sum[4] = {}, linear[4] = {};
  float slope;

  __device__ __forceinline__ explicit HalfSums(float slope_) : slope(slope_) {
#pragma unroll
    for (float& v : top) v = kHalfNothing;
  }

  // Adds the terms of the lane's 8 pairs of each point. If a sum of them is large, raises the point's shift
  // to the largest logit. squares: of the other points, in the last pass.
  __device__ __forceinline__ void add(const float (&products)[2][4][4], const float2 (&biases)[4],
                                      const float2 (&squares)[4]) {
    // Adds a pair's term to the sum of point r of four, and to <C, P>. A product minus its bias is that of
    // the points; if the bias is infinite, the term is 0.
    float some[4] = {}, some_linear[4] = {};
    const auto add_pair = [&](int r, float product, float bias, float square) {
      const float term = cuda::exp2_fast(fma(slope, product, -top[r]));
      some[r] += term;
      if constexpr (kLast) {
        const float share = fma(term, fma(-2.0F, product - bias, square), some_linear[r]);
        some_linear[r] = term == 0 ? some_linear[r] : share;
      }
    };
    const auto add_all = [&](int r) {
#pragma unroll
      for (int n = 0; n < 4; ++n) {
        const float* const product = &products[r / 2][n][r % 2 * 2];
        add_pair(r, product[0], biases[n].x, squares[n].x);
        add_pair(r, product[1], biases[n].y, squares[n].y);
      }
    };
#pragma unroll
    for (int r = 0; r < 4; ++r) add_all(r);
    if (!(fmaxf(fmaxf(some[0], some[1]), fmaxf(some[2], some[3])) <= kHalfMostSum)) {
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        if (some[r] <= kHalfMostSum) continue;
        float largest = kHalfNothing;
#pragma unroll
        for (int n = 0; n < 4; ++n) {
          const float* const product = &products[r / 2][n][r % 2 * 2];
          largest = fmaxf(largest, slope * fmaxf(product[0], product[1]));
        }
        const float factor = cuda::exp2_fast(top[r] - largest);
        sum[r] *= factor;
        if constexpr (kLast) linear[r] *= factor;
        top[r] = largest;
        some[r] = some_linear[r] = 0;
        add_all(r);
      }
    }
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      sum[r] += some[r];
      if constexpr (kLast) linear[r] += some_linear[r];
    }
  }
};

// Computes the sums of every point of side `own` over parts of the other side. A block owns 128 points and
// one part. kSteps: a point's width / 16. kLast: also <C, P>.
template <int kSteps, bool kLast>
__global__ void __launch_bounds__(kHalfPassThreads,
                                  kLast&& kSteps > 5 ? kHalfPassBlocks - 1 : kHalfPassBlocks)
    half_pass_kernel(const __grid_constant__ HalfParams p, int own_side) {
  using Stage = HalfStage<kSteps>;
  constexpr int kBytes = half_tile_bytes(kSteps);
  struct alignas(16) Chunk {
    std::uint32_t words[4];
  };
  static_assert(sizeof(Stage) * kHalfStages == half_shared_bytes(kSteps));
  auto* const stages = reinterpret_cast<Stage*>(cuda::dynamic_shared());
  const HalfSide &own = p.sides[own_side], &other = p.sides[1 - own_side];
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32;
  const int g = lane / 4, t = lane % 4;
  const int split = static_cast<int>(blockIdx.x) % own.splits;
  const int first = static_cast<int>(blockIdx.x) / own.splits * kHalfPassPoints + thread / 32 * 32;
  const HalfRun run(other.length, split, own.splits);

  const auto copy = [&](void* to, const void* from, int bytes) {
    for (int at = thread; at < bytes / 16; at += kHalfPassThreads) {
      cuda::copy_async_l2_or_zero(static_cast<Chunk*>(to) + at, static_cast<const Chunk*>(from) + at, true);
    }
  };
  const auto fetch = [&](int tile) {
    if (tile < run.end) {
      Stage& to = stages[(tile - run.begin) % kHalfStages];
      copy(to.points, other.rounded + static_cast<std::int64_t>(tile) * (kBytes / 2), kBytes);
      copy(to.bias, other.bias + tile * kHalfTile, kHalfTile * 4);
      if constexpr (kLast) copy(to.squares, other.squares + tile * kHalfTile, kHalfTile * 4);
    }
    cuda::end_copy_group();
  };

  // The warp's 32 points, as two factors of 16.
  std::uint32_t points[2][kSteps][4];
#pragma unroll
  for (int block = 0; block < 2; ++block) half_factors(own, first + block * 16, points[block]);
  HalfSums<kLast> sums(half_slope(p));

#pragma unroll
  for (int ahead = 0; ahead < kHalfStages - 1; ++ahead) fetch(run.begin + ahead);
  for (int tile = run.begin; tile < run.end; ++tile) {
    cuda::await_copy_groups<kHalfStages - 2>();
    __syncthreads();
    fetch(tile + kHalfStages - 1);
    const Stage& stage = stages[(tile - run.begin) % kHalfStages];
#pragma unroll
    for (int columns = 0; columns < kHalfTile; columns += 32) {
      float2 biases[4];
#pragma unroll
      for (int n = 0; n < 4; ++n) {
        biases[n] = *reinterpret_cast<const float2*>(&stage.bias[columns + n * 8 + 2 * t]);
      }
      float products[2][4][4];
      half_products(stage, columns, points, biases, products);
      float2 squares[4] = {};
      if constexpr (kLast) {
#pragma unroll
        for (int n = 0; n < 4; ++n) {
          squares[n] = *reinterpret_cast<const float2*>(&stage.squares[columns + n * 8 + 2 * t]);
        }
      }
      sums.add(products, biases, squares);
    }
  }
#pragma unroll
  for (int r = 0; r < 4; ++r) {
    half_keep_part(own, split, first + r / 2 * 16 + r % 2 * 8 + g, sums.top[r], sums.sum[r], sums.linear[r]);
  }
}

}  // namespace warpalign::detail::transport
