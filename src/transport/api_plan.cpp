// The functions of warpalign/transport_plan.h: they check the contract, then hand over to the device's path.
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <utility>

#include "core/contract.h"
#include "transport/contract.h"
#include "transport/problem.h"
#include "warpalign/transport_plan.h"

namespace warpalign {
namespace {

using namespace detail;             // NOLINT: the checks of every operator
using namespace detail::transport;  // NOLINT: the checks of this one

constexpr std::int32_t kMostColumns = 1 << 29;

// The device of the caller's execution.
bool on_host(const Execution& execution) { return execution.device == Device::kHost; }

// Whether there is work for the CPU path.
bool runs(const SinkhornProblem& p, const Execution& execution) {
  return has_sizes(p) && execution.device == Device::kHost;
}

Status check_potentials(const SinkhornProblem& p, const Execution& execution) {
  if (Status s = check_problem(p, execution); !s.ok() || p.batch == 0) return s;
  if (!p.f0) return Status::invalid("f0", "the potentials f of the plan", 0);
  if (!p.g0) return Status::invalid("g0", "the potentials g of the plan", 0);
  return execution.device == Device::kHost ? check_way_cpu(p, execution) : Status{};
}

// The same for every function of the CUDA path.
std::size_t cuda_workspace_bytes([[maybe_unused]] const SinkhornProblem& p,
                                 [[maybe_unused]] const Execution& execution) {
#if WARPALIGN_HAS_CUDA
  if (has_sizes(p)) return plan_cuda_workspace_bytes(p, execution);
#endif
  return 0;
}

Status check_columns(const SinkhornProblem& p, std::int32_t columns) {
  if (columns < 1 || columns > kMostColumns) return Status::invalid("columns", "1 to 2^29 columns", columns);
  if (!few_enough({p.batch, p.n, columns}) || !few_enough({p.batch, p.m, columns})) {
    return Status::invalid("columns", "at most 2^48 elements, B N K and B M K", columns);
  }
  return {};
}

Status check_input(const SinkhornProblem& p, const char* name, const StridedTensor& tensor) {
  if (Status s = check_not_null(name, tensor.data); !s.ok()) return s;
  if (Status s = check_strides(name, tensor); !s.ok()) return s;
  return check_aligned(name, tensor.data, size_of(p.dtype));
}

// Checks the workspace, and that outputs overlap neither each other nor the workspace.
Status check_memory(std::span<WrittenMemory> places, Workspace workspace, std::size_t needed,
                    const Execution& execution) {
  if (Status s = check_workspace(workspace, needed, execution.device); !s.ok()) return s;
  places.back() = {"workspace", needed > 0 ? workspace.data : nullptr, needed, 1};
  return check_written(places);
}

}  // namespace

std::size_t plan_apply_workspace_bytes(const SinkhornProblem& problem, const PlanProduct& product,
                                       const Execution& execution) {
  if (!on_host(execution)) return cuda_workspace_bytes(problem, execution);
  if (!runs(problem, execution) || !check_columns(problem, product.columns).ok()) return 0;
  return plan_apply_cpu_workspace_bytes(problem, product, execution);
}

Status plan_apply(const SinkhornProblem& p, const PlanProduct& product, Workspace workspace,
                  const Execution& execution) {
  if (Status s = check_potentials(p, execution); !s.ok()) return s;
  if (p.batch == 0) return {};
  if (Status s = check_columns(p, product.columns); !s.ok()) return s;
  if (Status s = check_input(p, "v", product.v); !s.ok()) return s;
  if (Status s = check_not_null("result", product.result); !s.ok()) return s;
  const std::size_t needed = plan_apply_workspace_bytes(p, product, execution), size = size_of(p.dtype);
  const std::size_t rows = product.transposed ? p.m : p.n;
  WrittenMemory places[] = {{"result", product.result, p.batch * rows * product.columns * size, size}, {}};
  if (Status s = check_memory(places, workspace, needed, execution); !s.ok()) return s;
#if WARPALIGN_HAS_CUDA
  if (!on_host(execution)) return plan_apply_cuda(p, product, workspace, execution);
#endif
  return plan_apply_cpu(p, product, workspace, execution);
}

std::size_t plan_gradient_workspace_bytes(const SinkhornProblem& problem, const PlanGradient& gradient,
                                          const Execution& execution) {
  if (!on_host(execution)) return cuda_workspace_bytes(problem, execution);
  if (!runs(problem, execution) || gradient.columns < 0 || gradient.columns > kMostColumns) return 0;
  return plan_gradient_cpu_workspace_bytes(problem, gradient, execution);
}

Status plan_gradient(const SinkhornProblem& p, const PlanGradient& g, Workspace workspace,
                     const Execution& execution) {
  if (Status s = check_potentials(p, execution); !s.ok()) return s;
  if (p.batch == 0) return {};
  if (g.columns == 0) {
    if (Status s = check_input(p, "w", g.w); !s.ok()) return s;
  } else {
    if (Status s = check_columns(p, g.columns); !s.ok()) return s;
    if (g.w.data) return Status::invalid("w", "null with u and v", 1);
    if (Status s = check_input(p, "u", g.u); !s.ok()) return s;
    if (Status s = check_input(p, "v", g.v); !s.ok()) return s;
  }
  if (p.cost.data && g.grad_x) return Status::invalid("grad_x", "null with a cost matrix, which has no x", 1);
  if (p.cost.data && g.grad_y) return Status::invalid("grad_y", "null with a cost matrix, which has no y", 1);
  const std::size_t needed = plan_gradient_workspace_bytes(p, g, execution);
  const std::size_t b = p.batch, n = p.n, m = p.m, d = p.dim, size = size_of(p.dtype);
  WrittenMemory places[] = {{"row_sums", g.row_sums, b * n * size, size},
                            {"column_sums", g.column_sums, b * m * size, size},
                            {"grad_x", g.grad_x, b * n * d * size, size},
                            {"grad_y", g.grad_y, b * m * d * size, size},
                            {"grad_cost", g.grad_cost, b * n * m * size, size},
                            {"grad_a", g.grad_a, b * n * size, size},
                            {"grad_b", g.grad_b, b * m * size, size},
                            {"grad_epsilon", g.grad_epsilon, b * size, size},
                            {}};
  if (Status s = check_memory(places, workspace, needed, execution); !s.ok()) return s;
#if WARPALIGN_HAS_CUDA
  if (!on_host(execution)) return plan_gradient_cuda(p, g, workspace, execution);
#endif
  return plan_gradient_cpu(p, g, workspace, execution);
}

std::size_t plan_topk_workspace_bytes(const SinkhornProblem& problem, const PlanTop& top,
                                      const Execution& execution) {
  if (!on_host(execution)) return cuda_workspace_bytes(problem, execution);
  return runs(problem, execution) ? plan_topk_cpu_workspace_bytes(problem, top, execution) : 0;
}

Status plan_topk(const SinkhornProblem& p, const PlanTop& top, Workspace workspace,
                 const Execution& execution) {
  if (Status s = check_potentials(p, execution); !s.ok()) return s;
  if (p.batch == 0) return {};
  const std::int32_t most = top.transposed ? p.n : p.m;
  if (top.count < 1 || top.count > most) {
    return Status::invalid("count", "1 to as many entries as a row has, or transposed a column", top.count);
  }
  if (Status s = check_not_null("values", top.values); !s.ok()) return s;
  if (Status s = check_not_null("indices", top.indices); !s.ok()) return s;
  const std::size_t needed = plan_topk_workspace_bytes(p, top, execution), size = size_of(p.dtype);
  const std::size_t entries = static_cast<std::size_t>(p.batch) * (top.transposed ? p.m : p.n) * top.count;
  WrittenMemory places[] = {{"values", top.values, entries * size, size},
                            {"indices", top.indices, entries * sizeof(std::int32_t), sizeof(std::int32_t)},
                            {}};
  if (Status s = check_memory(places, workspace, needed, execution); !s.ok()) return s;
#if WARPALIGN_HAS_CUDA
  if (!on_host(execution)) return plan_topk_cuda(p, top, workspace, execution);
#endif
  return plan_topk_cpu(p, top, workspace, execution);
}

std::size_t plan_sample_workspace_bytes(const SinkhornProblem& problem, const PlanSamples& samples,
                                        const Execution& execution) {
  if (!on_host(execution)) return cuda_workspace_bytes(problem, execution);
  if (!runs(problem, execution) || samples.count < 1) return 0;
  return plan_sample_cpu_workspace_bytes(problem, samples, execution);
}

Status plan_sample(const SinkhornProblem& p, const PlanSamples& samples, Workspace workspace,
                   const Execution& execution) {
  if (Status s = check_potentials(p, execution); !s.ok()) return s;
  if (p.batch == 0) return {};
  if (samples.count < 1 || samples.count > kMostColumns) {
    return Status::invalid("count", "1 to 2^29 samples", samples.count);
  }
  if (Status s = check_not_null("pairs", samples.pairs); !s.ok()) return s;
  const std::size_t needed = plan_sample_workspace_bytes(p, samples, execution);
  const std::size_t bytes = static_cast<std::size_t>(p.batch) * samples.count * 2 * sizeof(std::int32_t);
  WrittenMemory places[] = {{"pairs", samples.pairs, bytes, sizeof(std::int32_t)}, {}};
  if (Status s = check_memory(places, workspace, needed, execution); !s.ok()) return s;
#if WARPALIGN_HAS_CUDA
  if (!on_host(execution)) return plan_sample_cuda(p, samples, workspace, execution);
#endif
  return plan_sample_cpu(p, samples, workspace, execution);
}

std::size_t plan_dense_workspace_bytes(const SinkhornProblem& problem, const Execution& execution) {
  if (!on_host(execution)) return cuda_workspace_bytes(problem, execution);
  return runs(problem, execution) ? plan_dense_cpu_workspace_bytes(problem, execution) : 0;
}

Status plan_dense(const SinkhornProblem& p, void* plan, Workspace workspace, const Execution& execution) {
  if (Status s = check_potentials(p, execution); !s.ok()) return s;
  if (p.batch == 0) return {};
  if (Status s = check_not_null("plan", plan); !s.ok()) return s;
  const std::size_t needed = plan_dense_workspace_bytes(p, execution), size = size_of(p.dtype);
  WrittenMemory places[] = {{"plan", plan, static_cast<std::size_t>(p.batch) * p.n * p.m * size, size}, {}};
  if (Status s = check_memory(places, workspace, needed, execution); !s.ok()) return s;
#if WARPALIGN_HAS_CUDA
  if (!on_host(execution)) return plan_dense_cuda(p, plan, workspace, execution);
#endif
  return plan_dense_cpu(p, plan, workspace, execution);
}

}  // namespace warpalign
