// warpalign::soft_dtw: checks the contract of the public header, then hands over to the device's path.
#include <cstddef>
#include <cstdint>

#include "core/contract.h"
#include "core/ways.h"
#include "cpu/team.h"
#include "soft_dtw/contract.h"
#include "soft_dtw/problem.h"
#include "warpalign/kernel_launches.h"
#include "warpalign/plan.h"
#if WARPALIGN_HAS_CUDA
#include "soft_dtw/cuda/call/cuda_call.h"
#endif

namespace warpalign {
namespace {

using detail::soft_dtw::check_data;
using detail::soft_dtw::check_extents;
using detail::soft_dtw::check_inputs;
using detail::soft_dtw::check_settings;
using detail::soft_dtw::gradient_rows;
using detail::soft_dtw::result_size;

Status check_outputs(const SoftDtwProblem& p, const SoftDtwOutputs& out, Workspace workspace,
                     std::size_t workspace_bytes) {
  const std::size_t b = p.batch, n = p.n, m = p.m, d = p.dim, size = result_size(p);
  const detail::WrittenMemory written[] = {
      {"value", out.value, b * size, size},
      {"grad_x", out.grad_x, gradient_rows(p, false) * d * size, size},
      {"grad_y", out.grad_y, gradient_rows(p, true) * d * size, size},
      {"alignment", out.alignment, b * n * m * size, size},
      {"grad_gamma", out.grad_gamma, b * size, size},
      {"end_values", out.end_values, b * m * size, size},
      {"workspace", workspace_bytes > 0 ? workspace.data : nullptr, workspace_bytes, size},
  };
  return detail::check_written(written);
}

Status check(const SoftDtwProblem& p, const SoftDtwOutputs& out, const Execution& execution) {
  if (Status s = check_settings(p, execution); !s.ok()) return s;
  if (p.subsequence && out.grad_gamma) return Status::invalid("grad_gamma", "null with subsequence", 1);
  if (!p.subsequence && out.end_values) return Status::invalid("end_values", "null without subsequence", 1);
  if (p.batch == 0) return {};
  if (!out.value) return Status::invalid("value", "an output pointer", 0);
  if (Status s = check_data(p, execution); !s.ok()) return s;
  if (p.cost.data && out.grad_x)
    return Status::invalid("grad_x", "null with a cost matrix, which has no x", 1);
  if (p.cost.data && out.grad_y)
    return Status::invalid("grad_y", "null with a cost matrix, which has no y", 1);
  return {};
}

// The checks that second order adds.
Status check_tangents(const SoftDtwProblem& p, const SoftDtwTangents& tangents, const SoftDtwOutputs& out) {
  if (result_size(p) > size_of(p.dtype)) {
    return Status::unsupported("dtype",
                               "second derivatives take float32 and float64; convert half types first");
  }
  if (p.subsequence) return Status::unsupported("subsequence", "a subsequence has no second derivatives yet");
  if (p.gamma == 0 && !p.gammas) {
    return Status::unsupported("gamma", "hard DTW (gamma = 0) has no second derivatives");
  }
  if (out.grad_gamma) return Status::invalid("grad_gamma", "null: gamma has no tangent", 1);
  if (p.x_offsets || p.y_offsets) {
    return Status::unsupported(p.x_offsets ? "x_offsets" : "y_offsets",
                               "packed series have no second derivatives; pad them");
  }
  if (p.cost.data && (tangents.x.data || tangents.y.data)) {
    return Status::invalid("tangents", "that of cost alone, because the problem has no x and y", 1);
  }
  if (!p.cost.data && tangents.cost.data) {
    return Status::invalid("tangents", "those of x and y alone, because the problem has no cost", 1);
  }
  return {};
}

Status check_memory(const SoftDtwProblem& p, const SoftDtwOutputs& out, Workspace workspace,
                    std::size_t needed, Device device) {
  if (Status s = detail::check_workspace(workspace, needed, device); !s.ok()) return s;
  return check_outputs(p, out, workspace, needed);
}

// tangents: null for first order.
std::size_t workspace_bytes_on_gpu([[maybe_unused]] const SoftDtwProblem& problem,
                                   [[maybe_unused]] const SoftDtwTangents* tangents,
                                   [[maybe_unused]] const SoftDtwOutputs& outputs,
                                   [[maybe_unused]] const Execution& execution) {
#if WARPALIGN_HAS_CUDA
  return detail::soft_dtw::workspace_bytes_cuda(problem, tangents, outputs, execution);
#else
  return 0;
#endif
}
Status run_on_gpu([[maybe_unused]] const SoftDtwProblem& problem,
                  [[maybe_unused]] const SoftDtwTangents* tangents,
                  [[maybe_unused]] const SoftDtwOutputs& outputs, [[maybe_unused]] Workspace workspace,
                  [[maybe_unused]] const Execution& execution) {
#if WARPALIGN_HAS_CUDA
  const detail::soft_dtw::CudaCall call(problem, tangents, outputs, execution);
  if (Status s = call.check(); !s.ok()) return s;
  if (Status s = check_memory(problem, outputs, workspace, call.workspace_bytes(), execution.device);
      !s.ok()) {
    return s;
  }
  return call.run(workspace.data);
#else
  return detail::kNoCudaPath;
#endif
}

}  // namespace

std::size_t soft_dtw_workspace_bytes(const SoftDtwProblem& problem, const SoftDtwOutputs& outputs,
                                     const Execution& execution) {
  if (problem.batch == 0 || !check_extents(problem).ok()) return 0;
  if (execution.device == Device::kCuda) return workspace_bytes_on_gpu(problem, nullptr, outputs, execution);
  return detail::soft_dtw::workspace_bytes_cpu(problem, outputs, execution);
}

Status soft_dtw(const SoftDtwProblem& problem, const SoftDtwOutputs& outputs, Workspace workspace,
                const Execution& execution) {
  if (Status s = check(problem, outputs, execution); !s.ok()) return s;
  if (problem.batch == 0) return {};
  if (Status s = check_inputs(problem, {}); !s.ok()) return s;
  if (execution.device == Device::kCuda) return run_on_gpu(problem, nullptr, outputs, workspace, execution);
  if (Status s = detail::soft_dtw::check_way_cpu(problem, false, execution); !s.ok()) return s;
  const std::size_t needed = soft_dtw_workspace_bytes(problem, outputs, execution);
  if (Status s = check_memory(problem, outputs, workspace, needed, execution.device); !s.ok()) return s;
  return detail::soft_dtw::run_cpu(problem, outputs, workspace, execution);
}

std::size_t soft_dtw_jvp_workspace_bytes(const SoftDtwProblem& problem, const SoftDtwTangents& tangents,
                                         const SoftDtwOutputs& outputs, const Execution& execution) {
  if (problem.batch == 0 || !check_extents(problem).ok()) return 0;
  if (execution.device == Device::kCuda) {
    return workspace_bytes_on_gpu(problem, &tangents, outputs, execution);
  }
  return detail::soft_dtw::jvp_workspace_bytes_cpu(problem, tangents, outputs, execution);
}

Status soft_dtw_jvp(const SoftDtwProblem& problem, const SoftDtwTangents& tangents,
                    const SoftDtwOutputs& outputs, Workspace workspace, const Execution& execution) {
  if (Status s = check(problem, outputs, execution); !s.ok()) return s;
  if (Status s = check_tangents(problem, tangents, outputs); !s.ok()) return s;
  if (problem.batch == 0) return {};
  if (Status s = check_inputs(problem, tangents); !s.ok()) return s;
  if (execution.device == Device::kCuda) return run_on_gpu(problem, &tangents, outputs, workspace, execution);
  if (Status s = detail::soft_dtw::check_way_cpu(problem, true, execution); !s.ok()) return s;
  const std::size_t needed = soft_dtw_jvp_workspace_bytes(problem, tangents, outputs, execution);
  if (Status s = check_memory(problem, outputs, workspace, needed, execution.device); !s.ok()) return s;
  return detail::soft_dtw::jvp_cpu(problem, tangents, outputs, workspace, execution);
}

const char* soft_dtw_way(Device device, int index) {
#if WARPALIGN_HAS_CUDA
  if (device == Device::kCuda) return detail::soft_dtw::way_cuda(index);
#endif
  return device == Device::kHost ? detail::way_at(cpu::kThreadWays, index) : nullptr;
}

bool soft_dtw_kernel_launches([[maybe_unused]] int index, [[maybe_unused]] KernelLaunches* out) {
#if WARPALIGN_HAS_CUDA
  return detail::soft_dtw::kernel_launches_cuda(index, *out);
#else
  return false;
#endif
}

}  // namespace warpalign
