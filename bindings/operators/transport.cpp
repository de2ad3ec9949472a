// sinkhorn*: tensors to the core's problem and back. Compiled into each library of each front end. The
// outputs and the workspace come from the front end's allocator.
#include <tuple>

#include "transport_problem.h"

namespace warpalign::binding {
namespace {

using SinkhornTensors = std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor,
                                   Tensor, Tensor, Tensor, Tensor>;

SinkhornTensors sinkhorn_op(WARPALIGN_TRANSPORT_TENSOR_PARAMETERS, bool needs_grad_x, bool needs_grad_y,
                            bool needs_grad_cost, WARPALIGN_TRANSPORT_SETTING_PARAMETERS) {
  const TransportTensors tensors WARPALIGN_TRANSPORT_TENSOR_LIST;
  const TransportSettings settings WARPALIGN_TRANSPORT_SETTING_LIST;
  const SinkhornProblem p = transport_problem(tensors, settings);
  const Tensor like = tensors.first();
  const int64_t batch = p.batch;
  const Tensor value = allocate(like, {batch}), linear = allocate(like, {batch}),
               f = allocate(like, {batch, p.n}), g = allocate(like, {batch, p.m}),
               shift = allocate(like, {batch}), iterations = allocate(like, {batch}, true, ScalarType::Int),
               error = allocate(like, {batch});
  const TransportGradients grad(like, p, needs_grad_x, needs_grad_y, needs_grad_cost);
  SinkhornOutputs out;
  out.value = value.mutable_data_ptr();
  out.linear = linear.mutable_data_ptr();
  out.f = f.mutable_data_ptr();
  out.g = g.mutable_data_ptr();
  out.shift = shift.mutable_data_ptr();
  out.iterations = static_cast<std::int32_t*>(iterations.mutable_data_ptr());
  out.error = error.mutable_data_ptr();
  grad.give_to(out);
  call_core(
      Operator::kSinkhorn, like, settings.precision, settings.batch_invariant,
      [&](const Execution& execution) { return sinkhorn_workspace_bytes(p, out, execution); },
      [&](Workspace workspace, const Execution& execution) {
        return sinkhorn(p, out, workspace, execution);
      });
  return {value,  linear, f,         g,      shift,  iterations,  error,
          grad.x, grad.y, grad.cost, grad.a, grad.b, grad.epsilon};
}

std::tuple<Tensor, Tensor, Tensor, Tensor> sinkhorn_potentials_op(WARPALIGN_TRANSPORT_TENSOR_PARAMETERS,
                                                                  WARPALIGN_TRANSPORT_SETTING_PARAMETERS) {
  const TransportPotentials solution =
      transport_potentials(WARPALIGN_TRANSPORT_TENSOR_LIST, WARPALIGN_TRANSPORT_SETTING_LIST);
  return {solution.value, solution.linear, solution.f, solution.g};
}

// A tangent has the shape of what it moves, and the dtype.
StridedTensor check_moved(const MaybeTensor& tangent, const char* name, const MaybeTensor& of,
                          const char* of_name) {
  if (!tangent) return {};
  if (!of) fail(name, std::string("None without ") + of_name, "a tensor");
  check_same_device(*tangent, name, *of, of_name);
  bool same = tangent->dim() == of->dim() && tangent->scalar_type() == of->scalar_type();
  for (int64_t axis = 0; same && axis < of->dim(); ++axis) same = tangent->size(axis) == of->size(axis);
  if (!same) {
    fail(name, std::string("the shape and dtype of ") + of_name + ", " + shape_of(*of), shape_of(*tangent));
  }
  return strided<3>(*tangent);
}

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor> sinkhorn_jvp_op(
    WARPALIGN_TRANSPORT_TENSOR_PARAMETERS, const MaybeTensor& shift0, const MaybeTensor& x_tangent,
    const MaybeTensor& y_tangent, const MaybeTensor& cost_tangent, const MaybeTensor& a_tangent,
    const MaybeTensor& b_tangent, const MaybeTensor& epsilon_tangent, const MaybeTensor& log_scale_tangent,
    const MaybeTensor& f_tangent, const MaybeTensor& g_tangent, bool needs_grad_x, bool needs_grad_y,
    bool needs_grad_cost, WARPALIGN_TRANSPORT_SETTING_PARAMETERS) {
  const TransportTensors tensors WARPALIGN_TRANSPORT_TENSOR_LIST;
  const TransportSettings settings WARPALIGN_TRANSPORT_SETTING_LIST;
  SinkhornProblem p = transport_problem(tensors, settings);
  const Tensor like = tensors.first();
  const char* const name = tensors.first_name();
  const auto vector = [&](const MaybeTensor& given, const char* its_name) -> const void* {
    return given ? check_vector(*given, its_name, like, name) : nullptr;
  };
  p.shift0 = vector(shift0, "shift0");
  SinkhornTangents along;
  along.x = check_moved(x_tangent, "x_tangent", x, "x");
  along.y = check_moved(y_tangent, "y_tangent", y, "y");
  along.cost = check_moved(cost_tangent, "cost_tangent", cost ? MaybeTensor(like) : cost, "cost");
  along.a = check_rows(a_tangent, "a_tangent", like, name, p.n);
  along.b = check_rows(b_tangent, "b_tangent", like, name, p.m);
  along.epsilon = vector(epsilon_tangent, "epsilon_tangent");
  along.log_scale = vector(log_scale_tangent, "log_scale_tangent");
  along.f = check_rows(f_tangent, "f_tangent", like, name, p.n);
  along.g = check_rows(g_tangent, "g_tangent", like, name, p.m);
  const int64_t batch = p.batch;
  const Tensor value = allocate(like, {batch}), linear = allocate(like, {batch}),
               f = allocate(like, {batch, p.n}), g = allocate(like, {batch, p.m});
  const TransportGradients grad(like, p, needs_grad_x, needs_grad_y, needs_grad_cost);
  SinkhornOutputs out;
  out.value = value.mutable_data_ptr();
  out.linear = linear.mutable_data_ptr();
  out.f = f.mutable_data_ptr();
  out.g = g.mutable_data_ptr();
  grad.give_to(out);
  call_core(
      Operator::kSinkhorn, like, settings.precision, settings.batch_invariant,
      [&](const Execution& execution) { return sinkhorn_jvp_workspace_bytes(p, along, out, execution); },
      [&](Workspace workspace, const Execution& execution) {
        return sinkhorn_jvp(p, along, out, workspace, execution);
      });
  return {value, linear, f, g, grad.x, grad.y, grad.cost, grad.a, grad.b, grad.epsilon};
}

}  // namespace
}  // namespace warpalign::binding

WARPALIGN_OPERATORS(library) {
  using namespace warpalign::binding;  // NOLINT: registration
  library.impl("sinkhorn", WARPALIGN_OPERATOR(&sinkhorn_op));
  library.impl("sinkhorn_potentials", WARPALIGN_OPERATOR(&sinkhorn_potentials_op));
  library.impl("sinkhorn_jvp", WARPALIGN_OPERATOR(&sinkhorn_jvp_op));
}
