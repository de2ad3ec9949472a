// sinkhorn_jvp() on CUDA, against the float64 CPU path at the same solution.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <deque>
#include <iterator>
#include <vector>

#include "device_buffer.h"
#include "testing.h"
#include "warpalign/sinkhorn.h"

namespace warpalign::test {
namespace {

class SinkhornJvpCuda : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!has_gpu()) GTEST_SKIP() << "no GPU";
  }
};

constexpr double kHard = kInf;
constexpr auto kProduct = TransportReference::kProduct, kCounting = TransportReference::kCounting;

struct Case {
  int n, m, dim;  // dim 0: costs are given
  CostKind kind;
  double rho_a, rho_b, mass;
  TransportReference reference;
  bool ragged = true;
  SinkhornUpdates updates = SinkhornUpdates::kAlternating;
};

// Everything that goes into a call; a batch of two.
struct Inputs {
  static constexpr int kBatch = 2;
  std::vector<double> first, second, a, b, epsilons, f, g, shift;
  std::vector<std::int32_t> rows, columns;
};

std::vector<double> rounded(std::vector<double> v) {
  for (double& x : v) x = static_cast<double>(static_cast<float>(x));
  return v;
}

// Points, or costs; weights; epsilons; in place of f, g and shift forces and the tangent of ln cost_scale.
Inputs numbers(const Case& c, unsigned seed) {
  constexpr std::size_t kBatch = Inputs::kBatch;
  const std::size_t n = kBatch * c.n, m = kBatch * c.m;
  Inputs of;
  of.first = normal(c.dim > 0 ? n * c.dim : n * c.m, seed);
  of.second = normal(c.dim > 0 ? m * c.dim : 0, seed + 1);
  of.a = normal(n, seed + 2);
  of.b = normal(m, seed + 3);
  of.epsilons = normal(kBatch, seed + 4);
  of.f = normal(n, seed + 5);
  of.g = normal(m, seed + 6);
  of.shift = normal(kBatch, seed + 7);
  return of;
}

Inputs problem_numbers(const Case& c) {
  Inputs of = numbers(c, 1);
  if (c.dim == 0) {
    for (double& cost : of.first) cost = cost * cost;
    of.first[1] = kInf;
    of.first = rounded(of.first);
  }
  for (std::vector<double>* const weights : {&of.a, &of.b}) {
    for (double& w : *weights) w = std::exp(w / 2) / static_cast<double>(weights->size());
    if (c.rho_a != kHard && c.rho_b != kHard) (*weights)[1] = 0;
    *weights = rounded(*weights);
  }
  of.epsilons = rounded({0.7, 1.1});
  of.rows = {c.n, c.ragged ? (c.n + 1) / 2 : c.n};
  of.columns = {c.ragged ? (c.m + 2) / 3 : c.m, c.m};
  return of;
}

SinkhornProblem problem_of(const Case& c) {
  SinkhornProblem p;
  p.batch = Inputs::kBatch;
  p.n = c.n;
  p.m = c.m;
  p.cost_kind = c.kind;
  p.cost_scale = 0.8;
  p.a.strength = c.rho_a;
  p.b.strength = c.rho_b;
  p.mass = c.mass;
  p.reference = c.reference;
  p.updates = c.updates;
  p.max_iterations = 400;
  p.tolerance = 1e-14;
  return p;
}

// Arrays of the problem, or of tangents, on a device.
template <class Real, class Buffer>
struct Uploaded {
  const Case& c;
  const Buffer first, second, a, b, epsilons, f, g, shift, rows, columns;

  Uploaded(const Case& of, const Inputs& in)
      : c(of),
        first(as<Real>(in.first)),
        second(as<Real>(in.second)),
        a(as<Real>(in.a)),
        b(as<Real>(in.b)),
        epsilons(as<Real>(in.epsilons)),
        f(as<Real>(in.f)),
        g(as<Real>(in.g)),
        shift(as<Real>(in.shift)),
        rows(in.rows),
        columns(in.columns) {}

