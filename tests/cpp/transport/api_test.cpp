// What sinkhorn() refuses on a CPU: problems that no plan can solve, and tensors without strides.
#include <gtest/gtest.h>

#include <string>

#include "testing.h"
#include "warpalign/transport_plan.h"

namespace warpalign::test {
namespace {

const std::vector<double> kCost = normal(12, 1);
const std::vector<double> kA(3, 1.0 / 3), kB(4, 0.25);

template <class Real = float>
Result solve(const std::vector<double>& a, const std::vector<double>& b, const SinkhornOptions& options) {
  return solve_on<Real, HostBuffer>(kCost, a, b, options, 1e-5, Execution::host());
}
std::vector<double> times(double factor, std::vector<double> v) {
  for (double& x : v) x *= factor;
  return v;
}

TEST(SinkhornContract, BalancedWeightsOfOtherSumsAreRefused) {
  EXPECT_EQ(to_string(solve(std::vector<double>(3, 1), kB, {}).status),
            "a: expected the sum of b (write a / a.sum(), or give rho_a or rho_b), got 3 at index 0");
  EXPECT_EQ(to_string(solve(kA, std::vector<double>(4, 1), {}).status),
            "b: expected the sum of a (write b / b.sum(), or give rho_a or rho_b), got 4 at index 0");
  EXPECT_FALSE(solve<double>(times(1.001, kA), kB, {}).status.ok());
}

TEST(SinkhornContract, SumsMayDifferByRounding) {
  EXPECT_TRUE(solve(times(1 + 5e-5, kA), kB, {}).status.ok());
  EXPECT_TRUE(solve<double>(times(1 + 1e-7, kA), kB, {}).status.ok());
  // What unif(30) gives in float32.
  const std::vector<double> cost(60, 1.0), thirty(30, static_cast<double>(1.0F / 30)), two(2, 0.5);
  EXPECT_TRUE((solve_on<float, HostBuffer>(cost, thirty, two, {}, 1e-5, Execution::host()).status.ok()));
}

TEST(SinkhornContract, OtherKindsOfTransportTakeAnySums) {
  const std::vector<double> a = times(2, kA);
  EXPECT_TRUE(solve(a, kB, {.rho_a = 1}).status.ok());
  EXPECT_TRUE(solve(a, kB, {.rho_b = 0}).status.ok());
  EXPECT_TRUE(solve(a, kB, {.mass = 0.5}).status.ok());
  EXPECT_EQ(to_string(solve(a, kB, {.mass = 1.5}).status),
            "mass: expected at most the smaller sum of weights, got 1.5 at index 0");
}

// Problems whose tensors have data and lack a stride.
class SinkhornStrides : public testing::Test {
 protected:
  static constexpr int kN = 3, kM = 4, kDim = 2;
  SinkhornStrides() {
    p.dtype = DType::kFloat64;
    p.batch = 1, p.n = kN, p.m = kM, p.dim = kDim;
    p.x = StridedTensor::contiguous(kCost.data(), {1, kN, kDim});
    p.y = StridedTensor::contiguous(kCost.data() + 2, {1, kM, kDim});
    p.f0 = f.data(), p.g0 = g.data();
  }
  void use_cost() {
    p.x = p.y = {};
    p.dim = 0;
    p.cost = StridedTensor::contiguous(kCost.data(), {1, kN, kM});
  }
  // A tensor whose last stride is not set.
  static void spoil(StridedTensor& tensor) { tensor.stride[2] = kUnsetStride; }

  template <class Function>
  Status with_workspace(std::size_t bytes, Function call) {
    const HostBuffer workspace(bytes);
    return call(Workspace{bytes ? workspace.data() : nullptr, bytes});
  }
  Status solve() {
    SinkhornOutputs out;
    out.value = &value;
    return with_workspace(sinkhorn_workspace_bytes(p, out, host),
                          [&](Workspace w) { return sinkhorn(p, out, w, host); });
  }
  Status derive(const SinkhornTangents& along) {
    SinkhornOutputs out;
    out.value = &value;
    return with_workspace(sinkhorn_jvp_workspace_bytes(p, along, out, host),
                          [&](Workspace w) { return sinkhorn_jvp(p, along, out, w, host); });
  }
  Status apply(const StridedTensor& v) {
    PlanProduct product;
    product.columns = 1;
    product.v = v;
    product.result = rows.data();
    return with_workspace(plan_apply_workspace_bytes(p, product, host),
                          [&](Workspace w) { return plan_apply(p, product, w, host); });
  }
  Status weigh(PlanGradient gradient) {
    gradient.row_sums = rows.data();
    return with_workspace(plan_gradient_workspace_bytes(p, gradient, host),
                          [&](Workspace w) { return plan_gradient(p, gradient, w, host); });
  }
  // The status names the argument and how many of its three strides are set.
  static void expect_refused(const Status& status, const char* argument, double given = 2) {
    EXPECT_EQ(status.code, StatusCode::kInvalidArgument);
    EXPECT_STREQ(status.argument, argument);
    EXPECT_EQ(status.value, given) << to_string(status);
  }

  const Execution host = Execution::host();
  std::vector<double> f = std::vector<double>(kN), g = std::vector<double>(kM),
                      rows = std::vector<double>(kN);
  double value = 0;
  SinkhornProblem p;
};

TEST_F(SinkhornStrides, OfPointsAndOfCosts) {
  EXPECT_TRUE(solve().ok());
  spoil(p.y);
  expect_refused(solve(), "y");
  p.x = {};
  p.x.data = kCost.data();
  EXPECT_EQ(
      to_string(solve()),
      "x: expected 3 strides, one for each axis (write StridedTensor::contiguous(data, extents), or set "
      "`stride`), got 0");
  use_cost();
  EXPECT_TRUE(solve().ok());
  spoil(p.cost);
  expect_refused(solve(), "cost");
}

TEST_F(SinkhornStrides, OfTangents) {
  SinkhornTangents along;
  along.x = p.x, along.y = p.y;
  EXPECT_TRUE(derive(along).ok());
  spoil(along.y);
  expect_refused(derive(along), "y_tangent");
  spoil(along.x);
  expect_refused(derive(along), "x_tangent");
  use_cost();
  along = {};
  along.cost = p.cost;
  EXPECT_TRUE(derive(along).ok());
  spoil(along.cost);
  expect_refused(derive(along), "cost_tangent");
}

TEST_F(SinkhornStrides, OfWhatAPlanIsMultipliedBy) {
  StridedTensor v = StridedTensor::contiguous(kCost.data(), {1, kM, 1});
  EXPECT_TRUE(apply(v).ok());
  spoil(v);
  expect_refused(apply(v), "v");

  PlanGradient dense, low_rank;
  dense.w = StridedTensor::contiguous(kCost.data(), {1, kN, kM});
  EXPECT_TRUE(weigh(dense).ok());
  spoil(dense.w);
  expect_refused(weigh(dense), "w");
  low_rank.columns = 1;
  low_rank.u = StridedTensor::contiguous(kCost.data(), {1, kN, 1});
  low_rank.v = StridedTensor::contiguous(kCost.data(), {1, kM, 1});
  EXPECT_TRUE(weigh(low_rank).ok());
  spoil(low_rank.v);
  expect_refused(weigh(low_rank), "v");
  spoil(low_rank.u);
  expect_refused(weigh(low_rank), "u");
}

}  // namespace
}  // namespace warpalign::test
