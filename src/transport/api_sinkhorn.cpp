// warpalign::sinkhorn: checks the contract of the public header, then hands over to the device's path.
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <utility>

#include "core/contract.h"
#include "core/ways.h"
#include "cpu/team.h"
#include "transport/contract.h"
#include "transport/problem.h"
#include "warpalign/plan.h"

namespace warpalign {
namespace {

using namespace detail;             // NOLINT: the checks of every operator
using namespace detail::transport;  // NOLINT: the checks of this one

Status check_tangents(const SinkhornProblem& p, const SinkhornTangents& along) {
  const std::size_t size = size_of(p.dtype);
  if (p.batch == 0) return {};
  if (!p.f0) return Status::invalid("f0", "the solution's f", 0);
  if (!p.g0) return Status::invalid("g0", "the solution's g", 0);
  if (p.cost.data && along.x.data) return Status::invalid("x_tangent", "null with a cost matrix", 1);
  if (p.cost.data && along.y.data) return Status::invalid("y_tangent", "null with a cost matrix", 1);
  if (!p.cost.data && along.cost.data) return Status::invalid("cost_tangent", "null with points", 1);
  if (Status s = check_strides("x_tangent", along.x); !s.ok()) return s;
  if (Status s = check_strides("y_tangent", along.y); !s.ok()) return s;
  if (Status s = check_strides("cost_tangent", along.cost); !s.ok()) return s;
  for (const auto& [name, data] :
       std::initializer_list<std::pair<const char*, const void*>>{{"shift0", p.shift0},
                                                                  {"x_tangent", along.x.data},
                                                                  {"y_tangent", along.y.data},
                                                                  {"cost_tangent", along.cost.data},
                                                                  {"a_tangent", along.a},
                                                                  {"b_tangent", along.b},
                                                                  {"epsilon_tangent", along.epsilon},
                                                                  {"log_scale_tangent", along.log_scale},
                                                                  {"f_tangent", along.f},
                                                                  {"g_tangent", along.g}}) {
    if (Status s = check_aligned(name, data, size); !s.ok()) return s;
  }
  return {};
}

// Gradients that a problem with a cost matrix does not have.
Status check_kinds(const SinkhornProblem& p, const SinkhornOutputs& out) {
  if (p.cost.data && out.grad_x)
    return Status::invalid("grad_x", "null with a cost matrix, which has no x", 1);
  if (p.cost.data && out.grad_y)
    return Status::invalid("grad_y", "null with a cost matrix, which has no y", 1);
  return {};
}

Status check_outputs(const SinkhornProblem& p, const SinkhornOutputs& out, Workspace workspace,
                     std::size_t needed) {
  const std::size_t b = p.batch, n = p.n, m = p.m, d = p.dim, size = size_of(p.dtype);
  const WrittenMemory places[] = {
      {"f", out.f, b * n * size, size},
      {"g", out.g, b * m * size, size},
      {"shift", out.shift, b * size, size},
      {"value", out.value, b * size, size},
      {"linear", out.linear, b * size, size},
      {"grad_x", out.grad_x, b * n * d * size, size},
      {"grad_y", out.grad_y, b * m * d * size, size},
      {"grad_cost", out.grad_cost, b * n * m * size, size},
      {"grad_a", out.grad_a, b * n * size, size},
      {"grad_b", out.grad_b, b * m * size, size},
      {"grad_epsilon", out.grad_epsilon, b * size, size},
      {"iterations", out.iterations, b * sizeof(std::int32_t), sizeof(std::int32_t)},
      {"error", out.error, b * size, size},
      {"workspace", needed > 0 ? workspace.data : nullptr, needed, 1},
  };
  return check_written(places);
}

}  // namespace

std::size_t sinkhorn_workspace_bytes(const SinkhornProblem& problem, const SinkhornOutputs& outputs,
                                     const Execution& execution) {
  if (!has_sizes(problem)) return 0;
  if (execution.device == Device::kHost) {
    return detail::transport::sinkhorn_cpu_workspace_bytes(problem, outputs, execution);
  }
#if WARPALIGN_HAS_CUDA
  return detail::transport::sinkhorn_cuda_workspace_bytes(problem, outputs, execution);
#else
  return 0;
#endif
}

Status sinkhorn(const SinkhornProblem& problem, const SinkhornOutputs& outputs, Workspace workspace,
                const Execution& execution) {
  if (Status s = check_problem(problem, execution); !s.ok()) return s;
  if (Status s = check_kinds(problem, outputs); !s.ok()) return s;
  if (problem.batch == 0) return {};
  if (Status s = check_sums(problem, execution); !s.ok()) return s;
  const std::size_t needed = sinkhorn_workspace_bytes(problem, outputs, execution);
  if (Status s = check_workspace(workspace, needed, execution.device); !s.ok()) return s;
  if (Status s = check_outputs(problem, outputs, workspace, needed); !s.ok()) return s;
#if WARPALIGN_HAS_CUDA
  if (execution.device == Device::kCuda) {
    return detail::transport::sinkhorn_cuda(problem, outputs, workspace, execution);
  }
#endif
  if (Status s = detail::transport::check_way_cpu(problem, execution); !s.ok()) return s;
  return detail::transport::sinkhorn_cpu(problem, outputs, workspace, execution);
}

std::size_t sinkhorn_jvp_workspace_bytes(const SinkhornProblem& problem, const SinkhornTangents& tangents,
                                         const SinkhornOutputs& outputs, const Execution& execution) {
  if (!has_sizes(problem)) return 0;
  if (execution.device == Device::kHost) {
    return detail::transport::sinkhorn_jvp_cpu_workspace_bytes(problem, tangents, outputs, execution);
  }
#if WARPALIGN_HAS_CUDA
  return detail::transport::sinkhorn_jvp_cuda_workspace_bytes(problem, execution);
#else
  return 0;
#endif
}

Status sinkhorn_jvp(const SinkhornProblem& problem, const SinkhornTangents& tangents,
                    const SinkhornOutputs& outputs, Workspace workspace, const Execution& execution) {
  if (Status s = check_problem(problem, execution); !s.ok()) return s;
  if (Status s = check_kinds(problem, outputs); !s.ok()) return s;
  if (Status s = check_tangents(problem, tangents); !s.ok()) return s;
  if (problem.batch == 0) return {};
  const std::size_t needed = sinkhorn_jvp_workspace_bytes(problem, tangents, outputs, execution);
  if (Status s = check_workspace(workspace, needed, execution.device); !s.ok()) return s;
  if (Status s = check_outputs(problem, outputs, workspace, needed); !s.ok()) return s;
#if WARPALIGN_HAS_CUDA
  if (execution.device == Device::kCuda) {
    return detail::transport::sinkhorn_jvp_cuda(problem, tangents, outputs, workspace, execution);
  }
#endif
  if (Status s = detail::transport::check_way_cpu(problem, execution); !s.ok()) return s;
  return detail::transport::sinkhorn_jvp_cpu(problem, tangents, outputs, workspace, execution);
}

const char* sinkhorn_way(Device device, int index) {
#if WARPALIGN_HAS_CUDA
  if (device == Device::kCuda) return detail::transport::way_cuda(index);
#endif
  return device == Device::kHost ? detail::way_at(cpu::kThreadWays, index) : nullptr;
}

bool transport_kernel_launches([[maybe_unused]] int index, [[maybe_unused]] KernelLaunches* out) {
#if WARPALIGN_HAS_CUDA
  return detail::transport::kernel_launches_cuda(index, *out);
#else
  return false;
#endif
}

}  // namespace warpalign
