// What the tests of transport share: problems with costs given, and their comparison with the float64
// reference.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "host_buffer.h"
#include "transport/reference_sinkhorn.h"
#include "values.h"
#include "warpalign/sinkhorn.h"

namespace warpalign::test {

using detail::transport::reference::SinkhornAnswer;
using detail::transport::reference::SinkhornOptions;

inline std::vector<double> normal(std::size_t count, unsigned seed, double scale = 1) {
  std::mt19937 engine(seed);
  std::normal_distribution<double> distribution(0, scale);
  std::vector<double> v(count);
  for (double& x : v) x = static_cast<double>(static_cast<float>(distribution(engine)));
  return v;
}
inline std::vector<double> weights(std::size_t count, unsigned seed) {
  std::vector<double> v = normal(count, seed);
  double sum = 0;
  for (double& x : v) sum += x = std::exp(x);
  for (double& x : v) x = static_cast<double>(static_cast<float>(x / sum));
  return v;
}

// One problem with costs given, and everything that comes of it.
struct Result {
  Status status;
  std::vector<double> f, g, grad_cost, grad_a, grad_b;
  double value, linear, grad_epsilon, error;
  std::int32_t iterations;
};

template <class Real>
std::vector<Real> as(const std::vector<double>& v) {
  return {v.begin(), v.end()};
}
template <class Real, class Buffer>
std::vector<double> read(const Buffer& buffer, std::size_t count) {
  const std::vector<Real> v = buffer.template read<Real>(count);
  return {v.begin(), v.end()};
}

template <class Real, class Buffer>
Result solve_on(const std::vector<double>& cost, const std::vector<double>& a, const std::vector<double>& b,
                const SinkhornOptions& options, double tolerance, const Execution& execution,
                bool gives_weights = true) {
  const std::size_t n = a.size(), m = b.size();
  const Buffer cost_data(as<Real>(cost)), a_data(as<Real>(a)), b_data(as<Real>(b));
  SinkhornProblem p;
  p.dtype = kDType<Real>;
  p.batch = 1;
  p.n = static_cast<std::int32_t>(n);
  p.m = static_cast<std::int32_t>(m);
  p.cost = {cost_data.data(), {static_cast<std::int64_t>(n * m), static_cast<std::int64_t>(m), 1}};
  p.a = {gives_weights ? a_data.data() : nullptr, options.rho_a, nullptr};
  p.b = {gives_weights ? b_data.data() : nullptr, options.rho_b, nullptr};
  p.epsilon = options.epsilon;
  p.epsilon_start = options.epsilon_start;
  p.epsilon_factor = options.epsilon_factor;
  p.mass = options.mass;
  p.reference = options.reference;
  p.updates = options.updates;
  p.max_iterations = options.iterations;
  p.tolerance = tolerance;
  const std::size_t size = sizeof(Real);
  const Buffer f(n * size), g(m * size), value(size), linear(size), grad_cost(n * m * size), grad_a(n * size),
      grad_b(m * size), grad_epsilon(size), error(size), iterations(sizeof(std::int32_t));
  SinkhornOutputs out;
  out.f = f.data();
  out.g = g.data();
  out.value = value.data();
  out.linear = linear.data();
  out.grad_cost = grad_cost.data();
  out.grad_a = grad_a.data();
  out.grad_b = grad_b.data();
  out.grad_epsilon = grad_epsilon.data();
  out.error = error.data();
  out.iterations = static_cast<std::int32_t*>(iterations.data());
  const std::size_t bytes = sinkhorn_workspace_bytes(p, out, execution);
  const Buffer workspace(bytes);
  const Status status = sinkhorn(p, out, {workspace.data(), bytes}, execution);
  return {status,
          read<Real>(f, n),
          read<Real>(g, m),
          read<Real>(grad_cost, n * m),
          read<Real>(grad_a, n),
          read<Real>(grad_b, m),
          read<Real>(value, 1)[0],
          read<Real>(linear, 1)[0],
          read<Real>(grad_epsilon, 1)[0],
          read<Real>(error, 1)[0],
          iterations.template read<std::int32_t>(1)[0]};
}

inline double largest(const std::vector<double>& v) {
  double top = 0;
  for (const double x : v) top = std::max(top, std::abs(x));
  return top;
}
inline double distance(const std::vector<double>& v, const std::vector<double>& w) {
  double top = 0;
  for (std::size_t i = 0; i < v.size(); ++i) top = std::max(top, std::abs(v[i] - w[i]));
  return top;
}

// float32: potentials 1e-5 of the largest, P 1e-4 where above 1e-6 of its maximum, value 1e-6.
template <class Real>
void expect_close(const Result& r, const SinkhornAnswer& want, double epsilon) {
  const bool single = sizeof(Real) == 4;
  const double tolerance = single ? 1e-5 : 1e-11;
  ASSERT_TRUE(r.status.ok()) << r.status.argument << ": " << r.status.message;
  const double scale = std::max({largest(want.f), largest(want.g), epsilon});
  EXPECT_LE(distance(r.f, want.f), tolerance * scale);
  EXPECT_LE(distance(r.g, want.g), tolerance * scale);
  EXPECT_NEAR(r.value, want.dual, (single ? 2e-6 : 1e-11) * std::max(std::abs(want.dual), scale));
  EXPECT_NEAR(r.linear, want.linear, tolerance * std::max(std::abs(want.linear), epsilon));
  EXPECT_NEAR(r.grad_epsilon, want.grad_epsilon, 2 * tolerance * std::max(1.0, want.grad_epsilon));
  EXPECT_LE(distance(r.grad_a, want.grad_a), 2 * tolerance * std::max(scale, largest(want.grad_a)));
  EXPECT_LE(distance(r.grad_b, want.grad_b), 2 * tolerance * std::max(scale, largest(want.grad_b)));
  const double most = largest(want.plan);
  for (std::size_t k = 0; k < want.plan.size(); ++k) {
    if (want.plan[k] < 1e-6 * most) continue;
    ASSERT_NEAR(r.grad_cost[k], want.plan[k], (single ? 1e-4 : 1e-9) * want.plan[k]) << "element " << k;
  }
}

}  // namespace warpalign::test
