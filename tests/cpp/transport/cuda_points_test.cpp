// sinkhorn() on points with products on the matrix units: the precisions, packed widths, and what cannot be
// packed.
//
// Coordinates of the exact tests are multiples of 1/64 below 8 in magnitude, and y = -x, so that the centre
// is 0: binary16 has them exactly, and every precision must be as right as float32 is.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <tuple>
#include <utility>
#include <vector>

#include "device_buffer.h"
#include "testing.h"

namespace warpalign::test {
namespace {

class PointsCuda : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!has_gpu()) GTEST_SKIP() << "no GPU";
  }
};

constexpr double kScale = 0.5;

struct Cloud {
  int n, m, dim;
  std::vector<double> x, y, a, b;

  static Cloud random(int n, int m, int dim) {
    return {n, m, dim, normal(n * dim, 61), normal(m * dim, 62), weights(n, 63), weights(m, 64)};
  }
  // y is -x, coordinates are exact in binary16.
  static Cloud exact(int n, int dim) {
    Cloud cloud = random(n, n, dim);
    for (double& v : cloud.x) v = std::clamp(std::round(64 * v) / 64, -7.0, 7.0);
    cloud.y = cloud.x;
    for (double& v : cloud.y) v = -v;
    return cloud;
  }
  [[nodiscard]] std::vector<double> costs() const {
    std::vector<double> cost(n * m);
    for (int i = 0; i < n; ++i) {
      for (int j = 0; j < m; ++j) {
        for (int d = 0; d < dim; ++d)
          cost[i * m + j] += kScale * std::pow(x[i * dim + d] - y[j * dim + d], 2);
      }
    }
    return cost;
  }
};

struct Found {
  std::vector<double> value, linear, grad_epsilon, f, g, grad_x, grad_y, plan;
};

Found solve(const Cloud& cloud, const SinkhornOptions& options, Precision precision) {
  const auto [n, m, dim] = std::tuple{cloud.n, cloud.m, cloud.dim};
  const DeviceBuffer x(as<float>(cloud.x)), y(as<float>(cloud.y)), a(as<float>(cloud.a)),
      b(as<float>(cloud.b));
  SinkhornProblem p;
  p.batch = 1;
  p.n = n;
  p.m = m;
  p.dim = dim;
  p.x = {x.data(), {n * dim, dim, 1}};
  p.y = {y.data(), {m * dim, dim, 1}};
  p.cost_scale = kScale;
  p.a = {a.data(), options.rho_a, nullptr};
  p.b = {b.data(), options.rho_b, nullptr};
  p.mass = options.mass;
  p.reference = options.reference;
  p.updates = options.updates;
  p.epsilon_start = options.epsilon_start;
  p.epsilon = options.epsilon;
  p.max_iterations = options.iterations;
  p.tolerance = 0;
  constexpr std::size_t kSize = sizeof(float);
  const DeviceBuffer value(kSize), linear(kSize), grad_epsilon(kSize), f(n * kSize), g(m * kSize),
      grad_x(n * dim * kSize), grad_y(m * dim * kSize), plan(n * m * kSize);
  SinkhornOutputs out;
  out.value = value.data();
  out.linear = linear.data();
  out.grad_epsilon = grad_epsilon.data();
  out.f = f.data();
  out.g = g.data();
  out.grad_x = grad_x.data();
  out.grad_y = grad_y.data();
  out.grad_cost = plan.data();
  Execution execution = Execution::cuda(0, nullptr, precision);
  execution.way = precision == Precision::kHighest ? "points" : "points_on_units";
  const std::size_t bytes = sinkhorn_workspace_bytes(p, out, execution);
  const DeviceBuffer workspace(bytes);
  EXPECT_TRUE(sinkhorn(p, out, {workspace.data(), bytes}, execution).ok());
  return {read<float>(value, 1),
          read<float>(linear, 1),
          read<float>(grad_epsilon, 1),
          read<float>(f, n),
          read<float>(g, m),
          read<float>(grad_x, n * dim),
          read<float>(grad_y, m * dim),
          read<float>(plan, n * m)};
}

