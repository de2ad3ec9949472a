// States with 32-bit exponents, for groups of steps whose numbers are in their range. Results are bitwise
// identical to those with 64 bits.
//
// With log2 weights below kSteepest and exponents below kFarthest no sum of them exceeds kFarthest + 8
// kSteepest, and a weight of 0, 2^-kDead, leaves a dead state's exponent below that of any live one.
#pragma once

#include "transducer/cuda/call/layout.h"
#include "transducer/cuda/lattice/state.cuh"

namespace warpalign::detail::transducer {

inline constexpr int kSteepest = 1 << 15;
inline constexpr int kFarthest = 1 << 19;
inline constexpr int kDead = 1 << 21;
static_assert(kDead > 2 * (kFarthest + kGroup * kSteepest));

template <class Real>
struct NearState {
  Real mantissa;
  int exponent;
};

__device__ __forceinline__ NearState<float> shuffle_up(NearState<float> s) {
  return {cuda::shuffle_up(s.mantissa), cuda::shuffle_up(s.exponent)};
}

// 2^log2_weight, for weights that are 0, NaN or less steep than kSteepest.
__device__ __forceinline__ NearState<float> near_weight(float log2_weight) {
  constexpr float kRounds = 12582912.0f;  // 1.5 2^23: adding it rounds to an integer
  const float rounded = fmax(log2_weight, static_cast<float>(-kDead)) + kRounds;
  return {exp2_of(log2_weight - (rounded - kRounds)), __float_as_int(rounded) - __float_as_int(kRounds)};
}

// The larger of `steepest` and |log2_weight|; NaN and infinite weights are ignored.
template <class Real>
__device__ __forceinline__ Real steeper(Real steepest, Real log2_weight) {
  return fmax(steepest, fabs(fma(log2_weight, Real(0), log2_weight)));
}

}  // namespace warpalign::detail::transducer
