// The functions of transport_plan.h on CUDA, against the float64 CPU path at the same potentials.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <iterator>
#include <numeric>
#include <tuple>
#include <vector>

#include "device_buffer.h"
#include "testing.h"
#include "warpalign/transport_plan.h"

namespace warpalign::test {
namespace {

class TransportPlanCuda : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!has_gpu()) GTEST_SKIP() << "no GPU";
  }
};

// A batch of two problems of which the second one has padding. Sources are given costs (dim 0), the same
// transposed (dim -1), or points.
struct Problem {
  static constexpr int kBatch = 2, kColumns = 67;
  const int n, m, dim;
  const CostKind kind;
  const bool counting;
  std::vector<double> first, second, a, b, f, g, by_columns, by_rows;
  std::vector<std::int32_t> rows, columns;

  Problem(int n_, int m_, int dim_, CostKind kind_, bool counting_)
      : n(n_),
        m(m_),
        dim(dim_),
        kind(kind_),
        counting(counting_),
        rows{n_, (n_ + 1) / 2},
        columns{m_, (m_ + 2) / 3} {
    const std::size_t all_rows = kBatch * n, all_columns = kBatch * m;
    first = normal(dim > 0 ? all_rows * dim : all_rows * m, 1);
    second = normal(dim > 0 ? all_columns * dim : 0, 2);
    if (dim <= 0) {
      for (double& c : first) c = static_cast<float>(c * c);
      first[3] = kInf;
    }
    a = weights(all_rows, 3);
    b = weights(all_columns, 4);
    f = normal(all_rows, 5);
    g = normal(all_columns, 6);
    by_columns = normal(all_columns * kColumns, 7);
    by_rows = normal(all_rows * kColumns, 8);
  }

  template <class Real, class Buffer, class Function>
  std::vector<double> on(const Execution& execution, std::size_t count, const Function& call) const {
    const Buffer first_data(as<Real>(first)), second_data(as<Real>(second)), a_data(as<Real>(a)),
        b_data(as<Real>(b)), f_data(as<Real>(f)), g_data(as<Real>(g)), rows_data(rows), columns_data(columns);
    SinkhornProblem p;
    p.dtype = kDType<Real>;
    p.batch = kBatch;
    p.n = n;
    p.m = m;
    if (dim > 0) {
      p.dim = dim;
      p.x = {first_data.data(), {n * dim, dim, 1}};
      p.y = {second_data.data(), {m * dim, dim, 1}};
      p.cost_kind = kind;
    } else if (dim == 0) {
      p.cost = {first_data.data(), {n * m, m, 1}};
    } else {
      p.cost = {first_data.data(), {n * m, 1, n}};
    }
    p.cost_scale = 0.7;
    p.a = {a_data.data(), 1.0, static_cast<const std::int32_t*>(rows_data.data())};
    p.b = {b_data.data(), 0.0, static_cast<const std::int32_t*>(columns_data.data())};
    p.epsilon = 0.8;
    p.epsilon_start = 5;
    p.mass = 1e-4;  // neither is looked at
    p.reference = counting ? TransportReference::kCounting : TransportReference::kProduct;
    p.f0 = f_data.data();
    p.g0 = g_data.data();
    const Buffer result(count * sizeof(Real));
    call(p, result.data(), execution);
    return read<Real>(result, count);
  }

