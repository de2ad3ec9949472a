// A pass over pairs of points rounded to binary16, by warpgroups (sm_90a). A warpgroup owns 64 points of one
// side, as factors in registers. Another warp copies tiles of the other side to shared memory. The products
// of the next tile run while a tile's exponentials are computed.
//
// A thread's sums have a shift, which is raised if a logit of a tile exceeds it by more than kHalfSlack bits.
#pragma once

#include "cuda/memory/bulk_copy.cuh"
#include "cuda/products/wgmma.cuh"
#include "transport/cuda/gromov/half_pass.cuh"

namespace warpalign::detail::transport {

// Adds a tile's terms to the sums of a thread's two points. No branch depends on the products, so that other
// products can be in flight.
__device__ __forceinline__ void half_add_terms(const float (&products)[32], float slope, float (&top)[2],
                                               float (&sum)[2]) {
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    float largest = -CUDART_INF_F;
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      largest = fmaxf(largest, fmaxf(products[4 * j + 2 * i], products[4 * j + 2 * i + 1]));
    }
    largest *= slope;
    if (largest > top[i] + kHalfSlack) {
      sum[i] *= cuda::exp2_fast(top[i] - largest);
      top[i] = largest;
    }
  }
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    float even = 0, odd = 0;
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      even += cuda::exp2_fast(fma(slope, products[4 * j + 2 * i], -top[i]));
      odd += cuda::exp2_fast(fma(slope, products[4 * j + 2 * i + 1], -top[i]));
    }
    sum[i] += even + odd;
  }
}

// The ring of tiles in a block's shared memory. A tile is full when its bytes have arrived, and empty when
// all warps that multiply have read it.
template <int kSteps>
struct HalfGroupRing {
  static constexpr int kStages = kHalfGroupStages, kBytes = half_tile_bytes(kSteps),
                       kBiasBytes = kHalfTile * 4;
  static constexpr int kStage = kBytes + kBiasBytes;
  static_assert(std::size_t{kStages} * kStage == half_group_shared_bytes(kSteps));

  unsigned char* stages;
  cuda::TransferBarrier *full, *empty;

  // Called by one thread, before a barrier of the block.
  __device__ __forceinline__ void set_up() const {
    for (int s = 0; s < kStages; ++s) {
      cuda::transfer_init<1>(full + s);
      cuda::transfer_init<4 * kHalfGroups>(empty + s);
    }
    cuda::transfer_fence();
  }
  // One thread copies `count` tiles of a side.
  __device__ __forceinline__ void copy(const HalfSide& side, int first_tile, int count) const {
    for (int n = 0; n < count; ++n) {
      const int s = n % kStages;
      if (n >= kStages) cuda::transfer_wait(empty + s, (n / kStages - 1) % 2);
      unsigned char* const to = stages + s * kStage;
      const std::int64_t tile = first_tile + n;
      cuda::transfer_expect(full + s, kStage);
      cuda::copy_bulk(to, side.rounded + tile * (kBytes / 2), kBytes, full + s);
      cuda::copy_bulk(to + kBytes, side.bias + tile * kHalfTile, kBiasBytes, full + s);
    }
  }
};

// Computes the sums of every point of side `own` over parts of the other side. A block owns 192 points and
// one part.
template <int kSteps>
__global__ void __launch_bounds__(kHalfGroupThreads, 1)
    half_group_pass_kernel(const __grid_constant__ HalfParams p, int own_side) {
  using Ring = HalfGroupRing<kSteps>;
  constexpr int kPieces = 2 * kSteps, kStages = Ring::kStages;
  __shared__ cuda::TransferBarrier full[kStages], empty[kStages];
  const Ring ring{cuda::dynamic_shared(), full, empty};
  const HalfSide &own = p.sides[own_side], &other = p.sides[1 - own_side];
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32;
  const int g = lane / 4, t = lane % 4;
  const int split = static_cast<int>(blockIdx.x) % own.splits;
  const int first = static_cast<int>(blockIdx.x) / own.splits * kHalfGroupPoints + thread / 32 * 16;
  const HalfRun run(other.length, split, own.splits);
  const int count = run.end - run.begin;
  if (thread == 0) ring.set_up();
  __syncthreads();
  if (thread >= kHalfGroups * 128) {
    if (lane == 0) ring.copy(other, run.begin, count);
    return;
  }

  std::uint32_t points[kSteps][4];
  half_factors(own, first, points);
  const float slope = half_slope(p);
  float top[2] = {kHalfNothing, kHalfNothing}, sum[2] = {0, 0};
  float products[2][32];
  const auto start = [&](float(&to)[32], int n) {
    const int s = n % kStages;
    cuda::transfer_wait(full + s, n / kStages % 2);
    const unsigned char* const stage = ring.stages + s * Ring::kStage;
    const auto* const biases = reinterpret_cast<const float*>(stage + Ring::kBytes);
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const float2 bias = *reinterpret_cast<const float2*>(biases + 8 * j + 2 * t);
      to[4 * j] = to[4 * j + 2] = bias.x;
      to[4 * j + 1] = to[4 * j + 3] = bias.y;
    }
    cuda::wgmma_pin(to);
    cuda::wgmma_fence();
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      cuda::wgmma_64<Float16>(to, points[step], {stage + step * 256, 128, kPieces * 128});
    }
    cuda::wgmma_commit();
  };
  // Called when the products of tile n have ended.
  const auto finish = [&](float(&of)[32], int n) {
    cuda::wgmma_pin(of);
    if (lane == 0) cuda::transfer_arrive(empty + n % kStages);
    half_add_terms(of, slope, top, sum);
  };
  if (count > 0) {
    start(products[0], 0);
    int n = 0;
    for (; n + 2 < count; n += 2) {
      start(products[1], n + 1);
      cuda::wgmma_wait<1>();
      finish(products[0], n);
      start(products[0], n + 2);
      cuda::wgmma_wait<1>();
      finish(products[1], n + 1);
    }
    if (n + 1 < count) {
      start(products[1], n + 1);
      cuda::wgmma_wait<1>();
      finish(products[0], n);
      cuda::wgmma_wait<0>();
      finish(products[1], n + 1);
    } else {
      cuda::wgmma_wait<0>();
      finish(products[0], n);
    }
  }
#pragma unroll
  for (int r = 0; r < 2; ++r) half_keep_part(own, split, first + r * 8 + g, top[r], sum[r], 0.0F);
}

}  // namespace warpalign::detail::transport
