// What is read off a plan, against the dense plan of plan_dense(), and that against sinkhorn()'s.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <string_view>
#include <vector>

#include "host_buffer.h"
#include "warpalign/thread_pool.h"
#include "warpalign/transport_plan.h"

namespace warpalign::test {
namespace {

using Numbers = std::vector<double>;

Numbers normal(std::size_t count, unsigned seed) {
  std::mt19937 engine(seed);
  std::normal_distribution<double> distribution;
  Numbers v(count);
  for (double& x : v) x = distribution(engine);
  return v;
}

constexpr int kBatch = 2, kN = 70, kM = 33, kDim = 3, kColumns = 5;

// Two unbalanced problems in float64, solved; the second one has padding.
struct Solved {
  Numbers x = normal(kBatch * kN * kDim, 1), y = normal(kBatch * kM * kDim, 2);
  Numbers a = normal(kBatch * kN, 3), b = normal(kBatch * kM, 4);
  Numbers f = Numbers(kBatch * kN), g = Numbers(kBatch * kM), grad_cost = Numbers(kBatch * kN * kM);
  Numbers cost = Numbers(kBatch * kN * kM);
  std::vector<std::int32_t> n{kN, 41}, m{kM, 20};
  SinkhornProblem p;

  explicit Solved(bool from_points = true) {
    for (Numbers* weights : {&a, &b}) {
      for (double& w : *weights) w = std::exp(w) / 50;
    }
    a[7] = b[3] = 0;
    p.dtype = DType::kFloat64;
    p.batch = kBatch;
    p.n = kN;
    p.m = kM;
    if (from_points) {
      p.dim = kDim;
      p.x = {x.data(), {kN * kDim, kDim, 1}};
      p.y = {y.data(), {kM * kDim, kDim, 1}};
      p.cost_kind = CostKind::kCosine;
    } else {
      for (std::size_t k = 0; k < cost.size(); ++k) cost[k] = std::abs(normal(1, 50 + k)[0]);
      p.cost = {cost.data(), {kN * kM, kM, 1}};
    }
    p.cost_scale = 1.3;
    p.a = {a.data(), 2.0, n.data()};
    p.b = {b.data(), 1.0, m.data()};
    p.epsilon = 0.4;
    SinkhornOutputs out;
    out.f = f.data();
    out.g = g.data();
    out.grad_cost = grad_cost.data();
    const std::size_t bytes = sinkhorn_workspace_bytes(p, out, Execution::host());
    const HostBuffer memory(bytes);
    EXPECT_TRUE(sinkhorn(p, out, {memory.data(), bytes}, Execution::host()).ok());
    p.f0 = f.data();
    p.g0 = g.data();
  }

  [[nodiscard]] Numbers dense() const {
    Numbers plan(static_cast<std::size_t>(kBatch) * kN * kM);
    const std::size_t bytes = plan_dense_workspace_bytes(p, Execution::host());
    const HostBuffer memory(bytes);
    EXPECT_TRUE(plan_dense(p, plan.data(), {memory.data(), bytes}, Execution::host()).ok());
    return plan;
  }

  [[nodiscard]] Numbers apply(const Numbers& v, StridedTensor view, bool transposed) const {
    Numbers result(static_cast<std::size_t>(kBatch) * (transposed ? kM : kN) * kColumns, NAN);
    view.data = v.data();
    const PlanProduct product{transposed, kColumns, view, result.data()};
    const std::size_t bytes = plan_apply_workspace_bytes(p, product, Execution::host());
    const HostBuffer memory(bytes);
    EXPECT_TRUE(plan_apply(p, product, {memory.data(), bytes}, Execution::host()).ok());
    return result;
  }

