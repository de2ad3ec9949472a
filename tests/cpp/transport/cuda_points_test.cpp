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

// equal: y is x, in the same memory.
Found solve(const Cloud& cloud, const SinkhornOptions& options, Precision precision,
            const char* way = "points_on_units", bool equal = false) {
  const auto [n, m, dim] = std::tuple{cloud.n, cloud.m, cloud.dim};
  const DeviceBuffer x(as<float>(cloud.x)), y(as<float>(cloud.y)), a(as<float>(cloud.a)),
      b(as<float>(cloud.b));
  SinkhornProblem p;
  p.batch = 1;
  p.n = n;
  p.m = m;
  p.dim = dim;
  p.x = {x.data(), {n * dim, dim, 1}};
  p.y = {equal ? x.data() : y.data(), {m * dim, dim, 1}};
  p.cost_scale = kScale;
  p.a = {a.data(), options.rho_a, nullptr};
  p.b = {equal ? a.data() : b.data(), options.rho_b, nullptr};
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
  execution.way = way;
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

constexpr Precision kOnUnits[] = {Precision::kHighest, Precision::kHigh, Precision::kMedium};
constexpr int kFewestOfHighest = 9;

// kMedium rounds the factors of the gradients' products.
double gradient_tolerance(Precision precision) { return precision == Precision::kMedium ? 1e-3 : 2e-5; }

// Features are padded to 32 or 64; more than that come in pieces of 64. Tiles have 128 points, or 256
// (kMedium), stages 64.
TEST_F(PointsCuda, ExactPointsOfEveryWidth) {
  const SinkhornOptions options{.epsilon = 2, .rho_b = 3, .iterations = 3};
  for (const auto& [n, dim] :
       {std::tuple{1, 5}, {1, 9}, {33, 33}, {130, 17}, {65, 64}, {127, 32}, {70, 130}}) {
    for (const Precision precision : kOnUnits) {
      if (precision == Precision::kHighest && dim < kFewestOfHighest) continue;
      expect_right(Cloud::exact(n, dim), options, precision, 1e-5, gradient_tolerance(precision));
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
      expect_right(Cloud::exact(70, 19), options, precision, 1e-5, gradient_tolerance(precision));
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

// Low parts of potentials that are factors elsewhere would leave float32's range.
TEST_F(PointsCuda, APointThatIsFarFromAllOthers) {
  for (const double far : {1e3, 2e4, 3e4, 5e4}) {
    for (const SinkhornUpdates updates : {SinkhornUpdates::kAlternating, SinkhornUpdates::kSymmetric}) {
      SCOPED_TRACE(testing::Message() << far << ", updates " << static_cast<int>(updates));
      Cloud cloud = Cloud::random(40, 40, 3);
      cloud.x[0] = far;
      const SinkhornOptions options{.epsilon = 0.5, .updates = updates, .iterations = 20};
      const SinkhornAnswer want =
          detail::transport::reference::sinkhorn(cloud.costs(), cloud.a, cloud.b, options);
      const Found got = solve(cloud, options, Precision::kHighest, "points");
      const double scale = largest(want.f);
      EXPECT_NEAR(got.value[0], want.dual, 1e-6 * scale);
      EXPECT_LE(distance(got.f, want.f), 1e-6 * scale);
      EXPECT_LE(distance(got.g, want.g), 1e-6 * scale);
      for (const std::vector<double>* const numbers : {&got.plan, &got.grad_x, &got.grad_y}) {
        for (const double v : *numbers) ASSERT_TRUE(std::isfinite(v));
      }
    }
  }
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
                                           {Precision::kHigh, SinkhornUpdates::kAlternating},
                                           {Precision::kHighest, SinkhornUpdates::kSymmetric}}) {
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
  const Found want = solve(cloud, options, Precision::kHighest, "points");
  for (const Precision precision : kOnUnits) {
    const Found got = solve(cloud, options, precision);
    EXPECT_TRUE(same_bits(got.f, want.f) && same_bits(got.g, want.g) && same_bits(got.plan, want.plan));
  }
  cloud.x[3 * 9 + 2] = kNan;
  EXPECT_TRUE(std::isnan(solve(cloud, options, Precision::kHigh).value[0]));
  EXPECT_TRUE(std::isnan(solve(cloud, options, Precision::kHighest).value[0]));
}

// Errors against float64: of potentials and value relative to epsilon, of the plan where it is above 1e-3 of
// its largest entry, of gradients relative to the largest.
struct Errors {
  double potentials, value, plan, gradients;
};

Errors errors_of(const Cloud& cloud, const SinkhornOptions& options, const SinkhornAnswer& want,
                 const Found& got) {
  const auto [n, m, dim] = std::tuple{cloud.n, cloud.m, cloud.dim};
  Errors errors{};
  // A constant moves from one side's potentials to the other's without a change of the plan.
  double shift = 0;
  for (int i = 0; i < n; ++i) shift += (got.f[i] - want.f[i]) / n;
  for (int i = 0; i < n; ++i)
    errors.potentials = std::max(errors.potentials, std::abs(got.f[i] - want.f[i] - shift));
  for (int j = 0; j < m; ++j)
    errors.potentials = std::max(errors.potentials, std::abs(got.g[j] - want.g[j] + shift));
  errors.potentials /= options.epsilon;
  errors.value = std::abs(got.value[0] - want.dual) / options.epsilon;
  const double most = largest(want.plan);
  std::vector<double> grad_x(n * dim), grad_y(m * dim);
  for (int i = 0; i < n; ++i) {
    for (int j = 0; j < m; ++j) {
      const double entry = want.plan[i * m + j];
      if (entry > 1e-3 * most) {
        errors.plan = std::max(errors.plan, std::abs(got.plan[i * m + j] / (kScale * entry) - 1));
      }
      for (int d = 0; d < dim; ++d) {
        const double slope = 2 * kScale * entry * (cloud.x[i * dim + d] - cloud.y[j * dim + d]);
        grad_x[i * dim + d] += slope;
        grad_y[j * dim + d] -= slope;
      }
    }
  }
  errors.gradients = std::max(distance(got.grad_x, grad_x) / largest(grad_x),
                              distance(got.grad_y, grad_y) / largest(grad_y));
  return errors;
}

// Points in clusters far from the origin. Coordinates are float32 numbers.
Cloud clusters(int n, int m, int dim, double radius) {
  Cloud cloud = Cloud::random(n, m, dim);
  const std::vector<double> centres = normal(5 * dim, 65);
  for (std::vector<double>* const points : {&cloud.x, &cloud.y}) {
    for (std::size_t k = 0; k < points->size(); ++k) {
      const std::size_t i = k / dim, d = k % dim;
      double& v = (*points)[k];
      v = static_cast<double>(static_cast<float>(100 + centres[i % 5 * dim + d] + radius * v));
    }
  }
  return cloud;
}

// Errors of six products are at most twice those of differences in float32.
void expect_as_right_as_differences(const Cloud& cloud, double epsilon) {
  constexpr double kFloor = 1e-6;  // of exponentials
  const SinkhornOptions options{.epsilon = epsilon, .iterations = 4};
  const SinkhornAnswer want =
      detail::transport::reference::sinkhorn(cloud.costs(), cloud.a, cloud.b, options);
  const Errors plain = errors_of(cloud, options, want, solve(cloud, options, Precision::kHighest, "points"));
  const Errors split = errors_of(cloud, options, want, solve(cloud, options, Precision::kHighest));
  EXPECT_LE(split.potentials, 2 * plain.potentials + kFloor);
  EXPECT_LE(split.value, 2 * plain.value + kFloor);
  EXPECT_LE(split.plan, 2 * plain.plan + kFloor);
  EXPECT_LE(split.gradients, 2 * plain.gradients + kFloor);
}

// Of points that are spread, and of clusters whose distances are much larger than those of points within
// them.
TEST_F(PointsCuda, SixProductsAreAsRightAsDifferences) {
  for (const auto& [n, m, dim, radius] : {std::tuple{70, 140, 20, 0.0},
                                          {65, 64, 9, 0.0},
                                          {140, 33, 70, 0.0},
                                          {66, 70, 33, 0.2},
                                          {70, 66, 17, 0.05},
                                          {64, 65, 130, 0.1}}) {
    SCOPED_TRACE(testing::Message() << n << " x " << m << " x " << dim << ", radius " << radius);
    const bool spread = radius == 0;
    expect_as_right_as_differences(spread ? Cloud::random(n, m, dim) : clusters(n, m, dim, radius),
                                   0.1 * dim * (spread ? 1 : radius * radius));
  }
}

// All coordinates are near the largest one, so that sums of products are as large as they can be.
TEST_F(PointsCuda, SixProductsOfCornersOfACube) {
  for (const int dim : {9, 16, 64, 144}) {
    SCOPED_TRACE(testing::Message() << dim << " features");
    Cloud cloud = Cloud::random(66, 70, dim);
    for (std::vector<double>* const points : {&cloud.x, &cloud.y}) {
      for (std::size_t k = 0; k < points->size(); ++k) {
        double& v = (*points)[k];
        const bool upper = k / dim % 4 == 0 || v > 0;  // some points are near one corner
        v = static_cast<double>(static_cast<float>((upper ? 1 : -1) * (1.9 + 0.03 * std::abs(v))));
      }
    }
    expect_as_right_as_differences(cloud, 0.3 * dim);
  }
}

// Where an error of a product would be seen in a logit, costs are differences.
TEST_F(PointsCuda, ClustersThatAreTooSmallForProducts) {
  const Cloud cloud = clusters(66, 70, 17, 1e-3);
  const SinkhornOptions options{.epsilon = 1.7e-6, .iterations = 3};
  const Found want = solve(cloud, options, Precision::kHighest, "points");
  const Found got = solve(cloud, options, Precision::kHighest);
  EXPECT_TRUE(same_bits(got.f, want.f) && same_bits(got.g, want.g) && same_bits(got.plan, want.plan) &&
              same_bits(got.grad_x, want.grad_x) && same_bits(got.grad_y, want.grad_y));
}

// A set with itself: the rows' sums are the columns'.
TEST_F(PointsCuda, SetsWithThemselves) {
  Cloud cloud = Cloud::random(130, 130, 20);
  cloud.y = cloud.x;
  cloud.b = cloud.a;
  const SinkhornOptions options{.epsilon = 4, .updates = SinkhornUpdates::kSymmetric, .iterations = 4};
  for (const Precision precision : kOnUnits) {
    const Found want = solve(cloud, options, precision);
    const Found got = solve(cloud, options, precision, "points_on_units", true);
    EXPECT_TRUE(same_bits(got.f, got.g));
    EXPECT_LE(distance(got.f, want.f), 2e-6 * largest(want.f));
    EXPECT_LE(distance(got.grad_x, want.grad_x), 1e-5 * largest(want.grad_x));
    EXPECT_TRUE(same_bits(got.grad_x, got.grad_y));
  }
}

// Nearly all mass of a plan is between each point and itself. Gradients come from the rest.
TEST_F(PointsCuda, GradientsOfASharpPlanOfASetWithItself) {
  Cloud cloud = Cloud::random(130, 130, 20);
  cloud.y = cloud.x;
  cloud.b = cloud.a;
  const SinkhornOptions options{.epsilon = 0.7, .updates = SinkhornUpdates::kSymmetric, .iterations = 4};
  const SinkhornAnswer want =
      detail::transport::reference::sinkhorn(cloud.costs(), cloud.a, cloud.b, options);
  const Errors plain =
      errors_of(cloud, options, want, solve(cloud, options, Precision::kHighest, "points", true));
  const Errors split =
      errors_of(cloud, options, want, solve(cloud, options, Precision::kHighest, "points_on_units", true));
  EXPECT_LE(split.gradients, 2 * plain.gradients + 1e-6);
}

}  // namespace
}  // namespace warpalign::test
