// Every path's options against the float64 reference: penalties, costs, gamma per pair and 0, missing
// steps.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "fixture.h"
#include "soft_dtw/band.h"

namespace warpalign::test::soft_dtw {
namespace {

const CostKind kCosts[] = {CostKind::kSquaredEuclidean, CostKind::kEuclidean, CostKind::kL1,
                           CostKind::kCosine, CostKind::kHuber};

template <typename T>
void expect_options(const Batch<T>& batch, Wanted wanted) {
  expect_close(batch, run(batch, wanted), floor_without_naive<T>());
}

template <typename T>
std::vector<std::uint8_t> every(int nth, std::size_t count) {
  std::vector<std::uint8_t> mask(count);
  for (std::size_t k = 0; k < count; k += nth) mask[k] = 1;
  return mask;
}

// Options in turn, over lengths around the vectors and tiles.
template <typename T>
void options_grid(int turn) {
  const int dims[] = {1, 2, 5, 0, 9};
  const double penalties[] = {0, 0.3, 4.0};
  for (int n : {1, 2, 33, 130, 257}) {
    for (int m : {1, 31, 129, 300}) {
      for (CostKind kind : kCosts) {
        if (++turn % kThinning != 0) continue;
        const int dim = dims[turn % 5];
        Batch<T> batch({1 + turn % 2, n, m, dim}, turn % 3 == 0 ? 0.2 : 1.0, turn);
        batch.options.step_penalty = penalties[turn % 3];
        batch.options.cost_kind = kind;
        if (turn % 4 == 0) batch.options.band = {BandKind::kSakoeChiba, turn % 50, 2.0};
        if (turn % 8 == 0 && dim > 0)
          batch.x_mask = every<T>(3, static_cast<std::size_t>(batch.shape.batch) * n);
        if (turn % 6 == 0 && dim > 0)
          batch.y_mask = every<T>(4, static_cast<std::size_t>(batch.shape.batch) * m);
        if (turn % 5 == 0) batch.gammas = std::vector<T>(batch.shape.batch, T(0.7));
        expect_options(batch, dim == 0 ? kAll : static_cast<Wanted>(turn / 5 % 4));
      }
    }
  }
}

TEST_P(SoftDtw, OptionsGridFloat32) { options_grid<float>(0); }
TEST_P(SoftDtw, OptionsGridFloat64) { options_grid<double>(3); }

// Without the alignment CUDA has kernels of their own for few features: one that knows bands and penalties,
// one with everything. Every band, each beside a penalty or none, over lengths around the strips.
TEST_P(SoftDtw, FewFeaturesInABand) {
  const int shapes[][2] = {{1, 1}, {1, 70}, {45, 31}, {64, 64}, {100, 33}, {131, 257}, {300, 290}, {77, 300}};
  const Band bands[] = {{BandKind::kSakoeChiba, 0, 2.0}, {BandKind::kSakoeChiba, 1, 2.0},
                        {BandKind::kSakoeChiba, 7, 2.0}, {BandKind::kSakoeChiba, 64, 2.0},
                        {BandKind::kSlanted, 1, 2.0},    {BandKind::kSlanted, 30, 2.0},
                        {BandKind::kAbsolute, 40, 2.0},  {BandKind::kItakura, 0, 1.9},
                        {BandKind::kItakura, 0, 1.0},    {BandKind::kNone, 0, 2.0}};
  int turn = 0;
  for (const auto& [n, m] : shapes) {
    for (const Band& band : bands) {
      for (int dim = 1; dim <= 5; ++dim) {
        ++turn;
        if (turn % (kThinning > 1 ? 3 : 1) != 0 || !detail::soft_dtw::band_holds_path(band, n, m)) continue;
        Batch<float> batch({1 + turn % 2, n, m, dim}, turn % 3 == 0 ? 0.1 : 1.0, turn);
        batch.options.band = band;
        batch.options.step_penalty = turn % 4 == 0 ? 0.0 : 0.4;
        SCOPED_TRACE(::testing::Message() << "band " << static_cast<int>(band.kind) << " of radius "
                                          << band.radius << ", penalty " << batch.options.step_penalty);
        expect_options(batch, kGradients);
        if (turn % 5 == 0) expect_options(batch, kValue);
      }
    }
  }
}

TEST_P(SoftDtw, FewFeaturesWithEverything) {
  const int shapes[][2] = {{1, 1}, {3, 40}, {65, 33}, {131, 257}, {290, 130}};
  int turn = 0;
  for (const auto& [n, m] : shapes) {
    for (CostKind kind : kCosts) {
      for (int dim = 1; dim <= 5; ++dim) {
        ++turn;
        if (turn % (kThinning > 1 ? 2 : 1) != 0) continue;
        Batch<float> batch({2, n, m, dim}, turn % 3 == 0 ? 0.2 : 1.0, turn);
        batch.options.cost_kind = kind;
        if (turn % 3 != 1) batch.options.step_penalty = 0.3;
        if (turn % 4 != 1) batch.options.band = {BandKind::kSakoeChiba, turn % 40, 2.0};
        if (turn % 5 != 1) batch.x_mask = every<float>(3, static_cast<std::size_t>(2) * n);
        if (turn % 7 != 1) batch.y_mask = every<float>(4, static_cast<std::size_t>(2) * m);
        if (n > 3) {
          batch.x_lengths = {n - 2, n};
          batch.y_lengths = {m, m / 2};
          batch.fill_padding_with_nan();
        }
        expect_options(batch, turn % 2 ? kGradients : kAllGradients);
      }
    }
  }
}

// The least of the columns that a row has in the band is another strip's than the first one: rows are written
// once each, whichever blocks the strips are in.
TEST_P(SoftDtw, LongBandOfFewFeatures) {
  for (int radius : {0, 20, 300}) {
    for (int dim : {1, 3}) {
      Batch<float> batch({2, 900, 1100, dim}, 0.5, 40 + radius);
      batch.options.band = {BandKind::kSlanted, radius + 1, 2.0};
      batch.x_lengths = {900, 860};
      expect_options(batch, kGradients);
    }
  }
}

TEST_P(SoftDtw, StepPenalty) {
  for (int dim : {0, 1, 6}) {
    for (double penalty : {0.01, 1.0, 50.0}) {
      Batch<float> batch({2, 140, 300, dim}, 0.5, 41);
      batch.options.step_penalty = penalty;
      expect_options(batch, kAll);
      if (dim > 0) expect_options(batch, kGradients);
      // Too large for float32's exponents.
      batch.options.step_penalty = 1e8;
      expect_options(batch, kEverything);
      if (dim > 0) expect_options(batch, kGradients);
    }
  }
}

TEST_P(SoftDtw, EveryCost) {
  for (CostKind kind : kCosts) {
    for (int dim : {1, 3, 4, 5, 17}) {
      Batch<float> batch({2, 270, 140, dim}, 0.5, 42);
      batch.options.cost_kind = kind;
      batch.x_lengths = {270, 33};
      batch.y_lengths = {101, 140};
      batch.fill_padding_with_nan();
      expect_options(batch, kGradients);
      expect_options(batch, kAllGradients);
      Batch<double> wide({1, 61, 140, dim}, 0.1, 43);
      wide.options.cost_kind = kind;
      expect_options(wide, kAll);
    }
  }
}

// Equal steps, zero vectors and equal features: the subgradient there is 0, and nothing is NaN.
TEST_P(SoftDtw, CostsAreFiniteAtKinks) {
  for (CostKind kind : kCosts) {
    for (int dim : {1, 6}) {
      Batch<float> batch({1, 40, 40, dim}, 0.5, 44);
      batch.options.cost_kind = kind;
      for (int i = 0; i < 40; ++i) {
        for (int d = 0; d < dim; ++d) {
          if (i % 4 == 0) batch.x.at(0, i, d) = 0;
          if (i % 6 == 0) batch.y.at(0, i, d) = 0;
          if (i % 4 == 1) batch.y.at(0, i, d) = batch.x.at(0, i, d);
          if (i % 4 == 2 && d > 0) batch.y.at(0, i, d) = batch.x.at(0, i, d);
        }
      }
      if (kind == CostKind::kEuclidean || kind == CostKind::kL1) {
        // The nearest thing to a kink that float32 has may be one, or none.
        batch.x.at(0, 3, 0) = batch.y.at(0, 3, 0) + 1e-7f;
      }
      expect_options(batch, kAll);
      expect_options(batch, kAllGradients);
    }
  }
}

TEST_P(SoftDtw, CosineOfLongAndShortVectors) {
  for (float size : {1e-30f, 1e-3f, 1e30f}) {
    Batch<float> batch({1, 50, 60, 3}, 0.1, 45);
    batch.options.cost_kind = CostKind::kCosine;
    const Outputs<float> plain = run(batch, kEverything);
    for (float& v : batch.x.data) v *= size;
    const Outputs<float> scaled = run(batch, kEverything);
    // Two results, each within its floor; no element of this gradient is larger than 1.
    const Tolerance floor = floor_without_naive<float>();
    EXPECT_NEAR(scaled.value[0], plain.value[0], 2 * floor.value * std::abs(plain.value[0]));
    for (std::size_t k = 0; k < plain.grad_x.size(); ++k) {
      EXPECT_NEAR(scaled.grad_x[k] * size, plain.grad_x[k], 2 * floor.gradient);
    }
  }
}

TEST_P(SoftDtw, GammaOfEachPair) {
  for (int dim : {0, 2, 8}) {
    Batch<float> batch({4, 150, 280, dim}, -1.0, 46);
    batch.gamma = 1.0;
    batch.gammas = {0.5f, 1.0f, 30.0f, 2.0f};
    expect_options(batch, kAll);
    Batch<double> wide({3, 290, 37, dim}, 1.0, 47);
    wide.gammas = {0.01, 1.0, 30.0};
    expect_close(wide, run(wide, kAll));
  }
}

TEST_P(SoftDtw, HardDtw) {
  for (int dim : {0, 1, 3, 8}) {
    for (double penalty : {0.0, 0.4}) {
      Batch<float> batch({2, 150, 300, dim}, 0.0, 48);
      batch.options.step_penalty = penalty;
      batch.x_lengths = {150, 77};
      expect_options(batch, kAll);
      Batch<double> wide({2, 301, 129, dim}, 0.0, 49);
      wide.options.step_penalty = penalty;
      wide.options.band = {BandKind::kSlanted, 9, 2.0};
      expect_options(wide, kAll);
    }
  }
}

// Integers tie everywhere: the path must be the one that the rule names.
TEST_P(SoftDtw, HardDtwBreaksTiesByTheRule) {
  for (int dim : {0, 1, 6}) {
    Batch<float> batch({2, 140, 290, dim}, 0.0, 50);
    for (Tensor<float>* tensor : {&batch.x, &batch.y, &batch.cost}) {
      for (float& v : tensor->data) v = std::round(v);
    }
    const Outputs<float> got = run(batch, kEverything);
    for (int b = 0; b < 2; ++b) {
      const reference::Result expected = batch.expected(b);
      EXPECT_EQ(got.value[b], static_cast<float>(expected.value));
      for (std::size_t k = 0; k < expected.alignment.size(); ++k) {
        ASSERT_EQ(got.alignment[b * 140 * 290 + k], static_cast<float>(expected.alignment[k]));
      }
    }
  }
}

TEST_P(SoftDtw, HardDtwNanAndInfinity) {
  Batch<double> batch({3, 20, 30, 0}, 0.0, 51);
  batch.cost.at(0, 19, 29) = kInf;
  batch.cost.at(1, 5, 7) = kNan;
  batch.cost.at(2, 4, 4) = kInf;
  const Outputs<double> got = run(batch, kEverything);
  EXPECT_EQ(got.value[0], kInf);
  EXPECT_TRUE(std::isnan(got.value[1]));
  EXPECT_TRUE(std::isfinite(got.value[2]));
  EXPECT_EQ(got.alignment[2 * 600 + 4 * 30 + 4], 0.0);
  for (int k = 0; k < 600; ++k) {
    EXPECT_EQ(got.alignment[k], 0.0);
    EXPECT_TRUE(std::isnan(got.alignment[600 + k]));
  }
}

TEST_P(SoftDtw, MissingStepsMayHoldAnything) {
  for (CostKind kind : kCosts) {
    for (int dim : {1, 7}) {
      Batch<float> batch({2, 131, 97, dim}, 0.5, 52);
      batch.options.cost_kind = kind;
      batch.x_mask = every<float>(5, 2 * 131);
      batch.y_mask = every<float>(7, 2 * 97);
      const Outputs<float> expected = run(batch, kEverything);
      const Outputs<float> gradients = run(batch, kGradients);
      expect_close(batch, run(batch, kAll), kFloorOfManyTies);
      Batch<double> wide({2, 131, 97, dim}, 0.5, 52);
      wide.options = batch.options;
      wide.x_mask = batch.x_mask;
      wide.y_mask = batch.y_mask;
      expect_options(wide, kAll);
      for (int b = 0; b < 2; ++b) {
        for (int d = 0; d < dim; ++d) {
          for (int i = 0; i < 131; ++i) {
            if (batch.x_mask[b * 131 + i]) batch.x.at(b, i, d) = i % 2 ? kNan : kInf;
          }
          for (int j = 0; j < 97; ++j) {
            if (batch.y_mask[b * 97 + j]) batch.y.at(b, j, d) = kNan;
          }
        }
      }
      EXPECT_TRUE(same_bits(run(batch, kEverything), expected));
      EXPECT_TRUE(same_bits(run(batch, kGradients), gradients));
    }
  }
}

template <typename T>
void expect_subsequence(const Batch<T>& batch, Wanted wanted) {
  const Outputs<T> got = run(batch, wanted);
  expect_close(batch, got, floor_without_naive<T>());
  for (int b = 0; b < batch.shape.batch; ++b) {
    const std::vector<double> expected = batch.expected(b).end_values;
    for (int j = 0; j < batch.shape.m; ++j) {
      const T end = got.end_values[static_cast<std::size_t>(b) * batch.shape.m + j];
      if (j >= batch.m(b)) {
        ASSERT_EQ(end, static_cast<T>(kInf));
        continue;
      }
      // Relative to the sum of what was added: costs of order 1 for each of the n steps.
      ASSERT_NEAR(end, expected[j], floor_without_naive<T>().value * (std::abs(expected[j]) + batch.n(b)))
          << j;
    }
  }
}

TEST_P(SoftDtw, Subsequence) {
  int turn = 0;
  for (int n : {1, 2, 33, 129, 270}) {
    for (int m : {1, 31, 130, 300}) {
      for (double gamma : {0.0, 0.1, 1.0}) {
        if (++turn % kThinning != 0) continue;
        const int dims[] = {1, 0, 6};
        Batch<float> batch({2, n, m, dims[turn % 3]}, gamma, turn);
        batch.options.subsequence = true;
        batch.options.step_penalty = turn % 2 ? 0.3 : 0.0;
        batch.options.cost_kind = kCosts[turn % 5];
        expect_subsequence(batch, static_cast<Wanted>(turn % 3));
        if (batch.shape.dim == 1) {
          for (int dim : {1, 2, 3}) {
            Batch<float> few({2, n, m, dim}, gamma, turn);
            few.options = batch.options;
            expect_subsequence(few, kGradients);
          }
        }
        Batch<double> wide({2, n, m, dims[turn % 3]}, gamma, turn);
        wide.options = batch.options;
        if (n > 3 && m > 3) {
          wide.x_lengths = {n, n - 2};
          wide.y_lengths = {m / 2, m};
          wide.fill_padding_with_nan();
        }
        expect_subsequence(wide, kEverything);
      }
    }
  }
}

// A short query inside a long series is found where it was put.
TEST_P(SoftDtw, SubsequenceFindsTheQuery) {
  Batch<float> batch({1, 40, 500, 3}, 0.01, 60);
  batch.options.subsequence = true;
  for (int i = 0; i < 40; ++i) {
    for (int d = 0; d < 3; ++d) batch.y.at(0, 300 + i, d) = batch.x.at(0, i, d);
  }
  const Outputs<float> got = run(batch, kEverything);
  const auto best = std::min_element(got.end_values.begin(), got.end_values.end());
  EXPECT_EQ(best - got.end_values.begin(), 339);
  // Another path through a neighbour of the corner adds a cost of at least 0.1, with the share exp(-0.1 /
  // gamma).
  EXPECT_NEAR(got.alignment[300], 1.0, 5e-5);
  EXPECT_NEAR(got.alignment[39 * 500 + 339], 1.0, 5e-5);
}

TEST_P(SoftDtw, SubsequenceWithCostsBeyondFloat32AndNan) {
  Batch<float> batch({2, 50, 60, 2}, 1e-3, 61, 300.0);
  batch.options.subsequence = true;
  expect_subsequence(batch, kEverything);
  batch.x.at(1, 3, 1) = static_cast<float>(kNan);
  const Outputs<float> got = run(batch, kEverything);
  EXPECT_TRUE(std::isfinite(got.value[0]));
  EXPECT_TRUE(std::isnan(got.value[1]));
  EXPECT_TRUE(std::isnan(got.end_values[60]));
}

// log2 Z of one free step is 0, whose negation is no value that anybody expects.
template <typename T>
void expect_no_negative_zero() {
  for (const int dim : {1, 5, 9}) {
    for (const double gamma : {0.0, 1.0}) {
      Batch<T> batch({2, 1, 1, dim}, gamma, 70);
      batch.y = batch.x;
      for (const Wanted wanted : {kValue, kGradients, kEverything}) {
        const Outputs<T> got = run(batch, wanted);
        EXPECT_TRUE(same_bits(got.value, std::vector<T>(2, T(0)))) << "dim " << dim << " gamma " << gamma;
      }
      batch.options.subsequence = true;
      const Outputs<T> ends = run(batch, kValue);
      EXPECT_TRUE(same_bits(ends.value, std::vector<T>(2, T(0)))) << "subsequence of dim " << dim;
      EXPECT_TRUE(same_bits(ends.end_values, std::vector<T>(2, T(0)))) << "ends of dim " << dim;
    }
  }
}

TEST_P(SoftDtw, EqualStepsAreNoNegativeZero) {
  expect_no_negative_zero<float>();
  expect_no_negative_zero<double>();
}

WARPALIGN_FOR_EVERY(SoftDtw, all_paths);

}  // namespace
}  // namespace warpalign::test::soft_dtw