  [[nodiscard]] std::vector<std::int32_t> sample(std::int32_t count, std::uint64_t seed,
                                                 const Execution& execution = Execution::host()) const {
    std::vector<std::int32_t> pairs(static_cast<std::size_t>(kBatch) * count * 2);
    const PlanSamples samples{count, seed, pairs.data()};
    const std::size_t bytes = plan_sample_workspace_bytes(p, samples, execution);
    const HostBuffer memory(bytes);
    EXPECT_TRUE(plan_sample(p, samples, {memory.data(), bytes}, execution).ok());
    return pairs;
  }
};

std::size_t at(int b, int i, int j) { return (static_cast<std::size_t>(b) * kN + i) * kM + j; }

void expect_near(const Numbers& got, const Numbers& expected, double tolerance, const char* what) {
  double largest = 0;
  for (const double v : expected) largest = std::max(largest, std::abs(v));
  for (std::size_t k = 0; k < got.size(); ++k) {
    ASSERT_NEAR(got[k], expected[k], tolerance * largest) << what << " at " << k;
  }
}

TEST(TransportPlan, DenseIsTheGradientByTheCosts) {
  for (const bool from_points : {true, false}) {
    const Solved of(from_points);
    Numbers expected = of.grad_cost;
    for (double& v : expected) v /= of.p.cost_scale;
    expect_near(of.dense(), expected, 1e-13, "plan");
  }
}

TEST(TransportPlan, AppliesBothWaysToStridedColumns) {
  for (const bool from_points : {true, false}) {
    const Solved of(from_points);
    const Numbers plan = of.dense();
    for (const bool transposed : {false, true}) {
      const int length = transposed ? kN : kM, rows = transposed ? kM : kN;
      Numbers v = normal(static_cast<std::size_t>(kBatch) * length * kColumns, 5);
      for (int k = 0; k < kColumns; ++k) {  // what lies behind the true lengths is not looked at
        v[(1 * kColumns + k) * length + length - 1] = NAN;
      }
      const Numbers got = of.apply(v, {nullptr, {length * kColumns, 1, length}}, transposed);
      Numbers expected(got.size());
      for (int b = 0; b < kBatch; ++b) {
        for (int i = 0; i < of.n[b]; ++i) {
          for (int j = 0; j < of.m[b]; ++j) {
            for (int k = 0; k < kColumns; ++k) {
              const int row = transposed ? j : i, column = transposed ? i : j;
              expected[(static_cast<std::size_t>(b) * rows + row) * kColumns + k] +=
                  plan[at(b, i, j)] * v[(b * kColumns + k) * length + column];
            }
          }
        }
      }
      expect_near(got, expected, 1e-13, "product");
    }
  }
}

// sum W P, for the problem as it is.
double weighted_sum(const Solved& of, const Numbers& w) {
  const Numbers plan = of.dense();
  double sum = 0;
  for (std::size_t k = 0; k < plan.size(); ++k) sum += w[k] * plan[k];
  return sum;
}

TEST(TransportPlan, GradientsAreDifferences) {
  Solved of;
  const Numbers u = normal(kBatch * kN * kColumns, 6), v = normal(kBatch * kM * kColumns, 7);
  Numbers w(static_cast<std::size_t>(kBatch) * kN * kM);
  for (int b = 0; b < kBatch; ++b) {
    for (int i = 0; i < kN; ++i) {
      for (int j = 0; j < kM; ++j) {
        for (int k = 0; k < kColumns; ++k) {
          w[at(b, i, j)] += u[(b * kN + i) * kColumns + k] * v[(b * kM + j) * kColumns + k];
        }
      }
    }
  }
  Numbers row_sums(kBatch * kN), column_sums(kBatch * kM), x(of.x.size()), y(of.y.size()), a(kBatch * kN),
      b(kBatch * kM), epsilon(kBatch);
  PlanGradient gradient;
  gradient.row_sums = row_sums.data();
  gradient.column_sums = column_sums.data();
  gradient.grad_x = x.data();
  gradient.grad_y = y.data();
  gradient.grad_a = a.data();
  gradient.grad_b = b.data();
  gradient.grad_epsilon = epsilon.data();
  const auto run = [&] {
    const std::size_t bytes = plan_gradient_workspace_bytes(of.p, gradient, Execution::host());
    const HostBuffer memory(bytes);
    ASSERT_TRUE(plan_gradient(of.p, gradient, {memory.data(), bytes}, Execution::host()).ok());
  };
  gradient.w = {w.data(), {kN * kM, kM, 1}};
  run();
  const Numbers by_dense_x = x, by_dense_columns = column_sums;
  gradient.w = {};
  gradient.columns = kColumns;
  gradient.u = {u.data(), {kN * kColumns, kColumns, 1}};
  gradient.v = {v.data(), {kM * kColumns, kColumns, 1}};
  run();
  expect_near(x, by_dense_x, 1e-12, "dense weights, grad_x");
  expect_near(column_sums, by_dense_columns, 1e-12, "dense weights, column_sums");

  const double step = 1e-6;
  const auto check = [&](double& input, double gradient_of_it, const char* what) {
    const double kept = input;
    input = kept + step;
    const double ahead = weighted_sum(of, w);
    input = kept - step;
    const double behind = weighted_sum(of, w);
    input = kept;
    EXPECT_NEAR(gradient_of_it, (ahead - behind) / (2 * step), 1e-7) << what;
  };
  for (const int k : {0, 1, kN * kDim + 4}) check(of.x[k], x[k], "x");
  for (const int k : {0, 1, kM * kDim + 4}) check(of.y[k], y[k], "y");
  for (const int k : {0, kN + 40}) {
    check(of.a[k], a[k], "a");
    check(of.f[k], row_sums[k] / of.p.epsilon, "f");
  }
  for (const int k : {0, kM + 19}) {
    check(of.b[k], b[k], "b");
    check(of.g[k], column_sums[k] / of.p.epsilon, "g");
  }
  check(of.p.epsilon, epsilon[0] + epsilon[1], "epsilon");
  EXPECT_EQ(x[(kN + 41) * kDim], 0);  // padding
  EXPECT_NE(a[7], 0);                 // a weight of 0 may grow
}

TEST(TransportPlan, TopEntriesFallAndTiesGoByIndex) {
  const Solved of;
  const Numbers plan = of.dense();
  constexpr int kCount = 25;  // more than the second problem's columns
  for (const bool transposed : {false, true}) {
    const int rows = transposed ? kM : kN;
    Numbers values(static_cast<std::size_t>(kBatch) * rows * kCount);
    std::vector<std::int32_t> indices(values.size());
    const PlanTop top{transposed, kCount, values.data(), indices.data()};
    const std::size_t bytes = plan_topk_workspace_bytes(of.p, top, Execution::host());
    const HostBuffer memory(bytes);
    ASSERT_TRUE(plan_topk(of.p, top, {memory.data(), bytes}, Execution::host()).ok());
    for (int b = 0; b < kBatch; ++b) {
      const int all = transposed ? of.n[b] : of.m[b];
      for (int r = 0; r < (transposed ? of.m[b] : of.n[b]); ++r) {
        std::vector<std::pair<double, int>> row;
        for (int c = 0; c < all; ++c) row.emplace_back(-plan[transposed ? at(b, c, r) : at(b, r, c)], c);
        std::sort(row.begin(), row.end());
        for (int k = 0; k < std::min(kCount, all); ++k) {
          const std::size_t place = (static_cast<std::size_t>(b) * rows + r) * kCount + k;
          EXPECT_NEAR(values[place], -row[k].first, 1e-16);
          if (plan[transposed ? at(b, 0, r) : at(b, r, 0)] > 0) {  // else all are 0, in both
            EXPECT_EQ(indices[place], row[k].second) << transposed << b << r << k;
          }
        }
      }
    }
  }
}

TEST(TransportPlan, SamplesFollowThePlan) {
  const Solved of;
  const Numbers plan = of.dense();
  constexpr int kCount = 200000;
  const std::vector<std::int32_t> pairs = of.sample(kCount, 12345);
  for (int b = 0; b < kBatch; ++b) {
    Numbers seen(kN * kM);
    double mass = 0, statistic = 0;
    for (int k = 0; k < kCount; ++k) {
      const std::int32_t* const pair = &pairs[(static_cast<std::size_t>(b) * kCount + k) * 2];
      ASSERT_GT(plan[at(b, pair[0], pair[1])], 0);
      ++seen[pair[0] * kM + pair[1]];
    }
    for (int i = 0; i < kN * kM; ++i) mass += plan[at(b, 0, i)];
    int cells = 0;
    for (int i = 0; i < kN * kM; ++i) {
      const double expected = kCount * plan[at(b, 0, i)] / mass;
      if (expected < 5) continue;
      statistic += std::pow(seen[i] - expected, 2) / expected;
      ++cells;
    }
    // Chi-square: mean `cells`, standard deviation sqrt(2 cells).
    EXPECT_GT(cells, 500);
    EXPECT_NEAR(statistic, cells, 5 * std::sqrt(2.0 * cells));
  }
  ThreadPool pool(3);
  EXPECT_EQ(pairs, of.sample(kCount, 12345, Execution::host(pool.parallel_for())));
  EXPECT_NE(pairs, of.sample(kCount, 12346));
}

TEST(TransportPlan, NamesTheArgumentThatIsWrong) {
  Solved of;
  Numbers v(kBatch * kN * kM), result(kBatch * kN * kM);
  const HostBuffer memory(1 << 20);
  const Workspace workspace{memory.data(), 1 << 20};
  PlanProduct product{false, 1, {v.data(), {kM, 1, 1}}, result.data()};
  const auto apply = [&] {
    return std::string_view(plan_apply(of.p, product, workspace, Execution::host()).argument);
  };
  product.columns = 0;
  EXPECT_EQ(apply(), "columns");
  product.columns = 1;
  product.v.data = nullptr;
  EXPECT_EQ(apply(), "v");
  product.v.data = v.data();
  product.result = nullptr;
  EXPECT_EQ(apply(), "result");
  std::vector<std::int32_t> indices(kBatch * kN);
  EXPECT_STREQ(
      plan_topk(of.p, {false, kM + 1, v.data(), indices.data()}, workspace, Execution::host()).argument,
      "count");
  EXPECT_STREQ(plan_sample(of.p, {0, 0, indices.data()}, workspace, Execution::host()).argument, "count");
  EXPECT_STREQ(plan_gradient(of.p, {}, workspace, Execution::host()).argument, "w");
  EXPECT_STREQ(plan_dense(of.p, nullptr, workspace, Execution::host()).argument, "plan");
  of.p.g0 = nullptr;
  EXPECT_STREQ(plan_dense(of.p, v.data(), workspace, Execution::host()).argument, "g0");
}

}  // namespace
}  // namespace warpalign::test
