// The two 16-bit float types on the host: storage, and conversion from and to float32. No arithmetic is done
// in them.
//
// Layouts: IEEE 754-2019 section 3.4, binary16 (1 sign bit, 5 exponent bits with bias 15, 10 mantissa bits);
// bfloat16 is the upper half of a binary32. Conversion to 16 bits rounds to nearest, ties to even.
#pragma once

#include <bit>
#include <cstdint>

namespace warpalign::detail {

struct Float16 {
  std::uint16_t bits;

  // Exact: every value of binary16 is a value of float32. A NaN keeps its sign and mantissa.
  explicit constexpr operator float() const {
    const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000u) << 16;
    const std::uint32_t magnitude = bits & 0x7fffu;
    if (magnitude >= 0x7c00u) return std::bit_cast<float>(sign | 0x7f800000u | (magnitude & 0x3ffu) << 13);
    // A normal number: the exponent changes its bias from 15 to 127.
    if (magnitude >= 0x400u) return std::bit_cast<float>(sign | (magnitude + (112u << 10)) << 13);
    // A subnormal number is its mantissa times 2^-24; the product is exact.
    const float value = static_cast<float>(magnitude) * 0x1p-24f;
    return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(value));
  }

  // The result is infinity from 65520 on, and 0 up to 2^-25. A NaN becomes a quiet NaN of the same sign.
  static constexpr Float16 rounded(float value) {
    const std::uint32_t all = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t sign = all >> 16 & 0x8000u;
    const std::uint32_t magnitude = all & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return of(sign | 0x7e00u);
    if (magnitude >= 0x47800000u) return of(sign | 0x7c00u);  // at least 2^16
    if (magnitude < 0x38800000u) {                            // below 2^-14, the smallest normal number
      // The unit in the last place of 2^-1 is 2^-24, as that of the result: the sum is rounded at the right
      // bit.
      const float sum = std::bit_cast<float>(magnitude) + 0.5f;
      return of(sign | (std::bit_cast<std::uint32_t>(sum) - 0x3f000000u));
    }
    // Half a unit in the last place of the result, minus 1 if the result's last bit is 0 (ties to even). A
    // carry increments the exponent.
    const std::uint32_t nudge = 0xfffu + (magnitude >> 13 & 1u);
    return of(sign | (((magnitude + nudge) >> 13) - (112u << 10)));
  }

 private:
  static constexpr Float16 of(std::uint32_t bits) { return {static_cast<std::uint16_t>(bits)}; }
};

struct BFloat16 {
  std::uint16_t bits;

  explicit constexpr operator float() const {
    return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
  }

  // A NaN becomes a quiet NaN of the same sign. Overflow rounds to infinity.
  static constexpr BFloat16 rounded(float value) {
    const std::uint32_t all = std::bit_cast<std::uint32_t>(value);
    if ((all & 0x7fffffffu) > 0x7f800000u) return {static_cast<std::uint16_t>(all >> 16 | 0x40u)};
    return {static_cast<std::uint16_t>((all + 0x7fffu + (all >> 16 & 1u)) >> 16)};
  }
};

// A float as a value of T, one of float, double, Float16 and BFloat16.
template <class T>
constexpr T rounded_to(float value) {
  if constexpr (requires { T::rounded(value); }) {
    return T::rounded(value);
  } else {
    return static_cast<T>(value);
  }
}

}  // namespace warpalign::detail
