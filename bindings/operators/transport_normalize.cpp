// sinkhorn_normalize and its gradient. Compiled into each library of each front end.
#include <cstdint>

#include "call.h"
#include "checks.h"
#include "warpalign/sinkhorn_normalize.h"

namespace warpalign::binding {
namespace {

NormalizeProblem normalize_problem(const Tensor& logits, int64_t iterations, bool columns_first) {
  NormalizeProblem p;
  p.dtype = check_table(logits, "logits", "(B, N, M)", true);
  p.batch = narrowed(logits.size(0));
  p.n = narrowed(logits.size(1));
  p.m = narrowed(logits.size(2));
  p.logits = strided<3>(logits);
  p.iterations = narrowed(iterations);
  p.order = columns_first ? NormalizeOrder::kColumnsFirst : NormalizeOrder::kRowsFirst;
  return p;
}

Tensor sinkhorn_normalize_op(const Tensor& logits, int64_t iterations, bool columns_first) {
  const NormalizeProblem p = normalize_problem(logits, iterations, columns_first);
  const Tensor plan = allocate(logits, {p.batch, p.n, p.m});
  call_core(
      Operator::kSinkhorn, logits, 0, false,
      [&](const Execution& execution) { return sinkhorn_normalize_workspace_bytes(p, execution); },
      [&](Workspace workspace, const Execution& execution) {
        return sinkhorn_normalize(p, plan.mutable_data_ptr(), workspace, execution);
      });
  return plan;
}

Tensor sinkhorn_normalize_gradient_op(const Tensor& logits, const Tensor& grad_plan, int64_t iterations,
                                      bool columns_first) {
  const NormalizeProblem p = normalize_problem(logits, iterations, columns_first);
  check_same_device(grad_plan, "grad_plan", logits, "logits");
  if (grad_plan.scalar_type() != logits.scalar_type()) {
    fail("grad_plan", "the dtype of logits, " + dtype_of(logits), dtype_of(grad_plan));
  }
  if (grad_plan.dim() != 3 || grad_plan.size(0) != p.batch || grad_plan.size(1) != p.n ||
      grad_plan.size(2) != p.m) {
    fail("grad_plan", "the shape of logits, " + shape_of(logits), shape_of(grad_plan));
  }
  const Tensor grad_logits = allocate(logits, {p.batch, p.n, p.m});
  call_core(
      Operator::kSinkhorn, logits, 0, false,
      [&](const Execution& execution) { return sinkhorn_normalize_gradient_workspace_bytes(p, execution); },
      [&](Workspace workspace, const Execution& execution) {
        return sinkhorn_normalize_gradient(p, strided<3>(grad_plan), grad_logits.mutable_data_ptr(),
                                           workspace, execution);
      });
  return grad_logits;
}

}  // namespace
}  // namespace warpalign::binding

WARPALIGN_OPERATORS(library) {
  using namespace warpalign::binding;  // NOLINT: registration
  library.impl("sinkhorn_normalize", WARPALIGN_OPERATOR(&sinkhorn_normalize_op));
  library.impl("sinkhorn_normalize_gradient", WARPALIGN_OPERATOR(&sinkhorn_normalize_gradient_op));
}
