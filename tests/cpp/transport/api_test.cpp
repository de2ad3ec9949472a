// What sinkhorn() refuses on a CPU: problems that no plan can solve.
#include <gtest/gtest.h>

#include <string>

#include "testing.h"

namespace warpalign::test {
namespace {

const std::vector<double> kCost = normal(12, 1);
const std::vector<double> kA(3, 1.0 / 3), kB(4, 0.25);

template <class Real = float>
Result solve(const std::vector<double>& a, const std::vector<double>& b, const SinkhornOptions& options) {
  return solve_on<Real, HostBuffer>(kCost, a, b, options, 1e-5, Execution::host());
}
std::vector<double> times(double factor, std::vector<double> v) {
  for (double& x : v) x *= factor;
  return v;
}

TEST(SinkhornContract, BalancedWeightsOfOtherSumsAreRefused) {
  EXPECT_EQ(to_string(solve(std::vector<double>(3, 1), kB, {}).status),
            "a: expected the sum of b (write a / a.sum(), or give rho_a or rho_b), got 3 at index 0");
  EXPECT_EQ(to_string(solve(kA, std::vector<double>(4, 1), {}).status),
            "b: expected the sum of a (write b / b.sum(), or give rho_a or rho_b), got 4 at index 0");
  EXPECT_FALSE(solve<double>(times(1.001, kA), kB, {}).status.ok());
}

TEST(SinkhornContract, SumsMayDifferByRounding) {
  EXPECT_TRUE(solve(times(1 + 5e-5, kA), kB, {}).status.ok());
  EXPECT_TRUE(solve<double>(times(1 + 1e-7, kA), kB, {}).status.ok());
  // What unif(30) gives in float32.
  const std::vector<double> cost(60, 1.0), thirty(30, static_cast<double>(1.0F / 30)), two(2, 0.5);
  EXPECT_TRUE((solve_on<float, HostBuffer>(cost, thirty, two, {}, 1e-5, Execution::host()).status.ok()));
}

TEST(SinkhornContract, OtherKindsOfTransportTakeAnySums) {
  const std::vector<double> a = times(2, kA);
  EXPECT_TRUE(solve(a, kB, {.rho_a = 1}).status.ok());
  EXPECT_TRUE(solve(a, kB, {.rho_b = 0}).status.ok());
  EXPECT_TRUE(solve(a, kB, {.mass = 0.5}).status.ok());
  EXPECT_EQ(to_string(solve(a, kB, {.mass = 1.5}).status),
            "mass: expected at most the smaller sum of weights, got 1.5 at index 0");
}

}  // namespace
}  // namespace warpalign::test
