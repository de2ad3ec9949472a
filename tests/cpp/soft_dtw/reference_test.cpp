// The float64 reference itself: against all paths counted out, against central differences, and by hand.
#include "soft_dtw/reference.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace warpalign::detail::soft_dtw::reference {
namespace {

std::vector<double> normal(std::size_t count, unsigned seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<double> distribution;
  std::vector<double> out(count);
  for (double& v : out) v = distribution(generator);
  return out;
}

// The definition without any recursion over R: value = -gamma log(sum over paths of exp(-cost / gamma)), and
// E[i,j] is the share of the paths through (i, j).
struct AllPaths {
  const std::vector<double>& cost;
  int n, m;
  double gamma;
  int paths = 0;
  double total = 0, cheapest = std::numeric_limits<double>::infinity();
  std::vector<double> through = std::vector<double>(cost.size(), 0.0);
  std::vector<int> path = {};

  void walk(int i, int j, double sum) {
    if (i >= n || j >= m) return;
    const int cell = i * m + j;
    sum += cost[cell];
    path.push_back(cell);
    if (i == n - 1 && j == m - 1) {
      const double weight = std::exp(-sum / gamma);
      ++paths;
      total += weight;
      cheapest = std::min(cheapest, sum);
      for (int visited : path) through[visited] += weight;
    }
    walk(i + 1, j, sum);
    walk(i, j + 1, sum);
    walk(i + 1, j + 1, sum);
    path.pop_back();
  }
};

TEST(Reference, IsTheSumOverAllPaths) {
  unsigned seed = 0;
  for (int n = 1; n <= 5; ++n) {
    for (int m = 1; m <= 5; ++m) {
      for (double gamma : {0.1, 1.0, 20.0}) {
        const std::vector<double> cost = normal(n * m, ++seed);
        AllPaths all{cost, n, m, gamma};
        all.walk(0, 0, 0.0);
        const Result got = soft_dtw_from_cost(cost, n, m, gamma);
        EXPECT_NEAR(got.value, -gamma * std::log(all.total), 1e-12 * (1 + std::abs(got.value)));
        for (int k = 0; k < n * m; ++k) EXPECT_NEAR(got.alignment[k], all.through[k] / all.total, 1e-12);
        EXPECT_NEAR(dtw(cost, n, m), all.cheapest, 1e-12);
        if (n == 4 && m == 4) {  // Delannoy number D(3, 3)
          EXPECT_EQ(all.paths, 63);
        }
      }
    }
  }
}

TEST(Reference, ByHand) {
  // 2 x 2, all costs 1: two paths of three cells, one of two.
  const Result got = soft_dtw_from_cost({1, 1, 1, 1}, 2, 2, 1.0);
  EXPECT_NEAR(got.value, -std::log(2 * std::exp(-3.0) + std::exp(-2.0)), 1e-15);
  // 1 x 3: the only path takes all.
  const Result row = soft_dtw({1}, {1, 2, 4}, 1, 3, 1, 0.5);
  EXPECT_DOUBLE_EQ(row.value, 0 + 1 + 9);
  EXPECT_EQ(row.alignment, (std::vector<double>{1, 1, 1}));
  EXPECT_EQ(row.grad_x, (std::vector<double>{2 * (0 - 1 - 3)}));
  EXPECT_EQ(row.grad_y, (std::vector<double>{0, 2, 6}));
}

TEST(Reference, AlignmentIsTheCentralDifferenceByCost) {
  for (double gamma : {0.1, 1.0, 10.0}) {
    std::vector<double> cost = normal(7 * 9, 50);
    const Result got = soft_dtw_from_cost(cost, 7, 9, gamma);
    constexpr double kStep = 1e-5;
    for (std::size_t k = 0; k < cost.size(); ++k) {
      const double before = cost[k];
      cost[k] = before + kStep;
      const double above = soft_dtw_from_cost(cost, 7, 9, gamma).value;
      cost[k] = before - kStep;
      const double below = soft_dtw_from_cost(cost, 7, 9, gamma).value;
      cost[k] = before;
      EXPECT_NEAR(got.alignment[k], (above - below) / (2 * kStep), 1e-7);
    }
  }
}

TEST(Reference, GradientsAreCentralDifferences) {
  const int n = 8, m = 6, dim = 3;
  for (double gamma : {0.2, 5.0}) {
    std::vector<double> x = normal(n * dim, 60), y = normal(m * dim, 61);
    const Result got = soft_dtw(x, y, n, m, dim, gamma);
    const auto slope = [&](double& element) {
      constexpr double kStep = 1e-5;
      const double before = element;
      element = before + kStep;
      const double above = soft_dtw(x, y, n, m, dim, gamma).value;
      element = before - kStep;
      const double below = soft_dtw(x, y, n, m, dim, gamma).value;
      element = before;
      return (above - below) / (2 * kStep);
    };
    for (int k = 0; k < n * dim; ++k) EXPECT_NEAR(got.grad_x[k], slope(x[k]), 1e-7);
    for (int k = 0; k < m * dim; ++k) EXPECT_NEAR(got.grad_y[k], slope(y[k]), 1e-7);
  }
}

TEST(Reference, NanAndInfinity) {
  const double nan = std::numeric_limits<double>::quiet_NaN(), inf = std::numeric_limits<double>::infinity();
  const Result sick = soft_dtw_from_cost({1, nan, 1, 1}, 2, 2, 1.0);
  EXPECT_TRUE(std::isnan(sick.value));
  for (double e : sick.alignment) EXPECT_TRUE(std::isnan(e));
  const Result blocked = soft_dtw_from_cost({1, 1, 1, inf}, 2, 2, 1.0);
  EXPECT_EQ(blocked.value, inf);
  for (double e : blocked.alignment) EXPECT_EQ(e, 0.0);
  const Result around = soft_dtw_from_cost({1, inf, 1, 1}, 2, 2, 1.0);
  EXPECT_NEAR(around.value, -std::log(std::exp(-3.0) + std::exp(-2.0)), 1e-15);
  EXPECT_EQ(around.alignment[1], 0.0);
}

}  // namespace
}  // namespace warpalign::detail::soft_dtw::reference
