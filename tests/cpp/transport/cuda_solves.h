// Solves on given costs on the CUDA path, and their check against the float64 reference, for the tests of its
// ways.
#pragma once

#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "device_buffer.h"
#include "testing.h"

namespace warpalign::test {

class SinkhornCuda : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!has_gpu()) GTEST_SKIP() << "no GPU";
  }
};

inline std::vector<double> squares(std::size_t count, unsigned seed) {
  std::vector<double> cost = normal(count, seed);
  for (double& c : cost) c = c * c;
  return cost;
}

template <class Real>
Result solve(const std::vector<double>& cost, const std::vector<double>& a, const std::vector<double>& b,
             const SinkhornOptions& options, const char* way = nullptr, double tolerance = 0) {
  Execution execution = Execution::cuda(0, nullptr);
  execution.way = way;
  return solve_on<Real, DeviceBuffer>(cost, a, b, options, tolerance, execution);
}

template <class Real>
void check_layouts(const std::vector<std::pair<int, int>>& shapes, const char* way = nullptr) {
  unsigned seed = 100;
  for (const auto& [n, m] : shapes) {
    for (int kind = 0; kind < 4; ++kind) {
      SCOPED_TRACE(testing::Message() << n << " x " << m << ", kind " << kind);
      SinkhornOptions options{.epsilon = 0.5, .iterations = 4};
      if (kind == 1)
        options.rho_a = 0.7, options.rho_b = 2, options.reference = TransportReference::kCounting;
      if (kind == 2) options.mass = 0.6;
      if (kind == 3) options.updates = SinkhornUpdates::kSymmetric;
      const std::vector<double> cost = squares(static_cast<std::size_t>(n) * m, ++seed);
      const std::vector<double> a = weights(n, seed + 1), b = weights(m, seed + 2);
      const Result r = solve<Real>(cost, a, b, options, way);
      expect_close<Real>(r, detail::transport::reference::sinkhorn(cost, a, b, options), options.epsilon);
      const Result again = solve<Real>(cost, a, b, options, way);
      EXPECT_TRUE(same_bits(r.f, again.f) && same_bits(r.grad_cost, again.grad_cost));
    }
  }
}

}  // namespace warpalign::test
