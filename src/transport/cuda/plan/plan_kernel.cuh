// The kernel that reads plans, at the given potentials of the problems of the batch.
#pragma once

#include "transport/cuda/plan/plan_gradient.cuh"
#include "transport/cuda/plan/plan_sample.cuh"
#include "transport/cuda/plan/plan_tiles.cuh"
#include "transport/cuda/solve/solver.cuh"

namespace warpalign::detail::transport {

// Writes the plan, its product with a matrix, its largest entries, samples, or derivatives of a sum over it.
template <class Costs>
__global__ void __launch_bounds__(Costs::kMostThreads, Costs::kBlocks)
    plan_kernel(const __grid_constant__ SolveParams<typename Costs::Real> p) {
  using Real = typename Costs::Real;
  const int blocks = p.layout.team_blocks;
  const int index = static_cast<int>(blockIdx.x) / blocks;
  Team team(index, static_cast<int>(blockIdx.x) % blocks, blocks, p.arrivals + index,
            p.records + static_cast<std::size_t>(index) * 2 * blocks * kRecordBytes);
  for (int b = index; b < p.batch; b += p.layout.teams) {
    Solver<Costs> solver(p, team, b);
    static_cast<void>(solver.set_up());
    Pass pass = solver.pass_at_current();
    if (p.plan) {
      pass.rows = true;
      PlanSums unused;
      solver.costs().template run<PassKind::kEvaluate>(pass, unused);
    }
    const PlanTiles<Real> tiles(p, team, solver.rows, solver.columns);
    if (p.top_values) tiles.write_top(pass);
    if (p.result) tiles.write_product(pass);
    if (p.pairs) PlanSample<Real>(p, team, solver.rows, solver.columns).write(pass, team);
    if (p.gradient.wanted) {
      PlanGradient<Real>(p, team, solver.rows, solver.columns).write(pass, solver.epsilon, team);
    }
    team.barrier();  // the next problem's potentials overwrite this one's
  }
}

}  // namespace warpalign::detail::transport
