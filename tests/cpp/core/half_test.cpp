// The 16-bit float types: every one of their values, and every rounding at a boundary.
#include "core/half.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace warpalign::detail {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

// Conversions are usable in constant expressions.
static_assert(static_cast<float>(Float16{0x3c00}) == 1.0f);
static_assert(Float16::rounded(65504.0f).bits == 0x7bff);
static_assert(static_cast<float>(BFloat16{0x3f80}) == 1.0f);
static_assert(BFloat16::rounded(-2.0f).bits == 0xc000);
static_assert(rounded_to<Float16>(0.5f).bits == 0x3800 && rounded_to<double>(0.5f) == 0.5);

// The value of a format with `mantissa` bits of mantissa and an exponent's bias, from its definition.
double value_of(unsigned bits, int mantissa, int bias) {
  const unsigned fraction = bits & ((1u << mantissa) - 1);
  const int exponent = static_cast<int>((bits & 0x7fffu) >> mantissa);
  const double sign = bits & 0x8000u ? -1.0 : 1.0;
  if (exponent == (0x7fff >> mantissa)) {
    return fraction ? std::numeric_limits<double>::quiet_NaN() : sign * static_cast<double>(kInf);
  }
  if (exponent == 0) return sign * std::ldexp(fraction, 1 - bias - mantissa);
  return sign * std::ldexp(fraction + (1u << mantissa), exponent - bias - mantissa);
}

template <class Half>
void every_value(int mantissa, int bias) {
  for (unsigned bits = 0; bits < 0x10000u; ++bits) {
    const Half half{static_cast<std::uint16_t>(bits)};
    const float wide = static_cast<float>(half);
    const double expected = value_of(bits, mantissa, bias);
    if (std::isnan(expected)) {
      EXPECT_TRUE(std::isnan(wide)) << std::hex << bits;
      EXPECT_TRUE(std::isnan(static_cast<float>(Half::rounded(wide)))) << std::hex << bits;
      EXPECT_EQ(Half::rounded(wide).bits >> 15, bits >> 15) << std::hex << bits;
      continue;
    }
    ASSERT_EQ(static_cast<double>(wide), expected) << std::hex << bits;
    ASSERT_EQ(std::signbit(wide), std::signbit(expected)) << std::hex << bits;
    ASSERT_EQ(Half::rounded(wide).bits, bits) << std::hex << bits;
  }
}

TEST(Half, EveryFloat16) { every_value<Float16>(10, 15); }
TEST(Half, EveryBFloat16) { every_value<BFloat16>(7, 127); }

// Between two neighbours: below the middle rounds down, above it up, the middle to the even one of the two.
template <class Half>
void every_boundary(unsigned infinity) {
  for (unsigned bits = 0; bits + 1 < infinity; ++bits) {
    const float low = static_cast<float>(Half{static_cast<std::uint16_t>(bits)});
    const float high = static_cast<float>(Half{static_cast<std::uint16_t>(bits + 1)});
    const float middle = low + (high - low) / 2;    // exact: float32 has more bits than either type
    if (middle == low || middle == high) continue;  // subnormal bfloat16: float32's own last bit
    for (const float sign : {1.0f, -1.0f}) {
      const unsigned expected_sign = sign < 0 ? 0x8000u : 0u;
      ASSERT_EQ(Half::rounded(sign * middle).bits, expected_sign | (bits + (bits & 1u))) << std::hex << bits;
      ASSERT_EQ(Half::rounded(sign * std::nextafter(middle, low)).bits, expected_sign | bits) << bits;
      ASSERT_EQ(Half::rounded(sign * std::nextafter(middle, high)).bits, expected_sign | (bits + 1)) << bits;
    }
  }
}

TEST(Half, EveryBoundaryOfFloat16) { every_boundary<Float16>(0x7c00); }
TEST(Half, EveryBoundaryOfBFloat16) { every_boundary<BFloat16>(0x7f80); }

TEST(Half, OverflowIsInfinity) {
  EXPECT_EQ(Float16::rounded(65520.0f).bits, 0x7c00);  // the middle of 65504 and 2^16: 2^16 would be even
  EXPECT_EQ(Float16::rounded(std::nextafter(65520.0f, 0.0f)).bits, 0x7bff);
  EXPECT_EQ(Float16::rounded(-1e30f).bits, 0xfc00);
  EXPECT_EQ(Float16::rounded(kInf).bits, 0x7c00);
  EXPECT_EQ(BFloat16::rounded(std::numeric_limits<float>::max()).bits, 0x7f80);
  EXPECT_EQ(BFloat16::rounded(-kInf).bits, 0xff80);
}

TEST(Half, NanStaysNan) {
  // The mantissa's upper bits are 0 in this one: cutting it off would leave infinity.
  const float nan = std::bit_cast<float>(0x7f800001u);
  EXPECT_TRUE(std::isnan(static_cast<float>(Float16::rounded(nan))));
  EXPECT_TRUE(std::isnan(static_cast<float>(BFloat16::rounded(nan))));
  EXPECT_EQ(BFloat16::rounded(std::bit_cast<float>(0xffffffffu)).bits, 0xffff);
}

}  // namespace
}  // namespace warpalign::detail
