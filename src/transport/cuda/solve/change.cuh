// The numbers of both sides that a team reduces: at the beginning of a solve, and after an update.
#pragma once

#include <limits>

#include "transport/cuda/solve/team.cuh"
#include "transport/update.h"

namespace warpalign::detail::transport {

// Sums and extremes of both sides at the beginning of a solve.
struct StartSums {
  float top[2] = {0, 0};
  double total[2] = {0, 0};    // sums of the reference's weights
  double weights[2] = {0, 0};  // sums
  float extent = 0;            // the result of Costs::prepare(), for take_extent()
  float unused = 0;

  __device__ __forceinline__ void join(const StartSums& other) {
    extent = larger(extent, other.extent);
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      top[k] = larger(top[k], other.top[k]);
      total[k] += other.total[k];
      weights[k] += other.weights[k];
    }
  }
};

// The result of an update of both sides.
struct Change {
  float moved[2] = {0, 0};  // the largest changes, in bits; NaN if one is NaN
  float top[2] = {0, 0};    // the largest finite magnitudes
  float gap = 0;            // the largest distance from the potential that would meet the weight
  float out_of_range = 0;   // 1: a sum was out of range
  // log2 of the plan's mass with these potentials. The mass itself may underflow.
  double mass_bits = -std::numeric_limits<double>::infinity();

  __device__ __forceinline__ void join(const Change& other) {
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      moved[k] = larger(moved[k], other.moved[k]);
      top[k] = larger(top[k], other.top[k]);
    }
    gap = larger(gap, other.gap);
    out_of_range = larger(out_of_range, other.out_of_range);
    mass_bits = sum_in_bits(mass_bits, other.mass_bits);
  }
  // Returns the join of all lanes' values, in every lane. Without partial transport every mass_bits is -inf,
  // and the loop is left out.
  [[nodiscard]] __device__ __forceinline__ Change joined_in_warp() const {
    Change all = *this;
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      all.moved[k] = largest_in_warp(moved[k]);
      all.top[k] = largest_in_warp(top[k]);
    }
    all.gap = largest_in_warp(gap);
    all.out_of_range = largest_in_warp(out_of_range);
    if (__any_sync(cuda::kFullWarp, mass_bits != -std::numeric_limits<double>::infinity())) {
#pragma unroll 1
      for (int bit = 1; bit < 32; bit *= 2) {
        all.mass_bits = sum_in_bits(all.mass_bits, cuda::shuffle_xor(all.mass_bits, bit));
      }
    }
    return all;
  }
};

}  // namespace warpalign::detail::transport