  template <class Real, class Buffer>
  std::vector<double> dense(const Execution& execution) const {
    return on<Real, Buffer>(execution, static_cast<std::size_t>(kBatch) * n * m,
                            [&](const SinkhornProblem& p, void* to, const Execution& e) {
                              const std::size_t bytes = plan_dense_workspace_bytes(p, e);
                              const Buffer workspace(bytes);
                              const Status s = plan_dense(p, to, {workspace.data(), bytes}, e);
                              EXPECT_TRUE(s.ok()) << s.argument << ": " << s.message;
                            });
  }
  template <class Real, class Buffer>
  std::vector<double> apply(const Execution& execution, bool transposed) const {
    const std::vector<double>& v = transposed ? by_rows : by_columns;
    const std::int64_t length = transposed ? n : m;
    return on<Real, Buffer>(execution, static_cast<std::size_t>(kBatch) * (transposed ? m : n) * kColumns,
                            [&](const SinkhornProblem& p, void* to, const Execution& e) {
                              const Buffer v_data(as<Real>(v));
                              // (B, K, length) in memory.
                              const PlanProduct product{
                                  transposed, kColumns, {v_data.data(), {length * kColumns, 1, length}}, to};
                              const std::size_t bytes = plan_apply_workspace_bytes(p, product, e);
                              const Buffer workspace(bytes);
                              const Status s = plan_apply(p, product, {workspace.data(), bytes}, e);
                              EXPECT_TRUE(s.ok()) << s.argument << ": " << s.message;
                            });
  }

  template <class Real>
  void check() const {
    SCOPED_TRACE(testing::Message() << n << " x " << m << ", D " << dim << ", kind " << static_cast<int>(kind)
                                    << ", counting " << counting);
    const double tolerance = sizeof(Real) == 4 ? 2e-6 : 1e-13;
    const auto expect_near = [&](const std::vector<double>& got, const std::vector<double>& want) {
      const double floor = tolerance * largest(want);
      for (std::size_t k = 0; k < want.size(); ++k) ASSERT_NEAR(got[k], want[k], floor) << k;
      for (std::size_t k = 0; k < want.size(); ++k) {
        if (want[k] == 0) {
          ASSERT_EQ(got[k], 0) << k;
        }
      }
    };
    const Execution host = Execution::host(), cuda = Execution::cuda(0, nullptr);
    expect_near(dense<Real, DeviceBuffer>(cuda), dense<double, HostBuffer>(host));
    for (const bool transposed : {false, true}) {
      expect_near(apply<Real, DeviceBuffer>(cuda, transposed), apply<double, HostBuffer>(host, transposed));
    }
  }
};

TEST_F(TransportPlanCuda, PlansAndProducts) {
  for (const auto& [n, m, dim] :
       {std::tuple{1, 1, 2}, {64, 65, 3}, {70, 200, 0}, {130, 63, -1}, {65, 31, 20}, {300, 260, 0}}) {
    for (const CostKind kind : {CostKind::kSquaredEuclidean, CostKind::kCosine}) {
      if (dim <= 0 && kind == CostKind::kCosine) continue;
      for (const bool counting : {false, true}) {
        const Problem problem(n, m, dim, kind, counting);
        problem.check<float>();
        problem.check<double>();
      }
    }
  }
}

struct Top {
  std::vector<double> values;
  std::vector<std::int32_t> indices;
};

template <class Real, class Buffer>
Top top_of(const Problem& problem, const Execution& execution, bool transposed, int count) {
  const std::size_t entries =
      static_cast<std::size_t>(Problem::kBatch) * (transposed ? problem.m : problem.n) * count;
  Top top;
  top.values = problem.on<Real, Buffer>(
      execution, entries, [&](const SinkhornProblem& p, void* to, const Execution& e) {
        const Buffer indices(entries * sizeof(std::int32_t));
        const PlanTop wanted{transposed, count, to, static_cast<std::int32_t*>(indices.data())};
        const std::size_t bytes = plan_topk_workspace_bytes(p, wanted, e);
        const Buffer workspace(bytes);
        const Status s = plan_topk(p, wanted, {workspace.data(), bytes}, e);
        EXPECT_TRUE(s.ok()) << s.argument << ": " << s.message;
        top.indices = indices.template read<std::int32_t>(entries);
      });
  return top;
}

