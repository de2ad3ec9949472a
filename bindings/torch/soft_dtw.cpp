// torch.ops.warpalign.soft_dtw*: tensors to the core's problem and back. Compiled into the CPU and the CUDA
// library; the outputs and the workspace come from torch's allocator.
#include "warpalign/soft_dtw.h"

#include <torch/csrc/stable/library.h>

#include <optional>
#include <string_view>
#include <tuple>

#include "call.h"
#include "checks.h"

namespace warpalign::torch_binding {
namespace {

// The lengths of a cost matrix go by other names here than in the core.
Status renamed(Status status, bool is_cost_matrix) {
  if (!is_cost_matrix) return status;
  if (std::string_view(status.argument) == "x_lengths") status.argument = "n_lengths";
  if (std::string_view(status.argument) == "y_lengths") status.argument = "m_lengths";
  return status;
}

void run(const SoftDtwProblem& problem, const SoftDtwOutputs& outputs, const Tensor& like,
         int64_t precision = 0, bool batch_invariant = false) {
  call_core(
      like, precision, batch_invariant,
      [&](const Execution& execution) { return soft_dtw_workspace_bytes(problem, outputs, execution); },
      [&](Workspace workspace, const Execution& execution) {
        return renamed(soft_dtw(problem, outputs, workspace, execution), problem.cost.data != nullptr);
      });
}

void run_jvp(const SoftDtwProblem& problem, const SoftDtwTangents& tangents, const SoftDtwOutputs& outputs,
             const Tensor& like, int64_t precision, bool batch_invariant) {
  call_core(
      like, precision, batch_invariant,
      [&](const Execution& execution) {
        return soft_dtw_jvp_workspace_bytes(problem, tangents, outputs, execution);
      },
      [&](Workspace workspace, const Execution& execution) {
        return renamed(soft_dtw_jvp(problem, tangents, outputs, workspace, execution),
                       problem.cost.data != nullptr);
      });
}

// What all operators take, in the order of the schemas.
void set_paths(SoftDtwProblem& problem, const Tensor& first, const char* first_name, double gamma,
               int64_t band, int64_t radius, double max_slope, double step_penalty,
               const std::optional<Tensor>& gammas) {
  problem.gamma = gamma;
  problem.band = {enumerator<BandKind>(band), narrowed(radius), max_slope};
  problem.step_penalty = step_penalty;
  if (gammas) problem.gammas = check_vector(*gammas, "gammas", first, first_name);
}

using Lengths = std::optional<Tensor>;
SoftDtwProblem series_problem(const Tensor& x, const Tensor& y, const Lengths& x_lengths,
                              const Lengths& y_lengths) {
  SoftDtwProblem problem{};
  problem.dtype = check_table(x, "x", "(B, N, D)");
  if (check_table(y, "y", "(B, M, D)") != problem.dtype)
    fail("y", "the dtype of x, " + dtype_of(x), dtype_of(y));
  check_same_device(y, "y", x, "x");
  if (x.size(0) != y.size(0) || x.size(2) != y.size(2)) {
    fail("y", "(B, M, D) with the B and D of x, which has " + shape_of(x), shape_of(y));
  }
  problem.batch = static_cast<std::int32_t>(x.size(0));
  problem.n = static_cast<std::int32_t>(x.size(1));
  problem.m = static_cast<std::int32_t>(y.size(1));
  problem.dim = static_cast<std::int32_t>(x.size(2));
  problem.x = strided<3>(x);
  problem.y = strided<3>(y);
  problem.x_lengths = check_lengths(x_lengths, "x_lengths", x, "x");
  problem.y_lengths = check_lengths(y_lengths, "y_lengths", x, "x");
  return problem;
}

void set_steps(SoftDtwProblem& problem, const Tensor& x, const Tensor& y, int64_t cost_kind,
               const std::optional<Tensor>& x_mask, const std::optional<Tensor>& y_mask) {
  problem.cost_kind = enumerator<CostKind>(cost_kind);
  if (x_mask) problem.x_mask = check_mask(*x_mask, "x_mask", x);
  if (y_mask) problem.y_mask = check_mask(*y_mask, "y_mask", y);
}

SoftDtwProblem cost_problem(const Tensor& cost, const Lengths& n_lengths, const Lengths& m_lengths) {
  SoftDtwProblem problem{};
  problem.dtype = check_table(cost, "cost", "(B, N, M)");
  problem.batch = static_cast<std::int32_t>(cost.size(0));
  problem.n = static_cast<std::int32_t>(cost.size(1));
  problem.m = static_cast<std::int32_t>(cost.size(2));
  problem.cost = strided<3>(cost);
  problem.x_lengths = check_lengths(n_lengths, "n_lengths", cost, "cost");
  problem.y_lengths = check_lengths(m_lengths, "m_lengths", cost, "cost");
  return problem;
}

using SeriesResult = std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor>;

SeriesResult run_series(const Tensor& x, const Tensor& y, const Lengths& x_lengths, const Lengths& y_lengths,
                        double gamma, bool needs_grad_x, bool needs_grad_y, int64_t band, int64_t radius,
                        double max_slope, double step_penalty, int64_t precision, bool batch_invariant,
                        const std::optional<Tensor>& gammas, bool needs_grad_gamma, int64_t cost_kind,
                        const std::optional<Tensor>& x_mask, const std::optional<Tensor>& y_mask,
                        bool needs_alignment) {
  SoftDtwProblem problem = series_problem(x, y, x_lengths, y_lengths);
  set_steps(problem, x, y, cost_kind, x_mask, y_mask);
  set_paths(problem, x, "x", gamma, band, radius, max_slope, step_penalty, gammas);
  const int64_t b = x.size(0);
  const Tensor value = allocate(x, {b});
  const Tensor grad_x = allocate(x, {b, problem.n, problem.dim}, needs_grad_x);
  const Tensor grad_y = allocate(x, {b, problem.m, problem.dim}, needs_grad_y);
  const Tensor grad_gamma = allocate(x, {b}, needs_grad_gamma);
  const Tensor alignment = allocate(x, {b, problem.n, problem.m}, needs_alignment);
  run(problem,
      {value.mutable_data_ptr(), data_or_null(grad_x, needs_grad_x), data_or_null(grad_y, needs_grad_y),
       data_or_null(alignment, needs_alignment), data_or_null(grad_gamma, needs_grad_gamma)},
      x, precision, batch_invariant);
  return {value, grad_x, grad_y, grad_gamma, alignment};
}

std::tuple<Tensor, Tensor, Tensor, Tensor> soft_dtw_op(
    const Tensor& x, const Tensor& y, const Lengths& x_lengths, const Lengths& y_lengths, double gamma,
    bool needs_grad_x, bool needs_grad_y, int64_t band, int64_t radius, double max_slope, double step_penalty,
    int64_t precision, bool batch_invariant, const std::optional<Tensor>& gammas, bool needs_grad_gamma,
    int64_t cost_kind, const std::optional<Tensor>& x_mask, const std::optional<Tensor>& y_mask) {
  const auto [value, grad_x, grad_y, grad_gamma, none] = run_series(
      x, y, x_lengths, y_lengths, gamma, needs_grad_x, needs_grad_y, band, radius, max_slope, step_penalty,
      precision, batch_invariant, gammas, needs_grad_gamma, cost_kind, x_mask, y_mask, false);
  return {value, grad_x, grad_y, grad_gamma};
}

SeriesResult soft_dtw_alignment_op(const Tensor& x, const Tensor& y, const Lengths& x_lengths,
                                   const Lengths& y_lengths, double gamma, bool needs_grad_x,
                                   bool needs_grad_y, int64_t band, int64_t radius, double max_slope,
                                   double step_penalty, int64_t precision, bool batch_invariant,
                                   const std::optional<Tensor>& gammas, bool needs_grad_gamma,
                                   int64_t cost_kind, const std::optional<Tensor>& x_mask,
                                   const std::optional<Tensor>& y_mask) {
  return run_series(x, y, x_lengths, y_lengths, gamma, needs_grad_x, needs_grad_y, band, radius, max_slope,
                    step_penalty, precision, batch_invariant, gammas, needs_grad_gamma, cost_kind, x_mask,
                    y_mask, true);
}

SeriesResult soft_dtw_subsequence_op(const Tensor& x, const Tensor& y, const Lengths& x_lengths,
                                     const Lengths& y_lengths, double gamma, bool needs_grad_x,
                                     bool needs_grad_y, double step_penalty, int64_t cost_kind,
                                     bool needs_alignment) {
  SoftDtwProblem problem = series_problem(x, y, x_lengths, y_lengths);
  problem.gamma = gamma;
  problem.step_penalty = step_penalty;
  set_steps(problem, x, y, cost_kind, std::nullopt, std::nullopt);
  problem.subsequence = true;
  const int64_t b = x.size(0);
  const Tensor value = allocate(x, {b});
  const Tensor grad_x = allocate(x, {b, problem.n, problem.dim}, needs_grad_x);
  const Tensor grad_y = allocate(x, {b, problem.m, problem.dim}, needs_grad_y);
  const Tensor alignment = allocate(x, {b, problem.n, problem.m}, needs_alignment);
  const Tensor end_values = allocate(x, {b, problem.m});
  run(problem,
      {value.mutable_data_ptr(), data_or_null(grad_x, needs_grad_x), data_or_null(grad_y, needs_grad_y),
       data_or_null(alignment, needs_alignment), nullptr, end_values.mutable_data_ptr()},
      x);
  return {value, grad_x, grad_y, alignment, end_values};
}

std::tuple<Tensor, Tensor, Tensor> soft_dtw_cost_op(const Tensor& cost, const Lengths& n_lengths,
                                                    const Lengths& m_lengths, double gamma, bool needs_grad,
                                                    int64_t band, int64_t radius, double max_slope,
                                                    double step_penalty, int64_t precision,
                                                    bool batch_invariant, const std::optional<Tensor>& gammas,
                                                    bool needs_grad_gamma) {
  SoftDtwProblem problem = cost_problem(cost, n_lengths, m_lengths);
  set_paths(problem, cost, "cost", gamma, band, radius, max_slope, step_penalty, gammas);
  const int64_t b = cost.size(0);
  const Tensor value = allocate(cost, {b});
  const Tensor alignment = allocate(cost, {b, problem.n, problem.m}, needs_grad);
  const Tensor grad_gamma = allocate(cost, {b}, needs_grad_gamma);
  run(problem,
      {value.mutable_data_ptr(), nullptr, nullptr, data_or_null(alignment, needs_grad),
       data_or_null(grad_gamma, needs_grad_gamma)},
      cost, precision, batch_invariant);
  return {value, alignment, grad_gamma};
}

// Laid out like `of`, and of its dtype; no tensor: nothing.
StridedTensor check_tangent(const std::optional<Tensor>& tangent, const char* name, const Tensor& of,
                            const char* of_name) {
  if (!tangent) return {};
  check_same_device(*tangent, name, of, of_name);
  if (tangent->scalar_type() != of.scalar_type()) {
    fail(name, std::string("the dtype of ") + of_name + ", " + dtype_of(of), dtype_of(*tangent));
  }
  if (shape_of(*tangent) != shape_of(of)) {
    fail(name, std::string("the shape of ") + of_name + ", " + shape_of(of), shape_of(*tangent));
  }
  return strided<3>(*tangent);
}

std::tuple<Tensor, Tensor, Tensor> soft_dtw_jvp_op(
    const Tensor& x, const Tensor& y, const std::optional<Tensor>& x_tangent,
    const std::optional<Tensor>& y_tangent, const Lengths& x_lengths, const Lengths& y_lengths, double gamma,
    bool needs_grad_x, bool needs_grad_y, int64_t band, int64_t radius, double max_slope, double step_penalty,
    int64_t precision, bool batch_invariant, const std::optional<Tensor>& gammas, int64_t cost_kind,
    const std::optional<Tensor>& x_mask, const std::optional<Tensor>& y_mask) {
  SoftDtwProblem problem = series_problem(x, y, x_lengths, y_lengths);
  set_steps(problem, x, y, cost_kind, x_mask, y_mask);
  set_paths(problem, x, "x", gamma, band, radius, max_slope, step_penalty, gammas);
  const SoftDtwTangents tangents{
      check_tangent(x_tangent, "x_tangent", x, "x"), check_tangent(y_tangent, "y_tangent", y, "y"), {}};
  const int64_t b = x.size(0);
  const Tensor value = allocate(x, {b});
  const Tensor grad_x = allocate(x, {b, problem.n, problem.dim}, needs_grad_x);
  const Tensor grad_y = allocate(x, {b, problem.m, problem.dim}, needs_grad_y);
  run_jvp(problem, tangents,
          {value.mutable_data_ptr(), data_or_null(grad_x, needs_grad_x), data_or_null(grad_y, needs_grad_y)},
          x, precision, batch_invariant);
  return {value, grad_x, grad_y};
}

std::tuple<Tensor, Tensor> soft_dtw_cost_jvp_op(const Tensor& cost, const Tensor& cost_tangent,
                                                const Lengths& n_lengths, const Lengths& m_lengths,
                                                double gamma, bool needs_grad, int64_t band, int64_t radius,
                                                double max_slope, double step_penalty, int64_t precision,
                                                bool batch_invariant, const std::optional<Tensor>& gammas) {
  SoftDtwProblem problem = cost_problem(cost, n_lengths, m_lengths);
  set_paths(problem, cost, "cost", gamma, band, radius, max_slope, step_penalty, gammas);
  const SoftDtwTangents tangents{{}, {}, check_tangent(cost_tangent, "cost_tangent", cost, "cost")};
  const int64_t b = cost.size(0);
  const Tensor value = allocate(cost, {b});
  const Tensor alignment = allocate(cost, {b, problem.n, problem.m}, needs_grad);
  run_jvp(problem, tangents,
          {value.mutable_data_ptr(), nullptr, nullptr, data_or_null(alignment, needs_grad)}, cost, precision,
          batch_invariant);
  return {value, alignment};
}

}  // namespace
}  // namespace warpalign::torch_binding

STABLE_TORCH_LIBRARY_IMPL(warpalign, WARPALIGN_DISPATCH_KEY, library) {
  using namespace warpalign::torch_binding;  // NOLINT: registration
  library.impl("soft_dtw", TORCH_BOX(&soft_dtw_op));
  library.impl("soft_dtw_alignment", TORCH_BOX(&soft_dtw_alignment_op));
  library.impl("soft_dtw_subsequence", TORCH_BOX(&soft_dtw_subsequence_op));
  library.impl("soft_dtw_cost", TORCH_BOX(&soft_dtw_cost_op));
  library.impl("soft_dtw_jvp", TORCH_BOX(&soft_dtw_jvp_op));
  library.impl("soft_dtw_cost_jvp", TORCH_BOX(&soft_dtw_cost_jvp_op));
}
