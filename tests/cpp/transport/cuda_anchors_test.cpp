// Draws from a plan's rows and coordinates by anchors on CUDA, against their definitions.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "core/half.h"
#include "device_buffer.h"
#include "testing.h"
#include "warpalign/gromov_anchors.h"

namespace warpalign::test {
namespace {

class TransportAnchorsCuda : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!has_gpu()) GTEST_SKIP() << "no GPU";
  }
};

const Execution kCuda = Execution::cuda(0, nullptr);

std::vector<std::int64_t> drawn(const std::vector<float>& x, const std::vector<float>& y,
                                const std::vector<float>& g, const std::vector<float>& b, int dim,
                                const std::vector<std::int64_t>& rows, std::uint64_t seed) {
  const DeviceBuffer x_data(x), y_data(y), g_data(g), b_data(b), row_data(rows),
      columns(rows.size() * sizeof(std::int64_t));
  AnchorColumns p;
  p.n = static_cast<int>(x.size()) / dim;
  p.m = static_cast<int>(y.size()) / dim;
  p.dim = dim;
  p.count = static_cast<int>(rows.size());
  p.x = x_data.data();
  p.y = y_data.data();
  p.g = g_data.data();
  p.b = b.empty() ? nullptr : b_data.data();
  p.rows = static_cast<const std::int64_t*>(row_data.data());
  p.cost_scale = 0.3;
  p.epsilon = 0.8;
  p.seed = seed;
  p.columns = static_cast<std::int64_t*>(columns.data());
  const std::size_t bytes = anchor_columns_workspace_bytes(p);
  const DeviceBuffer workspace(bytes);
  const Status status = anchor_columns(p, {workspace.data(), bytes}, kCuda);
  EXPECT_TRUE(status.ok()) << to_string(status);
  return columns.read<std::int64_t>(rows.size());
}

// Many draws from a row: how often each column comes is the row's share of it.
TEST_F(TransportAnchorsCuda, ColumnsComeAsOftenAsThePlanSays) {
  for (const int dim : {1, 37}) {
    constexpr int kM = 45, kDraws = 600;
    const std::vector<float> x = as<float>(normal(3 * dim, 1, 0.4)), y = as<float>(normal(kM * dim, 2, 0.4)),
                             g = as<float>(normal(kM, 3, 0.5));
    std::vector<float> b = as<float>(weights(kM, 4));
    b[7] = 0;
    const std::vector<std::int64_t> rows(kDraws, 1);
    std::vector<double> share(kM), count(kM);
    double sum = 0;
    for (int j = 0; j < kM; ++j) {
      double square = 0;
      for (int d = 0; d < dim; ++d) square += std::pow(x[dim + d] - y[j * dim + d], 2);
      sum += share[j] = b[j] * std::exp((g[j] - 0.3 * square) / 0.8);
    }
    for (const std::int64_t j : drawn(x, y, g, b, dim, rows, 5)) {
      ASSERT_TRUE(j >= 0 && j < kM);
      ++count[j];
    }
    double chi_square = 0;
    for (int j = 0; j < kM; ++j) {
      const double expected = kDraws * share[j] / sum;
      if (expected > 0) chi_square += std::pow(count[j] - expected, 2) / expected;
    }
    EXPECT_EQ(count[7], 0);
    // 43 degrees of freedom: 43 on average, with a deviation of 9.
    EXPECT_LT(chi_square, 110) << "dim " << dim;
    EXPECT_GT(chi_square, 15) << "dim " << dim;
  }
}

TEST_F(TransportAnchorsCuda, SeveralPartsOfARow) {
  constexpr int kM = 2100;
  std::vector<float> y(kM, 100), g(kM, 0);
  const std::vector<float> x = {0, 100};
  for (const int j : {0, 1023, 1100, 2099}) {
    std::vector<float> near = y;
    near[j] = 0;
    EXPECT_EQ(drawn(x, near, g, {}, 1, {0}, 3), std::vector<std::int64_t>{j});
  }
  const std::vector<std::int64_t> rows = {1, 1, 0, 5, -1}, one = drawn(x, y, g, {}, 1, rows, 4);
  EXPECT_EQ(one, drawn(x, y, g, {}, 1, rows, 4));
  EXPECT_NE(one, drawn(x, y, g, {}, 1, rows, 6));
  EXPECT_EQ(drawn(x, y, std::vector<float>(kM, static_cast<float>(kNan)), {}, 1, {0}, 3),
            std::vector<std::int64_t>{0});
}