  [[nodiscard]] StridedTensor x() const { return {first.data(), {c.n * c.dim, c.dim, 1}}; }
  [[nodiscard]] StridedTensor y() const { return {second.data(), {c.m * c.dim, 1, c.m}}; }
  [[nodiscard]] StridedTensor cost() const { return {first.data(), {c.n * c.m, 1, c.n}}; }

  [[nodiscard]] SinkhornProblem problem() const {
    SinkhornProblem p = problem_of(c);
    p.dtype = kDType<Real>;
    if (c.dim > 0) {
      p.dim = c.dim;
      p.x = x();
      p.y = y();
    } else {
      p.cost = cost();
    }
    p.a.weights = a.data();
    p.b.weights = b.data();
    p.a.lengths = static_cast<const std::int32_t*>(rows.data());
    p.b.lengths = static_cast<const std::int32_t*>(columns.data());
    p.epsilons = epsilons.data();
    return p;
  }
  [[nodiscard]] SinkhornTangents tangents(bool inputs, bool forces) const {
    SinkhornTangents along;
    if (inputs) {
      (c.dim > 0 ? along.x : along.cost) = c.dim > 0 ? x() : cost();
      if (c.dim > 0) along.y = y();
      along.a = a.data();
      along.b = b.data();
      along.epsilon = epsilons.data();
    }
    if (forces) {
      along.f = f.data();
      along.g = g.data();
      along.log_scale = shift.data();
    }
    return along;
  }
};

// f, g and shift of the solution, as float32 has them.
void solve(const Case& c, Inputs& in) {
  const Uploaded<double, HostBuffer> on(c, in);
  const std::size_t n = in.a.size(), m = in.b.size();
  const HostBuffer f(n * sizeof(double)), g(m * sizeof(double)), shift(in.epsilons.size() * sizeof(double));
  SinkhornOutputs out;
  out.f = f.data();
  out.g = g.data();
  out.shift = shift.data();
  const SinkhornProblem p = on.problem();
  const std::size_t bytes = sinkhorn_workspace_bytes(p, out, Execution::host());
  const HostBuffer memory(bytes);
  const Status s = sinkhorn(p, out, {memory.data(), bytes}, Execution::host());
  ASSERT_TRUE(s.ok()) << s.argument << ": " << s.message;
  in.f = rounded(read<double>(f, n));
  in.g = rounded(read<double>(g, m));
  in.shift = rounded(read<double>(shift, in.epsilons.size()));
}

// Every output: f, g, value, linear, grad_epsilon, grad_a, grad_b, and grad_x, grad_y or grad_cost.
template <class Real, class Buffer>
std::vector<std::vector<double>> moved(const Case& c, const Inputs& in, const Inputs& along, bool inputs,
                                       bool forces, const Execution& execution) {
  const Uploaded<Real, Buffer> on(c, in), tangents(c, along);
  SinkhornProblem p = on.problem();
  p.f0 = on.f.data();
  p.g0 = on.g.data();
  p.shift0 = on.shift.data();
  const std::size_t n = in.a.size(), m = in.b.size(), batch = in.epsilons.size();
  const std::size_t sizes[] = {n, m, batch, batch, batch, n, m, in.first.size(), in.second.size()};
  std::deque<Buffer> memory;
  SinkhornOutputs out;
  void** const places[] = {&out.f,
                           &out.g,
                           &out.value,
                           &out.linear,
                           &out.grad_epsilon,
                           &out.grad_a,
                           &out.grad_b,
                           c.dim > 0 ? &out.grad_x : &out.grad_cost,
                           &out.grad_y};
  for (std::size_t k = 0; k < std::size(sizes); ++k) {
    memory.emplace_back(std::max<std::size_t>(sizes[k], 1) * sizeof(Real));
    if (sizes[k] > 0) *places[k] = memory.back().data();
  }
  const SinkhornTangents moving = tangents.tangents(inputs, forces);
  const std::size_t bytes = sinkhorn_jvp_workspace_bytes(p, moving, out, execution);
  const Buffer workspace(bytes);
  const Status s = sinkhorn_jvp(p, moving, out, {workspace.data(), bytes}, execution);
  EXPECT_TRUE(s.ok()) << s.argument << ": " << s.message;
  std::vector<std::vector<double>> results;
  for (std::size_t k = 0; k < std::size(sizes); ++k) results.push_back(read<Real>(memory[k], sizes[k]));
  return results;
}

