// The CUDA path against the float64 reference, through the public API. Every test skips, visibly, without a
// GPU.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <vector>

#include "device_buffer.h"
#include "tf32_reference.h"
#include "tolerance.h"

namespace warpalign::test::soft_dtw {
namespace {

class SoftDtwCuda : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!has_gpu()) GTEST_SKIP() << "no GPU";
  }
};

template <typename T>
Outputs<T> run(const Batch<T>& batch, Wanted wanted, Precision precision = Precision::kHighest) {
  return run_on<DeviceBuffer>(batch, wanted, Execution::cuda(0, nullptr, precision));
}

// Held to the floor alone: the CUDA path does better than the naive formula in every test below.
template <typename T>
void compare(const Batch<T>& batch, Wanted wanted = kEverything) {
  expect_close(batch, run(batch, wanted), floor_at<T>(batch.gamma), false);
}

template <typename T>
void grid(double gamma) {
  unsigned seed = 0;
  const int lengths[] = {1, 2, 31, 32, 33, 97, 255, 257};
  const int dims[] = {1, 2, 3, 8, 64};
  for (int n : lengths) {
    for (int m : lengths) {
      if (++seed % kThinning != 0) continue;
      const int d = dims[seed % 5];
      compare(Batch<T>({1 + static_cast<int>(seed % 3), n, m, d}, gamma, seed),
              static_cast<Wanted>(seed % 3));
    }
  }
}

TEST_F(SoftDtwCuda, GridFloat32) {
  for (double gamma : {1e-3, 0.1, 1.0, 10.0, 1e3}) grid<float>(gamma);
}

TEST_F(SoftDtwCuda, GridFloat64) {
  for (double gamma : {1e-3, 1.0, 1e3}) grid<double>(gamma);
}

TEST_F(SoftDtwCuda, LongSeriesGoThroughSeveralRoundsOfStrips) {
  compare(Batch<float>({2, 130, 1500, 3}, 1.0, 7), kGradients);
  compare(Batch<float>({2, 1500, 130, 3}, 1.0, 8), kGradients);
  compare(Batch<float>({1, 70, 2100, 2}, 0.1, 9), kEverything);
  compare(Batch<float>({1, 70, 2100, 2}, 0.1, 9), kValue);
  compare(Batch<double>({1, 130, 1100, 2}, 0.1, 10), kEverything);
  compare(Batch<double>({1, 130, 1100, 2}, 0.1, 10), kValue);
}

// float32 on the matrix units: as three products of TF32 the error is of float32's class. As one it is that
// of steps that were rounded. Below 17 features there are no products.
void on_matrix_units(const Batch<float>& batch, Wanted wanted = kGradients) {
  expect_close(batch, run(batch, wanted, Precision::kHigh), floor_at<float>(batch.gamma), true);
  const Outputs<float> medium = run(batch, wanted, Precision::kMedium);
  if (batch.shape.dim < 17) {
    expect_close(batch, medium, floor_at<float>(batch.gamma), true);
  } else {
    expect_close_to_tf32(batch, medium, wanted != kEverything);
  }
}

// Few pairs of 64 steps or more are swept from both ends: lengths at edges of strips, lanes and groups.
TEST_F(SoftDtwCuda, SweepsThatMeet) {
  unsigned seed = 0;
  const int dims[] = {1, 2, 3, 8, 24, 64, 70};
  for (int n : {63, 64, 65, 70, 71, 72, 73, 74, 75, 76, 77, 127, 200}) {
    for (int m : {64, 65, 66, 127, 128, 129, 191, 193, 300, 640}) {
      if (++seed % kThinning != 0) continue;
      for (int d : {dims[seed % 3], dims[seed % 7]}) {
        const double gamma = seed % 5 == 0 ? 1e-3 : seed % 5 == 1 ? 1e3 : 1.0;
        const Batch<float> batch({1 + static_cast<int>(seed % 2), n, m, d}, gamma, seed);
        for (Wanted wanted : {kValue, kGradients})
          expect_close(batch, run(batch, wanted), floor_at<float>(gamma), true);
        if (d > 4 && gamma == 1.0) on_matrix_units(batch);
      }
    }
  }
}

