// sinkhorn() on a CPU: costs made from points, and what no number of threads changes.
#include <gtest/gtest.h>

#include <cmath>
#include <tuple>

#include "testing.h"
#include "warpalign/thread_pool.h"

namespace warpalign::test {
namespace {

Result solve(const std::vector<double>& cost, const std::vector<double>& a, const std::vector<double>& b,
             const SinkhornOptions& options, const Execution& execution) {
  return solve_on<float, HostBuffer>(cost, a, b, options, 0, execution);
}

double cost_of(CostKind kind, const double* x, const double* y, int dim) {
  double sum = 0, dot = 0, xx = 0, yy = 0;
  for (int d = 0; d < dim; ++d) {
    const double t = std::abs(x[d] - y[d]);
    dot += x[d] * y[d];
    xx += x[d] * x[d];
    yy += y[d] * y[d];
    sum += kind == CostKind::kL1 ? t : kind == CostKind::kHuber ? (t <= 1 ? t * t / 2 : t - 0.5) : t * t;
  }
  if (kind == CostKind::kCosine) return 1 - dot / std::sqrt(xx * yy);
  return kind == CostKind::kEuclidean ? std::sqrt(sum) : sum;
}

// Costs made from points, and gradients by them, against the plan of the same costs given.
template <class Real>
void check_points(CostKind kind, int n, int m, int dim) {
  SCOPED_TRACE(testing::Message() << "kind " << static_cast<int>(kind) << ", " << n << " x " << m << " x "
                                  << dim);
  const std::vector<double> x = normal(n * dim, 31), y = normal(m * dim, 32);
  const std::vector<double> a = weights(n, 33), b = weights(m, 34);
  constexpr double kScale = 0.5;
  const auto all_costs = [&](const std::vector<double>& points) {
    std::vector<double> cost(n * m);
    for (int i = 0; i < n; ++i) {
      for (int j = 0; j < m; ++j)
        cost[i * m + j] = kScale * cost_of(kind, &points[i * dim], &y[j * dim], dim);
    }
    return cost;
  };
  const SinkhornOptions options{.epsilon = 0.5, .rho_a = 2, .iterations = 60};
  const SinkhornAnswer want = detail::transport::reference::sinkhorn(all_costs(x), a, b, options);

  const HostBuffer x_data(as<Real>(x)), y_data(as<Real>(y)), a_data(as<Real>(a)), b_data(as<Real>(b));
  SinkhornProblem p;
  p.dtype = kDType<Real>;
  p.batch = 1;
  p.n = n;
  p.m = m;
  p.dim = dim;
  p.x = {x_data.data(), {n * dim, dim, 1}};
  p.y = {y_data.data(), {m * dim, dim, 1}};
  p.cost_kind = kind;
  p.cost_scale = kScale;
  p.a = {a_data.data(), options.rho_a, nullptr};
  p.b = {b_data.data(), options.rho_b, nullptr};
  p.epsilon = options.epsilon;
  p.max_iterations = options.iterations;
  p.tolerance = 0;
  const HostBuffer value(sizeof(Real)), grad_x(n * dim * sizeof(Real)), grad_y(m * dim * sizeof(Real));
  SinkhornOutputs out;
  out.value = value.data();
  out.grad_x = grad_x.data();
  out.grad_y = grad_y.data();
  const Execution execution = Execution::host();
  const std::size_t bytes = sinkhorn_workspace_bytes(p, out, execution);
  const HostBuffer workspace(bytes);
  ASSERT_TRUE(sinkhorn(p, out, {workspace.data(), bytes}, execution).ok());
  const double tolerance = sizeof(Real) == 4 ? 2e-5 : 1e-7;  // float64: of the differences below
  EXPECT_NEAR(read<Real>(value, 1)[0], want.dual, tolerance * std::max(1.0, std::abs(want.dual)));
  // d value / d x = sum P dC / dx, dC / dx by central differences.
  constexpr double kStep = 1e-6;
  const std::vector<double> got_x = read<Real>(grad_x, n * dim), got_y = read<Real>(grad_y, m * dim);
  const auto slope = [&](std::vector<double> u, std::vector<double> v, bool by_first, int d) {
    double* const moved = by_first ? &u[d] : &v[d];
    *moved += kStep;
    const double above = cost_of(kind, u.data(), v.data(), dim);
    *moved -= 2 * kStep;
    return (above - cost_of(kind, u.data(), v.data(), dim)) / (2 * kStep);
  };
  std::vector<double> wanted_x(n * dim, 0.0), wanted_y(m * dim, 0.0);
  for (int i = 0; i < n; ++i) {
    for (int j = 0; j < m; ++j) {
      const std::vector<double> u(&x[i * dim], &x[i * dim] + dim), v(&y[j * dim], &y[j * dim] + dim);
      for (int d = 0; d < dim; ++d) {
        const double mass = kScale * want.plan[i * m + j];
        wanted_x[i * dim + d] += mass * slope(u, v, true, d);
        wanted_y[j * dim + d] += mass * slope(u, v, false, d);
      }
    }
  }
  EXPECT_LE(distance(got_x, wanted_x), tolerance * std::max(largest(wanted_x), 1e-2));
  EXPECT_LE(distance(got_y, wanted_y), tolerance * std::max(largest(wanted_y), 1e-2));
}

TEST(SinkhornCpu, CostsAndGradientsOfPoints) {
  for (const CostKind kind : {CostKind::kSquaredEuclidean, CostKind::kEuclidean, CostKind::kL1,
                              CostKind::kCosine, CostKind::kHuber}) {
    for (const auto& [n, m, dim] : {std::tuple{1, 1, 2}, {17, 33, 3}, {64, 31, 19}, {130, 65, 2}}) {
      check_points<float>(kind, n, m, dim);
      check_points<double>(kind, n, m, dim);
    }
  }
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
