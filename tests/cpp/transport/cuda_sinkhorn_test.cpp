// What the CUDA path of sinkhorn() alone has: layouts of rows over warps, blocks, segments and teams, batches
// on a few teams, and arguments that are on the device, where the host cannot check them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "device_buffer.h"
#include "testing.h"

namespace warpalign::test {
namespace {

class SinkhornCuda : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!has_gpu()) GTEST_SKIP() << "no GPU";
  }
};

std::vector<double> squares(std::size_t count, unsigned seed) {
  std::vector<double> cost = normal(count, seed);
  for (double& c : cost) c = c * c;
  return cost;
}

template <class Real>
Result solve(const std::vector<double>& cost, const std::vector<double>& a, const std::vector<double>& b,
             const SinkhornOptions& options, const char* way = nullptr, double tolerance = 0) {
  Execution execution = Execution::cuda(0, nullptr);
  execution.way = way;
  return solve_on<Real, DeviceBuffer>(cost, a, b, options, tolerance, execution);
}

template <class Real>
void check_layouts(const std::vector<std::pair<int, int>>& shapes, const char* way = nullptr) {
  unsigned seed = 100;
  for (const auto& [n, m] : shapes) {
    for (int kind = 0; kind < 4; ++kind) {
      SCOPED_TRACE(testing::Message() << n << " x " << m << ", kind " << kind);
      SinkhornOptions options{.epsilon = 0.5, .iterations = 4};
      if (kind == 1)
        options.rho_a = 0.7, options.rho_b = 2, options.reference = TransportReference::kCounting;
      if (kind == 2) options.mass = 0.6;
      if (kind == 3) options.updates = SinkhornUpdates::kSymmetric;
      const std::vector<double> cost = squares(static_cast<std::size_t>(n) * m, ++seed);
      const std::vector<double> a = weights(n, seed + 1), b = weights(m, seed + 2);
      const Result r = solve<Real>(cost, a, b, options, way);
      expect_close<Real>(r, detail::transport::reference::sinkhorn(cost, a, b, options), options.epsilon);
      const Result again = solve<Real>(cost, a, b, options, way);
      EXPECT_TRUE(same_bits(r.f, again.f) && same_bits(r.grad_cost, again.grad_cost));
    }
  }
}

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

// Up to 512 columns, exponentials stay in shared memory (kept/kept_rows.cuh): rows of 1 to 32 lanes, with 8
// or 16 columns each, of teams of one and several blocks.
TEST_F(SinkhornCuda, KeptRows) {
  check_layouts<float>(
      {{5, 1}, {70, 5}, {33, 20}, {64, 64}, {20, 130}, {130, 150}, {40, 256}, {120, 257}, {150, 511}},
      "kept_rows");
}
TEST_F(SinkhornCuda, KeptRowsInFloat64) {
  check_layouts<double>({{5, 1}, {33, 20}, {64, 64}, {70, 128}, {20, 200}, {190, 256}}, "kept_rows");
}

// Longer rows of given costs (kept/long_rows.cuh): quads that no thread and that several rounds of threads
// have, fewer rows than eight, and blocks without columns of their own.
TEST_F(SinkhornCuda, LongKeptRows) {
  check_layouts<float>(
      {{20, 513}, {1, 600}, {9, 1300}, {70, 702}, {150, 1025}, {33, 2049}, {3, 6143}, {8, 6144}},
      "kept_rows");
}
TEST_F(SinkhornCuda, LongKeptRowsInFloat64) {
  check_layouts<double>({{20, 257}, {1, 300}, {33, 499}, {70, 702}, {5, 3001}}, "kept_rows");
}

