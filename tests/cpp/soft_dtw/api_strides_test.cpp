// Tensors of warpalign::soft_dtw without strides: refused by name, and then nothing has been written.
#include <gtest/gtest.h>

#include "api_call.h"
#include "warpalign/soft_dtw.h"

namespace warpalign::test::soft_dtw {
namespace {

void expect_refused(const Status& status, const char* argument, double given) {
  EXPECT_EQ(status.code, StatusCode::kInvalidArgument);
  EXPECT_STREQ(status.argument, argument);
  EXPECT_EQ(status.value, given);  // how many strides are set
}

TEST(SoftDtwStrides, NamesTheTensorAndTheRemedy) {
  Call call;
  call.problem.x = {};
  call.problem.x.data = call.x.data();
  EXPECT_EQ(
      to_string(call.run()),
      "x: expected 3 strides, one for each axis (write StridedTensor::contiguous(data, extents), or set "
      "`stride`), got 0");
  EXPECT_TRUE(call.untouched());
}

TEST(SoftDtwStrides, EveryAxisNeedsOne) {
  for (int axis = 0; axis < 3; ++axis) {
    Call series;
    series.problem.y.stride[axis] = kUnsetStride;
    expect_refused(series.run(), "y", 2);
    EXPECT_TRUE(series.untouched());
    Call cost;
    cost.use_cost();
    cost.problem.cost.stride[axis] = kUnsetStride;
    expect_refused(cost.run(), "cost", 2);
    EXPECT_TRUE(cost.untouched());
  }
}

TEST(SoftDtwStrides, ZeroBroadcasts) {
  Call broadcast;
  broadcast.problem.x.stride[0] = 0;
  EXPECT_TRUE(broadcast.run().ok());
  Call repeated;  // x holds the same number everywhere
  EXPECT_TRUE(repeated.run().ok());
  EXPECT_EQ(broadcast.value.read<float>(kBatch), repeated.value.read<float>(kBatch));
}

TEST(SoftDtwStrides, TangentsNeedThem) {
  const auto expect_needed = [](Call& call, const char* name, StridedTensor SoftDtwTangents::*tensor,
                                const StridedTensor& right) {
    SoftDtwTangents tangents;
    const auto run = [&] {
      return soft_dtw_jvp(call.problem, tangents, call.out, call.workspace, call.execution);
    };
    (tangents.*tensor).data = right.data;
    expect_refused(run(), name, 0);
    EXPECT_TRUE(call.untouched());
    tangents.*tensor = right;
    EXPECT_TRUE(run().ok()) << name;
  };
  Call x, y, cost;
  expect_needed(x, "tangents.x", &SoftDtwTangents::x, x.problem.x);
  expect_needed(y, "tangents.y", &SoftDtwTangents::y, y.problem.y);
  cost.use_cost();
  expect_needed(cost, "tangents.cost", &SoftDtwTangents::cost, cost.problem.cost);
}

}  // namespace
}  // namespace warpalign::test::soft_dtw
