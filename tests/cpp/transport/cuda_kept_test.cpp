// Exponentials that stay in shared memory for many iterations, on the CUDA path of sinkhorn(): layouts of
// short and of long rows, scales that leave their range, and what does not depend on them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "cuda_solves.h"

namespace warpalign::test {
namespace {

// Up to 512 columns, exponentials stay in shared memory (kept/kept_rows.cuh): rows of 1 to 32 lanes, with 8
// or 16 columns each, of teams of one and several blocks.
TEST_F(SinkhornCuda, KeptRows) {
  check_layouts<float>(
      {{5, 1}, {70, 5}, {33, 20}, {64, 64}, {20, 130}, {130, 150}, {40, 256}, {120, 257}, {150, 511}},
      "kept_rows");
}
TEST_F(SinkhornCuda, KeptRowsInFloat64) {
  check_layouts<double>({{5, 1}, {33, 20}, {64, 64}, {70, 128}, {20, 200}, {190, 256}}, "kept_rows");
}

// Longer rows of given costs (kept/long_rows.cuh): quads that no thread and that several rounds of threads
// have, fewer rows than eight, and blocks without columns of their own.
TEST_F(SinkhornCuda, LongKeptRows) {
  check_layouts<float>(
      {{20, 513}, {1, 600}, {9, 1300}, {70, 702}, {150, 1025}, {33, 2049}, {3, 6143}, {8, 6144}},
      "kept_rows");
}
TEST_F(SinkhornCuda, LongKeptRowsInFloat64) {
  check_layouts<double>({{20, 257}, {1, 300}, {33, 499}, {70, 702}, {5, 3001}}, "kept_rows");
}

// Many iterations, in which potentials take in their scales more than once, and stop where they do without
// stored exponentials.
template <class Real>
void check_many_iterations(int n, int m, bool stops) {
  const std::vector<double> cost = squares(static_cast<std::size_t>(n) * m, 41), a = weights(n, 42),
                            b = weights(m, 43);
  for (const auto updates :
       {SinkhornUpdates::kAlternating, SinkhornUpdates::kSymmetric, SinkhornUpdates::kMixed}) {
    for (const double rho : {kInf, 3.0, 0.0}) {
      SCOPED_TRACE(testing::Message()
                   << n << " x " << m << ", rho " << rho << ", updates " << static_cast<int>(updates));
      SinkhornOptions options{.epsilon = 0.05, .rho_b = rho, .updates = updates, .iterations = 60};
      expect_close<Real>(solve<Real>(cost, a, b, options, "kept_rows"),
                         detail::transport::reference::sinkhorn(cost, a, b, options), options.epsilon);
      if (!stops) continue;
      options.iterations = 2000;
      for (const double tolerance : {1e-3, 1e-2}) {  // moves of 0.0014 bits are compared in first order
        const Result found = solve<Real>(cost, a, b, options, "kept_rows", tolerance),
                     want = solve<Real>(cost, a, b, options, "block_rows", tolerance);
        EXPECT_NEAR(found.iterations, want.iterations, 1);
        EXPECT_LT(found.iterations, 2000);
        EXPECT_LE(found.error, 1.1 * tolerance);
        EXPECT_NEAR(found.value, want.value, 2e-5 * std::max(1.0, std::abs(want.value)));
      }
    }
  }
}
TEST_F(SinkhornCuda, ManyIterationsOfKeptRows) {
  check_many_iterations<float>(50, 37, true);
  check_many_iterations<float>(130, 300, false);
  check_many_iterations<double>(21, 14, true);
}
TEST_F(SinkhornCuda, ManyIterationsOfLongKeptRows) {
  check_many_iterations<float>(40, 517, true);
  check_many_iterations<float>(90, 1100, false);
  check_many_iterations<double>(21, 270, true);
}

// An offset of each row and column: rows move some hundred bits in an iteration, and sums leave the range.
void check_far_start(int n, int m, unsigned seed) {
  for (const double far : {0.1, 0.5, 2.0}) {
    for (const double rho : {kInf, 0.5}) {
      const std::vector<double> of_rows = normal(n, ++seed, far), of_columns = normal(m, seed + 1, far);
      std::vector<double> cost = squares(static_cast<std::size_t>(n) * m, seed + 2);
      for (int k = 0; k < n * m; ++k) {
        cost[k] = static_cast<double>(static_cast<float>(cost[k] + of_rows[k / m] + of_columns[k % m]));
      }
      const std::vector<double> a = weights(n, seed + 3), b = weights(m, seed + 4);
      for (const int iterations : {1, 3, 12}) {
        SCOPED_TRACE(testing::Message() << far << ", rho " << rho << ", iterations " << iterations);
        const SinkhornOptions options{.epsilon = 0.01, .rho_a = rho, .rho_b = rho, .iterations = iterations};
        const SinkhornAnswer want = detail::transport::reference::sinkhorn(cost, a, b, options);
        const Result found = solve<float>(cost, a, b, options, "kept_rows");
        const double scale = std::max({largest(want.f), largest(want.g), 1.0});
        EXPECT_LE(distance(found.f, want.f), 1e-6 * scale);
        EXPECT_LE(distance(found.g, want.g), 1e-6 * scale);
      }
    }
  }
}
TEST_F(SinkhornCuda, KeptRowsFromAFarStart) {
  check_far_start(40, 70, 300);
  check_far_start(40, 530, 400);
}

// 1/15 and 1/41 are rounded in float32. Masses that differ by 9e-8 would move potentials by 2.7e-4 epsilon in
// 3000 iterations. So weights that nobody gives are equal exactly, and given ones have the masses they have.
void check_drift(int n, int m) {
  const std::vector<double> cost = squares(static_cast<std::size_t>(n) * m, 61);
  Execution execution = Execution::cuda(0, nullptr);
  execution.way = "kept_rows";
  for (const auto reference : {TransportReference::kProduct, TransportReference::kCounting}) {
    for (const bool given : {false, true}) {
      SCOPED_TRACE(testing::Message()
                   << (given ? "given" : "equal") << ", reference " << static_cast<int>(reference));
      std::vector<double> a(n, 1.0 / n), b(m, 1.0 / m);
      if (given) {
        for (std::vector<double>* const v : {&a, &b}) {
          for (double& w : *v) w = static_cast<double>(static_cast<float>(w));
        }
      }
      const SinkhornOptions options{.epsilon = 1, .reference = reference, .iterations = 3000};
      const SinkhornAnswer want = detail::transport::reference::sinkhorn(cost, a, b, options);
      const Result found = solve_on<float, DeviceBuffer>(cost, a, b, options, 0, execution, given);
      EXPECT_LE(distance(found.f, want.f), 1e-5);
      EXPECT_LE(distance(found.g, want.g), 1e-5);
    }
  }
}
TEST_F(SinkhornCuda, PotentialsOfKeptRowsDoNotDrift) {
  check_drift(15, 41);
  check_drift(15, 523);
}

// A row and a column without a finite cost, and weights of 0, with both references.
template <int kN, int kM>
void check_rows_without_finite_costs(double most_of_value) {
  std::vector<double> cost = squares(kN * kM, 51), a = weights(kN, 52), b = weights(kM, 53);
  for (int j = 0; j < kM; ++j) cost[7 * kM + j] = kInf;
  for (int i = 0; i < kN; ++i) cost[i * kM + 11] = kInf;
  a[8] += a[7] + a[3], b[12] += b[11] + b[5];
  a[7] = b[11] = a[3] = b[5] = 0;
  for (const auto reference : {TransportReference::kProduct, TransportReference::kCounting}) {
    const SinkhornOptions options{.epsilon = 0.3, .reference = reference, .iterations = 12};
    const Result want = solve<double>(cost, a, b, options, "block_rows");
    const Result found = solve<float>(cost, a, b, options, "kept_rows");
    ASSERT_TRUE(found.status.ok());
    EXPECT_TRUE(std::isfinite(want.value));
    for (int k = 0; k < kN * kM; ++k) ASSERT_NEAR(found.grad_cost[k], want.grad_cost[k], 1e-6) << k;
    for (int i = 0; i < kN; ++i) EXPECT_EQ(std::isinf(found.f[i]), std::isinf(want.f[i])) << i;
    EXPECT_NEAR(found.value, want.value, most_of_value);
  }
}
TEST_F(SinkhornCuda, KeptRowsWithoutFiniteCosts) {
  check_rows_without_finite_costs<20, 30>(1e-5);
  check_rows_without_finite_costs<20, 530>(3200 * 0x1p-24);  // a value of 3178 in float32
}

}  // namespace
}  // namespace warpalign::test
