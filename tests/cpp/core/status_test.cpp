// What a Status says.
#include "warpalign/status.h"

#include <gtest/gtest.h>

namespace warpalign {
namespace {

TEST(Status, HasALineForEveryCode) {
  EXPECT_EQ(to_string(Status{}), "ok");
  EXPECT_EQ(to_string(Status::invalid("gamma", "finite and >= 0", -0.5)),
            "gamma: expected finite and >= 0, got -0.5");
  EXPECT_EQ(to_string(Status::invalid("x_lengths", "between 1 and N", 2147483647, 0)),
            "x_lengths: expected between 1 and N, got 2147483647 at index 0");
  EXPECT_EQ(to_string(Status::unsupported("execution", "no CUDA path")), "execution: no CUDA path");
  EXPECT_EQ(to_string(Status::device_error("out of memory")), "out of memory");
}

}  // namespace
}  // namespace warpalign
