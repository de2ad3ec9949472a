// sinkhorn_jvp() against differences of sinkhorn()'s outputs, and what its contract says.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "host_buffer.h"
#include "warpalign/sinkhorn.h"
#include "warpalign/thread_pool.h"

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

// Two problems in float64 with everything that has a tangent; the first one's last points are padding.
struct Inputs {
  Numbers x, y, a, b, epsilons;

  [[nodiscard]] Inputs moved(const Inputs& along, double step) const {
    Inputs to = *this;
    const auto move = [&](Numbers& v, const Numbers& by) {
      for (std::size_t i = 0; i < v.size(); ++i) v[i] += step * by[i];
    };
    move(to.x, along.x);
    move(to.y, along.y);
    move(to.a, along.a);
    move(to.b, along.b);
    move(to.epsilons, along.epsilons);
    return to;
  }
};

struct Case {
  const char* name;
  CostKind kind;
  double rho_a, rho_b, mass;
  TransportReference reference;
  SinkhornUpdates updates = SinkhornUpdates::kAlternating;
};

constexpr int kBatch = 2, kN = 19, kM = 17, kDim = 3;
const std::vector<std::int32_t> kNLengths{19, 12}, kMLengths{9, 17};

Inputs inputs() {
  Inputs of{normal(kBatch * kN * kDim, 1),
            normal(kBatch * kM * kDim, 2),
            normal(kBatch * kN, 3),
            normal(kBatch * kM, 4),
            {0.7, 1.1}};
  for (Numbers* weights : {&of.a, &of.b}) {
    for (double& w : *weights) w = std::exp(w / 2) / 20;
  }
  return of;
}

Inputs tangents() {
  return {normal(kBatch * kN * kDim, 5),
          normal(kBatch * kM * kDim, 6),
          normal(kBatch * kN, 7),
          normal(kBatch * kM, 8),
          {0.5, -0.3}};
}

SinkhornProblem problem_of(const Inputs& of, const Case& c) {
  SinkhornProblem p;
  p.dtype = DType::kFloat64;
  p.batch = kBatch;
  p.n = kN;
  p.m = kM;
  p.dim = kDim;
  p.x = {of.x.data(), {kN * kDim, kDim, 1}};
  p.y = {of.y.data(), {kM * kDim, kDim, 1}};
  p.cost_kind = c.kind;
  p.cost_scale = 0.8;
  p.a = {of.a.data(), c.rho_a, kNLengths.data()};
  p.b = {of.b.data(), c.rho_b, kMLengths.data()};
  p.epsilons = of.epsilons.data();
  p.mass = c.mass;
  p.reference = c.reference;
  p.updates = c.updates;
  p.max_iterations = 4000;
  p.tolerance = 1e-14;
  return p;
}

// Every output, behind each other; shift apart.
struct Outputs {
  Numbers f = Numbers(kBatch * kN), g = Numbers(kBatch * kM), shift = Numbers(kBatch), value = shift,
          linear = shift, grad_epsilon = shift, grad_a = f, grad_b = g, grad_x = Numbers(kBatch * kN * kDim),
          grad_y = Numbers(kBatch * kM * kDim), grad_cost = Numbers(kBatch * kN * kM);

  SinkhornOutputs pointers() {
    SinkhornOutputs out;
    out.f = f.data();
    out.g = g.data();
    out.value = value.data();
    out.linear = linear.data();
    out.grad_epsilon = grad_epsilon.data();
    out.grad_a = grad_a.data();
    out.grad_b = grad_b.data();
    out.grad_x = grad_x.data();
    out.grad_y = grad_y.data();
    out.grad_cost = grad_cost.data();
    return out;
  }
  [[nodiscard]] Numbers all() const {
    Numbers together;
    for (const Numbers* one :
         {&f, &g, &value, &linear, &grad_epsilon, &grad_a, &grad_b, &grad_x, &grad_y, &grad_cost}) {
      together.insert(together.end(), one->begin(), one->end());
    }
    return together;
  }
};

Outputs solve(const SinkhornProblem& p) {
  Outputs result;
  SinkhornOutputs out = result.pointers();
  out.shift = result.shift.data();
  const Execution execution = Execution::host();
  const std::size_t bytes = sinkhorn_workspace_bytes(p, out, execution);
  const HostBuffer memory(bytes);
  EXPECT_TRUE(sinkhorn(p, out, {memory.data(), bytes}, execution).ok());
  return result;
}

Outputs differentiate(SinkhornProblem p, const Outputs& solution, const SinkhornTangents& along,
                      const Execution& execution = Execution::host()) {
  p.f0 = solution.f.data();
  p.g0 = solution.g.data();
  p.shift0 = solution.shift.data();
  Outputs result;
  const SinkhornOutputs out = result.pointers();
  const std::size_t bytes = sinkhorn_jvp_workspace_bytes(p, along, out, execution);
  const HostBuffer memory(bytes);
  EXPECT_TRUE(sinkhorn_jvp(p, along, out, {memory.data(), bytes}, execution).ok());
  return result;
}

SinkhornTangents pointers(const Inputs& of) {
  SinkhornTangents along;
  along.x = {of.x.data(), {kN * kDim, kDim, 1}};
  along.y = {of.y.data(), {kM * kDim, kDim, 1}};
  along.a = of.a.data();
  along.b = of.b.data();
  along.epsilon = of.epsilons.data();
  return along;
}