// Many iterations, in which potentials take in their scales more than once, and stop where they do without
// stored exponentials.
template <class Real>
void check_many_iterations(int n, int m, bool stops) {
  const std::vector<double> cost = squares(static_cast<std::size_t>(n) * m, 41), a = weights(n, 42),
                            b = weights(m, 43);
  for (const auto updates :
       {SinkhornUpdates::kAlternating, SinkhornUpdates::kSymmetric, SinkhornUpdates::kMixed}) {
    for (const double rho : {kInf, 3.0, 0.0}) {
      SCOPED_TRACE(testing::Message()
                   << n << " x " << m << ", rho " << rho << ", updates " << static_cast<int>(updates));
      SinkhornOptions options{.epsilon = 0.05, .rho_b = rho, .updates = updates, .iterations = 60};
      expect_close<Real>(solve<Real>(cost, a, b, options, "kept_rows"),
                         detail::transport::reference::sinkhorn(cost, a, b, options), options.epsilon);
      if (!stops) continue;
      options.iterations = 2000;
      for (const double tolerance : {1e-3, 1e-2}) {  // moves of 0.0014 bits are compared in first order
        const Result found = solve<Real>(cost, a, b, options, "kept_rows", tolerance),
                     want = solve<Real>(cost, a, b, options, "block_rows", tolerance);
        EXPECT_NEAR(found.iterations, want.iterations, 1);
        EXPECT_LT(found.iterations, 2000);
        EXPECT_LE(found.error, 1.1 * tolerance);
        EXPECT_NEAR(found.value, want.value, 2e-5 * std::max(1.0, std::abs(want.value)));
      }
    }
  }
}
TEST_F(SinkhornCuda, ManyIterationsOfKeptRows) {
  check_many_iterations<float>(50, 37, true);
  check_many_iterations<float>(130, 300, false);
  check_many_iterations<double>(21, 14, true);
}
TEST_F(SinkhornCuda, ManyIterationsOfLongKeptRows) {
  check_many_iterations<float>(40, 517, true);
  check_many_iterations<float>(90, 1100, false);
  check_many_iterations<double>(21, 270, true);
}

// An offset of each row and column: rows move some hundred bits in an iteration, and sums leave the range.
void check_far_start(int n, int m, unsigned seed) {
  for (const double far : {0.1, 0.5, 2.0}) {
    for (const double rho : {kInf, 0.5}) {
      const std::vector<double> of_rows = normal(n, ++seed, far), of_columns = normal(m, seed + 1, far);
      std::vector<double> cost = squares(static_cast<std::size_t>(n) * m, seed + 2);
      for (int k = 0; k < n * m; ++k) {
        cost[k] = static_cast<double>(static_cast<float>(cost[k] + of_rows[k / m] + of_columns[k % m]));
      }
      const std::vector<double> a = weights(n, seed + 3), b = weights(m, seed + 4);
      for (const int iterations : {1, 3, 12}) {
        SCOPED_TRACE(testing::Message() << far << ", rho " << rho << ", iterations " << iterations);
        const SinkhornOptions options{.epsilon = 0.01, .rho_a = rho, .rho_b = rho, .iterations = iterations};
        const SinkhornAnswer want = detail::transport::reference::sinkhorn(cost, a, b, options);
        const Result found = solve<float>(cost, a, b, options, "kept_rows");
        const double scale = std::max({largest(want.f), largest(want.g), 1.0});
        EXPECT_LE(distance(found.f, want.f), 1e-6 * scale);
        EXPECT_LE(distance(found.g, want.g), 1e-6 * scale);
      }
    }
  }
}
TEST_F(SinkhornCuda, KeptRowsFromAFarStart) {
  check_far_start(40, 70, 300);
  check_far_start(40, 530, 400);
}

// 1/15 and 1/41 are rounded in float32. Masses that differ by 9e-8 would move potentials by 2.7e-4 epsilon in
// 3000 iterations. So weights that nobody gives are equal exactly, and given ones have the masses they have.
void check_drift(int n, int m) {
  const std::vector<double> cost = squares(static_cast<std::size_t>(n) * m, 61);
  Execution execution = Execution::cuda(0, nullptr);
  execution.way = "kept_rows";
  for (const auto reference : {TransportReference::kProduct, TransportReference::kCounting}) {
    for (const bool given : {false, true}) {
      SCOPED_TRACE(testing::Message()
                   << (given ? "given" : "equal") << ", reference " << static_cast<int>(reference));
      std::vector<double> a(n, 1.0 / n), b(m, 1.0 / m);
      if (given) {
        for (std::vector<double>* const v : {&a, &b}) {
          for (double& w : *v) w = static_cast<double>(static_cast<float>(w));
        }
      }
      const SinkhornOptions options{.epsilon = 1, .reference = reference, .iterations = 3000};
      const SinkhornAnswer want = detail::transport::reference::sinkhorn(cost, a, b, options);
      const Result found = solve_on<float, DeviceBuffer>(cost, a, b, options, 0, execution, given);
      EXPECT_LE(distance(found.f, want.f), 1e-5);
      EXPECT_LE(distance(found.g, want.g), 1e-5);
    }
  }
}
TEST_F(SinkhornCuda, PotentialsOfKeptRowsDoNotDrift) {
  check_drift(15, 41);
  check_drift(15, 523);
}

