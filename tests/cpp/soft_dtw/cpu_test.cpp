// The CPU path against the float64 reference and against what soft-DTW promises mathematically.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "fixture.h"

namespace warpalign::test::soft_dtw {
namespace {

// Every pair of lengths around the vector widths and tile sizes; features, batch and outputs take turns, and
// `turn` lets every gamma meet other combinations.
template <typename T>
void grid(double gamma, int turn) {
  const int lengths[] = {1, 2, 31, 32, 33, 97, 255, 257};
  const int dims[] = {1, 2, 3, 8, 64};
  for (int n : lengths) {
    for (int m : lengths) {
      ++turn;
      check(Batch<T>({1 + turn % 3, n, m, dims[turn % 5]}, gamma, turn), static_cast<Wanted>(turn / 3 % 3));
    }
  }
}

TEST_P(SoftDtw, GridFloat32) {
  int turn = 0;
  for (double gamma : {1e-3, 0.1, 1.0, 10.0, 1e3}) grid<float>(gamma, turn += 7);
}

TEST_P(SoftDtw, GridFloat64) {
  int turn = 0;
  for (double gamma : {1e-3, 0.1, 1.0, 10.0, 1e3}) grid<double>(gamma, turn += 11);
}

TEST_P(SoftDtw, EveryDimAtOddLengths) {
  for (int dim : {1, 2, 3, 4, 5, 7, 8, 9, 16, 17, 64, 65}) {
    check(Batch<float>({2, 45, 70, dim}, 0.5, dim));
    check(Batch<double>({2, 70, 45, dim}, 0.5, dim));
  }
}

TEST_P(SoftDtw, LongAndNarrow) {
  for (int dim : {1, 8}) {
    check(Batch<float>({1, 3, 1500, dim}, 1.0, 7));
    check(Batch<float>({1, 1500, 3, dim}, 1.0, 8));
    check(Batch<float>({1, 700, 300, dim}, 0.1, 9));
    check(Batch<double>({1, 300, 700, dim}, 0.1, 10));
  }
}

// How many digits are promised, whatever the naive formula does. The median: with many features some ten in a
// hundred random pairs have two paths so nearly tied that rounding their costs to float32 alone, all else in
// float64, loses a digit more.
void expect_digits(int dim, double gamma, double median) {
  std::vector<double> errors;
  for (unsigned seed = 1; seed <= 9; ++seed) {
    const Batch<float> batch({1, 512, 512, dim}, gamma, seed);
    const Outputs<float> got = run(batch, kGradients);
    const reference::Result expected = batch.expected(0);
    errors.push_back(std::max(error(got.grad_x.data(), expected.grad_x, 512, dim, 512, dim),
                              error(got.grad_y.data(), expected.grad_y, 512, dim, 512, dim)));
    EXPECT_NEAR(got.value[0], expected.value, floor_at<float>(gamma).value * std::abs(expected.value));
  }
  std::sort(errors.begin(), errors.end());
  EXPECT_LE(errors[4], median) << "D=" << dim << " gamma=" << gamma;
  EXPECT_LE(errors[8], 1e-4) << "D=" << dim << " gamma=" << gamma;
}

TEST_P(SoftDtw, GradientDigitsAtLength512) {
  if (kIsSanitized) GTEST_SKIP() << "about digits";
  expect_digits(64, 1.0, 1e-5);
  expect_digits(64, 0.01, 1e-5);
  expect_digits(1, 1.0, 1e-5);
  expect_digits(1, 0.01, 1e-5);
}

// As precise as the naive float32 formula on the average of many pairs, where no luck counts.
TEST_P(SoftDtw, NoWorseThanTheNaiveFormulaOnAverage) {
  if (kIsSanitized) GTEST_SKIP() << "about digits";
  for (double gamma : {0.01, 0.1, 1.0, 10.0}) {
    const Batch<float> batch({12, 200, 180, 4}, gamma, 15);
    const Outputs<float> got = run(batch, kEverything);
    double ours = 0, naive = 0, ours_table = 0, naive_table = 0;
    for (int b = 0; b < batch.shape.batch; ++b) {
      const reference::Result expected = batch.expected(b);
      const Errors plain = naive_errors(batch, b, expected);
      ours += std::abs(got.value[b] - expected.value);
      naive += plain.value + 6e-8 * std::abs(expected.value);  // both round the result, by up to 2^-24
      ours_table += error(&got.alignment[b * 200 * 180], expected.alignment, 200, 180, 200, 180);
      naive_table += plain.alignment;
    }
    EXPECT_LE(ours, 2 * naive) << gamma;
    EXPECT_LE(ours_table, 2 * naive_table) << gamma;
  }
}

TEST_P(SoftDtw, IsSymmetric) {
  for (int dim : {1, 3, 16}) {
    const Batch<double> forth({2, 75, 130, dim}, 0.7, 21);
    Batch<double> back = forth;
    back.shape = {2, 130, 75, dim};
    std::swap(back.x, back.y);
    const Outputs<double> a = run(forth, kEverything), b = run(back, kEverything);
    // Two results, each within its floor; elements of E and of the gradients are of order 1.
    const Tolerance floor = floor_at<double>(forth.gamma);
    for (int k = 0; k < 2; ++k) EXPECT_NEAR(a.value[k], b.value[k], 2 * floor.value * std::abs(a.value[k]));
    for (std::size_t k = 0; k < a.grad_x.size(); ++k) EXPECT_NEAR(a.grad_x[k], b.grad_y[k], floor.gradient);
    for (std::size_t k = 0; k < a.grad_y.size(); ++k) EXPECT_NEAR(a.grad_y[k], b.grad_x[k], floor.gradient);
    for (int i = 0; i < 75; ++i) {
      for (int j = 0; j < 130; ++j) {
        EXPECT_NEAR(a.alignment[i * 130 + j], b.alignment[j * 75 + i], floor.gradient);
      }
    }
  }
}

TEST_P(SoftDtw, TendsToHardDtw) {
  for (int dim : {1, 8}) {
    const double gamma = 1e-7;
    const int n = 60, m = 50;
    const Batch<double> batch({3, n, m, dim}, gamma, 22);
    const Outputs<double> got = run(batch, kValue);
    for (int b = 0; b < 3; ++b) {
      std::vector<double> cost(n * m);
      for (int i = 0; i < n; ++i) {
        for (int j = 0; j < m; ++j) {
          for (int d = 0; d < dim; ++d)
            cost[i * m + j] += std::pow(batch.x.at(b, i, d) - batch.y.at(b, j, d), 2);
        }
      }
      const double hard = reference::dtw(cost, n, m);
      // At most 3^(n+m) paths share the minimum.
      const double rounding = floor_at<double>(gamma).value * hard;
      EXPECT_LE(got.value[b], hard + rounding);
      EXPECT_GE(got.value[b], hard - gamma * (n + m) * std::log(3.0) - rounding);
    }
  }
}

// A path goes through every row and every column, and through both corners.
void expect_alignment(const Batch<float>& batch, double tolerance) {
  const auto [pairs, n, m, dim] = batch.shape;
  const Outputs<float> got = run(batch, kEverything);
  std::vector<double> rows(n), columns(m);
  for (int i = 0; i < n; ++i) {
    for (int j = 0; j < m; ++j) {
      const float e = got.alignment[static_cast<std::size_t>(i) * m + j];
      // Not 0: the diagonal's weight is 1 minus the other two, which are rounded.
      EXPECT_GE(e, -1.2e-7f);
      EXPECT_LE(e, 1.0f + tolerance);
      rows[i] += e;
      columns[j] += e;
    }
  }
  for (double sum : rows) EXPECT_GE(sum, 1.0 - tolerance);
  for (double sum : columns) EXPECT_GE(sum, 1.0 - tolerance);
  EXPECT_NEAR(got.alignment.front(), 1.0, tolerance);
  EXPECT_EQ(got.alignment.back(), 1.0f);
}

TEST_P(SoftDtw, AlignmentCoversEveryRowAndColumn) {
  for (double gamma : {0.01, 1.0, 100.0}) {
    for (int dim : {1, 5}) expect_alignment(Batch<float>({1, 130, 270, dim}, gamma, 23), kUnitTolerance);
  }
  // A cell costs some 128, which is 12800 gamma at gamma = 0.01: float32 rounds c log2(e) / gamma to 2^-10
  // there, and what the forward sweep has lost shows at (0, 0).
  for (double gamma : {1.0, 0.1, 0.01}) {
    expect_alignment(Batch<float>({1, 1024, 1024, 64}, gamma, 24),
                     gamma < 0.05 ? 10 * kUnitTolerance : kUnitTolerance);
  }
}

TEST_P(SoftDtw, GradientsAreCentralDifferencesOfTheValue) {
  for (int dim : {1, 4, 9}) {
    for (double gamma : {0.1, 2.0}) {
      Batch<double> batch({2, 18, 35, dim}, gamma, 25);
      const Outputs<double> got = run(batch, kGradients);
      // Central differences err by step^2 times the third derivative, of order 1 / gamma^2, and by 2.2e-16 of
      // the value, some 100, divided by the step.
      constexpr double kStep = 1e-5;
      const double tolerance = 10 * kStep * kStep / std::min(gamma * gamma, 1.0) + 1e-8;
      const auto slope = [&](Tensor<double>& tensor, int b, int i, int d) {
        double& element = tensor.at(b, i, d);
        const double before = element;
        element = before + kStep;
        const double above = run(batch, kValue).value[b];
        element = before - kStep;
        const double below = run(batch, kValue).value[b];
        element = before;
        return (above - below) / (2 * kStep);
      };
      for (int i = 0; i < 18; ++i) {
        EXPECT_NEAR(got.grad_x[(18 + i) * dim + i % dim], slope(batch.x, 1, i, i % dim), tolerance);
      }
      for (int j = 0; j < 35; ++j) {
        EXPECT_NEAR(got.grad_y[j * dim + j % dim], slope(batch.y, 0, j, j % dim), tolerance);
      }
    }
  }
}

// |x|^2 + |y|^2 - 2 x.y would lose everything here; (x - y)^2 loses nothing.
TEST_P(SoftDtw, TranslationCostsNoDigits) {
  for (int dim : {1, 2, 8, 64}) {
    const Batch<float> far({2, 100, 90, dim}, 1.0, 26, 1.0, 1000.0);
    check(far);
    Batch<double> near({1, 100, 90, dim}, 1.0, 27);
    const double value = run(near, kValue).value[0];
    for (double& v : near.x.data) v += 1000.0;
    for (double& v : near.y.data) v += 1000.0;
    // Adding 1000 rounds every element by up to 1e-13.
    EXPECT_NEAR(run(near, kValue).value[0], value, 1e-11 * std::abs(value));
  }
}

TEST_P(SoftDtw, WantingTheGradientDoesNotChangeTheValue) {
  for (int dim : {0, 1, 3, 64}) {
    const Batch<float> batch({3, 150, 290, dim}, 0.2, 28);
    const Batch<double> wide({3, 150, 290, dim}, 0.2, 28);
    for (Wanted wanted : {kGradients, kEverything}) {
      EXPECT_TRUE(same_bits(run(batch, kValue).value, run(batch, wanted).value)) << dim;
      EXPECT_TRUE(same_bits(run(wide, kValue).value, run(wide, wanted).value)) << dim;
    }
  }
}

WARPALIGN_FOR_EVERY(SoftDtw, instruction_sets);

}  // namespace
}  // namespace warpalign::test::soft_dtw
