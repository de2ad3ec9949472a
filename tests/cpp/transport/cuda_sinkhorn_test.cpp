// What the CUDA path of sinkhorn() alone has: layouts of rows over warps, blocks, segments and teams, batches
// on a few teams, and arguments that are on the device, where the host cannot check them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "cuda_solves.h"

namespace warpalign::test {
namespace {

// Up to 256 columns, iterations follow each other in one loop (costs/short_rows.cuh): rows of 1 to 32 lanes,
// with 1 to 8 columns each, of blocks of all numbers of warps and of teams of one and several blocks.
TEST_F(SinkhornCuda, ShortRows) {
  check_layouts<float>({{5, 1}, {70, 5}, {33, 20}, {64, 64}, {20, 130}, {130, 150}, {40, 256}, {120, 257}});
}
TEST_F(SinkhornCuda, ShortRowsInFloat64) {
  check_layouts<double>({{5, 1}, {33, 20}, {64, 64}, {70, 128}, {20, 200}, {130, 256}}, "block_rows");
}

// The first iterations' sums are far from 1: they leave the loop, and come back.
TEST_F(SinkhornCuda, ShortRowsWhoseSumsLeaveTheRange) {
  std::vector<double> cost = squares(40 * 50, 31);
  for (int e = 0; e < 40 * 50; ++e) {
    cost[e] = std::round(cost[e] * 64) / 64 + 20 * (e / 50 % 3) * (e % 50 % 4);
  }
  std::vector<double> a = weights(40, 32), b = weights(50, 33);
  a[8] += a[7], b[8] += b[9];
  a[7] = b[9] = 0;
  for (const auto updates : {SinkhornUpdates::kAlternating, SinkhornUpdates::kSymmetric}) {
    for (const double rho : {kInf, 30.0}) {
      for (const int iterations : {1, 2, 3, 4, 7, 20}) {
        const SinkhornOptions options{
            .epsilon = 0.05, .rho_a = rho, .updates = updates, .iterations = iterations};
        const SinkhornAnswer want = detail::transport::reference::sinkhorn(cost, a, b, options);
        for (const char* const way : {"warp_rows", "kept_rows"}) {
          SCOPED_TRACE(testing::Message() << way << ", rho " << rho << ", iterations " << iterations);
          expect_close<float>(solve<float>(cost, a, b, options, way), want, options.epsilon);
        }
      }
    }
  }
}

// float32: rows belong to a warp up to 256 columns, then to a block of 128 threads up to 1024, of 256 up to
// 6144 and 12288; then they have segments. Those threads have 8, 16, 24 or 48 columns.
// 4096 elements are worth a block of a team.
TEST_F(SinkhornCuda, RowsOfWarpsBlocksAndSegments) {
  check_layouts<float>({{3, 256},
                        {300, 255},
                        {9, 257},
                        {70, 1024},
                        {150, 1025},
                        {5, 2048},
                        {4, 2049},
                        {4, 4096},
                        {3, 4097},
                        {7, 6144},
                        {5, 6145},
                        {5, 12288},
                        {6, 12289},
                        {3, 25000}});
}
TEST_F(SinkhornCuda, RowsOfWarpsBlocksAndSegmentsInFloat64) {
  check_layouts<double>({{3, 128}, {300, 129}}, "block_rows");
  check_layouts<double>({{9, 512}, {170, 513}, {5, 6144}, {11, 6145}, {40, 12288}});
}

// A block's column sums go to memory every 128 rows of each of its warps.
TEST_F(SinkhornCuda, ManyRows) { check_layouts<float>({{2500, 3}, {1500, 800}}); }

// Potentials f and g of n x m costs in memory with these strides of rows and columns.
std::vector<double> potentials_of_costs(const void* data, int n, int m, std::int64_t of_rows,
                                        std::int64_t of_columns, const char* way) {
  const DeviceBuffer a(as<float>(weights(n, 22))), b(as<float>(weights(m, 23)));
  SinkhornProblem p;
  p.batch = 1;
  p.n = n;
  p.m = m;
  p.cost = {data, {(n - 1) * of_rows + (m - 1) * of_columns + 1, of_rows, of_columns}};
  p.a.weights = a.data();
  p.b.weights = b.data();
  p.epsilon = 0.5;
  p.max_iterations = 4;
  const DeviceBuffer f(n * sizeof(float)), g(m * sizeof(float));
  SinkhornOutputs out;
  out.f = f.data();
  out.g = g.data();
  Execution execution = Execution::cuda(0, nullptr);
  execution.way = way;
  const std::size_t bytes = sinkhorn_workspace_bytes(p, out, execution);
  const DeviceBuffer workspace(bytes);
  EXPECT_TRUE(sinkhorn(p, out, {workspace.data(), bytes}, execution).ok());
  std::vector<double> found = read<float>(f, n);
  const std::vector<double> of_m = read<float>(g, m);
  found.insert(found.end(), of_m.begin(), of_m.end());
  return found;
}

// Long rows that a bulk copy cannot copy: a cost has a gap behind it. The sums have the same order.
void check_gaps(int n, int m, const char* way) {
  const int count = n * m;
  const std::vector<double> cost = squares(count, 21);
  std::vector<float> spread(2 * count, static_cast<float>(kNan));
  for (int e = 0; e < count; ++e) spread[2 * e + 1] = static_cast<float>(cost[e]);
  const DeviceBuffer near(as<float>(cost)), far(spread);
  const std::vector<double> want = potentials_of_costs(near.data(), n, m, m, 1, way);
  const auto* const first = static_cast<const float*>(far.data()) + 1;
  EXPECT_TRUE(same_bits(potentials_of_costs(first, n, m, std::int64_t{2} * m, 2, way), want));
  EXPECT_GT(largest(want), 0);
}
TEST_F(SinkhornCuda, LongRowsWithGaps) {
  check_gaps(5, 6201, nullptr);
  check_gaps(5, 1203, "kept_rows");
}

// Costs whose columns follow each other in memory: the kernel's rows are the problem's columns.
TEST_F(SinkhornCuda, LongKeptRowsOfATransposedMatrix) {
  constexpr int kN = 603, kM = 40;
  const std::vector<double> cost = squares(kN * kM, 24);
  std::vector<double> transposed(cost.size());
  for (int e = 0; e < kN * kM; ++e) transposed[e % kM * kN + e / kM] = cost[e];
  const DeviceBuffer of_rows(as<float>(cost)), of_columns(as<float>(transposed));
  const std::vector<double> want = potentials_of_costs(of_rows.data(), kN, kM, kM, 1, "block_rows");
  const std::vector<double> found = potentials_of_costs(of_columns.data(), kN, kM, 1, kN, "kept_rows");
  EXPECT_LE(distance(found, want), 2e-6 * std::max(1.0, largest(want)));
}

// Of multiples of 2^-10, so that 100 more is exact in float32. The plan is the same: each plan of this mass
// costs the same amount more. The first iteration's sums are 2^-2900.
TEST_F(SinkhornCuda, PartialTransportAtCostsFarAboveEpsilon) {
  std::vector<double> cost = squares(40 * 25, 5);
  for (double& c : cost) c = std::round(c * 1024) / 1024;
  const std::vector<double> a = weights(40, 6), b = weights(25, 7);
  for (const auto updates : {SinkhornUpdates::kAlternating, SinkhornUpdates::kSymmetric}) {
    const SinkhornOptions options{.epsilon = 0.05, .mass = 0.5, .updates = updates, .iterations = 300};
    const Result near = solve<float>(cost, a, b, options);
    std::vector<double> far_cost = cost;
    for (double& c : far_cost) c += 100;
    const Result far = solve<float>(far_cost, a, b, options);
    double moved = 0;
    for (double entry : far.grad_cost) moved += entry;
    EXPECT_NEAR(moved, 0.5, 1e-6);
    for (std::size_t k = 0; k < cost.size(); ++k) EXPECT_NEAR(far.grad_cost[k], near.grad_cost[k], 1e-5);
    EXPECT_NEAR(far.value, near.value + 50, 1e-4);
  }
}

// A batch with everything that differs between its problems.
template <int kColumns>
struct BatchOf {
  static constexpr int kBatch = 7, kN = 90, kM = kColumns;
  std::vector<float> cost, a, b, epsilons;
  std::vector<std::int32_t> n, m;
  const char* way;

