// The functions of warpalign/sinkhorn_normalize.h: they check the contract, then hand over to the device's
// path.
#include <cstddef>
#include <cstdint>

#include "core/contract.h"
#include "cpu/describe.h"
#include "transport/normalize.h"

namespace warpalign {
namespace {

using namespace detail;             // NOLINT: the checks of every operator
using namespace detail::transport;  // NOLINT: the entry points of this one

constexpr std::int32_t kMostIterations = 1 << 20;

Status check_lines(const char* name, std::int32_t lines) {
  if (lines >= 1 && lines <= kMostNormalizedLines) return {};
  return Status::invalid(name, "1 to 64 (use sinkhorn() with cost -logits for more)", lines);
}

bool has_sizes(const NormalizeProblem& p) {
  return p.batch > 0 && check_lines("n", p.n).ok() && check_lines("m", p.m).ok() && p.iterations >= 1 &&
         p.iterations <= kMostIterations;
}

Status check_input(const char* name, const StridedTensor& tensor, DType dtype) {
  if (Status s = check_not_null(name, tensor.data); !s.ok()) return s;
  if (Status s = check_strides(name, tensor); !s.ok()) return s;
  return check_aligned(name, tensor.data, size_of(dtype));
}

Status check_problem(const NormalizeProblem& p, const Execution& execution) {
  if (Status s = check_execution(execution); !s.ok()) return s;
  if (size_of(p.dtype) == 0) {
    return Status::invalid("dtype", "one of the types of DType", static_cast<double>(p.dtype));
  }
  if (p.batch < 0) return Status::invalid("batch", "at least 0", p.batch);
  if (Status s = check_lines("n", p.n); !s.ok()) return s;
  if (Status s = check_lines("m", p.m); !s.ok()) return s;
  if (p.iterations < 1 || p.iterations > kMostIterations) {
    return Status::invalid("iterations", "1 to 2^20", p.iterations);
  }
  if (p.order != NormalizeOrder::kRowsFirst && p.order != NormalizeOrder::kColumnsFirst) {
    return Status::invalid("order", "one of the values of NormalizeOrder", static_cast<double>(p.order));
  }
  if (p.batch == 0) return {};
#if !WARPALIGN_HAS_CUDA
  if (execution.device == Device::kCuda) return kNoCudaPath;
#endif
  return check_input("logits", p.logits, p.dtype);
}

// The one output, and the workspace.
Status check_memory(const NormalizeProblem& p, const char* name, const void* output, Workspace workspace,
                    std::size_t needed, const Execution& execution) {
  if (Status s = check_not_null(name, output); !s.ok()) return s;
  if (Status s = check_workspace(workspace, needed, execution.device); !s.ok()) return s;
  const std::size_t size = size_of(p.dtype), elements = static_cast<std::size_t>(p.batch) * p.n * p.m;
  const WrittenMemory places[] = {{name, output, elements * size, size},
                                  {"workspace", needed > 0 ? workspace.data : nullptr, needed, 1}};
  return check_written(places);
}

}  // namespace

std::size_t sinkhorn_normalize_workspace_bytes(const NormalizeProblem& problem, const Execution& execution) {
  if (!has_sizes(problem) || execution.device == Device::kCuda) return 0;
  return normalize_cpu_workspace_bytes(problem, false, execution);
}

Status sinkhorn_normalize(const NormalizeProblem& p, void* plan, Workspace workspace,
                          const Execution& execution) {
  if (Status s = check_problem(p, execution); !s.ok() || p.batch == 0) return s;
  const std::size_t needed = sinkhorn_normalize_workspace_bytes(p, execution);
  if (Status s = check_memory(p, "plan", plan, workspace, needed, execution); !s.ok()) return s;
#if WARPALIGN_HAS_CUDA
  if (execution.device == Device::kCuda) return normalize_cuda(p, plan, execution);
#endif
  if (cpu::is_described("sinkhorn_normalize", needed, execution)) return {};
  return normalize_cpu(p, plan, workspace, execution);
}

std::size_t sinkhorn_normalize_gradient_workspace_bytes(const NormalizeProblem& problem,
                                                        const Execution& execution) {
  if (!has_sizes(problem)) return 0;
  if (execution.device == Device::kHost) return normalize_cpu_workspace_bytes(problem, true, execution);
#if WARPALIGN_HAS_CUDA
  return normalize_cuda_workspace_bytes(problem);
#else
  return 0;
#endif
}

Status sinkhorn_normalize_gradient(const NormalizeProblem& p, const StridedTensor& grad_plan,
                                   void* grad_logits, Workspace workspace, const Execution& execution) {
  if (Status s = check_problem(p, execution); !s.ok() || p.batch == 0) return s;
  if (Status s = check_input("grad_plan", grad_plan, p.dtype); !s.ok()) return s;
  const std::size_t needed = sinkhorn_normalize_gradient_workspace_bytes(p, execution);
  if (Status s = check_memory(p, "grad_logits", grad_logits, workspace, needed, execution); !s.ok()) return s;
#if WARPALIGN_HAS_CUDA
  if (execution.device == Device::kCuda) {
    return normalize_gradient_cuda(p, grad_plan, grad_logits, workspace, execution);
  }
#endif
  if (cpu::is_described("sinkhorn_normalize_gradient", needed, execution)) return {};
  return normalize_gradient_cpu(p, grad_plan, grad_logits, workspace, execution);
}

}  // namespace warpalign
