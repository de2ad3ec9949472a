// Bands: which cells they hold, and every path within them.
#include "soft_dtw/band.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "fixture.h"

namespace warpalign::test::soft_dtw {
namespace {

using detail::soft_dtw::band_columns;
using detail::soft_dtw::band_holds_path;
using detail::soft_dtw::band_rows;
using detail::soft_dtw::IndexRange;

const BandKind kKinds[] = {BandKind::kSakoeChiba, BandKind::kAbsolute, BandKind::kSlanted,
                           BandKind::kItakura};

std::vector<Band> bands_of(BandKind kind, const std::vector<int>& radii) {
  std::vector<Band> bands;
  if (kind == BandKind::kItakura) {
    for (double slope : {1.0, 1.3, 2.0, 5.0}) bands.push_back({kind, 0, slope});
  } else {
    for (int radius : radii) bands.push_back({kind, radius, 2.0});
  }
  return bands;
}

// Whether a path exists, by reachability over the reference's cells.
bool reachable(const Band& band, int n, int m) {
  std::vector<char> reached(static_cast<std::size_t>(n) * m);
  const auto at = [&](int i, int j) { return i >= 0 && j >= 0 && reached[i * m + j]; };
  for (int i = 0; i < n; ++i) {
    for (int j = 0; j < m; ++j) {
      const bool entered = (i == 0 && j == 0) || at(i - 1, j) || at(i, j - 1) || at(i - 1, j - 1);
      reached[i * m + j] = entered && reference::in_band(band, i, j, n, m);
    }
  }
  return reached.back();
}

TEST(Band, ColumnsAreTheDefinitions) {
  const int most = 24;
  for (BandKind kind : kKinds) {
    for (const Band& band : bands_of(kind, {0, 1, 2, 7, 2147483647})) {
      for (int n = 1; n <= most; ++n) {
        for (int m = 1; m <= most; ++m) {
          SCOPED_TRACE(::testing::Message() << "kind " << static_cast<int>(kind) << " radius " << band.radius
                                            << " slope " << band.max_slope << " " << n << "x" << m);
          IndexRange before{0, 0};
          for (int i = 0; i < n; ++i) {
            const IndexRange row = band_columns(band, i, n, m);
            for (int j = 0; j < m; ++j) {
              ASSERT_EQ(row.begin <= j && j < row.end, reference::in_band(band, i, j, n, m)) << i << " " << j;
            }
            ASSERT_GE(row.begin, before.begin);
            ASSERT_GE(row.end, before.end);
            before = row;
          }
          for (int j = 0; j < m; ++j) {
            const IndexRange column = band_rows(band, j, n, m);
            for (int i = 0; i < n; ++i)
              ASSERT_EQ(column.begin <= i && i < column.end, reference::in_band(band, i, j, n, m))
                  << i << " " << j;
          }
          ASSERT_EQ(band_holds_path(band, n, m), reachable(band, n, m));
        }
      }
    }
  }
}

TEST(Band, LongSeriesDoNotOverflow) {
  const int n = 2000000000, m = 2147483647;
  const IndexRange slanted = band_columns({BandKind::kSlanted, 3, 2.0}, n - 1, n, m);
  EXPECT_EQ(slanted.end, m);
  EXPECT_EQ(slanted.begin, m - 1 - 3);  // 3 max(n-1, m-1) / (n-1) = 3.2
  const IndexRange all = band_columns({BandKind::kSlanted, m, 2.0}, 5, n, m);
  EXPECT_EQ(all.begin, 0);
  EXPECT_EQ(all.end, m);
}

TEST(Band, SakoeChibaAndWideSlantsAlwaysHoldAPath) {
  for (int n : {1, 2, 3, 50}) {
    for (int m : {1, 2, 7, 90}) {
      EXPECT_TRUE(band_holds_path({BandKind::kSakoeChiba, 0, 2.0}, n, m));
      EXPECT_TRUE(band_holds_path({BandKind::kSlanted, 1, 2.0}, n, m));
      EXPECT_EQ(band_holds_path({BandKind::kAbsolute, 5, 2.0}, n, m), std::abs(n - m) <= 5);
    }
  }
}

template <typename T>
void band_grid(int turn) {
  const int dims[] = {1, 3, 0, 8};
  for (BandKind kind : kKinds) {
    for (const Band& band : bands_of(kind, {0, 1, 5, 40, 1000})) {
      for (int n : {1, 2, 33, 130, 257, 300}) {
        for (int m : {1, 31, 129, 256, 300}) {
          if (!band_holds_path(band, n, m)) continue;
          if (++turn % kThinning != 0) continue;
          const int dim = dims[turn % 4];
          Batch<T> batch({1 + turn % 2, n, m, dim}, turn % 3 == 0 ? 0.1 : 1.0, turn);
          batch.options.band = band;
          check(batch, dim == 0 ? kEverything : static_cast<Wanted>(turn / 4 % 3));
        }
      }
    }
  }
}

TEST_P(SoftDtw, BandGridFloat32) { band_grid<float>(0); }
TEST_P(SoftDtw, BandGridFloat64) { band_grid<double>(1); }

TEST_P(SoftDtw, BandOfEachPairsOwnLengths) {
  for (BandKind kind : kKinds) {
    Batch<float> batch({4, 300, 280, 2}, 0.5, 31);
    batch.x_lengths = {300, 61, 1, 150};
    batch.y_lengths = {280, 70, 20, 149};
    if (kind == BandKind::kItakura) batch.x_lengths[2] = batch.y_lengths[2] = 5;
    batch.options.band = {kind, 20, 1.5};
    batch.fill_padding_with_nan();
    check(batch);
    check(batch, kGradients);
  }
}

TEST_P(SoftDtw, NothingOutsideTheBand) {
  for (BandKind kind : kKinds) {
    Batch<float> batch({1, 290, 400, 0}, 1.0, 32);
    batch.options.band = {kind, kind == BandKind::kAbsolute ? 120 : 9, 1.6};
    for (int i = 0; i < 290; ++i) {
      for (int j = 0; j < 400; ++j) {
        // What is not computed cannot do any harm.
        if (!reference::in_band(batch.options.band, i, j, 290, 400)) batch.cost.at(0, i, j) = kNan;
      }
    }
    const Outputs<float> got = run(batch, kEverything);
    EXPECT_TRUE(std::isfinite(got.value[0]));
    for (int i = 0; i < 290; ++i) {
      for (int j = 0; j < 400; ++j) {
        const float e = got.alignment[i * 400 + j];
        if (!reference::in_band(batch.options.band, i, j, 290, 400)) {
          ASSERT_EQ(e, 0.0f) << i << " " << j;
        }
      }
    }
    EXPECT_NEAR(got.alignment.front(), 1.0, kUnitTolerance);
  }
}

TEST_P(SoftDtw, AWideBandIsNone) {
  for (int dim : {1, 6}) {
    const Batch<float> plain({2, 270, 300, dim}, 0.3, 33);
    Batch<float> wide = plain;
    for (BandKind kind : {BandKind::kSakoeChiba, BandKind::kAbsolute, BandKind::kSlanted}) {
      wide.options.band = {kind, 300, 2.0};
      EXPECT_TRUE(same_bits(run(wide, kEverything), run(plain, kEverything)));
      EXPECT_TRUE(same_bits(run(wide, kGradients), run(plain, kGradients)));
    }
  }
}

TEST_P(SoftDtw, RadiusZeroIsTheDiagonal) {
  Batch<double> batch({1, 400, 400, 1}, 1.0, 34);
  batch.options.band = {BandKind::kSakoeChiba, 0, 2.0};
  const Outputs<double> got = run(batch, kEverything);
  double sum = 0;
  for (int i = 0; i < 400; ++i) {
    sum += std::pow(batch.x.at(0, i, 0) - batch.y.at(0, i, 0), 2);
    EXPECT_EQ(got.alignment[i * 400 + i], 1.0);
  }
  EXPECT_NEAR(got.value[0], sum, 400 * 2.2e-16 * sum);  // one rounding per step
}

TEST_P(SoftDtw, BandWithCostsBeyondFloat32) {
  for (int dim : {0, 2, 7}) {
    Batch<float> batch({2, 200, 190, dim}, 1e-3, 35, 300.0);
    batch.options.band = {BandKind::kSakoeChiba, 12, 2.0};
    check(batch);
    if (dim > 0) check(batch, kGradients);
  }
}

// Differences outside the band that float32 cannot hold: 0 times them is still 0.
TEST_P(SoftDtw, InfiniteDifferencesOutsideTheBand) {
  for (int dim : {1, 6}) {
    Batch<float> batch({1, 90, 90, dim}, 1.0, 37);
    for (int i = 0; i < 90; ++i) {
      for (int d = 0; d < dim; ++d) batch.x.at(0, i, d) = batch.y.at(0, i, d) = (i - 44.5f) * 7e36f;
    }
    batch.options.band = {BandKind::kSakoeChiba, 0, 2.0};
    const Outputs<float> got = run(batch, kGradients);
    EXPECT_EQ(got.value[0], 0.0f);
    for (std::size_t k = 0; k < got.grad_x.size(); ++k) {
      ASSERT_EQ(got.grad_x[k], 0.0f) << dim << " " << k;
      ASSERT_EQ(got.grad_y[k], 0.0f) << dim << " " << k;
    }
  }
}

TEST_P(SoftDtw, TheValueOfABandNeedsNoGradient) {
  for (int dim : {1, 8}) {
    Batch<float> batch({1, 500, 431, dim}, 0.5, 36);
    for (int radius : {0, 3, 100}) {
      batch.options.band = {BandKind::kSlanted, radius + 1, 2.0};
      EXPECT_TRUE(same_bits(run(batch, kValue).value, run(batch, kGradients).value));
    }
  }
}

WARPALIGN_FOR_EVERY(SoftDtw, all_paths);

}  // namespace
}  // namespace warpalign::test::soft_dtw
