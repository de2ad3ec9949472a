// Stands in for src/cuda/numbers/math.cuh, whose functions are single GPU instructions.
#pragma once

#include <cmath>

namespace warpalign::cuda {

inline float exp2_fast(float x) { return std::exp2(x); }
inline float reciprocal_fast(float x) { return 1.0f / x; }
inline float sqrt_fast(float x) { return std::sqrt(x); }
inline float reciprocal_root_fast(float x) { return 1.0f / std::sqrt(x); }
inline int with_exponent_of_one(int bits) { return (bits & 0x007fffff) | 0x3f800000; }

}  // namespace warpalign::cuda
