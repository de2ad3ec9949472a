// sinkhorn() on a CPU: exponentials that outlive their pass, and rows whose range is found on the way.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <utility>
#include <vector>

#include "testing.h"
#include "warpalign/thread_pool.h"
#include "warpalign/tuning.h"

namespace warpalign::test {
namespace {

struct Sides {
  double rho_a, rho_b, mass;
};

template <class Real>
void expect_reference(const std::vector<double>& cost, const std::vector<double>& a,
                      const std::vector<double>& b, const SinkhornOptions& options) {
  SCOPED_TRACE(testing::Message() << a.size() << " x " << b.size() << ", rho " << options.rho_a << " "
                                  << options.rho_b << ", mass " << options.mass << ", updates "
                                  << static_cast<int>(options.updates) << ", epsilon " << options.epsilon
                                  << ", iterations " << options.iterations);
  expect_close<Real>(solve_on<Real, HostBuffer>(cost, a, b, options, 0, Execution::host()),
                     detail::transport::reference::sinkhorn(cost, a, b, options), options.epsilon);
}

// Potentials travel some hundred bits, a few in each of the later iterations: exponentials are kept, and made
// anew now and then.
template <class Real>
void follow_the_reference() {
  unsigned seed = 100;
  for (const Sides& sides : {Sides{kInf, kInf, 0}, Sides{1, 2, 0}, Sides{kInf, 0, 0}, Sides{1, 1, 0.6}}) {
    for (const auto updates :
         {SinkhornUpdates::kAlternating, SinkhornUpdates::kSymmetric, SinkhornUpdates::kMixed}) {
      for (const auto& [n, m] : {std::pair{65, 47}, {33, 97}}) {
        for (const double epsilon : {0.02, 0.3}) {
          for (const int iterations : {8, 60, 250}) {
            if (++seed % kOptionThinning != 0) continue;
            std::vector<double> cost = normal(n * m, seed);
            for (double& c : cost) c = c * c;
            expect_reference<Real>(cost, weights(n, seed + 1), weights(m, seed + 2),
                                   {.epsilon = epsilon,
                                    .rho_a = sides.rho_a,
                                    .rho_b = sides.rho_b,
                                    .mass = sides.mass,
                                    .updates = updates,
                                    .iterations = iterations});
          }
        }
      }
    }
  }
}

TEST(KeptExponentials, Float64FollowsTheReference) { follow_the_reference<double>(); }
TEST(KeptExponentials, Float32FollowsTheReference) { follow_the_reference<float>(); }

// An offset of each row and column is what a start from the potentials of other costs looks like. Rows then
// move some hundred bits in an iteration, and columns' sums leave the range of float32.
TEST(RangedRows, AFarStart) {
  unsigned seed = 300;
  for (const double far : {0.1, 0.5, 2.0, 10.0}) {
    for (const int iterations : {1, 2, 3, 12}) {
      for (const Sides& sides :
           {Sides{kInf, kInf, 0}, Sides{0.5, 0.5, 0}, Sides{0, kInf, 0}, Sides{1, 1, 0.6}}) {
        const std::size_t n = 40, m = 70;
        const std::vector<double> of_rows = normal(n, ++seed, far), of_columns = normal(m, seed + 1, far);
        std::vector<double> cost = normal(n * m, seed + 2);
        for (std::size_t k = 0; k < n * m; ++k)
          cost[k] = cost[k] * cost[k] + of_rows[k / m] + of_columns[k % m];
        const SinkhornOptions options{.epsilon = 0.01,
                                      .rho_a = sides.rho_a,
                                      .rho_b = sides.rho_b,
                                      .mass = sides.mass,
                                      .iterations = iterations};
        expect_reference<double>(cost, weights(n, seed + 3), weights(m, seed + 4), options);
        const SinkhornAnswer want = detail::transport::reference::sinkhorn(
            as<double>(cost), weights(n, seed + 3), weights(m, seed + 4), options);
        const Result got = solve_on<float, HostBuffer>(cost, weights(n, seed + 3), weights(m, seed + 4),
                                                       options, 0, Execution::host());
        // Costs themselves are rounded to float32.
        const double scale = std::max({largest(want.f), largest(want.g), 1.0});
        EXPECT_LE(distance(got.f, want.f), 1e-6 * scale) << far << " " << iterations << " " << sides.rho_a;
        EXPECT_LE(distance(got.g, want.g), 1e-6 * scale) << far << " " << iterations << " " << sides.rho_a;
      }
    }
  }
}

TEST(KeptExponentials, TheSameBitsForAnyNumberOfThreads) {
  std::vector<double> cost = normal(300 * 400, 18);
  for (double& c : cost) c = c * c;
  const std::vector<double> a = weights(300, 19), b = weights(400, 20);
  for (const auto updates : {SinkhornUpdates::kAlternating, SinkhornUpdates::kSymmetric}) {
    const SinkhornOptions options{.epsilon = 0.02, .updates = updates, .iterations = 120};
    const Result one = solve_on<float, HostBuffer>(cost, a, b, options, 0, Execution::host());
    for (const int threads : {2, 3, 7}) {
      ThreadPool pool(threads);
      const Result many =
          solve_on<float, HostBuffer>(cost, a, b, options, 0, Execution::host(pool.parallel_for()));
      EXPECT_TRUE(same_bits(one.grad_cost, many.grad_cost));
      EXPECT_TRUE(same_bits(one.f, many.f));
      EXPECT_TRUE(same_bits(one.g, many.g));
    }
  }
}

// Potentials, value and <C, P> alone: the last pass over the rows makes the sums of the plan, too.
template <class Real>
void expect_sums(const std::vector<double>& cost, const std::vector<double>& a, const std::vector<double>& b,
                 const SinkhornOptions& options, double tolerance) {
  const SinkhornAnswer want = detail::transport::reference::sinkhorn(cost, a, b, options);
  const std::int64_t n = static_cast<std::int64_t>(a.size()), m = static_cast<std::int64_t>(b.size());
  const std::vector<Real> cost_data = as<Real>(cost), a_data = as<Real>(a), b_data = as<Real>(b);
  SinkhornProblem p;
  p.dtype = kDType<Real>;
  p.batch = 1;
  p.n = static_cast<std::int32_t>(n);
  p.m = static_cast<std::int32_t>(m);
  p.cost = {cost_data.data(), {n * m, m, 1}};
  p.a = {a_data.data(), options.rho_a, nullptr};
  p.b = {b_data.data(), options.rho_b, nullptr};
  p.epsilon = options.epsilon;
  p.mass = options.mass;
  p.reference = options.reference;
  p.updates = options.updates;
  p.max_iterations = options.iterations;
  p.tolerance = 0;
  std::vector<Real> f(n), g(m), value(1), linear(1);
  SinkhornOutputs out;
  out.f = f.data();
  out.g = g.data();
  out.value = value.data();
  out.linear = linear.data();
  const std::size_t bytes = sinkhorn_workspace_bytes(p, out, Execution::host());
  const HostBuffer workspace(bytes);
  ASSERT_TRUE(sinkhorn(p, out, {workspace.data(), bytes}, Execution::host()).ok());
  const double scale = std::max({largest(want.f), largest(want.g), options.epsilon});
  EXPECT_LE(distance({f.begin(), f.end()}, want.f), tolerance * scale);
  EXPECT_LE(distance({g.begin(), g.end()}, want.g), tolerance * scale);
  EXPECT_NEAR(value[0], want.dual, tolerance * std::max(std::abs(want.dual), scale));
  EXPECT_NEAR(linear[0], want.linear, tolerance * std::max(std::abs(want.linear), options.epsilon));
}

TEST(PlanSums, OfTheLastPass) {
  unsigned seed = 500;
  for (const Sides& sides : {Sides{kInf, kInf, 0}, Sides{0.5, 0.5, 0}, Sides{0, kInf, 0}, Sides{1, 1, 0.6}}) {
    for (const auto kind : {TransportReference::kProduct, TransportReference::kCounting}) {
      for (const auto& [n, m] : {std::pair{1, 1}, {65, 17}, {33, 517}, {70, 1030}}) {
        for (const int iterations : {1, 2, 40}) {
          SCOPED_TRACE(testing::Message() << n << " x " << m << ", rho " << sides.rho_a << " " << sides.rho_b
                                          << ", mass " << sides.mass << ", reference "
                                          << static_cast<int>(kind) << ", iterations " << iterations);
          if (++seed % kOptionThinning != 0) continue;
          std::vector<double> cost = normal(n * m, seed);
          for (double& c : cost) c = c * c;
          if (n > 1) cost[m + 3] = cost[5] = kInf;
          const SinkhornOptions options{.epsilon = 0.05,
                                        .rho_a = sides.rho_a,
                                        .rho_b = sides.rho_b,
                                        .mass = sides.mass,
                                        .reference = kind,
                                        .iterations = iterations};
          const std::vector<double> a = weights(n, seed + 1), b = weights(m, seed + 2);
          expect_sums<double>(cost, a, b, options, 1e-11);
          expect_sums<float>(cost, a, b, options, 1e-5);
        }
      }
    }
  }
}

// All results of points whose costs are stored or not.
template <class Real>
std::vector<double> results_of_points(CostKind kind, int n, int m, int dim,
                                      const std::vector<std::int32_t>& x_lengths,
                                      const Execution& execution) {
  const auto batch = static_cast<std::int32_t>(x_lengths.size());
  const std::vector<Real> x = as<Real>(normal(batch * n * dim, 71)),
                          y = as<Real>(normal(batch * m * dim, 72));
  SinkhornProblem p;
  p.dtype = kDType<Real>;
  p.batch = batch;
  p.n = n;
  p.m = m;
  p.dim = dim;
  p.x = StridedTensor::contiguous(x.data(), {batch, n, dim});
  p.y = StridedTensor::contiguous(y.data(), {batch, m, dim});
  p.cost_kind = kind;
  p.a.lengths = x_lengths.data();
  p.epsilon = 0.5;
  p.max_iterations = 20;
  p.tolerance = 0;
  std::vector<Real> f(batch * n), g(batch * m), value(batch), linear(batch), error(batch), grad_x(x.size()),
      grad_y(y.size()), grad_cost(batch * n * m);
  SinkhornOutputs out;
  out.f = f.data();
  out.g = g.data();
  out.value = value.data();
  out.linear = linear.data();
  out.error = error.data();
  out.grad_x = grad_x.data();
  out.grad_y = grad_y.data();
  out.grad_cost = grad_cost.data();
  const std::size_t bytes = sinkhorn_workspace_bytes(p, out, execution);
  const HostBuffer workspace(bytes);
  EXPECT_TRUE(sinkhorn(p, out, {workspace.data(), bytes}, execution).ok());
  std::vector<double> all;
  for (const auto* part : {&f, &g, &value, &linear, &error, &grad_x, &grad_y, &grad_cost}) {
    all.insert(all.end(), part->begin(), part->end());
  }
  return all;
}

template <class Real>
void expect_the_bits_of_stored_costs() {
  constexpr int kNone = 1 << 20;
  for (const CostKind kind : {CostKind::kSquaredEuclidean, CostKind::kEuclidean, CostKind::kL1,
                              CostKind::kCosine, CostKind::kHuber}) {
    for (const auto& [n, m, dim] : {std::array{1, 1, 1}, {7, 66, 3}, {130, 35, 5}, {67, 129, 18}}) {
      for (const int threads : {1, 3}) {
        SCOPED_TRACE(testing::Message() << "cost " << static_cast<int>(kind) << ", " << n << " x " << m
                                        << ", D " << dim << ", threads " << threads);
        ThreadPool pool(threads);
        const Execution execution = Execution::host(pool.parallel_for());
        const std::vector<std::int32_t> lengths{n, (n + 1) / 2};
        ASSERT_TRUE(force_transport_threshold("stored_features", 1));
        const std::vector<double> stored = results_of_points<Real>(kind, n, m, dim, lengths, execution);
        ASSERT_TRUE(force_transport_threshold("stored_features", kNone));
        const std::vector<double> made = results_of_points<Real>(kind, n, m, dim, lengths, execution);
        ASSERT_TRUE(force_transport_threshold("stored_features", kMeasuredThreshold));
        EXPECT_TRUE(same_bits(stored, made));
      }
    }
  }
}

TEST(StoredCosts, Float32HasTheBitsOfComputedCosts) { expect_the_bits_of_stored_costs<float>(); }
TEST(StoredCosts, Float64HasTheBitsOfComputedCosts) { expect_the_bits_of_stored_costs<double>(); }

std::int64_t workspace_of(int batch, int n, int m, int iterations, DType dtype, int threads, int dim) {
  SinkhornProblem p;
  p.dtype = dtype;
  p.batch = batch;
  p.n = n;
  p.m = m;
  p.dim = dim;
  p.max_iterations = iterations;
  std::int64_t data = 0;
  p.x = p.y = {&data, {0, dim, 1}};
  ThreadPool pool(threads);
  SinkhornOutputs out;
  out.value = &data;
  return static_cast<std::int64_t>(sinkhorn_workspace_bytes(p, out, Execution::host(pool.parallel_for())));
}

// include/warpalign/sinkhorn.h states the bound.
TEST(KeptExponentials, TakeNoMoreThanTheStatedMemory) {
  constexpr std::int64_t kBound = std::int64_t{1} << 28;
  for (const DType dtype : {DType::kFloat32, DType::kFloat64}) {
    const std::int64_t size = dtype == DType::kFloat64 ? 8 : 4;
    for (const int threads : {1, 4, 16}) {
      // Costs of many features are stored beside the exponentials.
      const auto stored = [&](int batch, int n, int m, int dim) {
        return workspace_of(batch, n, m, 100, dtype, threads, dim) -
               workspace_of(batch, n, m, 2, dtype, threads, dim);
      };
      const auto kept = [&](int batch, int n, int m) { return stored(batch, n, m, 2); };
      EXPECT_GE(kept(1, 1000, 992), 1000 * 992 * size);
      EXPECT_LE(kept(1, 1000, 992), 1000 * 1024 * size + 40000);
      EXPECT_GE(stored(1, 1000, 992, 64), 2 * 1000 * 992 * size);
      EXPECT_LE(stored(1, 1000, 992, 64), 2 * 1024 * 1024 * size + 40000);
      EXPECT_LE(stored(1, 1000, 992, 64), kBound);
      const std::int64_t sides = 40 * 40000;
      EXPECT_EQ(kept(1, 40000, 30000), 0);
      for (const auto& [n, m] : {std::pair{100, 100}, {1000, 1000}, {3000, 4000}, {65000, 1}, {1, 65000}}) {
        EXPECT_LE(kept(1000, n, m), kBound + threads * sides) << n << " x " << m << ", threads " << threads;
        EXPECT_LE(stored(1000, n, m, 64), kBound + threads * sides)
            << n << " x " << m << ", threads " << threads;
      }
    }
  }
}

}  // namespace
}  // namespace warpalign::test