// gradient: of the gradients, relative to their largest.
void expect_right(const Cloud& cloud, const SinkhornOptions& options, Precision precision, double tolerance,
                  double gradient) {
  const auto [n, m, dim] = std::tuple{cloud.n, cloud.m, cloud.dim};
  SCOPED_TRACE(testing::Message() << n << " x " << m << " x " << dim << ", precision "
                                  << static_cast<int>(precision) << ", mass " << options.mass << ", rho "
                                  << options.rho_a << ", updates " << static_cast<int>(options.updates));
  const SinkhornAnswer want =
      detail::transport::reference::sinkhorn(cloud.costs(), cloud.a, cloud.b, options);
  const Found got = solve(cloud, options, precision);
  const double scale = std::max({largest(want.f), largest(want.g), options.epsilon});
  EXPECT_NEAR(got.value[0], want.dual, tolerance * std::max(scale, std::abs(want.dual)));
  EXPECT_NEAR(got.linear[0], want.linear, tolerance * scale);
  EXPECT_NEAR(got.grad_epsilon[0], want.grad_epsilon, 2 * tolerance * std::max(1.0, want.grad_epsilon));
  EXPECT_LE(distance(got.f, want.f), tolerance * scale);
  EXPECT_LE(distance(got.g, want.g), tolerance * scale);
  std::vector<double> grad_x(n * dim), grad_y(m * dim);
  for (int i = 0; i < n; ++i) {
    for (int j = 0; j < m; ++j) {
      for (int d = 0; d < dim; ++d) {
        const double slope =
            2 * kScale * want.plan[i * m + j] * (cloud.x[i * dim + d] - cloud.y[j * dim + d]);
        grad_x[i * dim + d] += slope;
        grad_y[j * dim + d] -= slope;
      }
    }
  }
  EXPECT_LE(distance(got.grad_x, grad_x), gradient * largest(grad_x));
  EXPECT_LE(distance(got.grad_y, grad_y), gradient * largest(grad_y));
  const double most = largest(want.plan);
  for (std::size_t e = 0; e < want.plan.size(); ++e) {
    ASSERT_NEAR(got.plan[e], kScale * want.plan[e], 10 * tolerance * want.plan[e] + 1e-9 * most);
  }
}

constexpr Precision kOnUnits[] = {Precision::kHigh, Precision::kMedium};

// Features are padded to 64; more than that come in pieces of 64. Tiles have 128 points (kHigh) or 256,
// stages 64.
TEST_F(PointsCuda, ExactPointsOfEveryWidth) {
  const SinkhornOptions options{.epsilon = 2, .rho_b = 3, .iterations = 3};
  for (const auto& [n, dim] : {std::tuple{1, 5}, {33, 33}, {130, 17}, {65, 64}, {70, 130}}) {
    for (const Precision precision : kOnUnits) {
      // kMedium rounds the factors of the gradients' products.
      const double gradient = precision == Precision::kHigh ? 2e-5 : 1e-3;
      expect_right(Cloud::exact(n, dim), options, precision, 1e-5, gradient);
    }
  }
}

TEST_F(PointsCuda, EveryProblemOfExactPoints) {
  for (const SinkhornOptions& options :
       {SinkhornOptions{.epsilon = 1, .iterations = 3},
        SinkhornOptions{
            .epsilon = 1, .rho_a = 0.7, .reference = TransportReference::kCounting, .iterations = 3},
        SinkhornOptions{.epsilon = 1, .mass = 0.6, .iterations = 3},
        SinkhornOptions{.epsilon = 1, .updates = SinkhornUpdates::kSymmetric, .iterations = 3},
        SinkhornOptions{.epsilon = 1, .mass = 0.6, .updates = SinkhornUpdates::kSymmetric, .iterations = 3},
        SinkhornOptions{
            .epsilon = 1, .updates = SinkhornUpdates::kSymmetric, .epsilon_start = 20, .iterations = 2}}) {
    for (const Precision precision : kOnUnits) {
      const double gradient = precision == Precision::kHigh ? 2e-5 : 1e-3;
      expect_right(Cloud::exact(70, 19), options, precision, 1e-5, gradient);
    }
  }
}

