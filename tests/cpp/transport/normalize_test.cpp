// sinkhorn_normalize() and its gradient on every path, against the float64 reference.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "normalize_cases.h"

namespace warpalign::test {
namespace {

class NormalizePath : public OnEveryPath {};

constexpr NormalizeOrder kOrders[] = {NormalizeOrder::kRowsFirst, NormalizeOrder::kColumnsFirst};
constexpr DType kDTypes[] = {DType::kFloat32, DType::kFloat64, DType::kFloat16, DType::kBFloat16};

TEST_P(NormalizePath, FollowsTheReferenceAroundTheEdgesOfLanes) {
  unsigned seed = 0;
  for (const auto& [n, m] : {std::pair{1, 1},
                             {1, 5},
                             {4, 4},
                             {3, 8},
                             {9, 5},
                             {16, 16},
                             {15, 17},
                             {32, 20},
                             {33, 31},
                             {49, 64},
                             {64, 64}}) {
    for (const int iterations : {1, 2, 20}) {
      if (iterations == 2 && n * m > 1000) continue;
      const NormalizeOrder order = kOrders[++seed % 2];
      const int batch = n * m > 300 ? 2 : 5;
      check_normalize(
          {.batch = batch, .n = n, .m = m, .iterations = iterations, .order = order, .seed = seed});
    }
  }
}

TEST_P(NormalizePath, FollowsTheReferenceForEveryTypeOrderAndLayout) {
  unsigned seed = 100;
  for (const DType dtype : kDTypes) {
    for (const NormalizeOrder order : kOrders) {
      for (const bool transposed : {false, true}) {
        check_normalize({.batch = 19,
                         .n = 5,
                         .m = 6,
                         .iterations = 7,
                         .order = order,
                         .dtype = dtype,
                         .scale = 3,
                         .transposed = transposed,
                         .seed = ++seed});
      }
    }
  }
}

TEST_P(NormalizePath, FollowsTheReferenceWhereTheGradientsHistoryIsLong) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat64}) {
    check_normalize({.batch = 70, .n = 4, .m = 4, .iterations = 130, .dtype = dtype});
    check_normalize({.batch = 2, .n = 40, .m = 37, .iterations = 60, .dtype = dtype});
  }
}

TEST_P(NormalizePath, IsExactForLargeLogits) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat64}) {
    check_normalize({.batch = 4, .n = 8, .m = 8, .dtype = dtype, .scale = 200, .seed = 7});
    check_normalize({.batch = 4, .n = 5, .m = 9, .dtype = dtype, .scale = 1, .offset = 3000, .seed = 8});
  }
  // A column that every row's softmax rounds to 0.
  const NormalizeCase c{.n = 3, .m = 3, .scale = 4};
  check_normalize(c, {0, 500, 501, 1, 502, 500, -1, 499, 503}, {1, 2, 3, 4, 5, 6, 7, 8, 10});
}

TEST_P(NormalizePath, InfinityForbidsElementsAndLines) {
  const double no = -std::numeric_limits<double>::infinity();
  for (const NormalizeOrder order : kOrders) {
    for (const DType dtype : {DType::kFloat32, DType::kFloat64}) {
      const NormalizeCase c{.batch = 2, .n = 3, .m = 4, .order = order, .dtype = dtype};
      const std::vector<double> logits = {1, no, 2, 0, no, no, no, no, 0.5, no, 3, 1,  // row 1 and column 1
                                          0, 1,  2, 3, 3,  no, 1,  0,  1,   1,  1, no};
      check_normalize(c, logits, draw_gradient(c));
    }
  }
}

TEST_P(NormalizePath, NanStaysInItsMatrix) {
  NormalizeCase c{.batch = 3, .n = 4, .m = 5};
  for (const double bad :
       {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    const std::vector<double> clean = draw_logits(c), gradient = draw_gradient(c);
    std::vector<double> logits = clean;
    logits[20 + 7] = bad;
    logits[20 + 8] = -std::numeric_limits<double>::infinity();
    const Normalized expected = normalize(c, clean, gradient), got = normalize(c, logits, gradient);
    for (std::size_t k = 0; k < logits.size(); ++k) {
      if (k / 20 == 1) {
        EXPECT_TRUE(std::isnan(got.plan[k]) && std::isnan(got.grad_logits[k])) << k;
      } else {
        EXPECT_EQ(got.plan[k], expected.plan[k]) << k;
        EXPECT_EQ(got.grad_logits[k], expected.grad_logits[k]) << k;
      }
    }
  }
}

TEST_P(NormalizePath, LastSumsAreOneAndTheOthersTendToIt) {
  for (const NormalizeOrder order : kOrders) {
    const NormalizeCase c{.batch = 3, .n = 12, .m = 12, .iterations = 60, .order = order};
    const Normalized got = normalize(c, draw_logits(c), draw_gradient(c));
    for (int b = 0; b < c.batch; ++b) {
      const LineSums sums(c, got.plan, b);
      for (const double sum : sums.rows) EXPECT_NEAR(sum, 1, 1e-5);
      for (const double sum : sums.columns) EXPECT_NEAR(sum, 1, 1e-5);
    }
  }
}

TEST_P(NormalizePath, AMatrixIsTheSameAloneAndInABatch) {
  const NormalizeCase c{.batch = 21, .n = 7, .m = 7};
  const std::vector<double> logits = draw_logits(c), gradient = draw_gradient(c);
  const Normalized all = normalize(c, logits, gradient);
  NormalizeCase one = c;
  one.batch = 1;
  for (const int b : {0, 13, 20}) {
    const auto part = [&](const std::vector<double>& v) {
      return std::vector<double>(v.begin() + b * 49, v.begin() + (b + 1) * 49);
    };
    const Normalized got = normalize(one, part(logits), part(gradient));
    EXPECT_EQ(got.plan, part(all.plan));
    EXPECT_EQ(got.grad_logits, part(all.grad_logits));
  }
}

WARPALIGN_FOR_EVERY(NormalizePath, all_paths);

}  // namespace
}  // namespace warpalign::test
