// The range of the costs that a warp has computed.
#pragma once

#include <climits>

#include "soft_dtw/cuda/sweep/cell.cuh"

namespace warpalign::detail::soft_dtw {

// Largest |value| so far as bits, which order NaN above inf above all numbers.
__device__ __forceinline__ int largest_bits(int bits, float value) {
  return max(bits, __float_as_int(value) & INT_MAX);
}

// For Cell32, the largest |c| as bits (NaN above inf above all numbers), from which pairs are certified. For
// other cells, whether there was a NaN.
template <class Cell>
struct CostRange {
  int bits = 0;  // 1: a NaN was seen
  __device__ __forceinline__ typename Cell::Real note(typename Cell::Real cost) {
    if (isnan(cost)) bits = 1;
    return cost;
  }
};

template <>
struct CostRange<Cell32> {
  int bits = 0;
  __device__ __forceinline__ float note(float cost) {
    bits = largest_bits(bits, cost);
    return cost;
  }
};

template <>
struct CostRange<Cell64> {
  int bits = 0;  // 1: a NaN was seen
  __device__ __forceinline__ double note(double cost) {
    if (isnan(cost)) bits = 1;
    return fmin(cost, Cell64::kForbidden);
  }
};

}  // namespace warpalign::detail::soft_dtw
