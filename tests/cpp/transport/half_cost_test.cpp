// Costs of binary16: every function gives what it gives of the same costs in float32.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "core/half.h"
#include "fixture.h"
#include "warpalign/transport_plan.h"

namespace warpalign::test {
namespace {

using detail::Float16;

class HalfCostPath : public SinkhornPath {};

// Two problems, the second one with padding.
struct Shape {
  int n, m;
  std::int64_t stride[2];  // of rows and columns, in elements
  SinkhornUpdates updates = SinkhornUpdates::kAlternating;
  int iterations = 6;  // 16 and more keep exponentials of up to 512 columns

  [[nodiscard]] std::int64_t of_batch() const { return (n - 1) * stride[0] + (m - 1) * stride[1] + 1; }
};

// What comes of costs that are stored as `Stored`. Sums of a solve may have another order, all else may not.
struct Outcome {
  std::vector<double> solved, read_off;
};

template <class Stored>
Outcome outcome(const Shape& shape, const std::vector<float>& costs, const std::vector<float>& potentials) {
  constexpr int kBatch = 2;
  const int n = shape.n, m = shape.m;
  const std::size_t rows = kBatch * n, columns = kBatch * m, pairs = rows * m;
  std::vector<Stored> stored;
  for (const float c : costs) stored.push_back(detail::rounded_to<Stored>(c));
  Outcome all;
  on_path([&]<class Buffer>(const Execution& execution) {
    const Buffer cost(stored), a(as<float>(weights(rows, 2))), b(as<float>(weights(columns, 3)));
    const Buffer n_data(std::vector<std::int32_t>{n, (n + 1) / 2});
    const Buffer m_data(std::vector<std::int32_t>{m, (m + 2) / 3});
    const Buffer f(std::vector<float>(potentials.begin(), potentials.begin() + rows));
    const Buffer g(std::vector<float>(potentials.begin() + rows, potentials.end()));
    SinkhornProblem p;
    p.batch = kBatch;
    p.n = n;
    p.m = m;
    p.cost = {cost.data(), {shape.of_batch(), shape.stride[0], shape.stride[1]}};
    p.half_cost = sizeof(Stored) == 2;
    p.a = {a.data(), 1.5, static_cast<const std::int32_t*>(n_data.data())};
    p.b = {b.data(), kInf, static_cast<const std::int32_t*>(m_data.data())};
    p.epsilon = 0.4;
    p.cost_scale = 0.7;
    p.updates = shape.updates;
    p.max_iterations = shape.iterations;
    p.tolerance = 0;

    // Runs call(workspace) with so much memory for each of its outputs, and adds to `results` what it wrote.
    const auto run = [](std::vector<double>& results, const std::vector<std::size_t>& counts, auto&& call) {
      std::deque<Buffer> to;
      for (const std::size_t count : counts) to.emplace_back(count * sizeof(float));
      call(to);
      for (std::size_t k = 0; k < counts.size(); ++k) {
        const std::vector<double> numbers = read<float>(to[k], counts[k]);
        results.insert(results.end(), numbers.begin(), numbers.end());
      }
    };
    run(all.solved, {rows, columns, kBatch, kBatch, pairs, rows, columns, kBatch}, [&](auto& to) {
      SinkhornOutputs out;
      out.f = to[0].data();
      out.g = to[1].data();
      out.value = to[2].data();
      out.linear = to[3].data();
      out.grad_cost = to[4].data();
      out.grad_a = to[5].data();
      out.grad_b = to[6].data();
      out.grad_epsilon = to[7].data();
      const std::size_t bytes = sinkhorn_workspace_bytes(p, out, execution);
      const Buffer workspace(bytes);
      ASSERT_TRUE(sinkhorn(p, out, {workspace.data(), bytes}, execution).ok());
    });
    p.f0 = f.data();
    p.g0 = g.data();
    run(all.read_off, {rows * 2}, [&](auto& to) {
      const Buffer v(as<float>(normal(columns * 2, 5)));
      const PlanProduct product{false, 2, {v.data(), {2 * std::int64_t{m}, 2, 1}}, to[0].data()};
      const std::size_t bytes = plan_apply_workspace_bytes(p, product, execution);
      const Buffer workspace(bytes);
      ASSERT_TRUE(plan_apply(p, product, {workspace.data(), bytes}, execution).ok());
    });
    run(all.read_off, {pairs, kBatch}, [&](auto& to) {
      const Buffer moved(as<float>(normal(pairs, 6)));
      SinkhornTangents along;
      along.cost = {moved.data(), {std::int64_t{n} * m, m, 1}};
      SinkhornOutputs out;
      out.grad_cost = to[0].data();
      out.linear = to[1].data();
      const std::size_t bytes = sinkhorn_jvp_workspace_bytes(p, along, out, execution);
      const Buffer workspace(bytes);
      ASSERT_TRUE(sinkhorn_jvp(p, along, out, {workspace.data(), bytes}, execution).ok());
    });
  });
  return all;
}

// CUDA: rows of 1024 columns belong to 128 threads, longer ones to 384; words of two costs are copied whole
// where rows begin at even places. A row that begins at an odd one, gaps, and columns in memory order.
TEST_P(HalfCostPath, EverythingIsThatOfTheRoundedCosts) {
  const Shape shapes[] = {{9, 400, {400, 1}},
                          {33, 301, {301, 1}},
                          {12, 1026, {1026, 1}, SinkhornUpdates::kSymmetric},
                          {40, 9, {1, 40}},
                          {7, 31, {64, 2}},
                          {2, 12291, {12292, 1}},
                          {33, 301, {301, 1}, SinkhornUpdates::kAlternating, 16},
                          {7, 31, {64, 2}, SinkhornUpdates::kSymmetric, 16}};
  for (const Shape& shape : shapes) {
    SCOPED_TRACE(std::to_string(shape.n) + " x " + std::to_string(shape.m));
    std::vector<float> costs;
    for (const double c : normal(2 * shape.of_batch(), 1)) {
      costs.push_back(static_cast<float>(Float16::rounded(static_cast<float>(c * c))));
    }
    costs[3] = static_cast<float>(kInf);
    costs[5] = 0x1p-24F;  // subnormal
    costs[6] = -1.5F;
    const auto potentials = as<float>(normal(2 * (shape.n + shape.m), 4));
    const Outcome half = outcome<Float16>(shape, costs, potentials);
    const Outcome single = outcome<float>(shape, costs, potentials);
    EXPECT_TRUE(same_bits(half.read_off, single.read_off));
    if (!GetParam().cuda) {
      EXPECT_TRUE(same_bits(half.solved, single.solved));
    }
    ASSERT_EQ(half.solved.size(), single.solved.size());
    for (std::size_t k = 0; k < half.solved.size(); ++k) {
      ASSERT_NEAR(half.solved[k], single.solved[k], 1e-5 * std::max(1.0, std::abs(single.solved[k]))) << k;
    }
  }
}

TEST_P(HalfCostPath, ItsContract) {
  on_path([&]<class Buffer>(const Execution& execution) {
    const Buffer cost(64);
    SinkhornProblem p;
    p.batch = 1;
    p.n = p.m = 4;
    p.half_cost = true;
    p.cost = {cost.data(), {16, 4, 1}};
    p.dtype = DType::kFloat64;
    EXPECT_STREQ(sinkhorn(p, {}, {}, execution).argument, "dtype");
    p.dtype = DType::kFloat32;
    p.cost.data = static_cast<const char*>(cost.data()) + 1;
    EXPECT_STREQ(sinkhorn(p, {}, {}, execution).argument, "cost");
    p.cost = {};
    p.dim = 1;
    p.x = p.y = {cost.data(), {4, 1, 1}};
    EXPECT_STREQ(sinkhorn(p, {}, {}, execution).argument, "half_cost");
  });
}

WARPALIGN_FOR_EVERY(HalfCostPath, all_paths);

}  // namespace
}  // namespace warpalign::test
