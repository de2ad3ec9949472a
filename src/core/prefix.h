// What searches over label sequences share, on the host and in CUDA kernels: hashes of sequences, and sums of
// probabilities as logarithms.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

#include "core/anywhere.h"

namespace warpalign::detail {

inline constexpr double kImpossible = -std::numeric_limits<double>::infinity();  // log 0

// The hash of a label sequence with one more label; 0 is that of none.
WARPALIGN_ANYWHERE inline std::uint64_t extended(std::uint64_t hash, std::int32_t token) {
  std::uint64_t v = hash + (static_cast<std::uint64_t>(token) + 1) * 0x9e3779b97f4a7c15ULL;  // splitmix64
  v = (v ^ (v >> 30)) * 0xbf58476d1ce4e5b9ULL;
  v = (v ^ (v >> 27)) * 0x94d049bb133111ebULL;
  return v ^ (v >> 31);
}

// log(e^a + e^b), at least the larger one. Real: what the difference of the two is computed in.
template <class Real = double>
WARPALIGN_ANYWHERE inline double log_add(double a, double b) {
  const double high = a > b ? a : b, low = a > b ? b : a;
  if (!(low > kImpossible)) return high;
  return high + static_cast<double>(std::log1p(std::exp(static_cast<Real>(low - high))));
}

// log(e^a + e^b + e^c), at least the largest one.
template <class Real = double>
WARPALIGN_ANYWHERE inline double log_add(double a, double b, double c) {
  const double high = a > b ? a : b, low = a > b ? b : a;
  const double top = c > high ? c : high, middle = c > high ? high : c;
  if (!(top > kImpossible)) return top;
  const Real rest = std::exp(static_cast<Real>(low - top)) + std::exp(static_cast<Real>(middle - top));
  return top + static_cast<double>(std::log1p(rest));
}

}  // namespace warpalign::detail
