// CTC's public functions: each checks the contract of the public header, then hands over to the device's
// path.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "core/contract.h"
#include "core/ways.h"
#include "cpu/describe.h"
#include "ctc/contract.h"
#include "ctc/problem.h"
#include "ctc/saved.h"
#include "warpalign/plan.h"
#include "warpalign/saved_bytes.h"

namespace warpalign {
namespace {

using detail::check_aligned;
using detail::check_not_null;
using detail::WrittenMemory;
using detail::ctc::check_extents;
using detail::ctc::check_problem;
using detail::ctc::check_tensor;
using detail::ctc::real_size;

// The entry points of a function, per device.
template <class Problem, class Output>
struct Paths {
  const char* name;  // of the function, for descriptions
  std::size_t (*bytes_cpu)(const Problem&, const Output&, const Execution&);
  std::size_t (*bytes_cuda)(const Problem&, const Output&, const Execution&);
  Status (*run_cpu)(const Problem&, const Output&, Workspace, const Execution&);
  Status (*run_cuda)(const Problem&, const Output&, Workspace, const Execution&);
};

#if WARPALIGN_HAS_CUDA
#define WARPALIGN_CTC_PATHS(function, name)                                                      \
  {                                                                                              \
    function, detail::ctc::name##_workspace_bytes_cpu, detail::ctc::name##_workspace_bytes_cuda, \
        detail::ctc::name##_cpu, detail::ctc::name##_cuda                                        \
  }
#else
#define WARPALIGN_CTC_PATHS(function, name) \
  { function, detail::ctc::name##_workspace_bytes_cpu, nullptr, detail::ctc::name##_cpu, nullptr }
#endif

constexpr Paths<CtcProblem, CtcOutputs> kLoss = WARPALIGN_CTC_PATHS("ctc_loss", loss);
constexpr Paths<CtcProblem, CtcGradient> kGradient = WARPALIGN_CTC_PATHS("ctc_gradient", gradient);
constexpr Paths<CtcProblem, CtcPosteriors> kPosteriors = WARPALIGN_CTC_PATHS("ctc_posteriors", posteriors);
constexpr Paths<CtcProblem, CtcAlignment> kAlign = WARPALIGN_CTC_PATHS("ctc_align", align);
constexpr Paths<MonotonicAlignmentProblem, MonotonicAlignment> kMonotonic =
    WARPALIGN_CTC_PATHS("monotonic_alignment", monotonic);

#undef WARPALIGN_CTC_PATHS

// Workspace bytes; 0 for a problem that check_problem() refuses.
template <class Problem, class Output>
std::size_t workspace_bytes(const Paths<Problem, Output>& paths, const Problem& problem, const Output& output,
                            const Execution& execution) {
  if (!check_extents(problem).ok() || problem.batch == 0) return 0;
  const auto bytes = execution.device == Device::kHost ? paths.bytes_cpu : paths.bytes_cuda;
  return bytes ? bytes(problem, output, execution) : 0;
}

// Checks the problem and what is written, then runs. check_written_of(needed) checks the outputs, given the
// bytes of workspace that the call needs.
template <class Problem, class Output, class CheckOutputs>
Status run(const Paths<Problem, Output>& paths, const Problem& problem, const Output& output,
           Workspace workspace, const Execution& execution, CheckOutputs check_outputs) {
  if (Status s = check_problem(problem, execution); !s.ok()) return s;
  if (problem.batch == 0) return {};
  const bool on_host = execution.device == Device::kHost;
  const auto path = on_host ? paths.run_cpu : paths.run_cuda;
  if (!path) return detail::kNoCudaPath;
  if (on_host) {
    if (Status s = detail::check_way(execution, {}, "CTC on a CPU"); !s.ok()) return s;
  }
  const std::size_t needed = workspace_bytes(paths, problem, output, execution);
  if (Status s = detail::check_workspace(workspace, needed, execution.device); !s.ok()) return s;
  if (Status s = check_outputs(WrittenMemory{"workspace", workspace.data, needed, 1}); !s.ok()) return s;
  if (on_host && cpu::is_described(paths.name, needed, execution)) return {};
  return path(problem, output, workspace, execution);
}

std::int64_t rows_of(const CtcProblem& p) { return static_cast<std::int64_t>(p.batch) * p.frames; }

// A gradient is in the logits' memory with their strides, or elsewhere.
Status check_gradient(const CtcProblem& p, const CtcGradient& gradient, const Execution& execution) {
  if (Status s = check_not_null("saved", gradient.saved); !s.ok()) return s;
  if (Status s = check_aligned("saved", gradient.saved, workspace_alignment(execution.device)); !s.ok())
    return s;
  if (Status s = check_aligned("grad_loss", gradient.grad_loss, real_size(p.dtype)); !s.ok()) return s;
  if (Status s = check_tensor("grad_logits", gradient.logits, gradient.logits_stride, p.dtype); !s.ok())
    return s;
  const std::int64_t extents[] = {p.batch, p.frames, p.classes};
  for (int axis = 0; axis < 3; ++axis) {
    const std::int64_t stride = gradient.logits_stride[axis];
    if (extents[axis] > 1 && stride == 0) {
      return Status::invalid("grad_logits", "strides that keep elements apart", static_cast<double>(stride));
    }
    if (gradient.logits == p.logits.data && extents[axis] > 1 && stride != p.logits.stride[axis]) {
      return Status::invalid("grad_logits", "the strides of the logits, in their memory",
                             static_cast<double>(stride));
    }
  }
  return {};
}

}  // namespace

std::size_t ctc_saved_bytes(const CtcProblem& problem, const Execution& execution) {
  if (!check_extents(problem).ok() || problem.batch == 0) return 0;
  if (execution.device == Device::kHost) return detail::ctc::saved_bytes_cpu(problem, execution);
#if WARPALIGN_HAS_CUDA
  return detail::ctc::saved_bytes_cuda(problem, execution);
#else
  return 0;
#endif
}

// The states at some sqrt(T) frames, or all of whole_bytes(), if these are at most kMostKeptWhole. The
// expression is computed here, and its text is ctc_saved_formula().
#define WARPALIGN_SAVED \
  (b * (32 * t + 256) + \
   most(16 * b * (2 * u + 33) * (root + 1), least(WARPALIGN_CTC_WHOLE, 67108864 - WARPALIGN_CTC_WHOLE)))
#define WARPALIGN_TEXT(expression) #expression
#define WARPALIGN_TEXT_OF(expression) WARPALIGN_TEXT(expression)

std::size_t ctc_most_saved_bytes(const CtcProblem& p) {
  if (!check_extents(p).ok()) return 0;
  const std::int64_t b = p.batch, t = p.frames, u = p.labels;
  const std::int64_t wide = p.dtype == DType::kFloat64 ? 2 : 1;
  const auto root = static_cast<std::int64_t>(std::ceil(std::sqrt(static_cast<double>(t))));
  const auto least = [](std::int64_t one, std::int64_t other) { return std::min(one, other); };
  const auto most = [](std::int64_t one, std::int64_t other) { return std::max(one, other); };
  static_assert(2 * detail::ctc::kMostKeptWhole == 67108864);
  return static_cast<std::size_t>(WARPALIGN_SAVED);
}

const char* ctc_saved_formula() { return WARPALIGN_TEXT_OF(WARPALIGN_SAVED); }

#undef WARPALIGN_SAVED
#undef WARPALIGN_TEXT
#undef WARPALIGN_TEXT_OF

std::size_t ctc_loss_workspace_bytes(const CtcProblem& problem, const CtcOutputs& outputs,
                                     const Execution& execution) {
  return workspace_bytes(kLoss, problem, outputs, execution);
}

Status ctc_loss(const CtcProblem& problem, const CtcOutputs& outputs, Workspace workspace,
                const Execution& execution) {
  return run(kLoss, problem, outputs, workspace, execution, [&](const WrittenMemory& scratch) {
    if (Status s = check_not_null("loss", outputs.loss); !s.ok()) return s;
    const std::size_t size = real_size(problem.dtype);
    const WrittenMemory places[] = {
        {"loss", outputs.loss, problem.batch * size, size},
        {"saved", outputs.saved, ctc_saved_bytes(problem, execution), workspace_alignment(execution.device)},
        scratch};
    return detail::check_written(places);
  });
}

std::size_t ctc_gradient_workspace_bytes(const CtcProblem& problem, const CtcGradient& gradient,
                                         const Execution& execution) {
  return workspace_bytes(kGradient, problem, gradient, execution);
}

Status ctc_gradient(const CtcProblem& problem, const CtcGradient& gradient, Workspace workspace,
                    const Execution& execution) {
  // Without frames there is nothing to write.
  if (check_extents(problem).ok() && problem.frames == 0) return check_problem(problem, execution);
  return run(kGradient, problem, gradient, workspace, execution,
             [&](const WrittenMemory&) { return check_gradient(problem, gradient, execution); });
}

std::size_t ctc_posteriors_workspace_bytes(const CtcProblem& problem, const CtcPosteriors& posteriors,
                                           const Execution& execution) {
  return workspace_bytes(kPosteriors, problem, posteriors, execution);
}

Status ctc_posteriors(const CtcProblem& problem, const CtcPosteriors& posteriors, Workspace workspace,
                      const Execution& execution) {
  return run(kPosteriors, problem, posteriors, workspace, execution, [&](const WrittenMemory& scratch) {
    const std::int64_t count = rows_of(problem) * problem.labels;
    if (count > 0) {
      if (Status s = check_not_null("posteriors", posteriors.labels); !s.ok()) return s;
    }
    const std::size_t size = real_size(problem.dtype);
    const WrittenMemory places[] = {{"loss", posteriors.loss, problem.batch * size, size},
                                    {"posteriors", posteriors.labels, count * size, size},
                                    scratch};
    return detail::check_written(places);
  });
}

std::size_t ctc_align_workspace_bytes(const CtcProblem& problem, const CtcAlignment& alignment,
                                      const Execution& execution) {
  return workspace_bytes(kAlign, problem, alignment, execution);
}

Status ctc_align(const CtcProblem& problem, const CtcAlignment& alignment, Workspace workspace,
                 const Execution& execution) {
  return run(kAlign, problem, alignment, workspace, execution, [&](const WrittenMemory& scratch) {
    const std::size_t real = real_size(problem.dtype), integer = sizeof(std::int32_t);
    const std::int64_t labels = problem.flat_targets
                                    ? problem.target_count
                                    : static_cast<std::int64_t>(problem.batch) * problem.labels;
    const WrittenMemory places[] = {{"score", alignment.score, problem.batch * real, real},
                                    {"labels", alignment.labels, rows_of(problem) * integer, integer},
                                    {"scores", alignment.scores, rows_of(problem) * real, real},
                                    {"spans", alignment.spans, 2 * labels * integer, integer},
                                    scratch};
    return detail::check_written(places);
  });
}

std::size_t monotonic_alignment_workspace_bytes(const MonotonicAlignmentProblem& problem,
                                                const MonotonicAlignment& alignment,
                                                const Execution& execution) {
  return workspace_bytes(kMonotonic, problem, alignment, execution);
}

Status monotonic_alignment(const MonotonicAlignmentProblem& problem, const MonotonicAlignment& alignment,
                           Workspace workspace, const Execution& execution) {
  return run(kMonotonic, problem, alignment, workspace, execution, [&](const WrittenMemory& scratch) {
    const std::size_t real = real_size(problem.dtype), integer = sizeof(std::int32_t);
    const std::int64_t positions = static_cast<std::int64_t>(problem.batch) * problem.positions;
    const WrittenMemory places[] = {
        {"score", alignment.score, problem.batch * real, real},
        {"durations", alignment.durations, positions * integer, integer},
        {"path", alignment.path, static_cast<std::size_t>(positions) * problem.frames, 1},
        scratch};
    return detail::check_written(places);
  });
}

const char* ctc_way([[maybe_unused]] Device device, [[maybe_unused]] int index) {
#if WARPALIGN_HAS_CUDA
  if (device == Device::kCuda) return detail::ctc::way_cuda(index);
#endif
  return nullptr;
}

bool ctc_kernel_launches([[maybe_unused]] int index, [[maybe_unused]] KernelLaunches* out) {
#if WARPALIGN_HAS_CUDA
  return detail::ctc::kernel_launches_cuda(index, *out);
#else
  return false;
#endif
}

}  // namespace warpalign