// So many strips that each has two warps, or the wave's alone.
TEST_F(SoftDtwCuda, ManySweepsThatMeet) {
  for (int d : {1, 2, 3}) {
    compare(Batch<float>({100 / kThinning, 70, 200, d}, 1.0, 63), kGradients);
    compare(Batch<float>({131 / kThinning, 70, 300, d}, 1.0, 64), kGradients);
  }
}

TEST_F(SoftDtwCuda, SweepsThatMeetTakeRaggedLengthsAndNaN) {
  for (int d : {2, 20}) {
    for (int n : {1, 63, 64, 131, 200}) {
      for (int m : {1, 31, 64, 65, 257, 333}) {
        if (kThinning > 1 && (n + m + d) % 3 != 0) continue;
        Batch<float> batch({2, 200, 333, d}, 0.5, 61);
        batch.x_lengths = {n, 200};
        batch.y_lengths = {333, m};
        batch.fill_padding_with_nan();
        for (Wanted wanted : {kValue, kGradients}) compare(batch, wanted);
        if (d == 20) on_matrix_units(batch);
      }
    }
    Batch<float> batch({2, 200, 333, d}, 0.5, 62);
    batch.x.at(0, 10, 1) = static_cast<float>(kNan);
    const Outputs<float> got = run(batch, kGradients);
    EXPECT_TRUE(std::isnan(got.value[0]));
    EXPECT_TRUE(std::isnan(got.grad_x[0]));
    EXPECT_TRUE(std::isfinite(got.value[1]));
  }
}

TEST_F(SoftDtwCuda, GradientDigitsAtLength512) {
  compare(Batch<float>({2, 512, 512, 64}, 1.0, 11), kGradients);
  compare(Batch<float>({2, 512, 512, 64}, 0.01, 12), kGradients);
  compare(Batch<float>({2, 512, 512, 1}, 1.0, 13), kGradients);
  compare(Batch<float>({2, 512, 512, 1}, 0.01, 14), kGradients);
}

TEST_F(SoftDtwCuda, MatrixUnits) {
  unsigned seed = 0;
  const int lengths[] = {1, 15, 16, 17, 33, 100};
  // Edges of the instruction's 8 features, of chunks of 32, and of blocks of 64.
  const int dims[] = {16, 17, 24, 31, 32, 33, 64, 65, 129, 200};
  for (int n : lengths) {
    for (int m : lengths) {
      if (++seed % kThinning != 0) continue;
      for (int d : dims) on_matrix_units(Batch<float>({1 + static_cast<int>(seed % 3), n, m, d}, 1.0, seed));
    }
  }
  on_matrix_units(Batch<float>({2, 130, 300, 64}, 10.0, 7));
  on_matrix_units(Batch<float>({2, 90, 70, 24}, 1.0, 8), kEverything);
  for (int d : {24, 128, 200}) on_matrix_units(Batch<float>({2, 90, 70, d}, 1.0, 8), kValue);
}

TEST_F(SoftDtwCuda, MatrixUnitsFarFromZero) {
  on_matrix_units(Batch<float>({2, 70, 90, 20}, 1.0, 3, 1.0, 1000.0));
}

TEST_F(SoftDtwCuda, MatrixUnitsTakeRaggedLengthsAndNaN) {
  Batch<float> batch({5, 90, 140, 20}, 0.5, 21);
  batch.x_lengths = {1, 90, 33, 32, 64};
  batch.y_lengths = {140, 1, 65, 64, 33};
  batch.fill_padding_with_nan();
  on_matrix_units(batch);
  batch.x.at(1, 3, 7) = std::bit_cast<float>(0x7fffffff);  // the NaN that a GPU's own arithmetic makes
  batch.y.at(2, 30, 2) = static_cast<float>(kInf);
  for (Precision precision : {Precision::kHigh, Precision::kMedium}) {
    const Outputs<float> got = run(batch, kGradients, precision);
    EXPECT_TRUE(std::isnan(got.value[1]));
    EXPECT_EQ(got.value[2], static_cast<float>(kInf));
  }
}

