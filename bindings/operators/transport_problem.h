// The transport operators' tensors and settings as the core's problem.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "call.h"
#include "checks.h"
#include "warpalign/sinkhorn.h"

namespace warpalign::binding {

using MaybeTensor = std::optional<Tensor>;

// A float32 tensor of the same shape and device, whose elements are all in one place.
inline Tensor without_memory(const Tensor& tensor) {
  constexpr int64_t kAxes = 3;
  if (tensor.dim() != kAxes) fail("cost", "3 axes (B, N, M)", shape_of(tensor));
  const int64_t shape[kAxes] = {tensor.size(0), tensor.size(1), tensor.size(2)};
  return shape_only(tensor, shape, kAxes, ScalarType::Float);
}

// By the names of transport_schemas.cpp.
struct TransportTensors {
  const MaybeTensor &x, &y, &cost, &a, &b, &epsilons, &x_lengths, &y_lengths, &f0, &g0;

  // The tensor that says the dtype, the device and the batch, and its name. Half costs have one without
  // memory in their place: the problem's dtype is float32.
  [[nodiscard]] Tensor first() const {
    if (cost) return cost->scalar_type() == ScalarType::Half ? without_memory(*cost) : *cost;
    if (!x) fail("x", "a tensor (B, N, D), or a cost matrix", "neither");
    return *x;
  }
  [[nodiscard]] bool has_half_cost() const { return cost && cost->scalar_type() == ScalarType::Half; }
  [[nodiscard]] const char* first_name() const { return cost ? "cost" : "x"; }
};

struct TransportSettings {
  int64_t cost_kind;
  double cost_scale, epsilon, epsilon_start, epsilon_factor, rho_a, rho_b, mass;
  int64_t reference, updates, max_iterations;
  double tolerance;
  int64_t precision;
  bool batch_invariant;
};

// The parameters of a registered function, in the order of the schemas' lists.
#define WARPALIGN_TRANSPORT_TENSOR_PARAMETERS                                                \
  const MaybeTensor &x, const MaybeTensor &y, const MaybeTensor &cost, const MaybeTensor &a, \
      const MaybeTensor &b, const MaybeTensor &epsilons, const MaybeTensor &x_lengths,       \
      const MaybeTensor &y_lengths, const MaybeTensor &f0, const MaybeTensor &g0
#define WARPALIGN_TRANSPORT_TENSOR_LIST \
  { x, y, cost, a, b, epsilons, x_lengths, y_lengths, f0, g0 }
#define WARPALIGN_TRANSPORT_SETTING_PARAMETERS                                                             \
  int64_t cost_kind, double cost_scale, double epsilon, double epsilon_start, double epsilon_factor,       \
      double rho_a, double rho_b, double mass, int64_t reference, int64_t updates, int64_t max_iterations, \
      double tolerance, int64_t precision, bool batch_invariant
#define WARPALIGN_TRANSPORT_SETTING_LIST                                                                   \
  {                                                                                                        \
    cost_kind, cost_scale, epsilon, epsilon_start, epsilon_factor, rho_a, rho_b, mass, reference, updates, \
        max_iterations, tolerance, precision, batch_invariant                                              \
  }

// (B, length), contiguous, of first's dtype.
inline const void* check_rows(const MaybeTensor& rows, const char* name, const Tensor& first,
                              const char* first_name, int64_t length) {
  if (!rows) return nullptr;
  check_same_device(*rows, name, first, first_name);
  if (rows->scalar_type() != first.scalar_type()) {
    fail(name, std::string("the dtype of ") + first_name + ", " + dtype_of(first), dtype_of(*rows));
  }
  if (rows->dim() != 2 || rows->size(0) != first.size(0) || rows->size(1) != length ||
      !rows->is_contiguous()) {
    fail(name, "a contiguous tensor (" + std::to_string(first.size(0)) + ", " + std::to_string(length) + ")",
         shape_of(*rows));
  }
  return rows->const_data_ptr();
}

inline void set_points(SinkhornProblem& p, const Tensor& x, const MaybeTensor& given_y) {
  if (!given_y) fail("y", "a tensor (B, M, D) with x", "None");
  const Tensor& y = *given_y;
  p.dtype = check_table(x, "x", "(B, N, D)");
  if (check_table(y, "y", "(B, M, D)") != p.dtype) fail("y", "the dtype of x, " + dtype_of(x), dtype_of(y));
  check_same_device(y, "y", x, "x");
  if (x.size(0) != y.size(0) || x.size(2) != y.size(2)) {
    fail("y", "(B, M, D) with the B and D of x, which has " + shape_of(x), shape_of(y));
  }
  p.m = static_cast<std::int32_t>(y.size(1));
  p.dim = static_cast<std::int32_t>(x.size(2));
  p.x = strided<3>(x);
  p.y = strided<3>(y);
}

inline SinkhornProblem transport_problem(const TransportTensors& t, const TransportSettings& s) {
  SinkhornProblem p;
  const Tensor first = t.first();
  const char* const name = t.first_name();
  if (t.cost) {
    if (t.x || t.y) fail("cost", "None beside x and y", "a tensor");
    p.dtype = check_table(first, "cost", "(B, N, M)");
    p.half_cost = t.has_half_cost();
    p.m = static_cast<std::int32_t>(t.cost->size(2));
    p.cost = strided<3>(*t.cost);
  } else if (t.x) {  // first() has refused neither
    set_points(p, *t.x, t.y);
  }
  p.batch = static_cast<std::int32_t>(first.size(0));
  p.n = static_cast<std::int32_t>(first.size(1));
  p.cost_kind = enumerator<CostKind>(s.cost_kind);
  p.cost_scale = s.cost_scale;
  p.a = {check_rows(t.a, "a", first, name, p.n), s.rho_a,
         check_lengths(t.x_lengths, "x_lengths", first, name)};
  p.b = {check_rows(t.b, "b", first, name, p.m), s.rho_b,
         check_lengths(t.y_lengths, "y_lengths", first, name)};
  p.epsilon = s.epsilon;
  if (t.epsilons) p.epsilons = check_vector(*t.epsilons, "epsilon", first, name);
  p.epsilon_start = s.epsilon_start;
  p.epsilon_factor = s.epsilon_factor;
  p.mass = s.mass;
  p.reference = enumerator<TransportReference>(s.reference);
  p.updates = enumerator<SinkhornUpdates>(s.updates);
  p.f0 = check_rows(t.f0, "f0", first, name, p.n);
  p.g0 = check_rows(t.g0, "g0", first, name, p.m);
  p.max_iterations = narrowed(s.max_iterations);
  p.tolerance = s.tolerance;
  return p;
}

// Gradients with respect to what a problem is made of, the last results of an operator. Those of points and
// of costs are made where they are requested.
struct TransportGradients {
  Tensor x, y, cost, a, b, epsilon;
  bool has_x, has_y, has_cost;