TEST_F(PointsCuda, RandomPoints) {
  const SinkhornOptions options{.epsilon = 1, .iterations = 5};
  for (const auto& [n, m, dim] : {std::tuple{70, 140, 20}, {140, 33, 70}}) {
    expect_right(Cloud::random(n, m, dim), options, Precision::kHigh, 1e-5, 2e-5);
    expect_right(Cloud::random(n, m, dim), options, Precision::kMedium, 1e-3, 1e-2);
  }
}

// A constant that is added to all points changes nothing: the rounded points are relative to a centre.
TEST_F(PointsCuda, PointsFarFromTheOrigin) {
  const SinkhornOptions options{.epsilon = 1, .iterations = 6};
  Cloud cloud = Cloud::exact(65, 17);
  for (std::vector<double>* const points : {&cloud.x, &cloud.y}) {
    for (double& v : *points) v += 1024;
  }
  expect_right(cloud, options, Precision::kMedium, 1e-5, 1e-3);
  expect_right(cloud, options, Precision::kHigh, 1e-5, 2e-5);
}

// Equal points cost nothing, rounded or not.
TEST_F(PointsCuda, EqualPoints) {
  Cloud cloud = Cloud::random(50, 50, 40);
  cloud.y = cloud.x;
  cloud.b = cloud.a;
  const Found got = solve(cloud, {.epsilon = 1e-2, .iterations = 5}, Precision::kMedium);
  EXPECT_NEAR(got.linear[0], 0, 1e-5);
  for (int i = 0; i < cloud.n; ++i) EXPECT_NEAR(got.plan[i * 51], kScale * cloud.a[i], 1e-3 * cloud.a[i]);
}

// Two blocks share a problem of 260 x 260 points.
TEST_F(PointsCuda, SharedProblemsAreRightAndHaveTheSameBitsAgain) {
  const Cloud cloud = Cloud::exact(260, 9);
  for (const auto& [precision, updates] : {std::pair{Precision::kMedium, SinkhornUpdates::kSymmetric},
                                           {Precision::kHigh, SinkhornUpdates::kAlternating}}) {
    const SinkhornOptions options{.epsilon = 1, .updates = updates, .iterations = 2};
    expect_right(cloud, options, precision, 1e-5, 1e-3);
    const Found one = solve(cloud, options, precision), other = solve(cloud, options, precision);
    EXPECT_TRUE(same_bits(one.f, other.f) && same_bits(one.g, other.g) && same_bits(one.plan, other.plan) &&
                same_bits(one.grad_x, other.grad_x) && same_bits(one.grad_y, other.grad_y));
  }
}

// Two tiles of 25 steps: three blocks share them out, and the middle one has a part of both.
TEST_F(PointsCuda, GradientsOfFewTilesAreShared) {
  expect_right(Cloud::random(129, 1537, 9), {.epsilon = 1, .iterations = 1}, Precision::kMedium, 1e-3, 1e-2);
}

// Coordinates that are not finite cannot be packed: the problem is solved as with kHighest.
TEST_F(PointsCuda, CoordinatesThatAreNotFinite) {
  const SinkhornOptions options{.epsilon = 1, .iterations = 3};
  Cloud cloud = Cloud::random(40, 30, 9);
  cloud.x[3 * 9 + 2] = kInf;
  const Found want = solve(cloud, options, Precision::kHighest);
  cloud.x[3 * 9 + 2] = kInf;
  const Found got = solve(cloud, options, Precision::kMedium);
  EXPECT_TRUE(same_bits(got.f, want.f) && same_bits(got.g, want.g) && same_bits(got.plan, want.plan));
  cloud.x[3 * 9 + 2] = kNan;
  EXPECT_TRUE(std::isnan(solve(cloud, options, Precision::kHigh).value[0]));
}

}  // namespace
}  // namespace warpalign::test
