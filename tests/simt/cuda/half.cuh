// Stands in for src/cuda/half.cuh, whose conversions are single GPU instructions.
#pragma once

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

}  // namespace warpalign::cuda
