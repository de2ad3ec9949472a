// soft_dtw*: conversion between tensors and the core's problems. Compiled into each library of each front
// end. Outputs and workspace come from the front end's allocator.
#include "warpalign/soft_dtw.h"

#include <limits>
#include <optional>
#include <string>
#include <tuple>

#include "call.h"
#include "checks.h"
#include "soft_dtw_problem.h"
#include "warpalign/soft_dtw_sample.h"

namespace warpalign::binding {
namespace {

void run(const SoftDtwProblem& problem, const SoftDtwOutputs& outputs, const Tensor& like,
         const SoftDtwSettings& settings) {
  call_core(
      Operator::kSoftDtw, like, settings.precision, settings.batch_invariant,
      [&](const Execution& execution) { return soft_dtw_workspace_bytes(problem, outputs, execution); },
      [&](Workspace workspace, const Execution& execution) {
        return soft_dtw(problem, outputs, workspace, execution);
      });
}

void run_jvp(const SoftDtwProblem& problem, const SoftDtwTangents& tangents, const SoftDtwOutputs& outputs,
             const Tensor& like, const SoftDtwSettings& settings) {
  call_core(
      Operator::kSoftDtw, like, settings.precision, settings.batch_invariant,
      [&](const Execution& execution) {
        return soft_dtw_jvp_workspace_bytes(problem, tangents, outputs, execution);
      },
      [&](Workspace workspace, const Execution& execution) {
        return soft_dtw_jvp(problem, tangents, outputs, workspace, execution);
      });
}

// The requested outputs of a problem of series, besides the value. end_values: the problem is a subsequence.
struct Wanted {
  bool grad_x = false;
  bool grad_y = false;
  bool grad_gamma = false;
  bool alignment = false;
  bool end_values = false;
};

struct SeriesResult {
  Tensor value, grad_x, grad_y, grad_gamma;
  Tensor alignment, end_values;  // undefined if not requested, because few operators return them
};

SeriesResult run_series(const Tensor& x, const Tensor& y, const Lengths& x_lengths, const Lengths& y_lengths,
                        const SoftDtwSettings& settings, Wanted wanted) {
  SoftDtwProblem problem = series_problem(x, y, x_lengths, y_lengths, x.is_cuda());
  const ScalarType dtype = result_dtype(x);
  if (settings.gammas && x.scalar_type() != dtype) {
    fail("gammas", "none with series of half types", "a tensor");
  }
  set_steps(problem, settings, x, y);
  set_paths(problem, settings, x, "x");
  problem.subsequence = wanted.end_values;
  const int64_t b = x.size(0);
  const SeriesResult result{allocate(x, {b}, true, dtype),
                            allocate(x, {b, problem.n, problem.dim}, wanted.grad_x, dtype),
                            allocate(x, {b, problem.m, problem.dim}, wanted.grad_y, dtype),
                            allocate(x, {b}, wanted.grad_gamma, dtype),
                            wanted.alignment ? allocate(x, {b, problem.n, problem.m}, true, dtype) : Tensor(),
                            wanted.end_values ? allocate(x, {b, problem.m}, true, dtype) : Tensor()};
  run(problem,
      {result.value.mutable_data_ptr(), data_or_null(result.grad_x, wanted.grad_x),
       data_or_null(result.grad_y, wanted.grad_y), data_or_null(result.alignment, wanted.alignment),
       data_or_null(result.grad_gamma, wanted.grad_gamma),
       data_or_null(result.end_values, wanted.end_values)},
      x, settings);
  return result;
}

std::tuple<Tensor, Tensor, Tensor> run_cost(const Tensor& cost, const Lengths& x_lengths,
                                            const Lengths& y_lengths, const SoftDtwSettings& settings,
                                            bool needs_grad, bool needs_grad_gamma) {
  SoftDtwProblem problem = cost_problem(cost, x_lengths, y_lengths);
  set_paths(problem, settings, cost, "cost");
  const int64_t b = cost.size(0);
  const Tensor value = allocate(cost, {b});
  const Tensor alignment = allocate(cost, {b, problem.n, problem.m}, needs_grad);
  const Tensor grad_gamma = allocate(cost, {b}, needs_grad_gamma);
  run(problem,
      {value.mutable_data_ptr(), nullptr, nullptr, data_or_null(alignment, needs_grad),
       data_or_null(grad_gamma, needs_grad_gamma)},
      cost, settings);
  return {value, alignment, grad_gamma};
}

// A tangent has the shape and the dtype of its primal, in any strided layout. No tensor: a null view.
StridedTensor check_tangent(const std::optional<Tensor>& tangent, const char* name, const Tensor& primal,
                            const char* primal_name) {
  if (!tangent) return {};
  check_same_device(*tangent, name, primal, primal_name);
  if (tangent->scalar_type() != primal.scalar_type()) {
    fail(name, std::string("the dtype of ") + primal_name + ", " + dtype_of(primal), dtype_of(*tangent));
  }
  if (shape_of(*tangent) != shape_of(primal)) {
    fail(name, std::string("the shape of ") + primal_name + ", " + shape_of(primal), shape_of(*tangent));
  }
  return strided<3>(*tangent);
}

std::tuple<Tensor, Tensor, Tensor> run_series_jvp(const Tensor& x, const Tensor& y,
                                                  const std::optional<Tensor>& x_tangent,
                                                  const std::optional<Tensor>& y_tangent,
                                                  const Lengths& x_lengths, const Lengths& y_lengths,
                                                  const SoftDtwSettings& settings, Wanted wanted) {
  SoftDtwProblem problem = series_problem(x, y, x_lengths, y_lengths, false);
  set_steps(problem, settings, x, y);
  set_paths(problem, settings, x, "x");
  const SoftDtwTangents tangents{
      check_tangent(x_tangent, "x_tangent", x, "x"), check_tangent(y_tangent, "y_tangent", y, "y"), {}};
  const int64_t b = x.size(0);
  const Tensor value = allocate(x, {b});
  const Tensor grad_x = allocate(x, {b, problem.n, problem.dim}, wanted.grad_x);
  const Tensor grad_y = allocate(x, {b, problem.m, problem.dim}, wanted.grad_y);
  run_jvp(
      problem, tangents,
      {value.mutable_data_ptr(), data_or_null(grad_x, wanted.grad_x), data_or_null(grad_y, wanted.grad_y)}, x,
      settings);
  return {value, grad_x, grad_y};
}

std::tuple<Tensor, Tensor> run_cost_jvp(const Tensor& cost, const Tensor& cost_tangent,
                                        const Lengths& x_lengths, const Lengths& y_lengths,
                                        const SoftDtwSettings& settings, bool needs_grad) {
  SoftDtwProblem problem = cost_problem(cost, x_lengths, y_lengths);
  set_paths(problem, settings, cost, "cost");
  const SoftDtwTangents tangents{{}, {}, check_tangent(cost_tangent, "cost_tangent", cost, "cost")};
  const int64_t b = cost.size(0);
  const Tensor value = allocate(cost, {b});
  const Tensor alignment = allocate(cost, {b, problem.n, problem.m}, needs_grad);
  run_jvp(problem, tangents,
          {value.mutable_data_ptr(), nullptr, nullptr, data_or_null(alignment, needs_grad)}, cost, settings);
  return {value, alignment};
}

// Draws `count` paths of every pair. `first` is the problem's first tensor.
std::tuple<Tensor, Tensor> run_sample(const SoftDtwProblem& problem, int64_t count, int64_t seed,
                                      const Tensor& first, const SoftDtwSettings& settings) {
  if (count < 0 || count > std::numeric_limits<std::int32_t>::max()) {
    fail("count", "0 to 2^31 - 1 paths", std::to_string(count));
  }
  const int64_t b = problem.batch, cells = int64_t{problem.n} + problem.m - 1;
  const Tensor paths = allocate(first, {b, count, cells, 2}, true, ScalarType::Long);
  const Tensor lengths = allocate(first, {b, count}, true, ScalarType::Long);
  SoftDtwSamples samples;
  samples.paths_per_pair = static_cast<std::int32_t>(count);
  samples.seed = static_cast<std::uint64_t>(seed);
  samples.paths = static_cast<std::int64_t*>(paths.mutable_data_ptr());
  samples.lengths = static_cast<std::int64_t*>(lengths.mutable_data_ptr());
  call_core(
      Operator::kSoftDtw, first, settings.precision, settings.batch_invariant,
      [&](const Execution& execution) {
        return soft_dtw_sample_workspace_bytes(problem, samples, execution);
      },
      [&](Workspace workspace, const Execution& execution) {
        return soft_dtw_sample(problem, samples, workspace, execution);
      });
  return {paths, lengths};
}

// The registered functions. Their parameters are their schema's, in its order.

std::tuple<Tensor, Tensor, Tensor, Tensor> soft_dtw_op(
    const Tensor& x, const Tensor& y, const Lengths& x_lengths, const Lengths& y_lengths, double gamma,
    bool needs_grad_x, bool needs_grad_y, int64_t band, int64_t radius, double max_slope, double step_penalty,
    int64_t precision, bool batch_invariant, const std::optional<Tensor>& gammas, bool needs_grad_gamma,
    int64_t cost_kind, const std::optional<Tensor>& x_mask, const std::optional<Tensor>& y_mask) {
  const SeriesResult result =
      run_series(x, y, x_lengths, y_lengths,
                 {gamma, band, radius, max_slope, step_penalty, precision, batch_invariant, gammas, cost_kind,
                  x_mask, y_mask},
                 {.grad_x = needs_grad_x, .grad_y = needs_grad_y, .grad_gamma = needs_grad_gamma});
  return {result.value, result.grad_x, result.grad_y, result.grad_gamma};
}

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> soft_dtw_alignment_op(
    const Tensor& x, const Tensor& y, const Lengths& x_lengths, const Lengths& y_lengths, double gamma,
    bool needs_grad_x, bool needs_grad_y, int64_t band, int64_t radius, double max_slope, double step_penalty,
    int64_t precision, bool batch_invariant, const std::optional<Tensor>& gammas, bool needs_grad_gamma,
    int64_t cost_kind, const std::optional<Tensor>& x_mask, const std::optional<Tensor>& y_mask) {
  const SeriesResult result = run_series(
      x, y, x_lengths, y_lengths,
      {gamma, band, radius, max_slope, step_penalty, precision, batch_invariant, gammas, cost_kind, x_mask,
       y_mask},
      {.grad_x = needs_grad_x, .grad_y = needs_grad_y, .grad_gamma = needs_grad_gamma, .alignment = true});
  return {result.value, result.grad_x, result.grad_y, result.grad_gamma, result.alignment};
}

std::tuple<Tensor, Tensor, Tensor, Tensor> soft_dtw_packed_op(
    const Tensor& x, const Tensor& y, const Tensor& x_offsets, const Tensor& y_offsets,
    const Tensor& x_lengths, const Tensor& y_lengths, int64_t n, int64_t m, double gamma, bool needs_grad_x,
    bool needs_grad_y, int64_t band, int64_t radius, double max_slope, double step_penalty, int64_t precision,
    bool batch_invariant, const std::optional<Tensor>& gammas, bool needs_grad_gamma, int64_t cost_kind) {
  const SoftDtwSettings settings{gamma,           band,   radius,   max_slope, step_penalty, precision,
                                 batch_invariant, gammas, cost_kind};
  SoftDtwProblem problem = packed_problem(x, y, x_offsets, y_offsets, x_lengths, y_lengths, n, m);
  problem.cost_kind = enumerator<CostKind>(cost_kind);
  const ScalarType dtype = result_dtype(x);
  if (gammas && gammas->scalar_type() != dtype) fail("gammas", "the dtype of the value", dtype_of(*gammas));
  const Tensor value = allocate(x, {problem.batch}, true, dtype);
  set_paths(problem, settings, value, "the value");
  const Tensor grad_x = allocate(x, {1, problem.x_steps, problem.dim}, needs_grad_x, dtype);
  const Tensor grad_y = allocate(x, {1, problem.y_steps, problem.dim}, needs_grad_y, dtype);
  const Tensor grad_gamma = allocate(x, {problem.batch}, needs_grad_gamma, dtype);
  run(problem,
      {value.mutable_data_ptr(), data_or_null(grad_x, needs_grad_x), data_or_null(grad_y, needs_grad_y),
       nullptr, data_or_null(grad_gamma, needs_grad_gamma)},
      x, settings);
  return {value, grad_x, grad_y, grad_gamma};
}

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> soft_dtw_subsequence_op(
    const Tensor& x, const Tensor& y, const Lengths& x_lengths, const Lengths& y_lengths, double gamma,
    bool needs_grad_x, bool needs_grad_y, double step_penalty, int64_t cost_kind, bool needs_alignment) {
  const SeriesResult result = run_series(
      x, y, x_lengths, y_lengths, {.gamma = gamma, .step_penalty = step_penalty, .cost_kind = cost_kind},
      {.grad_x = needs_grad_x, .grad_y = needs_grad_y, .alignment = needs_alignment, .end_values = true});
  const Tensor alignment = needs_alignment ? result.alignment : allocate(x, {0}, true, result_dtype(x));
  return {result.value, result.grad_x, result.grad_y, alignment, result.end_values};
}

std::tuple<Tensor, Tensor, Tensor> soft_dtw_cost_op(const Tensor& cost, const Lengths& x_lengths,
                                                    const Lengths& y_lengths, double gamma, bool needs_grad,
                                                    int64_t band, int64_t radius, double max_slope,
                                                    double step_penalty, int64_t precision,
                                                    bool batch_invariant, const std::optional<Tensor>& gammas,
                                                    bool needs_grad_gamma) {
  return run_cost(cost, x_lengths, y_lengths,
                  {gamma, band, radius, max_slope, step_penalty, precision, batch_invariant, gammas},
                  needs_grad, needs_grad_gamma);
}

std::tuple<Tensor, Tensor, Tensor> soft_dtw_jvp_op(
    const Tensor& x, const Tensor& y, const std::optional<Tensor>& x_tangent,
    const std::optional<Tensor>& y_tangent, const Lengths& x_lengths, const Lengths& y_lengths, double gamma,
    bool needs_grad_x, bool needs_grad_y, int64_t band, int64_t radius, double max_slope, double step_penalty,
    int64_t precision, bool batch_invariant, const std::optional<Tensor>& gammas, int64_t cost_kind,
    const std::optional<Tensor>& x_mask, const std::optional<Tensor>& y_mask) {
  return run_series_jvp(x, y, x_tangent, y_tangent, x_lengths, y_lengths,
                        {gamma, band, radius, max_slope, step_penalty, precision, batch_invariant, gammas,
                         cost_kind, x_mask, y_mask},
                        {.grad_x = needs_grad_x, .grad_y = needs_grad_y});
}

std::tuple<Tensor, Tensor> soft_dtw_cost_jvp_op(const Tensor& cost, const Tensor& cost_tangent,
                                                const Lengths& x_lengths, const Lengths& y_lengths,
                                                double gamma, bool needs_grad, int64_t band, int64_t radius,
                                                double max_slope, double step_penalty, int64_t precision,
                                                bool batch_invariant, const std::optional<Tensor>& gammas) {
  return run_cost_jvp(cost, cost_tangent, x_lengths, y_lengths,
                      {gamma, band, radius, max_slope, step_penalty, precision, batch_invariant, gammas},
                      needs_grad);
}

std::tuple<Tensor, Tensor> soft_dtw_sample_op(const Tensor& x, const Tensor& y, const Lengths& x_lengths,
                                              const Lengths& y_lengths, double gamma, int64_t count,
                                              int64_t seed, int64_t band, int64_t radius, double max_slope,
                                              double step_penalty, int64_t precision, bool batch_invariant,
                                              const std::optional<Tensor>& gammas, int64_t cost_kind,
                                              const std::optional<Tensor>& x_mask,
                                              const std::optional<Tensor>& y_mask) {
  const SoftDtwSettings settings{gamma,           band,   radius,    max_slope, step_penalty, precision,
                                 batch_invariant, gammas, cost_kind, x_mask,    y_mask};
  SoftDtwProblem problem = series_problem(x, y, x_lengths, y_lengths, false);
  set_steps(problem, settings, x, y);
  set_paths(problem, settings, x, "x");
  return run_sample(problem, count, seed, x, settings);
}

std::tuple<Tensor, Tensor> soft_dtw_cost_sample_op(const Tensor& cost, const Lengths& x_lengths,
                                                   const Lengths& y_lengths, double gamma, int64_t count,
                                                   int64_t seed, int64_t band, int64_t radius,
                                                   double max_slope, double step_penalty, int64_t precision,
                                                   bool batch_invariant,
                                                   const std::optional<Tensor>& gammas) {
  const SoftDtwSettings settings{gamma,        band,      radius,          max_slope,
                                 step_penalty, precision, batch_invariant, gammas};
  SoftDtwProblem problem = cost_problem(cost, x_lengths, y_lengths);
  set_paths(problem, settings, cost, "cost");
  return run_sample(problem, count, seed, cost, settings);
}

}  // namespace
}  // namespace warpalign::binding

WARPALIGN_OPERATORS(library) {
  using namespace warpalign::binding;  // NOLINT: registration
  library.impl("soft_dtw", WARPALIGN_OPERATOR(&soft_dtw_op));
  library.impl("soft_dtw_alignment", WARPALIGN_OPERATOR(&soft_dtw_alignment_op));
  library.impl("soft_dtw_packed", WARPALIGN_OPERATOR(&soft_dtw_packed_op));
  library.impl("soft_dtw_subsequence", WARPALIGN_OPERATOR(&soft_dtw_subsequence_op));
  library.impl("soft_dtw_cost", WARPALIGN_OPERATOR(&soft_dtw_cost_op));
  library.impl("soft_dtw_jvp", WARPALIGN_OPERATOR(&soft_dtw_jvp_op));
  library.impl("soft_dtw_cost_jvp", WARPALIGN_OPERATOR(&soft_dtw_cost_jvp_op));
  library.impl("soft_dtw_sample", WARPALIGN_OPERATOR(&soft_dtw_sample_op));
  library.impl("soft_dtw_cost_sample", WARPALIGN_OPERATOR(&soft_dtw_cost_sample_op));
}
