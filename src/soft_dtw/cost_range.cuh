// What a warp learns of its pair's costs on the way.
#pragma once

#include <climits>

#include "soft_dtw/cell.cuh"

namespace warpalign::softdtw {

// What a warp learns of its pair's costs on the way: the largest |c| as bits (NaN above inf above all
// numbers), from which Cell32 pairs are certified, and for Cell64 whether there was a NaN.
template <class Cell>
struct CostRange;

template <>
struct CostRange<Cell32> {
  int bits = 0;
  __device__ __forceinline__ float note(float cost) {
    bits = max(bits, __float_as_int(cost) & INT_MAX);
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

}  // namespace warpalign::softdtw
