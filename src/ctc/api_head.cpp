// Public functions of warpalign/ctc_head.h: each checks its contract, then hands over to the device's path.
#include <cstddef>
#include <cstdint>
#include <limits>

#include "core/contract.h"
#include "core/ways.h"
#include "cpu/describe.h"
#include "ctc/contract.h"
#include "ctc/head.h"

namespace warpalign {
namespace {

using detail::check_aligned;
using detail::check_not_null;
using detail::ctc::real_size;

constexpr bool kHasCuda = WARPALIGN_HAS_CUDA != 0;

Status check_head(const CtcProblem& p, const Execution& execution) {
  if (Status s = detail::ctc::check_problem(p, execution, detail::ctc::Logits::kElsewhere); !s.ok()) return s;
  if (p.log_probs) return Status::invalid("log_probs", "false: a product gives logits", 1);
  if (p.flat_targets) return Status::invalid("targets", "padded labels (B, U)", 1);
  if (execution.device != Device::kHost) return kHasCuda ? Status{} : detail::kNoCudaPath;
  return detail::check_way(execution, {}, "CTC on a CPU");
}

// Pointers may be null where nothing lies behind them.
Status check_array(const char* name, const void* data, std::int64_t count, std::size_t alignment) {
  if (count > 0) {
    if (Status s = check_not_null(name, data); !s.ok()) return s;
  }
  return check_aligned(name, data, alignment);
}

std::int64_t all_labels(const CtcProblem& p) { return static_cast<std::int64_t>(p.batch) * p.labels; }
std::int64_t all_rows(const CtcProblem& p) { return static_cast<std::int64_t>(p.batch) * p.frames; }

Status check_labels(const CtcProblem& p, const CtcHeadLabels& labels) {
  constexpr std::size_t kAlignment = alignof(std::int32_t);
  if (Status s = check_array("labels.first", labels.first, all_labels(p), kAlignment); !s.ok()) return s;
  return check_array("labels.next", labels.next, all_labels(p), kAlignment);
}

Status check_rows(const CtcProblem& p, const CtcHeadRows& rows) {
  if (rows.first < 0) {
    return Status::invalid("rows.first", "one of the B T frames", static_cast<double>(rows.first));
  }
  if (rows.count < 0 || rows.count > all_rows(p) - rows.first) {
    return Status::invalid("rows.count", "at most the B T - first frames that follow",
                           static_cast<double>(rows.count));
  }
  if (rows.count > std::numeric_limits<std::int32_t>::max()) {
    return Status::invalid("rows.count", "at most 2^31 - 1 frames at a time",
                           static_cast<double>(rows.count));
  }
  if (rows.stride < p.classes) {
    return Status::invalid("rows.stride", "at least the number of classes", static_cast<double>(rows.stride));
  }
  return check_array("rows.logits", rows.logits, rows.count, size_of(p.dtype));
}

Status check_log_sums(const CtcProblem& p, const double* log_sums, const double* of_others) {
  if (Status s = check_array("log_sums", log_sums, all_rows(p), sizeof(double)); !s.ok()) return s;
  return check_array("log_sums_of_others", of_others, p.star >= 0 ? all_rows(p) : 0, sizeof(double));
}

}  // namespace

Status ctc_head_labels(const CtcProblem& problem, const CtcHeadLabels& labels, const Execution& execution) {
  if (Status s = check_head(problem, execution); !s.ok()) return s;
  if (Status s = check_labels(problem, labels); !s.ok()) return s;
  if (all_labels(problem) == 0) return {};
  if (execution.device == Device::kHost) {
    if (!cpu::is_described("ctc_head_labels", 0, execution)) detail::ctc::head_labels_cpu(problem, labels);
    return {};
  }
#if WARPALIGN_HAS_CUDA
  return detail::ctc::head_labels_cuda(problem, labels, execution);
#else
  return detail::kNoCudaPath;
#endif
}

Status ctc_head_emissions(const CtcProblem& problem, const CtcHeadRows& rows, const CtcHeadEmissions& to,
                          const Execution& execution) {
  if (Status s = check_head(problem, execution); !s.ok()) return s;
  if (Status s = check_rows(problem, rows); !s.ok()) return s;
  if (Status s = check_log_sums(problem, to.log_sums, to.log_sums_of_others); !s.ok()) return s;
  if (Status s = check_array("emissions", to.emissions, all_rows(problem), real_size(problem.dtype)); !s.ok())
    return s;
  if (rows.count == 0) return {};
  if (execution.device == Device::kHost) {
    if (cpu::is_described("ctc_head_emissions", 0, execution)) return {};
    return detail::ctc::head_emissions_cpu(problem, rows, to, execution);
  }
#if WARPALIGN_HAS_CUDA
  return detail::ctc::head_emissions_cuda(problem, rows, to, execution);
#else
  return detail::kNoCudaPath;
#endif
}

CtcProblem ctc_head_emission_problem(const CtcProblem& problem, const void* emissions,
                                     const CtcHeadLabels& labels) {
  CtcProblem p = problem;
  const std::int64_t columns = std::int64_t{problem.labels} + 1;
  p.dtype = problem.dtype == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32;
  p.classes = static_cast<std::int32_t>(columns);
  p.logits = {emissions, {columns * problem.frames, columns, 1}};
  p.targets = static_cast<const std::int32_t*>(labels.first);
  p.target_stride = -1;
  p.blank = problem.labels;
  p.star = -1;
  p.prior = nullptr;
  p.log_probs = true;
  p.zero_infinity = false;
  return p;
}

std::size_t ctc_head_gradient_workspace_bytes(const CtcProblem& problem, const CtcHeadRows& rows,
                                              const Execution& execution) {
  if (!detail::ctc::check_extents(problem).ok() || rows.count <= 0) return 0;
  if (execution.device == Device::kHost) {
    return detail::ctc::head_gradient_workspace_bytes_cpu(problem, execution);
  }
#if WARPALIGN_HAS_CUDA
  return detail::ctc::head_gradient_workspace_bytes_cuda(problem, rows, execution);
#else
  return 0;
#endif
}

Status ctc_head_gradient(const CtcProblem& problem, const CtcHeadRows& rows, const CtcHeadGradient& gradient,
                         Workspace workspace, const Execution& execution) {
  if (Status s = check_head(problem, execution); !s.ok()) return s;
  if (Status s = check_rows(problem, rows); !s.ok()) return s;
  if (Status s = check_labels(problem, gradient.labels); !s.ok()) return s;
  if (Status s = check_log_sums(problem, gradient.log_sums, gradient.log_sums_of_others); !s.ok()) return s;
  const std::size_t real = real_size(problem.dtype);
  const std::int64_t posteriors = all_rows(problem) * problem.labels;
  if (Status s = check_array("posteriors", gradient.posteriors, posteriors, real); !s.ok()) return s;
  if (Status s = check_array("loss", gradient.loss, problem.batch, real); !s.ok()) return s;
  if (Status s = check_aligned("grad_loss", gradient.grad_loss, real); !s.ok()) return s;
  if (rows.count == 0) return {};
  const std::size_t needed = ctc_head_gradient_workspace_bytes(problem, rows, execution);
  if (Status s = detail::check_workspace(workspace, needed, execution.device); !s.ok()) return s;
  if (execution.device == Device::kHost) {
    if (cpu::is_described("ctc_head_gradient", needed, execution)) return {};
    return detail::ctc::head_gradient_cpu(problem, rows, gradient, workspace, execution);
  }
#if WARPALIGN_HAS_CUDA
  return detail::ctc::head_gradient_cuda(problem, rows, gradient, workspace, execution);
#else
  return detail::kNoCudaPath;
#endif
}

}  // namespace warpalign