// The difference of equal steps would be exactly 0. |x|^2 + |y|^2 - 2 <x, y> cancels instead: float32's
// rounding of the squares, 6e-8 of each, is left over. 1e-6 allows for the 20 features that are added.
TEST_F(SoftDtwCuda, MatrixUnitsOfEqualSeries) {
  Batch<float> batch({2, 90, 90, 20}, 1.0, 5);
  batch.y = batch.x;
  const Outputs<float> got = run(batch, kGradients, Precision::kHigh);
  double squares = 0;
  for (float v : batch.x.data) squares += static_cast<double>(v) * v;
  for (int b = 0; b < 2; ++b) EXPECT_NEAR(got.value[b], batch.expected(b).value, 1e-6 * squares);
}

// A warp's products (sum_j E) x' and E Y' are near each other where y is near x. Then they are differences,
// as exact as a device without matrix units makes them.
TEST_F(SoftDtwCuda, ProductsThatCancel) {
  for (double gamma : {1.0, 1e-3}) {
    Batch<float> batch({2, 90, 90, 70}, gamma, 5);
    for (std::size_t k = 0; k < batch.y.data.size(); ++k) {
      batch.y.data[k] = batch.x.data[k] + 1e-3F * batch.y.data[k];
    }
    expect_close(batch, run(batch, kGradients), {1e-6, 1e-6}, false);
  }
}

// Half types give the bits of float32 series of the same values, whatever reads them.
template <typename Half>
void compare_halves(Batch<float> batch, Wanted wanted, Precision precision) {
  for (auto* const series : {&batch.x.data, &batch.y.data}) {
    for (float& v : *series) v = static_cast<float>(detail::rounded_to<Half>(v));
  }
  const Execution execution = Execution::cuda(0, nullptr, precision);
  const Outputs<float> widened = run_on<DeviceBuffer>(batch, wanted, execution);
  const Outputs<float> halves = run_on<DeviceBuffer, float, Half>(batch, wanted, execution);
  EXPECT_TRUE(same_bits(halves, widened)) << batch.shape.dim << " features";
}
void compare_halves(const Batch<float>& batch, Wanted wanted = kGradients,
                    Precision precision = Precision::kHighest) {
  compare_halves<detail::Float16>(batch, wanted, precision);
  compare_halves<detail::BFloat16>(batch, wanted, precision);
}

TEST_F(SoftDtwCuda, HalfSeries) {
  for (const Precision precision : {Precision::kHighest, Precision::kHigh, Precision::kMedium}) {
    // In slots of four features and one by one; widened for 16 features and fewer.
    for (int dim : {3, 16, 21, 68})
      compare_halves(Batch<float>({2, 70, 90, dim}, 1.0, 4), kGradients, precision);
  }
  compare_halves(Batch<float>({2, 90, 40, 20}, 1.0, 5), kEverything);  // the series exchanged
  Batch<float> near({1, 70, 70, 20}, 1e-3, 6);
  near.y = near.x;
  compare_halves(near);
  Batch<float> rerun({2, 40, 70, 20}, 1e-9, 7);
  compare_halves(rerun);
  rerun.options.cost_kind = CostKind::kCosine;
  rerun.gamma = 0.1;
  compare_halves(rerun);
  Batch<float> ragged({3, 40, 70, 17}, 1.0, 8);
  ragged.x_lengths = {1, 40, 33};
  ragged.y_lengths = {70, 1, 65};
  ragged.fill_padding_with_nan();
  compare_halves(ragged);
  ragged.options.cost_kind = CostKind::kL1;
  compare_halves(ragged);
}

