// What the paths of one operator share: the entry points behind the public headers. Arguments have been
// checked by api_*.cpp; a path checks only what it alone can know.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

#include "warpalign/kernel_launches.h"
#include "warpalign/sinkhorn.h"
#include "warpalign/transport_plan.h"

namespace warpalign::detail::transport {

std::size_t sinkhorn_cpu_workspace_bytes(const SinkhornProblem&, const SinkhornOutputs&, const Execution&);
Status sinkhorn_cpu(const SinkhornProblem&, const SinkhornOutputs&, Workspace, const Execution&);
std::size_t sinkhorn_cuda_workspace_bytes(const SinkhornProblem&, const SinkhornOutputs&, const Execution&);
Status sinkhorn_cuda(const SinkhornProblem&, const SinkhornOutputs&, Workspace, const Execution&);

std::size_t sinkhorn_jvp_cpu_workspace_bytes(const SinkhornProblem&, const SinkhornTangents&,
                                             const SinkhornOutputs&, const Execution&);
Status sinkhorn_jvp_cpu(const SinkhornProblem&, const SinkhornTangents&, const SinkhornOutputs&, Workspace,
                        const Execution&);

std::size_t sinkhorn_jvp_cuda_workspace_bytes(const SinkhornProblem&, const Execution&);
Status sinkhorn_jvp_cuda(const SinkhornProblem&, const SinkhornTangents&, const SinkhornOutputs&, Workspace,
                         const Execution&);

std::size_t plan_apply_cpu_workspace_bytes(const SinkhornProblem&, const PlanProduct&, const Execution&);
Status plan_apply_cpu(const SinkhornProblem&, const PlanProduct&, Workspace, const Execution&);
std::size_t plan_gradient_cpu_workspace_bytes(const SinkhornProblem&, const PlanGradient&, const Execution&);
Status plan_gradient_cpu(const SinkhornProblem&, const PlanGradient&, Workspace, const Execution&);
std::size_t plan_topk_cpu_workspace_bytes(const SinkhornProblem&, const PlanTop&, const Execution&);
Status plan_topk_cpu(const SinkhornProblem&, const PlanTop&, Workspace, const Execution&);
std::size_t plan_sample_cpu_workspace_bytes(const SinkhornProblem&, const PlanSamples&, const Execution&);
Status plan_sample_cpu(const SinkhornProblem&, const PlanSamples&, Workspace, const Execution&);
std::size_t plan_dense_cpu_workspace_bytes(const SinkhornProblem&, const Execution&);
Status plan_dense_cpu(const SinkhornProblem&, void* plan, Workspace, const Execution&);

std::size_t plan_cuda_workspace_bytes(const SinkhornProblem&, const Execution&);
Status plan_apply_cuda(const SinkhornProblem&, const PlanProduct&, Workspace, const Execution&);
Status plan_gradient_cuda(const SinkhornProblem&, const PlanGradient&, Workspace, const Execution&);
Status plan_sample_cuda(const SinkhornProblem&, const PlanSamples&, Workspace, const Execution&);
Status plan_topk_cuda(const SinkhornProblem&, const PlanTop&, Workspace, const Execution&);
Status plan_dense_cuda(const SinkhornProblem&, void* plan, Workspace, const Execution&);

// Whether the problem is one of a set of points with itself, whose potentials stay equal under symmetric
// updates: the sides share their memory.
inline bool has_equal_sides(const SinkhornProblem& p) {
  return p.x.data && p.x.data == p.y.data && std::equal(p.x.stride, p.x.stride + 3, p.y.stride) &&
         p.n == p.m && p.a.weights == p.b.weights && p.a.strength == p.b.strength &&
         p.a.lengths == p.b.lengths && p.f0 == p.g0 && p.mass == 0 &&
         p.updates != SinkhornUpdates::kAlternating;
}

// The number of iterations at the final epsilon, from the first one on, that update both sides at once.
// Between equal sets such an iteration halves the moves, so that those of kMixed reach the tolerance, or
// float32's precision, from a move of 16 epsilon.
inline int symmetric_iterations(const SinkhornProblem& p) {
  if (p.updates == SinkhornUpdates::kAlternating) return 0;
  if (p.updates == SinkhornUpdates::kSymmetric || has_equal_sides(p)) return p.max_iterations;
  const double halvings = -std::log2(std::clamp(p.tolerance, 0x1p-24, 1.0));
  return std::min(p.max_iterations, 4 + static_cast<int>(std::ceil(halvings)));
}

// Whether costs that follow each other in memory are those of a column.
inline bool has_swapped_costs(const SinkhornProblem& p) {
  return p.cost.data && p.cost.stride[2] != 1 && p.cost.stride[1] == 1;
}

// Whether the way that the execution names, if it does, can serve sinkhorn() on a CPU.
Status check_way_cpu(const SinkhornProblem&, const Execution&);
// See sinkhorn_way().
const char* way_cuda(int index);
// See transport_kernel_launches().
bool kernel_launches_cuda(int index, KernelLaunches& out);

// The problem as sinkhorn_jvp() sees it: at its own epsilon, without annealing. Potentials of partial
// transport that are 0 within tolerance are 0, and within their rounding too.
inline SinkhornProblem at_the_solution(const SinkhornProblem& p) {
  SinkhornProblem of = p;
  of.epsilon_start = 0;
  const double ulp = p.dtype == DType::kFloat64 ? std::numeric_limits<double>::epsilon()
                                                : std::numeric_limits<float>::epsilon();
  of.tolerance = std::max(p.tolerance, 16 * ulp);
  return of;
}

// The problem as the plan's functions see it: at its potentials, without what led there.
inline SinkhornProblem at_its_potentials(const SinkhornProblem& p) {
  SinkhornProblem of = p;
  of.epsilon_start = 0;
  of.mass = 0;
  of.a.strength = of.b.strength = std::numeric_limits<double>::infinity();
  return of;
}

}  // namespace warpalign::detail::transport