TEST_F(TransportAnchorsCuda, CoordinatesAreDistancesOnAGrid) {
  for (const auto& [n, dim, count] : {std::tuple{1, 1, 1}, {33, 50, 31}, {70, 33, 80}, {31, 2, 33}}) {
    for (const AnchorDistance distance : {AnchorDistance::kLargestDifference, AnchorDistance::kEuclidean,
                                          AnchorDistance::kSquaredEuclidean}) {
      const std::vector<double> points = normal(static_cast<std::size_t>(n) * dim, 1);
      std::vector<std::int64_t> anchors(count);
      for (int s = 0; s < count; ++s) anchors[s] = s * 7 % n;
      const DeviceBuffer point_data(as<float>(points)), anchor_data(anchors), unit(std::vector<float>{4}),
          found(static_cast<std::size_t>(n) * count * sizeof(float));
      AnchorCoordinates p;
      p.n = n;
      p.dim = dim;
      p.count = count;
      p.distance = distance;
      p.points = point_data.data();
      p.anchors = static_cast<const std::int64_t*>(anchor_data.data());
      p.unit = unit.data();
      p.coordinates = found.data();
      ASSERT_TRUE(anchor_coordinates(p, kCuda).ok());
      const std::vector<float> got = found.read<float>(static_cast<std::size_t>(n) * count);
      for (int i = 0; i < n; ++i) {
        for (int s = 0; s < count; ++s) {
          double largest = 0, square = 0;
          for (int d = 0; d < dim; ++d) {
            const double difference = points[i * dim + d] - points[anchors[s] * dim + d];
            largest = std::max(largest, std::abs(difference));
            square += difference * difference;
          }
          const double want = (distance == AnchorDistance::kLargestDifference ? largest
                               : distance == AnchorDistance::kEuclidean       ? std::sqrt(square)
                                                                              : square) /
                                  4 -
                              0.5;
          const float v = got[i * count + s];
          ASSERT_NEAR(v, want, 5e-4 * std::abs(want) + 1e-6);
          ASSERT_EQ(v, static_cast<float>(detail::Float16::rounded(v)));
        }
      }
    }
  }
}

TEST_F(TransportAnchorsCuda, Refusals) {
  AnchorColumns p;
  EXPECT_STREQ(anchor_columns(p, {}, Execution::host()).argument, "execution");
  EXPECT_STREQ(anchor_columns(p, {}, kCuda).argument, "n");
  p.n = p.m = 5;
  EXPECT_STREQ(anchor_columns(p, {}, kCuda).argument, "dim");
  p.dim = 129;
  EXPECT_STREQ(anchor_columns(p, {}, kCuda).argument, "dim");
  p.dim = 3;
  p.epsilon = 0;
  EXPECT_STREQ(anchor_columns(p, {}, kCuda).argument, "epsilon");
  p.epsilon = 1;
  EXPECT_TRUE(anchor_columns(p, {}, kCuda).ok());
  p.count = 1;
  EXPECT_STREQ(anchor_columns(p, {}, kCuda).argument, "x");
  AnchorCoordinates c;
  EXPECT_STREQ(anchor_coordinates(c, kCuda).argument, "n");
  c.n = c.dim = c.count = 1;
  c.distance = static_cast<AnchorDistance>(3);
  EXPECT_STREQ(anchor_coordinates(c, kCuda).argument, "distance");
  c.distance = AnchorDistance::kEuclidean;
  EXPECT_STREQ(anchor_coordinates(c, kCuda).argument, "points");
}

}  // namespace
}  // namespace warpalign::test
