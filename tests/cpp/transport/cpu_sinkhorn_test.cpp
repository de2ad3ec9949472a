// sinkhorn() on a CPU: what no number of threads changes.
#include <gtest/gtest.h>

#include <cmath>

#include "testing.h"
#include "warpalign/thread_pool.h"

namespace warpalign::test {
namespace {

Result solve(const std::vector<double>& cost, const std::vector<double>& a, const std::vector<double>& b,
             const SinkhornOptions& options, const Execution& execution) {
  return solve_on<float, HostBuffer>(cost, a, b, options, 0, execution);
}

TEST(SinkhornCpu, TheSameBitsForAnyNumberOfThreads) {
  std::vector<double> cost = normal(300 * 400, 18);
  for (double& c : cost) c = c * c;
  const std::vector<double> a = weights(300, 19), b = weights(400, 20);
  const SinkhornOptions options{.epsilon = 0.1, .iterations = 30};
  const Result one = solve(cost, a, b, options, Execution::host());
  for (const int threads : {2, 3, 5}) {
    ThreadPool pool(threads);
    const Result many = solve(cost, a, b, options, Execution::host(pool.parallel_for()));
    EXPECT_TRUE(same_bits(one.grad_cost, many.grad_cost));
    EXPECT_TRUE(same_bits(one.f, many.f));
    EXPECT_EQ(one.value, many.value);
  }
}

}  // namespace
}  // namespace warpalign::test