constexpr double kHard = std::numeric_limits<double>::infinity();
constexpr auto kProduct = TransportReference::kProduct;
const Case kCases[] = {
    {"unbalanced", CostKind::kSquaredEuclidean, 0.7, 2.0, 0, kProduct},
    {"one side hard", CostKind::kEuclidean, kHard, 1.5, 0, kProduct},
    {"one side free", CostKind::kL1, kHard, 0.0, 0, kProduct},
    {"partial", CostKind::kCosine, kHard, kHard, 0.3, kProduct},
    {"counting", CostKind::kHuber, 1.0, kHard, 0, TransportReference::kCounting},
    {"partial, symmetric", CostKind::kCosine, kHard, kHard, 0.3, TransportReference::kCounting,
     SinkhornUpdates::kSymmetric},
};

class SinkhornJvp : public testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(All, SinkhornJvp, testing::ValuesIn(kCases),
                         [](const auto& tested) { return "case" + std::to_string(tested.index); });

TEST_P(SinkhornJvp, IsTheDerivativeOfEveryOutput) {
  const Inputs of = inputs(), along = tangents();
  const Numbers got =
      differentiate(problem_of(of, GetParam()), solve(problem_of(of, GetParam())), pointers(along)).all();
  const double step = 1e-5;
  const Inputs ahead = of.moved(along, step), behind = of.moved(along, -step);
  const Numbers one = solve(problem_of(ahead, GetParam())).all();
  const Numbers other = solve(problem_of(behind, GetParam())).all();
  double wrong = 0, size = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    const double expected = (one[i] - other[i]) / (2 * step);
    wrong += std::pow(got[i] - expected, 2);
    size += expected * expected;
  }
  // Central differences are right to step^2 times third derivatives, which reach some 1e3 at the ends of
  // Huber's square, and to 1e-15 / step.
  EXPECT_LE(std::sqrt(wrong / size), 1e-6) << GetParam().name;
}

TEST_P(SinkhornJvp, AnswersForcesAsPotentialsAnswerInputs) {
  const Inputs of = inputs(), along = tangents();
  const SinkhornProblem p = problem_of(of, GetParam());
  const Outputs solution = solve(p);
  const Outputs moved = differentiate(p, solution, pointers(along));
  Numbers f_force = normal(kBatch * kN, 9), g_force = normal(kBatch * kM, 10), scale{0.3, -0.8};
  SinkhornTangents forces;
  forces.f = f_force.data();
  forces.g = g_force.data();
  forces.log_scale = scale.data();
  const Outputs answer = differentiate(p, solution, forces);
  for (int b = 0; b < kBatch; ++b) {
    double by_potentials = scale[b] * moved.linear[b], by_inputs = answer.grad_epsilon[b] * along.epsilons[b];
    const auto add = [b](double& sum, const Numbers& u, const Numbers& v, int length) {
      for (int i = b * length; i < (b + 1) * length; ++i) sum += u[i] * v[i];
    };
    add(by_potentials, f_force, moved.f, kN);
    add(by_potentials, g_force, moved.g, kM);
    add(by_inputs, answer.grad_x, along.x, kN * kDim);
    add(by_inputs, answer.grad_y, along.y, kM * kDim);
    add(by_inputs, answer.grad_a, along.a, kN);
    add(by_inputs, answer.grad_b, along.b, kM);
    EXPECT_NEAR(by_potentials, by_inputs, 1e-9 * std::abs(by_inputs)) << GetParam().name;
  }
}

TEST(SinkhornJvpExecution, AnyNumberOfThreadsGivesTheSameBits) {
  const Inputs of = inputs(), along = tangents();
  const SinkhornProblem p = problem_of(of, kCases[0]);
  const Outputs solution = solve(p);
  ThreadPool pool(3);
  EXPECT_EQ(differentiate(p, solution, pointers(along)).all(),
            differentiate(p, solution, pointers(along), Execution::host(pool.parallel_for())).all());
}

TEST(SinkhornJvpContract, NamesTheArgumentThatIsWrong) {
  const Inputs of = inputs();
  SinkhornProblem p = problem_of(of, kCases[0]);
  const Outputs solution = solve(p);
  const auto blamed = [&](const SinkhornTangents& along) {
    Outputs result;
    const SinkhornOutputs out = result.pointers();
    const std::size_t bytes = sinkhorn_jvp_workspace_bytes(p, along, out, Execution::host());
    const HostBuffer memory(bytes);
    return std::string_view(sinkhorn_jvp(p, along, out, {memory.data(), bytes}, Execution::host()).argument);
  };
  EXPECT_EQ(blamed({}), "f0");
  p.f0 = solution.f.data();
  EXPECT_EQ(blamed({}), "g0");
  p.g0 = solution.g.data();
  SinkhornTangents along;
  along.cost = {of.x.data(), {1, 1, 1}};
  EXPECT_EQ(blamed(along), "cost_tangent");
  along = {};
  along.f = reinterpret_cast<const char*>(of.x.data()) + 1;
  EXPECT_EQ(blamed(along), "f_tangent");
}

}  // namespace
}  // namespace warpalign::test