TEST_F(SoftDtwCuda, RaggedLengthsIgnorePadding) {
  Batch<float> batch({5, 90, 140, 3}, 0.5, 21);
  batch.x_lengths = {1, 90, 33, 32, 64};
  batch.y_lengths = {140, 1, 65, 64, 33};
  batch.fill_padding_with_nan();
  compare(batch);
  compare(batch, kGradients);
}

TEST_F(SoftDtwCuda, LengthsOutOfRangeAreClamped) {
  Batch<float> batch({2, 20, 30, 1}, 1.0, 22);
  const Outputs<float> full = run(batch, kGradients);
  batch.x_lengths = {1000, 20};
  batch.y_lengths = {30, 99};
  const Outputs<float> clamped = run(batch, kGradients);
  EXPECT_EQ(full.value, clamped.value);
  EXPECT_EQ(full.grad_x, clamped.grad_x);
}

TEST_F(SoftDtwCuda, LargeMagnitudesAreRerunInFloat64) {
  compare(Batch<float>({3, 50, 70, 2}, 1e-3, 31, 1e3));
  compare(Batch<float>({3, 50, 70, 2}, 1e-3, 32, 1e6));
  Batch<float> mixed({4, 50, 70, 2}, 1.0, 33);
  mixed.x.at(1, 2, 1) = 1e5f;  // one pair with an outlier
  compare(mixed);
}

TEST_F(SoftDtwCuda, NanStaysInItsPair) {
  Batch<float> batch({3, 40, 50, 2}, 1.0, 41);
  const Outputs<float> clean = run(batch, kEverything);
  batch.x.at(1, 3, 1) = static_cast<float>(kNan);
  const Outputs<float> got = run(batch, kEverything);
  EXPECT_EQ(got.value[0], clean.value[0]);
  EXPECT_EQ(got.value[2], clean.value[2]);
  EXPECT_TRUE(std::isnan(got.value[1]));
  for (int k = 0; k < 80; ++k) {
    EXPECT_EQ(got.grad_x[k], clean.grad_x[k]);
    EXPECT_TRUE(std::isnan(got.grad_x[80 + k]));
    EXPECT_EQ(got.grad_x[160 + k], clean.grad_x[160 + k]);
  }
}

TEST_F(SoftDtwCuda, InfiniteSeriesGiveInfAndNoGradient) {
  Batch<float> batch({2, 40, 50, 2}, 1.0, 42);
  batch.x.at(0, 10, 0) = static_cast<float>(kInf);
  const Outputs<float> got = run(batch, kGradients);
  EXPECT_EQ(got.value[0], kInf);
  EXPECT_TRUE(std::isfinite(got.value[1]));
  for (int k = 0; k < 80; ++k) EXPECT_EQ(got.grad_x[k], 0.0f);
}

TEST_F(SoftDtwCuda, CornersOfTheAlignmentAreOne) {
  for (double gamma : {1.0, 0.1, 0.01}) {
    const Batch<float> batch({1, 1024, 1024, 64}, gamma, 51);
    const Outputs<float> got = run(batch, kEverything);
    EXPECT_NEAR(got.alignment.front(), 1.0, kUnitTolerance) << gamma;
    EXPECT_EQ(got.alignment.back(), 1.0f) << gamma;
  }
}

TEST_F(SoftDtwCuda, RepeatedRunsAreBitwiseEqual) {
  const Batch<float> batch({9, 300, 270, 5}, 0.3, 61);
  const Outputs<float> first = run(batch, kEverything);
  for (int repeat = 0; repeat < 100 / (kThinning * kThinning) + 1; ++repeat) {
    ASSERT_TRUE(same_bits(run(batch, kEverything), first));
  }
}

TEST_F(SoftDtwCuda, ManyTinyPairsAndManyPairs) {
  compare(Batch<float>({4097, 3, 5, 1}, 1.0, 71));
  compare(Batch<float>({1500, 33, 17, 2}, 1.0, 72), kGradients);
}

