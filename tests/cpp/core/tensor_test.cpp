// Views of tensors.
#include "warpalign/tensor.h"

#include <gtest/gtest.h>

namespace warpalign {
namespace {

TEST(StridedTensor, ContiguousHasTheLastAxisFastest) {
  const float data[24] = {};
  const StridedTensor view = StridedTensor::contiguous(data, {2, 3, 4});
  EXPECT_EQ(view.data, data);
  EXPECT_EQ(view.stride[0], 12);
  EXPECT_EQ(view.stride[1], 4);
  EXPECT_EQ(view.stride[2], 1);
}

TEST(StridedTensor, NoStrideIsSetByDefault) {
  constexpr StridedTensor kNone;
  for (const std::int64_t stride : kNone.stride) EXPECT_EQ(stride, kUnsetStride);
  EXPECT_EQ(kNone.data, nullptr);
}

TEST(StridedTensor, TakesAStrideForEveryAxis) {
  const float data[1] = {};
  const StridedTensor view{data, {0, 5, 1}};
  EXPECT_EQ(view.data, data);
  EXPECT_EQ(view.stride[0], 0);
  EXPECT_EQ(view.stride[1], 5);
  EXPECT_EQ(view.stride[2], 1);
}

TEST(StridedTensor, ContiguousOfAnyRankAndBeyond32Bits) {
  constexpr std::int64_t kLong = std::int64_t{1} << 20;
  constexpr auto kView = StridedTensorOf<4>::contiguous(nullptr, {7, kLong, kLong, 2});
  static_assert(kView.stride[0] == 2 * kLong * kLong && kView.stride[1] == 2 * kLong);
  static_assert(kView.stride[2] == 2 && kView.stride[3] == 1);
  constexpr auto kRow = StridedTensorOf<1>::contiguous(nullptr, {0});
  static_assert(kRow.stride[0] == 1);
}

}  // namespace
}  // namespace warpalign