  TransportGradients(const Tensor& like, const SinkhornProblem& p, bool needs_x, bool needs_y,
                     bool needs_cost)
      : x(allocate(like, {p.batch, p.n, p.dim}, needs_x)),
        y(allocate(like, {p.batch, p.m, p.dim}, needs_y)),
        cost(allocate(like, {p.batch, p.n, p.m}, needs_cost)),
        a(allocate(like, {p.batch, p.n})),
        b(allocate(like, {p.batch, p.m})),
        epsilon(allocate(like, {p.batch})),
        has_x(needs_x),
        has_y(needs_y),
        has_cost(needs_cost) {}

  // Outputs: a structure of the core with these gradients.
  template <class Outputs>
  void give_to(Outputs& out) const {
    out.grad_x = data_or_null(x, has_x);
    out.grad_y = data_or_null(y, has_y);
    out.grad_cost = data_or_null(cost, has_cost);
    out.grad_a = a.mutable_data_ptr();
    out.grad_b = b.mutable_data_ptr();
    out.grad_epsilon = epsilon.mutable_data_ptr();
  }
};

// Potentials, the value and the linear part of each problem, without what takes one more pass over the costs.
struct TransportPotentials {
  Tensor value, linear, f, g;
};

inline TransportPotentials transport_potentials(const TransportTensors& tensors,
                                                const TransportSettings& settings) {
  const SinkhornProblem p = transport_problem(tensors, settings);
  const Tensor like = tensors.first();
  const int64_t batch = p.batch;
  TransportPotentials solution{allocate(like, {batch}), allocate(like, {batch}), allocate(like, {batch, p.n}),
                               allocate(like, {batch, p.m})};
  SinkhornOutputs out;
  out.value = solution.value.mutable_data_ptr();
  out.linear = solution.linear.mutable_data_ptr();
  out.f = solution.f.mutable_data_ptr();
  out.g = solution.g.mutable_data_ptr();
  call_core(
      Operator::kSinkhorn, like, settings.precision, settings.batch_invariant,
      [&](const Execution& execution) { return sinkhorn_workspace_bytes(p, out, execution); },
      [&](Workspace workspace, const Execution& execution) {
        return sinkhorn(p, out, workspace, execution);
      });
  return solution;
}

}  // namespace warpalign::binding