// More strips than two or four for every multiprocessor, which have fewer warps each; with more than 64
// features they always have the most.
TEST_F(SoftDtwCuda, ManyStripsOfManyFeatures) {
  for (int d : {5, 20, 40, 64}) {
    const Batch<float> batch({560 / kThinning, 37, 21, d}, 10.0, 73);
    for (Wanted wanted : {kValue, kGradients, kEverything}) compare(batch, wanted);
    if (d > 5) on_matrix_units(batch);  // one TF32's error is of the costs, from which a small value is left
  }
  for (int d : {65, 127, 128, 129, 300}) {
    const Batch<float> batch({3, 70, 90, d}, 10.0, 74);
    for (Wanted wanted : {kValue, kGradients, kEverything}) compare(batch, wanted);
  }
}

// Sweeps read cost matrices where they are: by two columns where rows begin at even places, else by one.
TEST_F(SoftDtwCuda, CostMatricesOfEverySizeAndStride) {
  unsigned seed = 0;
  for (std::int64_t n : {1, 2, 33, 63, 64, 65, 97, 200}) {
    for (std::int64_t m : {1, 2, 31, 63, 64, 65, 66, 128, 129, 193, 640}) {
      if (++seed % kThinning != 0) continue;
      const unsigned turn = seed / kThinning;
      const int pairs = 1 + static_cast<int>(turn % 3);
      Batch<float> batch({pairs, static_cast<int>(n), static_cast<int>(m), 0}, 0.7, seed);
      const std::array<std::int64_t, 3> layouts[] = {
          {n * m, m, 1}, {n * (m + 1), m + 1, 1}, {n * m, 1, n}, {n * m, -m, 1}, {1, pairs * m, pairs}};
      batch.cost = spread(batch.cost, pairs, batch.shape.n, batch.shape.m, layouts[turn % 5]);
      if (turn % 4 == 0) {  // not at a multiple of 8 bytes
        batch.cost.data.insert(batch.cost.data.begin(), static_cast<float>(kNan));
        ++batch.cost.first;
      }
      for (Wanted wanted : {kValue, kEverything}) compare(batch, wanted);
    }
  }
}

// In an even matrix true lengths may be odd. Two helpers for each strip, one, and none.
TEST_F(SoftDtwCuda, CostMatricesTakeRaggedLengths) {
  for (int pairs : {2, 80, 140}) {
    for (int m : {300, 333}) {
      Batch<float> batch({pairs > 2 ? pairs / kThinning : 2, 100, m, 0}, 0.5, 84);
      for (int b = 0; b < batch.shape.batch; ++b) {
        batch.x_lengths.push_back(b % 3 == 0 ? 100 : 1 + b * 37 % 100);
        batch.y_lengths.push_back(b % 3 == 1 ? m : 1 + b * 61 % m);
      }
      batch.fill_padding_with_nan();
      compare(batch);
    }
  }
}

TEST_F(SoftDtwCuda, CostMatrixWithNegativeAndForbiddenCells) {
  Batch<float> batch({3, 45, 70, 0}, 0.7, 81);
  for (int k = 5; k < 40; ++k) batch.cost.at(1, k, k) = static_cast<float>(kInf);
  for (int j = 0; j < 70; ++j) batch.cost.at(2, 20, j) = static_cast<float>(kInf);  // no path is left
  compare(batch);
}

TEST_F(SoftDtwCuda, NoRoundingNoiseInTheAlignment) {
  Batch<float> batch({4, 60, 90, 0}, 0.3, 82);
  std::mt19937 generator(83);
  for (float& c : batch.cost.data) {
    if (generator() % 5 == 0) c = static_cast<float>(kInf);
  }
  for (int b = 0; b < 4; ++b) batch.cost.at(b, 0, 0) = batch.cost.at(b, 59, 89) = 1.0f;
  const Outputs<float> got = run(batch, kEverything);
  for (std::size_t k = 0; k < got.alignment.size(); ++k) {
    EXPECT_GE(got.alignment[k], 0.0f);
    if (std::isinf(batch.cost.data[k])) {
      EXPECT_EQ(got.alignment[k], 0.0f);
    }
  }
}

}  // namespace
}  // namespace warpalign::test::soft_dtw