TEST_F(TransportPlanCuda, LargestEntries) {
  const Execution host = Execution::host(), cuda = Execution::cuda(0, nullptr);
  for (const auto& [n, m, dim] : {std::tuple{1, 1, 2}, {64, 65, 3}, {70, 200, 0}, {130, 63, -1}}) {
    const Problem problem(n, m, dim, CostKind::kSquaredEuclidean, false);
    for (const bool transposed : {false, true}) {
      for (const int wanted : {1, 4, 5, 19}) {
        const int count = std::min(wanted, transposed ? n : m);
        SCOPED_TRACE(testing::Message() << n << " x " << m << ", " << transposed << ", " << count);
        const Top want = top_of<double, HostBuffer>(problem, host, transposed, count);
        const Top wide = top_of<double, DeviceBuffer>(problem, cuda, transposed, count);
        EXPECT_EQ(wide.indices, want.indices);
        EXPECT_LE(distance(wide.values, want.values), 1e-13 * largest(want.values));
        const Top got = top_of<float, DeviceBuffer>(problem, cuda, transposed, count);
        EXPECT_LE(distance(got.values, want.values), 2e-6 * largest(want.values));
      }
    }
  }
}

// Equal entries, and those of forbidden pairs, come by index.
TEST_F(TransportPlanCuda, TiesGoByIndex) {
  Problem problem(5, 100, 0, CostKind::kSquaredEuclidean, true);
  problem.f.assign(problem.f.size(), 0.0);
  problem.g.assign(problem.g.size(), 0.0);
  for (std::size_t k = 0; k < problem.first.size(); ++k) {
    problem.first[k] = k % 3 == 0 ? kInf : static_cast<double>(k % 2);
  }
  problem.rows = {5, 5};
  problem.columns = {100, 100};
  for (const int count : {1, 7, 100}) {
    const Top want = top_of<double, HostBuffer>(problem, Execution::host(), false, count);
    const Top got = top_of<float, DeviceBuffer>(problem, Execution::cuda(0, nullptr), false, count);
    EXPECT_EQ(got.indices, want.indices);
  }
}

// Every output of plan_gradient() behind each other, and where each begins.
struct Gradients {
  std::vector<double> all;
  std::vector<std::size_t> begins;
};

template <class Real, class Buffer>
Gradients gradients_of(const Problem& problem, const Execution& execution, bool dense) {
  constexpr std::size_t kBatch = Problem::kBatch;
  const std::size_t n = problem.n, m = problem.m, dim = std::max(problem.dim, 0);
  const std::size_t sizes[] = {n, m, n * dim, m * dim, n * m, n, m, 1};
  Gradients result;
  result.begins = {0};
  for (const std::size_t size : sizes) result.begins.push_back(result.begins.back() + kBatch * size);
  result.all = problem.on<Real, Buffer>(
      execution, result.begins.back(), [&](const SinkhornProblem& p, void* to, const Execution& e) {
        constexpr std::int64_t kColumns = 19;
        const Buffer u(as<Real>(normal(kBatch * n * kColumns, 11))),
            v(as<Real>(normal(kBatch * m * kColumns, 12))), w(as<Real>(normal(kBatch * n * m, 13)));
        const std::int64_t rows = p.n, columns = p.m;
        PlanGradient g;
        if (dense) {
          g.w = {w.data(), {rows * columns, 1, rows}};
        } else {
          g.columns = kColumns;
          g.u = {u.data(), {rows * kColumns, kColumns, 1}};
          g.v = {v.data(), {columns * kColumns, 1, columns}};
        }
        void** const places[] = {&g.row_sums,  &g.column_sums, &g.grad_x, &g.grad_y,
                                 &g.grad_cost, &g.grad_a,      &g.grad_b, &g.grad_epsilon};
        for (std::size_t k = 0; k < std::size(places); ++k) {
          if (sizes[k] > 0) *places[k] = static_cast<Real*>(to) + result.begins[k];
        }
        const std::size_t bytes = plan_gradient_workspace_bytes(p, g, e);
        const Buffer workspace(bytes);
        const Status s = plan_gradient(p, g, {workspace.data(), bytes}, e);
        EXPECT_TRUE(s.ok()) << s.argument << ": " << s.message;
      });
  return result;
}

