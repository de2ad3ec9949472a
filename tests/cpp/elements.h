// Elements of a dtype in memory, for tests.
#pragma once

#include <cstring>
#include <type_traits>

#include "core/visit_dtype.h"

namespace warpalign::test {

inline bool is_half(DType dtype) { return dtype == DType::kFloat16 || dtype == DType::kBFloat16; }

// `value` as an element of dtype, and back.
inline void write_element(DType dtype, unsigned char* to, double value) {
  detail::visit_dtype(dtype, [&](auto type) {
    using T = typename decltype(type)::Type;
    T element{};
    if constexpr (std::is_same_v<T, double>) {
      element = value;
    } else {
      element = detail::rounded_to<T>(static_cast<float>(value));
    }
    std::memcpy(to, &element, sizeof(T));
  });
}
inline double read_element(DType dtype, const unsigned char* from) {
  double value = 0;
  detail::visit_dtype(dtype, [&](auto type) {
    using T = typename decltype(type)::Type;
    T element{};
    std::memcpy(&element, from, sizeof(T));
    if constexpr (std::is_same_v<T, double>) {
      value = element;
    } else {
      value = static_cast<double>(static_cast<float>(element));
    }
  });
  return value;
}
inline double rounded(DType dtype, double value) {
  unsigned char bytes[8];
  write_element(dtype, bytes, value);
  return read_element(dtype, bytes);
}

}  // namespace warpalign::test
