// Integers that the caller owns, in the type that the caller has them in.
#pragma once

#include <cstddef>
#include <cstdint>

namespace warpalign {

enum class IntegerType : std::int32_t { kInt32 = 0, kInt64 = 1 };

// Bytes of one element; 0 for a number that is no IntegerType.
constexpr std::size_t size_of(IntegerType type) {
  switch (type) {
    case IntegerType::kInt32:
      return 4;
    case IntegerType::kInt64:
      return 8;
  }
  return 0;
}

// A vector of int32 or int64 on the execution's device, aligned to its elements. data may be null where the
// problem's comment says so.
struct Integers {
  const void* data = nullptr;
  IntegerType type = IntegerType::kInt32;

  constexpr Integers() = default;
  constexpr Integers(const std::int32_t* values) : data(values) {}  // NOLINT: a vector is its elements
  constexpr Integers(const std::int64_t* values) : data(values), type(IntegerType::kInt64) {}  // NOLINT

  // Element `index`. Only where data can be read: on the host, or in a kernel.
  [[nodiscard]] constexpr std::int64_t operator[](std::int64_t index) const {
    if (type == IntegerType::kInt64) return static_cast<const std::int64_t*>(data)[index];
    return static_cast<const std::int32_t*>(data)[index];
  }
};

}  // namespace warpalign
