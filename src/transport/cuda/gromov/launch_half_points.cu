// Host side of the path between points rounded to binary16: the workspace, and the launches of a solve.
#include <algorithm>

#include "core/arena.h"
#include "cuda/launch/launch.cuh"
#include "transport/cuda/gromov/half_pass.cuh"
#include "transport/cuda/gromov/half_points.cuh"
#include "transport/cuda/solve/kernels.cuh"

namespace warpalign::detail::transport {

Status launch_half_group_pass(const HalfParams& params, int kind, int own_side, cudaStream_t stream);

namespace {

const cuda::Kernel kBounds{kKernels, "half points, bounds", nullptr, half_bounds_kernel};
const cuda::Kernel kRound{kKernels, "half points, rounding", nullptr, half_round_kernel};
const cuda::Kernel kUpdate{kKernels, "half points, update", nullptr, half_update_kernel};
const cuda::Kernel kMass{kKernels, "half points, mass", nullptr, half_mass_kernel};
const cuda::Kernel kResults{kKernels, "half points, results", nullptr, half_results_kernel};

using Pass = cuda::Kernel<HalfParams, int>;
const Pass kPasses[][2] = {
    {{kKernels, "half points, 16 coordinates", nullptr, half_pass_kernel<kHalfSteps[0], false>},
     {kKernels, "half points, 16 coordinates, costs", nullptr, half_pass_kernel<kHalfSteps[0], true>}},
    {{kKernels, "half points, 80 coordinates", nullptr, half_pass_kernel<kHalfSteps[1], false>},
     {kKernels, "half points, 80 coordinates, costs", nullptr, half_pass_kernel<kHalfSteps[1], true>}},
    {{kKernels, "half points, 128 coordinates", nullptr, half_pass_kernel<kHalfSteps[2], false>},
     {kKernels, "half points, 128 coordinates, costs", nullptr, half_pass_kernel<kHalfSteps[2], true>}},
};

int kind_of(int dim) {
  int kind = 0;
  while (16 * kHalfSteps[kind] < dim) ++kind;
  return kind;
}

HalfParams lay_out(Arena& arena, const SinkhornProblem& p, bool by_groups) {
  HalfParams params{};
  params.width = 16 * kHalfSteps[kind_of(p.dim)];
  params.bounds =
      arena.take<float2>(static_cast<std::size_t>(kHalfBoundBlocks) * p.dim, "bounds of coordinates");
  params.grid = arena.take<double>(2, "grid");
  const int lengths[] = {p.n, p.m};
  for (int k = 0; k < 2; ++k) {
    HalfSide& side = params.sides[k];
    const std::size_t length = side.length = lengths[k];
    const std::size_t padded = half_padded(lengths[k]);
    side.splits = half_splits(lengths[k], lengths[1 - k], by_groups);
    side.rounded = arena.take<Float16>(padded * params.width, "rounded points");
    side.squares = arena.take<float>(padded, "squares of points");
    side.bits = arena.take<double>(length, "potentials");
    side.bias = arena.take<float>(padded, "biases");
    side.parts = arena.take<HalfPart>(length * side.splits, "partial sums");
    side.totals = arena.take<HalfTotals>(cuda::div_up(side.length, kHalfThreads), "totals");
  }
  return params;
}

void bind(HalfSide& side, const StridedTensor& points, const TransportSide& of, const void* start,
          void* potential) {
  side.points = static_cast<const float*>(points.data);
  side.stride[0] = points.stride[1];
  side.stride[1] = points.stride[2];
  side.weights = static_cast<const float*>(of.weights);
  side.strength = of.strength;
  side.start = static_cast<const float*>(start);
  side.potential = static_cast<float*>(potential);
}

}  // namespace

bool takes_half_points(const SinkhornProblem& p, const SinkhornOutputs& out, const Execution& execution) {
  const bool points = p.dtype == DType::kFloat32 && !p.cost.data && p.batch == 1 && p.dim <= kHalfMostWidth &&
                      p.cost_kind == CostKind::kSquaredEuclidean && !p.a.lengths && !p.b.lengths &&
                      !p.epsilons;
  const bool iterations =
      p.updates == SinkhornUpdates::kAlternating && p.tolerance == 0 && p.epsilon_start <= p.epsilon;
  const bool outputs = !out.grad_x && !out.grad_y && !out.grad_cost && !out.grad_a && !out.grad_b &&
                       !out.grad_epsilon && !out.error;
  return execution.precision == Precision::kMedium && points && iterations && outputs;
}

std::size_t half_points_workspace_bytes(const SinkhornProblem& p, bool by_groups) {
  Arena arena;
  static_cast<void>(lay_out(arena, p, by_groups));
  return arena.used();
}

Status half_points_sinkhorn(const SinkhornProblem& p, const SinkhornOutputs& out, Workspace workspace,
                            const Execution& execution, bool by_groups) {
  auto* const stream = static_cast<cudaStream_t>(execution.stream);
  Arena arena(workspace.data);
  HalfParams params = lay_out(arena, p, by_groups);
  bind(params.sides[0], p.x, p.a, p.f0, out.f);
  bind(params.sides[1], p.y, p.b, nullptr, out.g);
  params.dim = p.dim;
  params.k = kLog2E<double> * p.cost_scale / p.epsilon;
  params.epsilon = p.epsilon;
  params.cost_scale = p.cost_scale;
  params.mass = p.mass;
  params.product = p.reference == TransportReference::kProduct;
  params.iterations = p.max_iterations;
  params.shift = static_cast<float*>(out.shift);
  params.value = static_cast<float*>(out.value);
  params.linear = static_cast<float*>(out.linear);
  params.done = out.iterations;

  Status status;
  const auto run = [&](const auto& kernel, int blocks, const auto&... more) {
    if (status.ok()) status = cuda::launch(kernel, {blocks, kHalfThreads, 0, stream}, params, more...);
  };
  const int kind = kind_of(p.dim), padded = half_padded(p.n) + half_padded(p.m);
  run(kBounds, kHalfBoundBlocks);
  run(kRound, cuda::div_up(padded, kHalfThreads / 32));
  for (int half = 0; half < 2 * p.max_iterations && status.ok(); ++half) {
    const int own = 1 - half % 2;  // columns first
    const HalfSide& side = params.sides[own];
    const bool last = half == 2 * p.max_iterations - 1;
    if (by_groups && !last) {
#if WARPALIGN_HAS_WARPGROUPS
      status = launch_half_group_pass(params, kind, own, stream);
#endif
    } else {
      const int blocks = cuda::div_up(side.length, kHalfPassPoints) * side.splits;
      status =
          cuda::launch(kPasses[kind][last ? 1 : 0],
                       {blocks, kHalfPassThreads, half_shared_bytes(kHalfSteps[kind]), stream}, params, own);
    }
    run(kUpdate, cuda::div_up(side.length, kHalfThreads), own);
    if (p.mass > 0) run(kMass, 1, own);
  }
  run(kResults, cuda::div_up(p.n + p.m, kHalfThreads));
  return status;
}

}  // namespace warpalign::detail::transport
