// sinkhorn() on points, on every path: costs that are never stored, and gradients by the points.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <tuple>
#include <vector>

#include "fixture.h"

namespace warpalign::test {
namespace {

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

// d cost / d x, which is d cost / d y with x and y exchanged: every cost is symmetric.
std::vector<double> slope_of(CostKind kind, const double* x, const double* y, int dim) {
  std::vector<double> slope(dim);
  double dot = 0, xx = 0, yy = 0, squares = 0;
  for (int d = 0; d < dim; ++d) {
    dot += x[d] * y[d];
    xx += x[d] * x[d];
    yy += y[d] * y[d];
    squares += (x[d] - y[d]) * (x[d] - y[d]);
  }
  for (int d = 0; d < dim; ++d) {
    const double t = x[d] - y[d];
    slope[d] = kind == CostKind::kL1          ? (t > 0) - (t < 0)
               : kind == CostKind::kHuber     ? std::clamp(t, -1.0, 1.0)
               : kind == CostKind::kCosine    ? (dot * x[d] / xx - y[d]) / std::sqrt(xx * yy)
               : kind == CostKind::kEuclidean ? t / std::sqrt(squares)
                                              : 2 * t;
  }
  return slope;
}

constexpr CostKind kKinds[] = {CostKind::kSquaredEuclidean, CostKind::kEuclidean, CostKind::kL1,
                               CostKind::kCosine, CostKind::kHuber};

TEST(Points, SlopesAreDifferences) {
  constexpr int kDim = 19;
  constexpr double kStep = 1e-6;
  const std::vector<double> x = normal(kDim, 21), y = normal(kDim, 22);
  for (const CostKind kind : kKinds) {
    const std::vector<double> slope = slope_of(kind, x.data(), y.data(), kDim);
    for (int d = 0; d < kDim; ++d) {
      std::vector<double> above = x, below = x;
      above[d] += kStep;
      below[d] -= kStep;
      const double difference =
          cost_of(kind, above.data(), y.data(), kDim) - cost_of(kind, below.data(), y.data(), kDim);
      // The tolerance: costs up to 50, rounded to 1e-14, divided by the step.
      EXPECT_NEAR(slope[d], difference / (2 * kStep), 1e-8) << static_cast<int>(kind) << " " << d;
    }
  }
}

// Costs made from points, and gradients by them, against the plan of the same costs given.
template <class Real>
void check_points(CostKind kind, int n, int m, int dim, const SinkhornOptions& options) {
  SCOPED_TRACE(testing::Message() << "kind " << static_cast<int>(kind) << ", " << n << " x " << m << " x "
                                  << dim << ", mass " << options.mass);
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
  const SinkhornAnswer want = detail::transport::reference::sinkhorn(all_costs(x), a, b, options);

  // d value / d x = sum P dC / dx.
  std::vector<double> wanted_x(n * dim, 0.0), wanted_y(m * dim, 0.0);
  for (int i = 0; i < n; ++i) {
    for (int j = 0; j < m; ++j) {
      const double mass = kScale * want.plan[i * m + j];
      const std::vector<double> by_x = slope_of(kind, &x[i * dim], &y[j * dim], dim),
                                by_y = slope_of(kind, &y[j * dim], &x[i * dim], dim);
      for (int d = 0; d < dim; ++d) {
        wanted_x[i * dim + d] += mass * by_x[d];
        wanted_y[j * dim + d] += mass * by_y[d];
      }
    }
  }

  // Few features have ways of their own on CUDA.
  const char* const few = dim <= (m <= 256 ? 32 : 8) ? "kept_rows" : "points";
  on_path_and_by({"points", few}, [&]<class Buffer>(const Execution& execution) {
    const Buffer x_data(as<Real>(x)), y_data(as<Real>(y)), a_data(as<Real>(a)), b_data(as<Real>(b));
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
    p.mass = options.mass;
    p.updates = options.updates;
    p.epsilon_start = options.epsilon_start;
    p.epsilon = options.epsilon;
    p.max_iterations = options.iterations;
    p.tolerance = 0;
    const Buffer value(sizeof(Real)), grad_x(n * dim * sizeof(Real)), grad_y(m * dim * sizeof(Real)),
        plan(n * m * sizeof(Real));
    SinkhornOutputs out;
    out.value = value.data();
    out.grad_x = grad_x.data();
    out.grad_y = grad_y.data();
    out.grad_cost = plan.data();
    const std::size_t bytes = sinkhorn_workspace_bytes(p, out, execution);
    const Buffer workspace(bytes);
    ASSERT_TRUE(sinkhorn(p, out, {workspace.data(), bytes}, execution).ok());
    const double got_value = read<Real>(value, 1)[0];
    const std::vector<double> got_x = read<Real>(grad_x, n * dim), got_y = read<Real>(grad_y, m * dim),
                              got_plan = read<Real>(plan, n * m);
    const double tolerance = sizeof(Real) == 4 ? 2e-5 : 1e-10;
    EXPECT_NEAR(got_value, want.dual, tolerance * std::max(1.0, std::abs(want.dual)));
    const double most = largest(want.plan);
    for (std::size_t e = 0; e < want.plan.size(); ++e) {
      ASSERT_NEAR(got_plan[e], kScale * want.plan[e],
                  (sizeof(Real) == 4 ? 1e-4 : 1e-9) * want.plan[e] + 1e-9 * most);
    }
    EXPECT_LE(distance(got_x, wanted_x), tolerance * std::max(largest(wanted_x), 1e-2));
    EXPECT_LE(distance(got_y, wanted_y), tolerance * std::max(largest(wanted_y), 1e-2));
  });
}

TEST_P(SinkhornPath, CostsAndGradientsOfPoints) {
  const SinkhornOptions options{.epsilon = 0.5, .rho_a = 2, .iterations = 20};
  for (const CostKind kind : kKinds) {
    for (const auto& [n, m, dim] : {std::tuple{1, 1, 2},
                                    {17, 33, 3},
                                    {40, 300, 7},
                                    {64, 31, 19},
                                    {130, 65, 2},
                                    {65, 128, 67},
                                    {21, 517, 5}}) {
      check_points<float>(kind, n, m, dim, options);
      check_points<double>(kind, n, m, dim, options);
    }
  }
}

TEST_P(SinkhornPath, EveryProblemOfPoints) {
  for (const SinkhornOptions& options :
       {SinkhornOptions{.epsilon = 0.3, .iterations = 10},
        SinkhornOptions{.epsilon = 0.3, .mass = 0.6, .iterations = 10},
        SinkhornOptions{
            .epsilon = 0.3, .rho_a = 0, .rho_b = 1, .updates = SinkhornUpdates::kSymmetric, .iterations = 10},
        SinkhornOptions{
            .epsilon = 0.3, .mass = 0.6, .updates = SinkhornUpdates::kSymmetric, .iterations = 10},
        SinkhornOptions{.epsilon = 0.1, .epsilon_start = 3, .iterations = 5}}) {
    check_points<float>(CostKind::kSquaredEuclidean, 70, 150, 3, options);
    check_points<float>(CostKind::kEuclidean, 30, 523, 3, options);
    check_points<double>(CostKind::kL1, 70, 150, 3, options);
  }
}

// Everything that comes of x and y, whose batch of problems has lengths in `counts`.
template <class Real, class Buffer>
std::vector<double> solve_points(const Buffer& x, const Buffer& y, const std::vector<std::int32_t>& counts,
                                 int n, int dim, const SinkhornOptions& options, const Execution& execution) {
  const auto batch = static_cast<std::int32_t>(counts.size());
  const Buffer lengths(counts);
  SinkhornProblem p;
  p.dtype = kDType<Real>;
  p.batch = batch;
  p.n = p.m = n;
  p.dim = dim;
  p.x = StridedTensor::contiguous(x.data(), {batch, n, dim});
  p.y = StridedTensor::contiguous(y.data(), {batch, n, dim});
  p.a = p.b = {nullptr, options.rho_a, static_cast<const std::int32_t*>(lengths.data())};
  p.updates = options.updates;
  p.epsilon = options.epsilon;
  p.epsilon_start = options.epsilon_start;
  p.max_iterations = options.iterations;
  p.tolerance = 0;
  const std::size_t points = counts.size() * n, size = sizeof(Real);
  const Buffer value(batch * size), f(points * size), g(points * size), grad_x(points * dim * size),
      grad_y(points * dim * size), grad_a(points * size), grad_b(points * size), error(batch * size);
  SinkhornOutputs out;
  out.value = value.data();
  out.f = f.data();
  out.g = g.data();
  out.grad_x = grad_x.data();
  out.grad_y = grad_y.data();
  out.grad_a = grad_a.data();
  out.grad_b = grad_b.data();
  out.error = error.data();
  const std::size_t bytes = sinkhorn_workspace_bytes(p, out, execution);
  const Buffer workspace(bytes);
  EXPECT_TRUE(sinkhorn(p, out, {workspace.data(), bytes}, execution).ok());
  std::vector<double> all;
  const auto add = [&](const Buffer& buffer, std::size_t count) {
    for (const double v : read<Real>(buffer, count)) all.push_back(v);
  };
  for (const Buffer* buffer : {&value, &error}) add(*buffer, batch);
  for (const Buffer* buffer : {&f, &g, &grad_a, &grad_b}) add(*buffer, points);
  for (const Buffer* buffer : {&grad_x, &grad_y}) add(*buffer, points * dim);
  return all;
}

// On CUDA the sums of a set with itself are computed once for both sides. The compiler may fuse other
// products and sums there, so that the last digits differ.
template <class Real>
void check_a_set_with_itself(int n, int dim, const SinkhornOptions& options) {
  SCOPED_TRACE(testing::Message() << n << " x " << dim << ", epsilon " << options.epsilon << ", rho "
                                  << options.rho_a << ", " << sizeof(Real) << " bytes");
  on_path_and_by({"points"}, [&]<class Buffer>(const Execution& execution) {
    const std::vector<double> points = normal(2 * n * dim, 61);
    const std::vector<std::int32_t> counts{n, (n + 1) / 2};
    const Buffer x(as<Real>(points)), y(as<Real>(points));
    const std::vector<double> once = solve_points<Real, Buffer>(x, x, counts, n, dim, options, execution),
                              twice = solve_points<Real, Buffer>(x, y, counts, n, dim, options, execution);
    ASSERT_EQ(once.size(), twice.size());
#if WARPALIGN_SIMT
    const double tolerance = 0;
#else
    const double tolerance = execution.device == Device::kHost ? 0 : sizeof(Real) == 4 ? 5e-6 : 1e-13;
#endif
    for (std::size_t i = 0; i < once.size(); ++i)
      EXPECT_NEAR(once[i], twice[i], tolerance * std::max(1.0, std::abs(twice[i]))) << "number " << i;
  });
}

TEST_P(SinkhornPath, ASetWithItselfIsTwoEqualSets) {
  constexpr SinkhornUpdates kSymmetric = SinkhornUpdates::kSymmetric;
  for (const int dim : {3, 19}) {
    for (const SinkhornOptions& options :
         {SinkhornOptions{.epsilon = 0.3, .updates = kSymmetric, .iterations = 6},
          SinkhornOptions{.epsilon = 1e-4, .rho_a = 1, .updates = kSymmetric, .iterations = 4},
          SinkhornOptions{.epsilon = 0.05, .updates = kSymmetric, .epsilon_start = 3, .iterations = 3},
          SinkhornOptions{.epsilon = 0.3, .iterations = 4}}) {
      check_a_set_with_itself<float>(150, dim, options);
      check_a_set_with_itself<double>(70, dim, options);
    }
  }
}

// A ragged batch whose features follow each other at a distance: every problem is what it is alone.
TEST_P(SinkhornPath, RaggedBatchesOfStridedPoints) {
  constexpr int kBatch = 2, kN = 80, kM = 70, kDim = 3;
  const std::vector<std::int32_t> n{80, 5}, m{1, 70};
  const std::vector<double> x = normal(kBatch * kN * kDim, 51),
                            y = normal(kBatch * kM * kDim, 52);  // (B, D, N)
  on_path_and_by({"points"}, [&]<class Buffer>(const Execution& execution) {
    const Buffer x_data(as<float>(x)), y_data(as<float>(y)), rows(n), columns(m),
        f_data(kBatch * kN * sizeof(float)), grad(kBatch * kN * kDim * sizeof(float));
    SinkhornProblem p;
    p.batch = kBatch;
    p.n = kN;
    p.m = kM;
    p.dim = kDim;
    p.x = {x_data.data(), {kN * kDim, 1, kN}};
    p.y = {y_data.data(), {kM * kDim, 1, kM}};
    p.a.lengths = static_cast<const std::int32_t*>(rows.data());
    p.b.lengths = static_cast<const std::int32_t*>(columns.data());
    p.epsilon = 0.4;
    p.max_iterations = 15;
    p.tolerance = 0;
    SinkhornOutputs out;
    out.f = f_data.data();
    out.grad_x = grad.data();
    const std::size_t bytes = sinkhorn_workspace_bytes(p, out, execution);
    const Buffer workspace(bytes);
    ASSERT_TRUE(sinkhorn(p, out, {workspace.data(), bytes}, execution).ok());
    const std::vector<double> f = read<float>(f_data, kBatch * kN),
                              grad_x = read<float>(grad, kBatch * kN * kDim);
    for (int b = 0; b < kBatch; ++b) {
      const auto at = [&](const std::vector<double>& points, int length, int i, int d) {
        return points[(b * kDim + d) * length + i];
      };
      std::vector<double> cost;
      for (int i = 0; i < n[b]; ++i) {
        for (int j = 0; j < m[b]; ++j) {
          double sum = 0;
          for (int d = 0; d < kDim; ++d) sum += std::pow(at(x, kN, i, d) - at(y, kM, j, d), 2);
          cost.push_back(sum);
        }
      }
      const std::vector<double> a(n[b], 1.0 / n[b]), weight(m[b], 1.0 / m[b]);
      const SinkhornOptions options{.epsilon = 0.4, .iterations = 15};
      const SinkhornAnswer want = detail::transport::reference::sinkhorn(cost, a, weight, options);
      for (int i = 0; i < kN; ++i) {
        EXPECT_NEAR(f[b * kN + i], i < n[b] ? want.f[i] : 0,
                    i < n[b] ? 2e-5 * std::max(1.0, largest(want.f)) : 0);
        for (int d = 0; d < kDim; ++d) {
          double sum = 0;
          for (int j = 0; i < n[b] && j < m[b]; ++j) {
            sum += want.plan[i * m[b] + j] * 2 * (at(x, kN, i, d) - at(y, kM, j, d));
          }
          EXPECT_NEAR(grad_x[(b * kN + i) * kDim + d], sum, i < n[b] ? 2e-5 : 0);
        }
      }
    }
  });
}

WARPALIGN_FOR_EVERY(SinkhornPath, all_paths);

}  // namespace
}  // namespace warpalign::test
