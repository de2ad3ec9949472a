// Element types of the tensors that a call reads and writes. Each operator's header says which it takes.
#pragma once

#include <cstddef>
#include <cstdint>

namespace warpalign {

enum class DType : std::int32_t {
  kFloat32 = 0,
  kFloat64 = 1,
  kFloat16 = 2,   // IEEE 754 binary16: 5 bits of exponent, 10 bits of mantissa
  kBFloat16 = 3,  // the upper 16 bits of a float32: 8 bits of exponent, 7 bits of mantissa
};

// Bytes of one element; 0 for a number that is no DType.
constexpr std::size_t size_of(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return 4;
    case DType::kFloat64:
      return 8;
    case DType::kFloat16:
    case DType::kBFloat16:
      return 2;
  }
  return 0;
}

}  // namespace warpalign
