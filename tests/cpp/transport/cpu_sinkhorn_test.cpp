// sinkhorn() on a CPU against the float64 reference, and the properties of its solutions.
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <tuple>

#include "cpu/isa.h"
#include "host_buffer.h"
#include "transport/reference_sinkhorn.h"
#include "values.h"
#include "warpalign/sinkhorn.h"
#include "warpalign/thread_pool.h"

namespace warpalign::test {
namespace {

using detail::transport::reference::SinkhornAnswer;
using detail::transport::reference::SinkhornOptions;

std::vector<double> normal(std::size_t count, unsigned seed, double scale = 1) {
  std::mt19937 engine(seed);
  std::normal_distribution<double> distribution(0, scale);
  std::vector<double> v(count);
  for (double& x : v) x = static_cast<double>(static_cast<float>(distribution(engine)));
  return v;
}
std::vector<double> weights(std::size_t count, unsigned seed) {
  std::vector<double> v = normal(count, seed);
  double sum = 0;
  for (double& x : v) sum += x = std::exp(x);
  for (double& x : v) x = static_cast<double>(static_cast<float>(x / sum));
  return v;
}

// One problem with costs given, and everything that comes of it.
struct Result {
  Status status;
  std::vector<double> f, g, grad_cost, grad_a, grad_b;
  double value, linear, grad_epsilon, error;
  std::int32_t iterations;
};

template <class Real>
std::vector<Real> as(const std::vector<double>& v) {
  return {v.begin(), v.end()};
}
template <class Real>
std::vector<double> read(const HostBuffer& buffer, std::size_t count) {
  const std::vector<Real> v = buffer.read<Real>(count);
  return {v.begin(), v.end()};
}

template <class Real>
Result solve(const std::vector<double>& cost, const std::vector<double>& a, const std::vector<double>& b,
             const SinkhornOptions& options, double tolerance = 0,
             const Execution& execution = Execution::host()) {
  const std::size_t n = a.size(), m = b.size();
  const HostBuffer cost_data(as<Real>(cost)), a_data(as<Real>(a)), b_data(as<Real>(b));
  SinkhornProblem p;
  p.dtype = kDType<Real>;
  p.batch = 1;
  p.n = static_cast<std::int32_t>(n);
  p.m = static_cast<std::int32_t>(m);
  p.cost = {cost_data.data(), {static_cast<std::int64_t>(n * m), static_cast<std::int64_t>(m), 1}};
  p.a = {a_data.data(), options.rho_a, nullptr};
  p.b = {b_data.data(), options.rho_b, nullptr};
  p.epsilon = options.epsilon;
  p.epsilon_start = options.epsilon_start;
  p.epsilon_factor = options.epsilon_factor;
  p.mass = options.mass;
  p.reference = options.reference;
  p.updates = options.updates;
  p.max_iterations = options.iterations;
  p.tolerance = tolerance;
  const std::size_t size = sizeof(Real);
  const HostBuffer f(n * size), g(m * size), value(size), linear(size), grad_cost(n * m * size),
      grad_a(n * size), grad_b(m * size), grad_epsilon(size), error(size), iterations(sizeof(std::int32_t));
  SinkhornOutputs out;
  out.f = f.data();
  out.g = g.data();
  out.value = value.data();
  out.linear = linear.data();
  out.grad_cost = grad_cost.data();
  out.grad_a = grad_a.data();
  out.grad_b = grad_b.data();
  out.grad_epsilon = grad_epsilon.data();
  out.error = error.data();
  out.iterations = static_cast<std::int32_t*>(iterations.data());
  const std::size_t bytes = sinkhorn_workspace_bytes(p, out, execution);
  const HostBuffer workspace(bytes);
  const Status status = sinkhorn(p, out, {workspace.data(), bytes}, execution);
  return {status,
          read<Real>(f, n),
          read<Real>(g, m),
          read<Real>(grad_cost, n * m),
          read<Real>(grad_a, n),
          read<Real>(grad_b, m),
          read<Real>(value, 1)[0],
          read<Real>(linear, 1)[0],
          read<Real>(grad_epsilon, 1)[0],
          read<Real>(error, 1)[0],
          iterations.read<std::int32_t>(1)[0]};
}

double largest(const std::vector<double>& v) {
  double top = 0;
  for (const double x : v) top = std::max(top, std::abs(x));
  return top;
}
double distance(const std::vector<double>& v, const std::vector<double>& w) {
  double top = 0;
  for (std::size_t i = 0; i < v.size(); ++i) top = std::max(top, std::abs(v[i] - w[i]));
  return top;
}

// float32: potentials 1e-5 of the largest, P 1e-4 where above 1e-6 of its maximum, value 1e-6.
template <class Real>
void expect_close(const Result& r, const SinkhornAnswer& want, double epsilon) {
  const bool single = sizeof(Real) == 4;
  const double tolerance = single ? 1e-5 : 1e-11;
  ASSERT_TRUE(r.status.ok()) << r.status.argument << ": " << r.status.message;
  const double scale = std::max({largest(want.f), largest(want.g), epsilon});
  EXPECT_LE(distance(r.f, want.f), tolerance * scale);
  EXPECT_LE(distance(r.g, want.g), tolerance * scale);
  EXPECT_NEAR(r.value, want.dual, (single ? 2e-6 : 1e-11) * std::max(std::abs(want.dual), scale));
  EXPECT_NEAR(r.linear, want.linear, tolerance * std::max(std::abs(want.linear), epsilon));
  EXPECT_NEAR(r.grad_epsilon, want.grad_epsilon, 2 * tolerance * std::max(1.0, want.grad_epsilon));
  EXPECT_LE(distance(r.grad_a, want.grad_a), 2 * tolerance * std::max(scale, largest(want.grad_a)));
  EXPECT_LE(distance(r.grad_b, want.grad_b), 2 * tolerance * std::max(scale, largest(want.grad_b)));
  const double most = largest(want.plan);
  for (std::size_t k = 0; k < want.plan.size(); ++k) {
    if (want.plan[k] < 1e-6 * most) continue;
    ASSERT_NEAR(r.grad_cost[k], want.plan[k], (single ? 1e-4 : 1e-9) * want.plan[k]) << "element " << k;
  }
}

struct Sides {
  double rho_a, rho_b, mass;
};

template <class Real>
void check_grid() {
  constexpr Sides kSides[] = {{kInf, kInf, 0}, {1, 1, 0},   {kInf, 0, 0},
                              {0.3, kInf, 0},  {0, 0.5, 0}, {1, 1, 0.7}};
  unsigned seed = 0;
  for (const auto& [n, m] : {std::pair{1, 1}, {1, 7}, {9, 1}, {31, 33}, {65, 17}, {130, 257}}) {
    for (const Sides& sides : kSides) {
      for (const TransportReference kind : {TransportReference::kProduct, TransportReference::kCounting}) {
        for (const SinkhornUpdates updates : {SinkhornUpdates::kAlternating, SinkhornUpdates::kSymmetric}) {
          for (const double epsilon : {0.02, 1.0}) {
            SCOPED_TRACE(testing::Message()
                         << n << " x " << m << ", rho " << sides.rho_a << " " << sides.rho_b << ", mass "
                         << sides.mass << ", reference " << static_cast<int>(kind) << ", updates "
                         << static_cast<int>(updates) << ", epsilon " << epsilon);
            std::vector<double> cost = normal(n * m, ++seed);
            for (double& c : cost) c = c * c;
            const SinkhornOptions options{.epsilon = epsilon,
                                          .rho_a = sides.rho_a,
                                          .rho_b = sides.rho_b,
                                          .mass = sides.mass,
                                          .reference = kind,
                                          .updates = updates,
                                          .iterations = 1 + static_cast<int>(seed % 40)};
            const std::vector<double> a = weights(n, seed + 1), b = weights(m, seed + 2);
            expect_close<Real>(solve<Real>(cost, a, b, options),
                               detail::transport::reference::sinkhorn(cost, a, b, options), epsilon);
          }
        }
      }
    }
  }
}

TEST(SinkhornCpu, Float64FollowsTheReferenceStepByStep) { check_grid<double>(); }
TEST(SinkhornCpu, Float32FollowsTheReferenceStepByStep) { check_grid<float>(); }

TEST(SinkhornCpu, DualMeetsPrimalAtTheSolution) {
  std::vector<double> cost = normal(20 * 30, 1);
  for (double& c : cost) c = c * c;
  // Weights of equal sums: others have no balanced plan.
  const std::vector<double> a(20, 1.0 / 32), b(30, 1.0 / 48);
  for (const Sides& sides : {Sides{kInf, kInf, 0}, Sides{1, 2, 0}, Sides{kInf, 0.5, 0}, Sides{1, 1, 0.4}}) {
    const SinkhornOptions options{
        .epsilon = 0.3, .rho_a = sides.rho_a, .rho_b = sides.rho_b, .mass = sides.mass, .iterations = 5000};
    SCOPED_TRACE(testing::Message() << sides.rho_a << " " << sides.rho_b << " " << sides.mass);
    const Result r = solve<double>(cost, a, b, options, 1e-13);
    ASSERT_TRUE(r.status.ok());
    EXPECT_NEAR(r.value, detail::transport::reference::sinkhorn(cost, a, b, options).primal, 1e-9);
    EXPECT_LE(r.error, 1e-10);
  }
}

// Unbalanced plans of [[0, 1], [1, 0]], a = b = [.5, .5], epsilon = rho = 1. With the product reference these
// are POT's from 0.9.5 on, with counting those of 0.9.4.
TEST(SinkhornCpu, UnbalancedPlansOfBothReferences) {
  const std::vector<double> cost{0, 1, 1, 0}, half{0.5, 0.5};
  SinkhornOptions options{.epsilon = 1, .rho_a = 1, .rho_b = 1, .iterations = 200};
  const Result product = solve<double>(cost, half, half, options);
  EXPECT_NEAR(product.grad_cost[0], 0.3220536, 5e-8);
  EXPECT_NEAR(product.grad_cost[1], 0.1184769, 5e-8);
  options.reference = TransportReference::kCounting;
  const Result counting = solve<double>(cost, half, half, options);
  EXPECT_NEAR(counting.grad_cost[0], 0.5112282, 5e-8);
  EXPECT_NEAR(counting.grad_cost[1], 0.1880703, 5e-8);
}

TEST(SinkhornCpu, PartialTransportMovesItsMass) {
  std::vector<double> cost = normal(40 * 25, 5);
  for (double& c : cost) c = c * c;
  const std::vector<double> a = weights(40, 6), b = weights(25, 7);
  for (const double mass : {0.1, 0.5, 0.9}) {
    const Result r = solve<float>(cost, a, b, {.epsilon = 0.05, .mass = mass, .iterations = 3000}, 1e-7);
    double sum = 0;
    std::vector<double> row(40, 0), column(25, 0);
    for (int i = 0; i < 40; ++i) {
      for (int j = 0; j < 25; ++j) {
        sum += r.grad_cost[i * 25 + j];
        row[i] += r.grad_cost[i * 25 + j];
        column[j] += r.grad_cost[i * 25 + j];
      }
    }
    EXPECT_NEAR(sum, mass, 1e-6);
    for (int i = 0; i < 40; ++i) EXPECT_LE(row[i], a[i] * (1 + 1e-4));
    for (int j = 0; j < 25; ++j) EXPECT_LE(column[j], b[j] * (1 + 1e-4));
  }
}

TEST(SinkhornCpu, ForbiddenPairsAndWeightsOfZero) {
  std::vector<double> cost = normal(6 * 5, 9);
  for (double& c : cost) c = c * c;
  cost[0] = cost[7] = cost[29] = kInf;
  std::vector<double> a = weights(6, 10), b = weights(5, 11);
  a[2] = 0;
  b[4] = 0;
  const SinkhornOptions options{.epsilon = 0.2, .rho_a = 2, .rho_b = 3, .iterations = 50};
  const Result r = solve<float>(cost, a, b, options);
  expect_close<float>(r, detail::transport::reference::sinkhorn(cost, a, b, options), 0.2);
  EXPECT_EQ(r.grad_cost[0], 0);
  for (int j = 0; j < 5; ++j) EXPECT_EQ(r.grad_cost[2 * 5 + j], 0);
  for (int i = 0; i < 6; ++i) EXPECT_EQ(r.grad_cost[i * 5 + 4], 0);
}

TEST(SinkhornCpu, ARowThatEveryCostForbids) {
  std::vector<double> cost(12, 1.0);
  for (int j = 0; j < 4; ++j) cost[4 + j] = kInf;
  const std::vector<double> a(3, 1.0 / 3), b(4, 0.25);
  const Result hard = solve<float>(cost, a, b, {.epsilon = 0.5, .iterations = 10});
  EXPECT_EQ(hard.value, kInf);
  EXPECT_EQ(hard.f[1], kInf);
  for (int j = 0; j < 4; ++j) EXPECT_EQ(hard.grad_cost[4 + j], 0);
  const Result relaxed = solve<float>(cost, a, b, {.epsilon = 0.5, .rho_a = 1, .iterations = 10});
  EXPECT_TRUE(std::isfinite(relaxed.value));
}

TEST(SinkhornCpu, NanStaysNan) {
  std::vector<double> cost(12, 1.0);
  cost[5] = kNan;
  const std::vector<double> a(3, 1.0 / 3), b(4, 0.25);
  const Result r = solve<float>(cost, a, b, {.epsilon = 0.5, .iterations = 1000});
  EXPECT_TRUE(std::isnan(r.value));
  for (const auto* all : {&r.f, &r.g, &r.grad_a, &r.grad_b, &r.grad_cost}) {
    for (const double v : *all) EXPECT_TRUE(std::isnan(v));
  }
  EXPECT_LE(r.iterations, 3);
}

// Costs of 5000 epsilons. The naive formula keeps the potentials in float32 and rounds (f + g - C) / epsilon.
TEST(SinkhornCpu, LargeCostsKeepTheirDigits) {
  std::vector<double> cost = normal(50 * 60, 12);
  for (double& c : cost) c = static_cast<double>(static_cast<float>(50 + c * c));
  const std::vector<double> a = weights(50, 13), b = weights(60, 14);
  const SinkhornOptions options{.epsilon = 0.01, .iterations = 300};
  const SinkhornAnswer want = detail::transport::reference::sinkhorn(cost, a, b, options);
  const double most = largest(want.plan);
  const auto error_of = [&](const auto& plan) {
    double worst = 0;
    for (std::size_t k = 0; k < want.plan.size(); ++k) {
      if (want.plan[k] >= 1e-6 * most)
        worst = std::max(worst, std::abs(static_cast<double>(plan(k)) / want.plan[k] - 1));
    }
    return worst;
  };
  const double naive = error_of([&](std::size_t k) {
    const auto f = static_cast<float>(want.f[k / 60]), g = static_cast<float>(want.g[k % 60]);
    const float logit = (f + g - static_cast<float>(cost[k])) / 0.01F;
    return static_cast<float>(a[k / 60]) * static_cast<float>(b[k % 60]) * std::exp(logit);
  });
  for (const cpu::Isa isa : {cpu::Isa::kBaseline, cpu::Isa::kAvx2, cpu::Isa::kAvx512}) {
    if (isa > cpu::best_isa()) continue;
    SCOPED_TRACE(cpu::isa_name(isa));
    cpu::override_isa(isa);
    const Result r = solve<float>(cost, a, b, options);
    cpu::clear_isa_override();
    const double ours = error_of([&](std::size_t k) { return r.grad_cost[k]; });
    // Without fused multiply-adds the product of cost and 1 / epsilon is rounded too.
    EXPECT_LE(ours, isa == cpu::Isa::kBaseline ? 2 * naive : naive / 100);
  }
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

TEST(SinkhornCpu, AnnealingAndTolerance) {
  std::vector<double> cost = normal(64 * 64, 15);
  for (double& c : cost) c = c * c;
  const std::vector<double> a = weights(64, 16), b = weights(64, 17);
  SinkhornOptions options{.epsilon = 0.05, .epsilon_start = 4, .iterations = 20};
  expect_close<float>(solve<float>(cost, a, b, options),
                      detail::transport::reference::sinkhorn(cost, a, b, options), 0.05);
  options.iterations = 10000;
  const Result r = solve<float>(cost, a, b, options, 1e-4);
  EXPECT_LT(r.iterations, 10000);
  EXPECT_LE(r.error, 1.5e-4);
}

// A ragged batch of transposed costs: every problem is what it is alone, and 0 stands behind its lengths.
TEST(SinkhornCpu, RaggedBatchesOfStridedCosts) {
  constexpr int kBatch = 3, kN = 9, kM = 7;
  const std::int32_t n[kBatch] = {9, 1, 4}, m[kBatch] = {3, 7, 5};
  const std::vector<double> cost = normal(kBatch * kN * kM, 41);  // (B, M, N)
  const HostBuffer cost_data(as<float>(cost)), value(kBatch * 4), f(kBatch * kN * 4),
      plan(kBatch * kN * kM * 4);
  SinkhornProblem p;
  p.batch = kBatch;
  p.n = kN;
  p.m = kM;
  p.cost = {cost_data.data(), {kN * kM, 1, kN}};
  p.a.lengths = n;
  p.b.lengths = m;
  p.epsilon = 0.3;
  p.max_iterations = 25;
  p.tolerance = 0;
  SinkhornOutputs out;
  out.value = value.data();
  out.f = f.data();
  out.grad_cost = plan.data();
  ThreadPool pool(2);
  const Execution execution = Execution::host(pool.parallel_for());
  const std::size_t bytes = sinkhorn_workspace_bytes(p, out, execution);
  const HostBuffer workspace(bytes);
  ASSERT_TRUE(sinkhorn(p, out, {workspace.data(), bytes}, execution).ok());
  const std::vector<float> all = plan.read<float>(kBatch * kN * kM), values = value.read<float>(kBatch);
  for (int b = 0; b < kBatch; ++b) {
    std::vector<double> one;
    for (int i = 0; i < n[b]; ++i) {
      for (int j = 0; j < m[b]; ++j) one.push_back(cost[(b * kM + j) * kN + i]);
    }
    const std::vector<double> a(n[b], 1.0 / n[b]), weight(m[b], 1.0 / m[b]);
    const SinkhornOptions options{.epsilon = 0.3, .iterations = 25};
    const SinkhornAnswer want = detail::transport::reference::sinkhorn(one, a, weight, options);
    EXPECT_NEAR(values[b], want.dual, 1e-5 * std::max(1.0, std::abs(want.dual)));
    for (int i = 0; i < kN; ++i) {
      for (int j = 0; j < kM; ++j) {
        const float got = all[(b * kN + i) * kM + j];
        if (i < n[b] && j < m[b]) {
          EXPECT_NEAR(got, want.plan[i * m[b] + j], 1e-5);
        } else {
          EXPECT_EQ(got, 0);
        }
      }
    }
  }
}

TEST(SinkhornCpu, TheSameBitsForAnyNumberOfThreads) {
  std::vector<double> cost = normal(300 * 400, 18);
  for (double& c : cost) c = c * c;
  const std::vector<double> a = weights(300, 19), b = weights(400, 20);
  const SinkhornOptions options{.epsilon = 0.1, .iterations = 30};
  const Result one = solve<float>(cost, a, b, options);
  for (const int threads : {2, 3, 5}) {
    ThreadPool pool(threads);
    const Result many = solve<float>(cost, a, b, options, 0, Execution::host(pool.parallel_for()));
    EXPECT_TRUE(same_bits(one.grad_cost, many.grad_cost));
    EXPECT_TRUE(same_bits(one.f, many.f));
    EXPECT_EQ(one.value, many.value);
  }
}

}  // namespace
}  // namespace warpalign::test
