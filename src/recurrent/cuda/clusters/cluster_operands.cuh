// What sweeps on clusters multiply: operands of 16-bit types, and of float32, where each product is three
// products of TF32.
#pragma once

#include "recurrent/cuda/cell/operands.cuh"
#include "recurrent/cuda/cell/pieces.cuh"
#include "recurrent/cuda/clusters/cluster_sweep.cuh"

namespace warpalign::detail::recurrent {

constexpr int kFloatRanks = 4;  // the most blocks of a cluster in float32: both parts of R fill the registers
constexpr int kFloatPad = 16;   // floats after rows of operands in shared memory: keeps banks apart

// Sums of a warp's product; four chains, so that products need not wait for each other.
struct ChainedSums {
  float of[4][4] = {};

  __device__ __forceinline__ float total(int k) const {
    return (of[0][k] + of[1][k]) + (of[2][k] + of[3][k]);
  }
};

// 16 rows and 16 columns of weights, of which a lane has 4 columns of rows lane / 4 and lane / 4 + 8: both
// TF32 parts of each. Two products have 8 columns each.
struct FloatWeights {
  UnitOperand<float, 3, 4> of[2];

  FloatWeights() = default;
  __device__ __forceinline__ FloatWeights(const Piece<float>& upper, const Piece<float>& lower) {
    unroll<2>([&](int n) {
      of[n].set(0, upper.entries[2 * n]), of[n].set(1, lower.entries[2 * n]);
      of[n].set(2, upper.entries[2 * n + 1]), of[n].set(3, lower.entries[2 * n + 1]);
    });
  }

  // entries: 4 columns of row lane / 4 of the batch.
  __device__ __forceinline__ void multiply(const Piece<float>& entries, ChainedSums& sums) const {
    unroll<2>([&](int n) {
      UnitOperand<float, 3, 2> b;
      b.set(0, entries.entries[2 * n]), b.set(1, entries.entries[2 * n + 1]);
      cuda::mma_tf32(sums.of[2], of[n].lo, b.hi);
      cuda::mma_tf32(sums.of[3], of[n].hi, b.lo);
      cuda::mma_tf32(sums.of[n], of[n].hi, b.hi);
    });
  }
};
template <class T>
using ClusterWeights = std::conditional_t<sizeof(T) == 2, Weights16, FloatWeights>;

}  // namespace warpalign::detail::recurrent
