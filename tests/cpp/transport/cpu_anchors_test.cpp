// The largest differences of points on a CPU, against their definition, and the refusals of their contract.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "testing.h"
#include "warpalign/gromov_anchors.h"
#include "warpalign/thread_pool.h"

namespace warpalign::test {
namespace {

template <class Real>
std::vector<Real> differences_of(const std::vector<Real>& x, const std::vector<Real>& y, int dim,
                                 const Execution& execution) {
  LargestDifferences p;
  p.dtype = kDType<Real>;
  p.n = static_cast<std::int32_t>(x.size() / dim);
  p.m = static_cast<std::int32_t>(y.size() / dim);
  p.dim = dim;
  p.x = x.data();
  p.y = y.data();
  std::vector<Real> distances(static_cast<std::size_t>(p.n) * p.m);
  p.distances = distances.data();
  const std::size_t bytes = largest_differences_workspace_bytes(p, execution);
  const HostBuffer workspace(bytes);
  const Status status = largest_differences(p, {workspace.data(), bytes}, execution);
  EXPECT_TRUE(status.ok()) << to_string(status);
  return distances;
}

template <class Real>
void expect_the_definition() {
  for (const auto& [n, m, dim] : {std::array{1, 1, 1}, {3, 17, 50}, {4, 32, 2}, {67, 33, 9}, {300, 301, 5}}) {
    SCOPED_TRACE(testing::Message() << n << " x " << m << ", D " << dim);
    std::vector<Real> x = as<Real>(normal(n * dim, 1)), y = as<Real>(normal(m * dim, 2));
    if (n > 1) x[dim] = std::numeric_limits<Real>::quiet_NaN();  // row 1 has no distance
    std::copy_n(x.begin(), dim, y.end() - dim);                  // a point and itself
    if (m > 1) y[0] = std::numeric_limits<Real>::infinity();
    std::vector<Real> want(static_cast<std::size_t>(n) * m);
    for (int i = 0; i < n; ++i) {
      for (int j = 0; j < m; ++j) {
        Real top = 0;
        for (int d = 0; d < dim; ++d) {
          const Real size = std::abs(x[i * dim + d] - y[j * dim + d]);
          top = std::isnan(size) || size > top ? size : top;
          if (std::isnan(top)) break;
        }
        want[static_cast<std::size_t>(i) * m + j] = top;
      }
    }
    for (const int threads : {1, 2, 5}) {
      ThreadPool pool(threads);
      const std::vector<Real> got = differences_of(x, y, dim, Execution::host(pool.parallel_for()));
      for (std::size_t k = 0; k < want.size(); ++k) {
        ASSERT_FALSE(std::signbit(got[k]) && got[k] == 0) << k;
        ASSERT_TRUE(got[k] == want[k] || (std::isnan(got[k]) && std::isnan(want[k]))) << k;
      }
    }
  }
}

TEST(LargestDifferences, Float32IsTheDefinition) { expect_the_definition<float>(); }
TEST(LargestDifferences, Float64IsTheDefinition) { expect_the_definition<double>(); }

TEST(LargestDifferences, EmptySetsHaveNone) {
  EXPECT_TRUE(differences_of<float>({}, {1, 2}, 2, Execution::host()).empty());
  EXPECT_TRUE(differences_of<float>({1, 2}, {}, 2, Execution::host()).empty());
}

TEST(LargestDifferences, WhatIsRefused) {
  const std::vector<float> points(12);
  std::vector<float> distances(9);
  LargestDifferences good;
  good.n = good.m = 3;
  good.dim = 4;
  good.x = good.y = points.data();
  good.distances = distances.data();
  const std::size_t bytes = largest_differences_workspace_bytes(good, Execution::host());
  const HostBuffer workspace(bytes);
  const auto argument = [&](auto change, std::size_t given, const Execution& execution) {
    LargestDifferences p = good;
    change(p);
    return std::string(largest_differences(p, {workspace.data(), given}, execution).argument);
  };
  const Execution host = Execution::host();
  const auto same = [](LargestDifferences&) {};
  EXPECT_TRUE(largest_differences(good, {workspace.data(), bytes}, host).ok());
  EXPECT_EQ(argument(same, bytes, Execution::cuda(0, nullptr)), "execution");
  EXPECT_EQ(argument(same, bytes - 1, host), "workspace");
  EXPECT_EQ(argument([](auto& p) { p.dtype = DType::kFloat16; }, bytes, host), "dtype");
  EXPECT_EQ(argument([](auto& p) { p.n = -1; }, bytes, host), "n");
  EXPECT_EQ(argument([](auto& p) { p.m = (1 << 29) + 1; }, bytes, host), "m");
  EXPECT_EQ(argument([](auto& p) { p.dim = 0; }, bytes, host), "dim");
  EXPECT_EQ(argument([](auto& p) { p.x = nullptr; }, bytes, host), "x");
  EXPECT_EQ(argument([](auto& p) { p.distances = nullptr; }, bytes, host), "distances");
}

}  // namespace
}  // namespace warpalign::test
