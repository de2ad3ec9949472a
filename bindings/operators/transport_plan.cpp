// transport_*: what is read off a plan. Compiled into each library of each front end.

#include "warpalign/transport_plan.h"

#include <tuple>

#include "transport_problem.h"

namespace warpalign::binding {
namespace {

// (B, rows, columns) of the problem's dtype; columns below 0: any number of them.
StridedTensor check_matrix(const Tensor& tensor, const char* name, const Tensor& first,
                           const char* first_name, int64_t rows, int64_t columns) {
  check_same_device(tensor, name, first, first_name);
  if (tensor.scalar_type() != first.scalar_type()) {
    fail(name, std::string("the dtype of ") + first_name + ", " + dtype_of(first), dtype_of(tensor));
  }
  if (tensor.dim() != 3 || tensor.size(0) != first.size(0) || tensor.size(1) != rows ||
      (columns >= 0 && tensor.size(2) != columns)) {
    fail(name,
         "shape (" + std::to_string(first.size(0)) + ", " + std::to_string(rows) + ", " +
             (columns < 0 ? "K" : std::to_string(columns)) + ")",
         shape_of(tensor));
  }
  return strided<3>(tensor);
}

template <class WorkspaceBytes, class Call>
void run(const Tensor& like, const TransportSettings& settings, const WorkspaceBytes& workspace_bytes,
         const Call& call) {
  call_core(Operator::kSinkhorn, like, settings.precision, settings.batch_invariant, workspace_bytes, call);
}

Tensor apply_op(WARPALIGN_TRANSPORT_TENSOR_PARAMETERS, const Tensor& v, bool transposed,
                WARPALIGN_TRANSPORT_SETTING_PARAMETERS) {
  const TransportTensors tensors WARPALIGN_TRANSPORT_TENSOR_LIST;
  const TransportSettings settings WARPALIGN_TRANSPORT_SETTING_LIST;
  const SinkhornProblem p = transport_problem(tensors, settings);
  const Tensor like = tensors.first();
  PlanProduct product;
  product.transposed = transposed;
  product.v = check_matrix(v, "v", like, tensors.first_name(), transposed ? p.n : p.m, -1);
  product.columns = narrowed(v.size(2));
  const Tensor result = allocate(like, {p.batch, transposed ? p.m : p.n, v.size(2)});
  product.result = result.mutable_data_ptr();
  run(
      like, settings, [&](const Execution& e) { return plan_apply_workspace_bytes(p, product, e); },
      [&](Workspace workspace, const Execution& e) { return plan_apply(p, product, workspace, e); });
  return result;
}

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor> gradient_op(
    WARPALIGN_TRANSPORT_TENSOR_PARAMETERS, const MaybeTensor& w, const MaybeTensor& u, const MaybeTensor& v,
    bool needs_grad_x, bool needs_grad_y, bool needs_grad_cost, WARPALIGN_TRANSPORT_SETTING_PARAMETERS) {
  const TransportTensors tensors WARPALIGN_TRANSPORT_TENSOR_LIST;
  const TransportSettings settings WARPALIGN_TRANSPORT_SETTING_LIST;
  const SinkhornProblem p = transport_problem(tensors, settings);
  const Tensor like = tensors.first();
  const char* const name = tensors.first_name();
  PlanGradient g;
  if (w) {
    if (u || v) fail("w", "None beside u and v", "a tensor");
    g.w = check_matrix(*w, "w", like, name, p.n, p.m);
  } else {
    if (!u || !v) fail("u", "tensors u and v, or w", "neither");
    g.u = check_matrix(*u, "u", like, name, p.n, -1);
    g.columns = narrowed(u->size(2));
    g.v = check_matrix(*v, "v", like, name, p.m, u->size(2));
    if (g.columns == 0) fail("u", "at least one column", shape_of(*u));
  }
  const Tensor row_sums = allocate(like, {p.batch, p.n}), column_sums = allocate(like, {p.batch, p.m});
  const TransportGradients grad(like, p, needs_grad_x, needs_grad_y, needs_grad_cost);
  g.row_sums = row_sums.mutable_data_ptr();
  g.column_sums = column_sums.mutable_data_ptr();
  grad.give_to(g);
  run(
      like, settings, [&](const Execution& e) { return plan_gradient_workspace_bytes(p, g, e); },
      [&](Workspace workspace, const Execution& e) { return plan_gradient(p, g, workspace, e); });
  return {row_sums, column_sums, grad.x, grad.y, grad.cost, grad.a, grad.b, grad.epsilon};
}

std::tuple<Tensor, Tensor> topk_op(WARPALIGN_TRANSPORT_TENSOR_PARAMETERS, int64_t count, bool transposed,
                                   WARPALIGN_TRANSPORT_SETTING_PARAMETERS) {
  const TransportTensors tensors WARPALIGN_TRANSPORT_TENSOR_LIST;
  const TransportSettings settings WARPALIGN_TRANSPORT_SETTING_LIST;
  const SinkhornProblem p = transport_problem(tensors, settings);
  const Tensor like = tensors.first();
  if (count < 1 || count > (transposed ? p.n : p.m)) {
    fail("count", "1 to " + std::to_string(transposed ? p.n : p.m), std::to_string(count));
  }
  const int64_t rows = transposed ? p.m : p.n;
  const Tensor values = allocate(like, {p.batch, rows, count}),
               indices = allocate(like, {p.batch, rows, count}, true, ScalarType::Int);
  const PlanTop top{transposed, narrowed(count), values.mutable_data_ptr(),
                    static_cast<std::int32_t*>(indices.mutable_data_ptr())};
  run(
      like, settings, [&](const Execution& e) { return plan_topk_workspace_bytes(p, top, e); },
      [&](Workspace workspace, const Execution& e) { return plan_topk(p, top, workspace, e); });
  return {values, indices};
}

Tensor sample_op(WARPALIGN_TRANSPORT_TENSOR_PARAMETERS, int64_t count, int64_t seed,
                 WARPALIGN_TRANSPORT_SETTING_PARAMETERS) {
  const TransportTensors tensors WARPALIGN_TRANSPORT_TENSOR_LIST;
  const TransportSettings settings WARPALIGN_TRANSPORT_SETTING_LIST;
  const SinkhornProblem p = transport_problem(tensors, settings);
  const Tensor like = tensors.first();
  if (count < 1) fail("count", "at least 1", std::to_string(count));
  const Tensor pairs = allocate(like, {p.batch, count, 2}, true, ScalarType::Int);
  const PlanSamples samples{narrowed(count), static_cast<std::uint64_t>(seed),
                            static_cast<std::int32_t*>(pairs.mutable_data_ptr())};
  run(
      like, settings, [&](const Execution& e) { return plan_sample_workspace_bytes(p, samples, e); },
      [&](Workspace workspace, const Execution& e) { return plan_sample(p, samples, workspace, e); });
  return pairs;
}

Tensor dense_op(WARPALIGN_TRANSPORT_TENSOR_PARAMETERS, WARPALIGN_TRANSPORT_SETTING_PARAMETERS) {
  const TransportTensors tensors WARPALIGN_TRANSPORT_TENSOR_LIST;
  const TransportSettings settings WARPALIGN_TRANSPORT_SETTING_LIST;
  const SinkhornProblem p = transport_problem(tensors, settings);
  const Tensor like = tensors.first();
  const Tensor plan = allocate(like, {p.batch, p.n, p.m});
  run(
      like, settings, [&](const Execution& e) { return plan_dense_workspace_bytes(p, e); },
      [&](Workspace workspace, const Execution& e) {
        return plan_dense(p, plan.mutable_data_ptr(), workspace, e);
      });
  return plan;
}

}  // namespace
}  // namespace warpalign::binding

WARPALIGN_OPERATORS(library) {
  using namespace warpalign::binding;  // NOLINT: registration
  library.impl("transport_apply", WARPALIGN_OPERATOR(&apply_op));
  library.impl("transport_gradient", WARPALIGN_OPERATOR(&gradient_op));
  library.impl("transport_topk", WARPALIGN_OPERATOR(&topk_op));
  library.impl("transport_sample", WARPALIGN_OPERATOR(&sample_op));
  library.impl("transport_dense", WARPALIGN_OPERATOR(&dense_op));
}
