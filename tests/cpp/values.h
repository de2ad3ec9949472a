// Numbers and element types that the tests of every operator use.
#pragma once

#include <cstring>
#include <limits>
#include <vector>

#include "warpalign/dtype.h"

namespace warpalign::test {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

// Where one case takes long, as CUDA kernels on a CPU do, a large grid runs every kThinning-th case only.
#if WARPALIGN_SIMT
constexpr int kThinning = 7;  // no grid's fastest axis has a length that 7 divides
#else
constexpr int kThinning = 1;
#endif

// Sanitizers look at memory, and not at numbers. Tests that are about digits alone are left to other builds.
#ifdef __SANITIZE_ADDRESS__
constexpr bool kIsSanitized = true;
#else
constexpr bool kIsSanitized = false;
#endif

// For grids of many options and few sizes.
constexpr int kOptionThinning = kIsSanitized ? 7 : kThinning;

template <typename T>
constexpr DType kDType = sizeof(T) == 4 ? DType::kFloat32 : DType::kFloat64;

// Bit by bit: NaN equals NaN, and -0 differs from 0.
template <typename T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

}  // namespace warpalign::test