template <class Real>
void expect_gradients(const Problem& problem, bool dense) {
  const Gradients want = gradients_of<double, HostBuffer>(problem, Execution::host(), dense);
  const Gradients got = gradients_of<Real, DeviceBuffer>(problem, Execution::cuda(0, nullptr), dense);
  // Sums of some hundred terms of both signs.
  const double tolerance = sizeof(Real) == 4 ? 5e-6 : 1e-13;
  for (std::size_t part = 0; part + 1 < want.begins.size(); ++part) {
    double largest_one = 0;
    for (std::size_t k = want.begins[part]; k < want.begins[part + 1]; ++k) {
      largest_one = std::max(largest_one, std::abs(want.all[k]));
    }
    for (std::size_t k = want.begins[part]; k < want.begins[part + 1]; ++k) {
      ASSERT_NEAR(got.all[k], want.all[k], tolerance * largest_one) << "output " << part << ", element " << k;
    }
  }
}

TEST_F(TransportPlanCuda, Gradients) {
  for (const auto& [n, m, dim, kind] : {std::tuple{1, 1, 2, CostKind::kSquaredEuclidean},
                                        {64, 65, 3, CostKind::kEuclidean},
                                        {130, 63, -1, CostKind::kSquaredEuclidean},
                                        {65, 31, 20, CostKind::kCosine},
                                        {33, 70, 67, CostKind::kHuber},
                                        {66, 150, 0, CostKind::kSquaredEuclidean}}) {
    for (const bool dense : {false, true}) {
      const Problem problem(n, m, dim, kind, dense && dim <= 3);
      SCOPED_TRACE(testing::Message() << n << " x " << m << ", D " << dim << ", dense W " << dense);
      expect_gradients<float>(problem, dense);
      expect_gradients<double>(problem, dense);
    }
  }
}

template <class Real, class Buffer>
std::vector<std::int32_t> samples_of(const Problem& problem, const Execution& execution, int count) {
  std::vector<std::int32_t> pairs;
  problem.on<Real, Buffer>(execution, 1, [&](const SinkhornProblem& p, void*, const Execution& e) {
    const std::size_t size = static_cast<std::size_t>(Problem::kBatch) * count * 2;
    const Buffer to(size * sizeof(std::int32_t));
    const PlanSamples wanted{count, 0x123456789abcull, static_cast<std::int32_t*>(to.data())};
    const std::size_t bytes = plan_sample_workspace_bytes(p, wanted, e);
    const Buffer workspace(bytes);
    const Status s = plan_sample(p, wanted, {workspace.data(), bytes}, e);
    EXPECT_TRUE(s.ok()) << s.argument << ": " << s.message;
    pairs = to.template read<std::int32_t>(size);
  });
  return pairs;
}

TEST_F(TransportPlanCuda, SamplesAreThoseOfACpu) {
  for (const auto& [n, m, dim, count] : {std::tuple{1, 1, 2, 3}, {64, 65, 3, 129}, {300, 260, 0, 500}}) {
    const Problem problem(n, m, dim, CostKind::kSquaredEuclidean, false);
    SCOPED_TRACE(testing::Message() << n << " x " << m);
    const std::vector<std::int32_t> want = samples_of<double, HostBuffer>(problem, Execution::host(), count);
    EXPECT_EQ((samples_of<double, DeviceBuffer>(problem, Execution::cuda(0, nullptr), count)), want);
    const auto got = samples_of<float, DeviceBuffer>(problem, Execution::cuda(0, nullptr), count);
    // One is another where its random number lies within float32's rounding of a sum: some 1e-6 of them.
    EXPECT_LE(
        std::inner_product(got.begin(), got.end(), want.begin(), 0, std::plus<>(), std::not_equal_to<>()), 2);
  }
}

TEST_F(TransportPlanCuda, NoMassGivesNoPairs) {
  Problem problem(5, 70, 0, CostKind::kSquaredEuclidean, false);
  for (std::size_t k = 0; k < 5 * 70; ++k) problem.first[k] = kInf;  // of the first problem
  const auto pairs = samples_of<float, DeviceBuffer>(problem, Execution::cuda(0, nullptr), 6);
  for (int k = 0; k < 12; ++k) EXPECT_EQ(pairs[k], -1) << k;
  for (int k = 12; k < 24; ++k) EXPECT_GE(pairs[k], 0) << k;
}

}  // namespace
}  // namespace warpalign::test
