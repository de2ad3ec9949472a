// The checks that every operator's api.cpp makes.
#include "core/contract.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace warpalign::detail {
namespace {

TEST(Contract, FewEnoughCountsWithoutOverflow) {
  constexpr std::int64_t kLargest = std::int64_t{1} << 31;
  EXPECT_TRUE(few_enough({1 << 16, 1 << 16, 1 << 16}));
  EXPECT_FALSE(few_enough({1 << 16, 1 << 16, (1 << 16) + 1}));
  EXPECT_TRUE(few_enough({kLargest, kLargest, 0}));
  EXPECT_FALSE(few_enough({kLargest, kLargest, kLargest, kLargest}));
  EXPECT_TRUE(few_enough({1 << 12, 1 << 12, 1 << 12, 1 << 12}));
  EXPECT_FALSE(few_enough({3, 1 << 12, 1 << 12, 1 << 23}));
  EXPECT_TRUE(few_enough({}));
}

TEST(Contract, LengthsAreNamedWithTheirIndex) {
  const std::int32_t lengths[] = {1, 5, 0, 6};
  EXPECT_TRUE(check_lengths(nullptr, "lengths", "1 to 5", 4, 1, 5).ok());
  EXPECT_TRUE(check_lengths(lengths, "lengths", "1 to 5", 2, 1, 5).ok());
  EXPECT_TRUE(check_lengths(lengths, "lengths", "0 to 6", 4, 0, 6).ok());
  const Status small = check_lengths(lengths, "lengths", "1 to 5", 4, 1, 5);
  EXPECT_STREQ(small.argument, "lengths");
  EXPECT_STREQ(small.message, "1 to 5");
  EXPECT_EQ(small.value, 0);
  EXPECT_EQ(small.batch_index, 2);
  EXPECT_EQ(check_lengths(lengths, "lengths", "0 to 5", 4, 0, 5).batch_index, 3);
}

TEST(Contract, WrittenMemoryMustNotOverlap) {
  alignas(8) char memory[64];
  const auto first_error = [&](std::size_t begin, std::size_t bytes) {
    const WrittenMemory all[] = {
        {"a", memory, 16, 8}, {"absent", nullptr, 64, 8}, {"b", memory + begin, bytes, 8}};
    return check_written(all);
  };
  EXPECT_TRUE(first_error(16, 8).ok());
  EXPECT_STREQ(first_error(8, 8).argument, "b");
  EXPECT_STREQ(first_error(0, 64).argument, "b");
  EXPECT_STREQ(first_error(20, 8).message, "an address 0 bytes past a multiple of 8");
  EXPECT_EQ(first_error(20, 8).value, 4);
  EXPECT_EQ(to_string(first_error(8, 16)), "b: expected 0 bytes in common with other outputs, got 8");
}

TEST(Contract, WorkspaceMustBeLargeEnoughAndAligned) {
  alignas(256) char memory[512];
  EXPECT_TRUE(check_workspace({}, 0, Device::kHost).ok());
  EXPECT_TRUE(check_workspace({memory, 100}, 100, Device::kHost).ok());
  EXPECT_EQ(check_workspace({memory, 99}, 100, Device::kHost).value, 99);
  EXPECT_STREQ(check_workspace({nullptr, 100}, 100, Device::kHost).argument, "workspace");
  EXPECT_TRUE(check_workspace({memory + 64, 100}, 100, Device::kHost).ok());
  EXPECT_FALSE(check_workspace({memory + 64, 100}, 100, Device::kCuda).ok());
  EXPECT_EQ(to_string(check_workspace({memory + 32, 100}, 100, Device::kHost)),
            "workspace: expected an address 0 bytes past a multiple of 64, got 32");
  EXPECT_EQ(to_string(check_workspace({memory + 4, 100}, 100, Device::kCuda)),
            "workspace: expected an address 0 bytes past a multiple of 256, got 4");
}

TEST(Contract, ExecutionsEnumerationsAreChecked) {
  Execution execution;
  EXPECT_TRUE(check_execution(execution).ok());
  execution.device = static_cast<Device>(2);
  EXPECT_STREQ(check_execution(execution).argument, "execution");
  execution = {};
  execution.precision = static_cast<Precision>(3);
  EXPECT_STREQ(check_execution(execution).argument, "precision");
}

}  // namespace
}  // namespace warpalign::detail