// A row and a column without a finite cost, and weights of 0, with both references.
template <int kN, int kM>
void check_rows_without_finite_costs() {
  std::vector<double> cost = squares(kN * kM, 51), a = weights(kN, 52), b = weights(kM, 53);
  for (int j = 0; j < kM; ++j) cost[7 * kM + j] = kInf;
  for (int i = 0; i < kN; ++i) cost[i * kM + 11] = kInf;
  a[8] += a[7] + a[3], b[12] += b[11] + b[5];
  a[7] = b[11] = a[3] = b[5] = 0;
  for (const auto reference : {TransportReference::kProduct, TransportReference::kCounting}) {
    const SinkhornOptions options{.epsilon = 0.3, .reference = reference, .iterations = 12};
    const Result want = solve<double>(cost, a, b, options, "block_rows");
    const Result found = solve<float>(cost, a, b, options, "kept_rows");
    ASSERT_TRUE(found.status.ok());
    EXPECT_TRUE(std::isfinite(want.value));
    for (int k = 0; k < kN * kM; ++k) ASSERT_NEAR(found.grad_cost[k], want.grad_cost[k], 1e-6) << k;
    for (int i = 0; i < kN; ++i) EXPECT_EQ(std::isinf(found.f[i]), std::isinf(want.f[i])) << i;
    EXPECT_NEAR(found.value, want.value, 1e-5 * std::max(1.0, std::abs(want.value)));
  }
}
TEST_F(SinkhornCuda, KeptRowsWithoutFiniteCosts) {
  check_rows_without_finite_costs<20, 30>();
  check_rows_without_finite_costs<20, 530>();
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

// Long rows that a bulk copy cannot copy: a cost has a gap behind it. The sums have the same order.
TEST_F(SinkhornCuda, LongRowsWithGaps) {
  constexpr int kN = 5, kM = 6201;
  const std::vector<double> cost = squares(kN * kM, 21), a = weights(kN, 22), b = weights(kM, 23);
  std::vector<float> spread(2 * kN * kM, static_cast<float>(kNan));
  for (int e = 0; e < kN * kM; ++e) spread[2 * e + 1] = static_cast<float>(cost[e]);
  const DeviceBuffer near(as<float>(cost)), far(spread), a_data(as<float>(a)), b_data(as<float>(b));
  const auto solved = [&](const void* data, std::int64_t stride) {
    SinkhornProblem p;
    p.batch = 1;
    p.n = kN;
    p.m = kM;
    p.cost = {data, {kN * kM * stride, kM * stride, stride}};
    p.a.weights = a_data.data();
    p.b.weights = b_data.data();
    p.epsilon = 0.5;
    p.max_iterations = 4;
    const DeviceBuffer f(kN * sizeof(float)), g(kM * sizeof(float));
    SinkhornOutputs out;
    out.f = f.data();
    out.g = g.data();
    const Execution execution = Execution::cuda(0, nullptr);
    const std::size_t bytes = sinkhorn_workspace_bytes(p, out, execution);
    const DeviceBuffer workspace(bytes);
    EXPECT_TRUE(sinkhorn(p, out, {workspace.data(), bytes}, execution).ok());
    std::vector<double> found = read<float>(f, kN);
    const std::vector<double> of_columns = read<float>(g, kM);
    found.insert(found.end(), of_columns.begin(), of_columns.end());
    return found;
  };
  const std::vector<double> want = solved(near.data(), 1);
  EXPECT_TRUE(same_bits(solved(static_cast<const float*>(far.data()) + 1, 2), want));
  EXPECT_GT(largest(want), 0);
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
