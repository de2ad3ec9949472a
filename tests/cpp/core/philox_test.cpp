// Philox4x32-10 against the known answers of the Random123 library's kat_vectors.
#include "core/philox.h"

#include <gtest/gtest.h>

namespace warpalign::detail {
namespace {

void expect_words(const PhiloxWords& words, std::uint32_t a, std::uint32_t b, std::uint32_t c,
                  std::uint32_t d) {
  EXPECT_EQ(words.word[0], a);
  EXPECT_EQ(words.word[1], b);
  EXPECT_EQ(words.word[2], c);
  EXPECT_EQ(words.word[3], d);
}

TEST(Philox, KnownAnswers) {
  constexpr std::uint32_t kOnes = 0xffffffffu;
  expect_words(philox({{0, 0, 0, 0}}, 0), 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8);
  expect_words(philox({{kOnes, kOnes, kOnes, kOnes}}, ~std::uint64_t{0}), 0x408f276d, 0x41c83b0e, 0xa20bc7c6,
               0x6d5451fd);
  expect_words(philox({{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}}, 0x299f31d0a4093822u), 0xd16cfe09,
               0x94fdcceb, 0x5001e420, 0x24126ea1);
}

TEST(Philox, ThresholdIsTheProbability) {
  EXPECT_EQ(philox_threshold(0.0), 0u);
  EXPECT_EQ(philox_threshold(0.5), 0x80000000u);
  int below = 0;
  for (std::uint32_t n = 0; n < 4096; ++n) {
    const PhiloxWords words = philox({{n, 1, 2, 3}}, 42);
    for (const std::uint32_t word : words.word) below += word < philox_threshold(0.3) ? 1 : 0;
  }
  // 16384 draws with p = 0.3: five standard deviations are 293.
  EXPECT_NEAR(below, 4915, 293);
}

}  // namespace
}  // namespace warpalign::detail