  explicit BatchOf(const char* named_way = nullptr)
      : epsilons{0.5F, 0.2F, 1, 0.3F, 0.5F, 2, 0.7F},
        n{90, 1, 40, 90, 77, 89, 31},
        m{kM, 33, 1, kM - 1, kM, 64, 65},
        way(named_way) {
    cost = as<float>(squares(kBatch * kN * kM, 7));
    a = as<float>(weights(kBatch * kN, 8));
    b = as<float>(weights(kBatch * kM, 9));
  }

  struct Run {
    std::vector<float> value, f, g, plan;
    std::vector<std::int32_t> iterations;
  };
  // Problems first ... first + count - 1.
  [[nodiscard]] Run run(int first, int count, bool batch_invariant, double tolerance = 0) const {
    const auto part = [&](const auto& v, std::size_t size) {
      return std::vector(v.begin() + first * size, v.begin() + (first + count) * size);
    };
    const std::size_t rows = count * kN, columns = count * kM, elements = rows * kM;
    const DeviceBuffer cost_data(part(cost, kN * kM)), a_data(part(a, kN)), b_data(part(b, kM));
    const DeviceBuffer epsilon_data(part(epsilons, 1)), n_data(part(n, 1)), m_data(part(m, 1));
    const DeviceBuffer value(count * 4), f(rows * 4), g(columns * 4), plan(elements * 4),
        iterations(count * 4);
    SinkhornProblem p;
    p.batch = count;
    p.n = kN;
    p.m = kM;
    p.cost = {cost_data.data(), {kN * kM, kM, 1}};
    p.a = {a_data.data(), kInf, static_cast<const std::int32_t*>(n_data.data())};
    p.b = {b_data.data(), 1.0, static_cast<const std::int32_t*>(m_data.data())};
    p.epsilons = epsilon_data.data();
    p.max_iterations = 12;
    p.tolerance = tolerance;
    SinkhornOutputs out;
    out.value = value.data();
    out.f = f.data();
    out.g = g.data();
    out.grad_cost = plan.data();
    out.iterations = static_cast<std::int32_t*>(iterations.data());
    Execution execution = Execution::cuda(0, nullptr);
    execution.batch_invariant = batch_invariant;
    execution.way = way;
    const std::size_t bytes = sinkhorn_workspace_bytes(p, out, execution);
    const DeviceBuffer workspace(bytes);
    EXPECT_TRUE(sinkhorn(p, out, {workspace.data(), bytes}, execution).ok());
    return {value.read<float>(count), f.read<float>(rows), g.read<float>(columns), plan.read<float>(elements),
            iterations.read<std::int32_t>(count)};
  }
};
using Batch = BatchOf<400>;
using LongBatch = BatchOf<600>;

template <class Batch>
void check_batch_invariance(const Batch& batch) {
  const typename Batch::Run all = batch.run(0, Batch::kBatch, true);
  for (int b = 0; b < Batch::kBatch; ++b) {
    const typename Batch::Run one = batch.run(b, 1, true);
    const auto part = [&](const std::vector<float>& v, std::size_t size) {
      return std::vector(v.begin() + b * size, v.begin() + (b + 1) * size);
    };
    EXPECT_TRUE(same_bits(one.value, part(all.value, 1)));
    EXPECT_TRUE(same_bits(one.f, part(all.f, Batch::kN)));
    EXPECT_TRUE(same_bits(one.g, part(all.g, Batch::kM)));
    EXPECT_TRUE(same_bits(one.plan, part(all.plan, Batch::kN * Batch::kM)));
  }
}

TEST_F(SinkhornCuda, BatchInvariantProblemsHaveTheirOwnBits) {
  for (const char* const way : {"block_rows", "kept_rows"}) {
    SCOPED_TRACE(way);
    check_batch_invariance(Batch(way));
    check_batch_invariance(LongBatch(way));
  }
}

template <class Batch>
void check_that_problems_stop(const Batch& batch) {
  const typename Batch::Run all = batch.run(0, Batch::kBatch, false, 3e-2);
  const typename Batch::Run exact = batch.run(0, Batch::kBatch, false);
  for (int b = 0; b < Batch::kBatch; ++b) {
    EXPECT_EQ(exact.iterations[b], 12);
    EXPECT_LE(all.iterations[b], 12);
    EXPECT_NEAR(all.value[b], exact.value[b], 3e-2 * std::max(1.0F, std::abs(exact.value[b])));
  }
  EXPECT_LT(*std::min_element(all.iterations.begin(), all.iterations.end()), 12);
}

TEST_F(SinkhornCuda, ProblemsStopOnTheirOwn) {
  for (const char* const way : {"block_rows", "kept_rows"}) {
    SCOPED_TRACE(way);
    check_that_problems_stop(Batch(way));
    check_that_problems_stop(LongBatch(way));
  }
}

template <class Batch>
void check_epsilons_that_are_none(Batch batch) {
  const typename Batch::Run expected = batch.run(0, Batch::kBatch, false);
  batch.epsilons[2] = 0;
  batch.epsilons[4] = -1;
  batch.epsilons[5] = static_cast<float>(kNan);
  const typename Batch::Run result = batch.run(0, Batch::kBatch, false);
  for (int b = 0; b < Batch::kBatch; ++b) {
    if (b == 2 || b == 4 || b == 5) {
      EXPECT_TRUE(std::isnan(result.value[b]));
      for (int i = 0; i < batch.n[b]; ++i) EXPECT_TRUE(std::isnan(result.f[b * Batch::kN + i]));
      for (int i = batch.n[b]; i < Batch::kN; ++i) EXPECT_EQ(result.f[b * Batch::kN + i], 0);
    } else {
      EXPECT_EQ(result.value[b], expected.value[b]);
    }
  }
}
TEST_F(SinkhornCuda, EpsilonsThatAreNoneMakeTheirProblemNan) {
  check_epsilons_that_are_none(Batch("kept_rows"));
  check_epsilons_that_are_none(LongBatch("kept_rows"));
}

template <class Batch>
void check_lengths_out_of_range(Batch batch) {
  const typename Batch::Run expected = batch.run(0, Batch::kBatch, false);
  batch.n[0] = 1 << 30;
  batch.n[1] = -5;
  batch.m[4] = Batch::kM + 1;
  batch.m[2] = 0;
  const typename Batch::Run result = batch.run(0, Batch::kBatch, false);
  EXPECT_TRUE(same_bits(result.value, expected.value));
  EXPECT_TRUE(same_bits(result.plan, expected.plan));
}
TEST_F(SinkhornCuda, LengthsOutOfRangeAreClamped) {
  check_lengths_out_of_range(Batch("kept_rows"));
  check_lengths_out_of_range(LongBatch("kept_rows"));
}

// Iterations that go on where others ended are the iterations in one call.
TEST_F(SinkhornCuda, WarmStartsGoOn) {
  constexpr int kN = 40, kM = 300;
  const std::vector<double> cost = squares(kN * kM, 3), a = weights(kN, 4), b = weights(kM, 5);
  SinkhornOptions options{.epsilon = 0.1, .iterations = 8};
  const Result whole = solve<float>(cost, a, b, options);
  options.iterations = 5;
  const Result first = solve<float>(cost, a, b, options);
  const DeviceBuffer cost_data(as<float>(cost)), a_data(as<float>(a)), b_data(as<float>(b)),
      f0(as<float>(first.f)), f(kN * sizeof(float));
  SinkhornProblem p;
  p.batch = 1;
  p.n = kN;
  p.m = kM;
  p.cost = {cost_data.data(), {kN * kM, kM, 1}};
  p.a.weights = a_data.data();
  p.b.weights = b_data.data();
  p.epsilon = 0.1;
  p.f0 = f0.data();
  p.max_iterations = 3;
  p.tolerance = 0;
  SinkhornOutputs out;
  out.f = f.data();
  const Execution execution = Execution::cuda(0, nullptr);
  const std::size_t bytes = sinkhorn_workspace_bytes(p, out, execution);
  const DeviceBuffer workspace(bytes);
  ASSERT_TRUE(sinkhorn(p, out, {workspace.data(), bytes}, execution).ok());
  const std::vector<double> got = read<float>(f, kN);
  EXPECT_LE(distance(got, whole.f), 2e-6 * std::max(1.0, largest(whole.f)));
}

}  // namespace
}  // namespace warpalign::test
