// Stands in for src/cuda/numbers/half.cuh, whose conversions are single GPU instructions.
#pragma once

#include <cmath>
#include <type_traits>

#include "core/half.h"

namespace warpalign::cuda {

using detail::BFloat16;
using detail::Float16;

template <class T>
using Sum = std::conditional_t<std::is_same_v<T, double>, double, float>;

inline float widen(Float16 v) { return static_cast<float>(v); }
inline float widen(BFloat16 v) { return static_cast<float>(v); }
inline float widen(float v) { return v; }
inline double widen(double v) { return v; }

template <class T>
T narrow(Sum<T> v) {
  if constexpr (std::is_same_v<T, double>) {
    return v;
  } else {
    return detail::rounded_to<T>(v);
  }
}

template <class Half>
void widen_pair(std::uint32_t pair, float& first, float& second) {
  first = widen(Half{static_cast<std::uint16_t>(pair)});
  second = widen(Half{static_cast<std::uint16_t>(pair >> 16)});
}
template <class Half>
std::uint32_t narrow_pair(float first, float second) {
  return static_cast<std::uint32_t>(narrow<Half>(first).bits) |
         static_cast<std::uint32_t>(narrow<Half>(second).bits) << 16;
}
template <class Half>
std::uint32_t larger_pair(std::uint32_t a, std::uint32_t b) {
  float first[2], second[2];
  widen_pair<Half>(a, first[0], second[0]);
  widen_pair<Half>(b, first[1], second[1]);
  return narrow_pair<Half>(std::fmax(first[0], first[1]), std::fmax(second[0], second[1]));
}

}  // namespace warpalign::cuda
