// What sweeps on clusters multiply in float32: each product is three products of TF32. Blocks, warps, threads
// and messages are those of the 16-bit types. Rows have every step there.
#pragma once

#include "cuda/numbers/tf32.cuh"
#include "recurrent/cuda/clusters/cluster_tiles.cuh"
#include "recurrent/cuda/steps/tile.cuh"

namespace warpalign::detail::recurrent {

constexpr int kFloatRanks = 4;                // the most blocks of such a cluster
constexpr int kFloatGates = 4 * kBlockUnits;  // rows of R of a block
constexpr int kFloatPad = 16;                 // behind rows of operands: keeps banks apart

using FourFloats = Piece<float>;

// Sums of a warp's product; four chains, so that products need not wait for each other.
struct FloatSums {
  float of[4][4] = {};

  __device__ __forceinline__ float total(int k) const {
    return (of[2][k] + of[3][k]) + (of[0][k] + of[1][k]);
  }
};

// 16 rows and 16 columns of weights, of which a lane has 4 columns of rows lane / 4 and lane / 4 + 8: both
// TF32 parts of each. Two products have 8 columns each.
struct FloatWeights {
  float hi[2][4], lo[2][4];

  FloatWeights() = default;
  __device__ __forceinline__ FloatWeights(const FourFloats& upper, const FourFloats& lower) {
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      const float all[4] = {upper.entries[2 * n], lower.entries[2 * n], upper.entries[2 * n + 1],
                            lower.entries[2 * n + 1]};
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        const auto parts = cuda::split_tf32(all[k]);
        hi[n][k] = parts.hi, lo[n][k] = parts.lo;
      }
    }
  }

  // entries: 4 columns of row lane / 4 of the batch.
  __device__ __forceinline__ void multiply(const FourFloats& entries, FloatSums& sums) const {
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      float entry_hi[2], entry_lo[2];
#pragma unroll
      for (int k = 0; k < 2; ++k) {
        const auto parts = cuda::split_tf32(entries.entries[2 * n + k]);
        entry_hi[k] = parts.hi, entry_lo[k] = parts.lo;
      }
      cuda::mma_tf32(sums.of[2], lo[n], entry_hi);
      cuda::mma_tf32(sums.of[3], hi[n], entry_lo);
      cuda::mma_tf32(sums.of[n], hi[n], entry_hi);
    }
  }
};

// A message of four numbers.
__device__ __forceinline__ void send_floats(cuda::ClusterAddress to, const float (&v)[4],
                                            cuda::ClusterAddress box) {
  const std::uint32_t words[4] = {
      static_cast<std::uint32_t>(__float_as_int(v[0])), static_cast<std::uint32_t>(__float_as_int(v[1])),
      static_cast<std::uint32_t>(__float_as_int(v[2])), static_cast<std::uint32_t>(__float_as_int(v[3]))};
  cuda::send_message(to, words, box);
}

}  // namespace warpalign::detail::recurrent