// Largest distance over the largest number; the constant between balanced f and g is fixed by the contract.
template <class Real>
void expect_same(const Case& c, const Inputs& in, const Inputs& along, bool inputs, bool forces) {
  const auto want = moved<double, HostBuffer>(c, in, along, inputs, forces, Execution::host());
  const auto got = moved<Real, DeviceBuffer>(c, in, along, inputs, forces, Execution::cuda(0, nullptr));
  // Conjugate gradients end at 1e-6 of the right side in float32, and condition numbers are some 10.
  const double tolerance = sizeof(Real) == 4 ? 5e-5 : 1e-9;
  for (std::size_t k = 0; k < want.size(); ++k) {
    const double scale = std::max(largest(want[k]), 1e-3);
    EXPECT_LE(distance(got[k], want[k]), tolerance * scale) << "output " << k;
    for (std::size_t i = 0; i < want[k].size(); ++i) {
      ASSERT_FALSE(std::isnan(got[k][i])) << "output " << k << ", element " << i;
    }
  }
}

void check(const Case& c) {
  SCOPED_TRACE(testing::Message() << c.n << " x " << c.m << ", D " << c.dim << ", kind "
                                  << static_cast<int>(c.kind));
  Inputs in = problem_numbers(c);
  solve(c, in);
  const Inputs along = numbers(c, 21);
  expect_same<double>(c, in, along, true, false);
  expect_same<double>(c, in, along, false, true);
  expect_same<float>(c, in, along, true, true);
}

TEST_F(SinkhornJvpCuda, EveryOutputOfRelaxedProblems) {
  check({65, 40, 3, CostKind::kSquaredEuclidean, 0.7, 2.0, 0, kProduct});
  check({33, 70, 18, CostKind::kEuclidean, kHard, 1.5, 0, kProduct});
  check({20, 66, 67, CostKind::kCosine, 0.9, 1.5, 0, kCounting});
  check({31, 33, 2, CostKind::kHuber, 1.0, kHard, 0, kCounting});
  check({40, 30, 2, CostKind::kL1, kHard, 0.0, 0, kProduct});
  check({70, 130, 0, CostKind::kSquaredEuclidean, 0.5, 0.7, 0, kProduct});
}

TEST_F(SinkhornJvpCuda, EveryOutputOfPartialTransport) {
  check({30, 66, 3, CostKind::kCosine, kHard, kHard, 0.1, kProduct});
  // Potentials of points with less than their weight are near 0 then.
  check({30, 66, 3, CostKind::kCosine, kHard, kHard, 0.1, kCounting, true, SinkhornUpdates::kSymmetric});
}

// Masses must be equal: weights are uniform.
TEST_F(SinkhornJvpCuda, BalancedProblemsFixTheOpenConstant) {
  const Case c{40, 70, 3, CostKind::kSquaredEuclidean, kHard, kHard, 0, kProduct, false};
  Inputs in = problem_numbers(c);
  in.a.assign(in.a.size(), 1.0 / 64);
  in.b.assign(in.b.size(), 40.0 / 64 / 70);
  solve(c, in);
  const Inputs along = numbers(c, 21);
  expect_same<double>(c, in, along, false, true);
  expect_same<float>(c, in, along, false, true);
}

}  // namespace
}  // namespace warpalign::test
