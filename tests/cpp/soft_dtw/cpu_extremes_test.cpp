// The CPU path where numbers are not nice: NaN, infinities, huge magnitudes, cost matrices of any sign.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "fixture.h"

namespace warpalign::test::soft_dtw {
namespace {

template <typename T>
std::vector<T> part(const std::vector<T>& all, int pairs, int b) {
  const std::size_t size = all.size() / pairs;
  return {all.begin() + static_cast<std::ptrdiff_t>(b * size),
          all.begin() + static_cast<std::ptrdiff_t>((b + 1) * size)};
}
template <typename T>
Outputs<T> part(const Outputs<T>& all, int pairs, int b) {
  return {part(all.value, pairs, b), part(all.grad_x, pairs, b), part(all.grad_y, pairs, b),
          part(all.alignment, pairs, b)};
}

template <typename T>
bool all_nan(const std::vector<T>& values) {
  return std::all_of(values.begin(), values.end(), [](T v) { return std::isnan(v); });
}
template <typename T>
bool all_zero(const std::vector<T>& values) {
  return std::all_of(values.begin(), values.end(), [](T v) { return v == T(0); });
}

// Pair 1 of 3 gets a NaN at (row, feature); the others must not notice.
template <typename T>
void expect_nan_stays(Batch<T> batch, Tensor<T> Batch<T>::*where, int row, int feature) {
  const Outputs<T> clean = run(batch, kEverything);
  (batch.*where).at(1, row, feature) = static_cast<T>(kNan);
  const Outputs<T> got = run(batch, kEverything);
  for (int b : {0, 2}) EXPECT_TRUE(same_bits(part(got, 3, b), part(clean, 3, b))) << "pair " << b;
  const Outputs<T> sick = part(got, 3, 1);
  EXPECT_TRUE(all_nan(sick.value));
  EXPECT_TRUE(all_nan(sick.grad_x));
  EXPECT_TRUE(all_nan(sick.grad_y));
  EXPECT_TRUE(all_nan(sick.alignment));
  EXPECT_TRUE(std::isnan(run(batch, kValue).value[1]));
}

TEST_P(SoftDtw, NanStaysInItsPair) {
  for (int dim : {1, 2, 8, 64}) {
    for (int row : {0, 7, 39}) {
      expect_nan_stays(Batch<float>({3, 40, 50, dim}, 1.0, 41), &Batch<float>::x, row, dim - 1);
      expect_nan_stays(Batch<double>({3, 40, 50, dim}, 1.0, 42), &Batch<double>::y, row, 0);
    }
    expect_nan_stays(Batch<float>({3, 300, 270, dim}, 1.0, 43), &Batch<float>::x, 299, 0);
  }
  for (int cell : {0, 20, 39}) {
    expect_nan_stays(Batch<float>({3, 40, 40, 0}, 1.0, 44), &Batch<float>::cost, cell, 39 - cell);
    expect_nan_stays(Batch<double>({3, 40, 40, 0}, 1.0, 45), &Batch<double>::cost, cell, cell);
  }
}

TEST_P(SoftDtw, NanBesideInfinityIsStillNan) {
  Batch<float> batch({3, 40, 50, 2}, 1.0, 46);
  batch.y.at(1, 3, 1) = static_cast<float>(kInf);  // in every row, so that no path is left
  expect_nan_stays(batch, &Batch<float>::x, 30, 0);
}

TEST_P(SoftDtw, NanBehindTheTrueLengthIsNotSeen) {
  Batch<float> batch({3, 40, 40, 0}, 1.0, 47);
  batch.x_lengths = {40, 13, 1};
  batch.y_lengths = {17, 40, 1};
  batch.fill_padding_with_nan();
  check(batch);
}

template <typename T>
void infinite_element(int dim) {
  Batch<T> batch({3, 40, 50, dim}, 1.0, 48);
  batch.x.at(0, 10, 0) = static_cast<T>(kInf);
  batch.y.at(2, 10, dim - 1) = static_cast<T>(-kInf);
  const Outputs<T> got = run(batch, kEverything);
  for (int b : {0, 2}) {
    const Outputs<T> one = part(got, 3, b);
    EXPECT_EQ(one.value[0], static_cast<T>(kInf));
    EXPECT_TRUE(all_zero(one.grad_x));
    EXPECT_TRUE(all_zero(one.grad_y));
    EXPECT_TRUE(all_zero(one.alignment));
  }
  EXPECT_TRUE(std::isfinite(got.value[1]));
  check(batch);
}

TEST_P(SoftDtw, InfiniteSeriesGiveInfAndNoGradient) {
  for (int dim : {1, 2, 8}) {
    infinite_element<float>(dim);
    infinite_element<double>(dim);
  }
}

TEST_P(SoftDtw, InfinityMinusInfinityIsNan) {
  Batch<float> batch({1, 5, 6, 1}, 1.0, 49);
  batch.x.at(0, 2, 0) = static_cast<float>(kInf);
  batch.y.at(0, 4, 0) = static_cast<float>(kInf);
  EXPECT_TRUE(std::isnan(run(batch, kEverything).value[0]));
}

// R / gamma goes up to 1e17 here, so that a naive float32 formula has no digit left; ours has some.
TEST_P(SoftDtw, HugeMagnitudes) {
  for (double scale : {1e3, 1e6}) {
    for (int dim : {1, 2, 16}) {
      const Batch<float> batch({3, 50, 70, dim}, 1e-3, 51, scale);
      expect_close(batch, run(batch, kEverything), floor_at<float>(batch.gamma), false);
      const Batch<double> wide({3, 50, 70, dim}, 1e-3, 52, scale);
      expect_close(wide, run(wide, kEverything));
    }
  }
}

TEST_P(SoftDtw, AnOutlierIsAsExactAndLeavesItsBatchMatesAlone) {
  Batch<float> batch({4, 50, 70, 2}, 1.0, 53);
  const Outputs<float> calm = run(batch, kEverything);
  batch.x.at(1, 2, 1) = 1e5f;
  const Outputs<float> got = run(batch, kEverything);
  expect_close(batch, got, floor_at<float>(batch.gamma), false);
  for (int b : {0, 2, 3}) EXPECT_TRUE(same_bits(part(got, 4, b), part(calm, 4, b)));
}

// From where exp(-c) underflows in float32 to where only float64 has range: no step in between may fail.
TEST_P(SoftDtw, EveryMagnitude) {
  for (int exponent = -18; exponent <= 17; ++exponent) {
    const Batch<float> batch({1, 37, 300, 2}, 1.0, 54, std::pow(10.0, exponent));
    SCOPED_TRACE(exponent);
    check(batch, exponent % 2 == 0 ? kEverything : kGradients);
  }
}

TEST_P(SoftDtw, ExtremeGammas) {
  for (double gamma : {1e-30, 1e-12, 1e6, 1e12, 1e30}) {
    SCOPED_TRACE(gamma);
    check(Batch<float>({2, 40, 60, 3}, gamma, 55));
    check(Batch<double>({2, 40, 60, 3}, gamma, 55));
  }
}

// x = y: the value is <= 0, and the main diagonal costs nothing.
TEST_P(SoftDtw, EqualSeries) {
  for (double gamma : {1e-3, 1.0}) {
    Batch<float> batch({2, 90, 90, 3}, gamma, 56);
    batch.y = batch.x;
    check(batch);
    for (float v : run(batch, kValue).value) EXPECT_LE(v, 0.0f);
  }
}

TEST_P(SoftDtw, ConstantSeries) {
  Batch<float> batch({1, 130, 140, 2}, 0.5, 57);
  std::fill(batch.x.data.begin(), batch.x.data.end(), 2.0f);
  std::fill(batch.y.data.begin(), batch.y.data.end(), 2.0f);
  check(batch);
}

TEST_P(SoftDtw, CostMatrixOfAnySign) {
  for (double scale : {0.1, 1.0, 100.0, 1e5}) {
    for (double offset : {-30.0, 0.0, 30.0}) {
      check(Batch<float>({2, 45, 70, 0}, 0.7, 61, scale, scale * offset));
      check(Batch<double>({2, 45, 70, 0}, 0.7, 62, scale, scale * offset));
    }
  }
  check(Batch<float>({1, 300, 290, 0}, 0.7, 63, 1.0, -20.0));
}

template <typename T>
void forbidden_cells() {
  const T inf = static_cast<T>(kInf);
  Batch<T> batch({4, 45, 70, 0}, 0.7, 64);
  for (int k = 5; k < 40; ++k) batch.cost.at(1, k, k) = inf;   // paths go around
  for (int j = 0; j < 70; ++j) batch.cost.at(2, 20, j) = inf;  // none is left
  for (int i = 0; i < 45; ++i) {                               // a Sakoe-Chiba band
    for (int j = 0; j < 70; ++j) batch.cost.at(3, i, j) = std::abs(i * 70 - j * 45) > 600 ? inf : T(i % 7);
  }
  const Outputs<T> got = run(batch, kEverything);
  expect_close(batch, got);
  EXPECT_EQ(got.value[2], inf);
  EXPECT_TRUE(all_zero(part(got.alignment, 4, 2)));
  for (int k = 5; k < 40; ++k) EXPECT_EQ(got.alignment[(45 + k) * 70 + k], T(0));
}

TEST_P(SoftDtw, ForbiddenCells) {
  forbidden_cells<float>();
  forbidden_cells<double>();
}

// Scattered forbidden cells, and steps so dear that their share is below the others' rounding: neither may
// get rounding noise for E.
template <typename T>
void no_noise_in_alignment() {
  const T inf = static_cast<T>(kInf);
  for (const double scale : {1.0, 100.0}) {
    Batch<T> batch({1, 150, 140, 0}, 0.3, 66, scale);
    for (int pass = 0; pass < 2; ++pass) {
      const Outputs<T> got = run(batch, kEverything);
      expect_close(batch, got);
      for (int k = 0; k < 150 * 140; ++k) {
        ASSERT_GE(got.alignment[k], T(0)) << "cell " << k;
        if (batch.cost.data[k] == inf) {
          ASSERT_EQ(got.alignment[k], T(0)) << "forbidden cell " << k;
        }
      }
      for (int k = 3; k + 1 < 150 * 140; k += 7) batch.cost.data[k] = inf;
    }
  }
}

TEST_P(SoftDtw, NoRoundingNoiseInTheAlignment) {
  no_noise_in_alignment<float>();
  no_noise_in_alignment<double>();
}

TEST_P(SoftDtw, ForbiddenCorners) {
  for (bool last : {false, true}) {
    Batch<float> batch({1, 20, 30, 0}, 1.0, 65);
    batch.cost.at(0, last ? 19 : 0, last ? 29 : 0) = static_cast<float>(kInf);
    const Outputs<float> got = run(batch, kEverything);
    EXPECT_EQ(got.value[0], static_cast<float>(kInf));
    EXPECT_TRUE(all_zero(got.alignment));
  }
}

WARPALIGN_FOR_EVERY(SoftDtw, instruction_sets);

}  // namespace
}  // namespace warpalign::test::soft_dtw
