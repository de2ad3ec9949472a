// sinkhorn() on every path against the float64 reference, and the properties of its solutions.
#include <gtest/gtest.h>

#include <cmath>
#include <utility>
#include <vector>

#include "fixture.h"

namespace warpalign::test {
namespace {

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
        for (const SinkhornUpdates updates :
             {SinkhornUpdates::kAlternating, SinkhornUpdates::kSymmetric, SinkhornUpdates::kMixed}) {
          for (const double epsilon : {0.02, 1.0}) {
            SCOPED_TRACE(testing::Message()
                         << n << " x " << m << ", rho " << sides.rho_a << " " << sides.rho_b << ", mass "
                         << sides.mass << ", reference " << static_cast<int>(kind) << ", updates "
                         << static_cast<int>(updates) << ", epsilon " << epsilon);
            if (++seed % kOptionThinning != 0) continue;
            std::vector<double> cost = normal(n * m, seed);
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

TEST_P(SinkhornPath, Float64FollowsTheReferenceStepByStep) { check_grid<double>(); }
TEST_P(SinkhornPath, Float32FollowsTheReferenceStepByStep) { check_grid<float>(); }

TEST_P(SinkhornPath, DualMeetsPrimalAtTheSolution) {
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
TEST_P(SinkhornPath, UnbalancedPlansOfBothReferences) {
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

TEST_P(SinkhornPath, PartialTransportMovesItsMass) {
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

// Each plan of this mass costs the same amount more. The first iteration's sums are 2^-2900.
TEST_P(SinkhornPath, PartialTransportAtCostsFarAboveEpsilon) {
  std::vector<double> cost = normal(40 * 25, 5);
  for (double& c : cost) c = std::round(c * c * 1024) / 1024;
  const std::vector<double> a = weights(40, 6), b = weights(25, 7);
  std::vector<double> far_cost = cost;
  for (double& c : far_cost) c += 100;
  for (const auto updates : {SinkhornUpdates::kAlternating, SinkhornUpdates::kSymmetric}) {
    const SinkhornOptions options{.epsilon = 0.05, .mass = 0.5, .updates = updates, .iterations = 300};
    const Result near = solve<float>(cost, a, b, options), far = solve<float>(far_cost, a, b, options);
    for (std::size_t k = 0; k < cost.size(); ++k) EXPECT_NEAR(far.grad_cost[k], near.grad_cost[k], 1e-5);
    EXPECT_NEAR(far.value, near.value + 50, 1e-4);
  }
}

TEST_P(SinkhornPath, ForbiddenPairsAndWeightsOfZero) {
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

TEST_P(SinkhornPath, ARowThatEveryCostForbids) {
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

TEST_P(SinkhornPath, NanStaysNan) {
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
TEST_P(SinkhornPath, LargeCostsKeepTheirDigits) {
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
  const Result r = solve<float>(cost, a, b, options);
  const double ours = error_of([&](std::size_t k) { return r.grad_cost[k]; });
  // Without fused multiply-adds the product of cost and 1 / epsilon is rounded too.
  const bool fused = GetParam().cuda || GetParam().isa != cpu::Isa::kBaseline;
  EXPECT_LE(ours, fused ? naive / 100 : 2 * naive);
}

TEST_P(SinkhornPath, AnnealingAndTolerance) {
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
TEST_P(SinkhornPath, RaggedBatchesOfStridedCosts) {
  constexpr int kBatch = 3, kN = 9, kM = 7;
  const std::int32_t n[kBatch] = {9, 1, 4}, m[kBatch] = {3, 7, 5};
  const std::vector<double> cost = normal(kBatch * kN * kM, 41);  // (B, M, N)
  std::vector<float> values, all;
  on_path([&]<class Buffer>(const Execution& execution) {
    const Buffer cost_data(as<float>(cost)), value(kBatch * 4), f(kBatch * kN * 4),
        plan(kBatch * kN * kM * 4);
    const Buffer rows(std::vector<std::int32_t>(n, n + kBatch)),
        columns(std::vector<std::int32_t>(m, m + kBatch));
    SinkhornProblem p;
    p.batch = kBatch;
    p.n = kN;
    p.m = kM;
    p.cost = {cost_data.data(), {kN * kM, 1, kN}};
    p.a.lengths = static_cast<const std::int32_t*>(rows.data());
    p.b.lengths = static_cast<const std::int32_t*>(columns.data());
    p.epsilon = 0.3;
    p.max_iterations = 25;
    p.tolerance = 0;
    SinkhornOutputs out;
    out.value = value.data();
    out.f = f.data();
    out.grad_cost = plan.data();
    const std::size_t bytes = sinkhorn_workspace_bytes(p, out, execution);
    const Buffer workspace(bytes);
    ASSERT_TRUE(sinkhorn(p, out, {workspace.data(), bytes}, execution).ok());
    all = plan.template read<float>(kBatch * kN * kM);
    values = value.template read<float>(kBatch);
  });
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

// The error never speaks of a solution beside a result that is none.
template <class Real>
void check_errors_beside_what_is_not_finite(SinkhornUpdates updates) {
  const std::vector<double> cost = normal(30, 51, 2), a = weights(5, 52), b = weights(6, 53);
  for (const double epsilon : {1e-20, 1e-30}) {
    for (const SinkhornOptions& sides : {SinkhornOptions{}, SinkhornOptions{.rho_a = 1, .rho_b = 2},
                                         SinkhornOptions{.rho_b = 0}, SinkhornOptions{.mass = 0.5}}) {
      SinkhornOptions options = sides;
      options.epsilon = epsilon;
      options.updates = updates;
      options.iterations = 20;
      const Result r = solve<Real>(cost, a, b, options, 1e-5);
      ASSERT_TRUE(r.status.ok());
      const bool finite = std::isfinite(r.value) && std::isfinite(r.linear) && std::isfinite(r.grad_epsilon);
      EXPECT_TRUE(finite || !std::isfinite(r.error)) << r.value << " with error " << r.error;
    }
  }
}
TEST_P(SinkhornPath, TheErrorOfWhatIsNotFiniteIsNotFinite) {
  for (const SinkhornUpdates updates : {SinkhornUpdates::kAlternating, SinkhornUpdates::kSymmetric}) {
    check_errors_beside_what_is_not_finite<float>(updates);
    check_errors_beside_what_is_not_finite<double>(updates);
  }
  // A row without a partner, and numbers beyond float32.
  std::vector<double> cost = normal(12, 54);
  for (int j = 0; j < 4; ++j) cost[4 + j] = HUGE_VAL;
  const std::vector<double> a(3, 1.0 / 3), b(4, 0.25);
  const Result alone = solve<float>(cost, a, b, {.epsilon = 0.5, .iterations = 5}, 1e-5);
  EXPECT_EQ(alone.value, HUGE_VAL);
  EXPECT_FALSE(std::isfinite(alone.error));
  const Result huge = solve<float>(std::vector<double>(12, 3e38), std::vector<double>(3, 100),
                                   std::vector<double>(4, 75), {.epsilon = 1e38, .iterations = 5}, 1e-5);
  EXPECT_FALSE(std::isfinite(huge.value));
  EXPECT_FALSE(std::isfinite(huge.error));
}

// Sums that no plan has: an error where the host can read them, else NaN.
TEST_P(SinkhornPath, BalancedWeightsOfOtherSumsAndTooMuchMass) {
  const std::vector<double> cost = normal(12, 55), a(3, 1.0 / 3), b(4, 0.25), twice(3, 2.0 / 3);
  for (const TransportReference reference : {TransportReference::kProduct, TransportReference::kCounting}) {
    for (const double mass : {0.0, 1.5}) {
      SinkhornOptions options{.mass = mass, .iterations = 5};
      options.reference = reference;
      const Result r = solve<float>(cost, mass > 0 ? a : twice, b, options, 1e-5);
      if (!r.status.ok()) {
        EXPECT_STREQ(r.status.argument, mass > 0 ? "mass" : "a");
        EXPECT_FALSE(GetParam().cuda);
        continue;
      }
      EXPECT_TRUE(GetParam().cuda);
      for (const double v : {r.value, r.linear, r.error, r.f[0], r.g[3], r.grad_cost[5], r.grad_a[1]}) {
        EXPECT_TRUE(std::isnan(v)) << v;
      }
    }
    SinkhornOptions relaxed{.rho_a = 1, .iterations = 5};
    relaxed.reference = reference;
    EXPECT_TRUE(std::isfinite(solve<float>(cost, twice, b, relaxed, 1e-5).value));
  }
}

WARPALIGN_FOR_EVERY(SinkhornPath, all_paths);

}  // namespace
}  // namespace warpalign::test
