// Host side of transport's CUDA path: the layout of the workspace, and the launches.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>

#include "core/arena.h"
#include "core/plan_log.h"
#include "core/visit_dtype.h"
#include "core/ways.h"
#include "cuda/launch/launch.cuh"
#include "transport/cuda/gromov/half_points.h"
#include "transport/cuda/kept/kept_layout.h"
#include "transport/cuda/points/step_share.cuh"
#include "transport/cuda/solve/kernels.cuh"
#include "transport/cuda/solve/ways.h"
#include "transport/problem.h"

namespace warpalign::detail::transport {
namespace {

template <class Real>
Table<Real> table(const StridedTensor& of, int columns) {
  return {static_cast<const Real*>(of.data), {of.stride[0], of.stride[1], of.stride[2]}, columns};
}

// The plan of a call: its kernel, the kernel's layout, and the workspace. The kernel's columns are the axis
// along which costs are contiguous in memory.
template <class Real>
class Plan {
 public:
  // Only gradients with respect to points change the plan.
  Plan(const SinkhornProblem& p, const SinkhornOutputs& out, const Execution& execution, Job job)
      : p_(p), job_(job), has_gradients_(job == Job::kSolve && (out.grad_x || out.grad_y)) {
    swapped_ = job == Job::kSolve && has_swapped_costs(p);
    SolveKey key{};
    key.job = job;
    if (job == Job::kSolve) key.way = way_for(p, out, execution);
    key.rows = swapped_ ? p.m : p.n;
    key.columns = swapped_ ? p.n : p.m;
    key.batch = p.batch;
    key.given = p.cost.data != nullptr;
    key.half_cost = p.half_cost;
    key.batch_invariant = execution.batch_invariant;
    key.precision = execution.precision;
    key.device = cuda::traits_of(execution.cuda_device);
    way_ = key.way;
    terms_ = key.terms();
    tiles_ = !key.has_rows();
    const SolveChoice<Real> choice = choose<Real>(key);
    kernel_ = choice.kernel;
    layout_ = choice.layout;
    status_ = choice.status;
  }

  [[nodiscard]] Status status() const { return status_; }

  // Writes the plan to the thread's PlanLog, if there is one. call: the name of the public function.
  void describe(const char* call, const Execution& execution) const {
    PlanLog* const log = PlanLog::current();
    if (!log) return;
    log->begin(call, cuda::name_of_device(execution.cuda_device));
    if (job_ == Job::kSolve) log->way(kWays[static_cast<int>(way_)], reason_of(way_, execution));
    log->line("sizes", std::to_string(p_.batch) + " problems of " + std::to_string(p_.n) + " x " +
                           std::to_string(p_.m) + (p_.cost.data ? " costs" : " points, features ") +
                           (p_.cost.data ? "" : std::to_string(p_.dim)));
    log->line("teams", std::to_string(layout_.teams) + " of " + std::to_string(layout_.team_blocks) +
                           " blocks, a problem each at a time" +
                           (cuda::plans_for_class() ? "; blocks that fit are estimated" : ""));
  }

  // Takes the workspace from the arena, and returns the parameters that point to it. All others are unset.
  [[nodiscard]] SolveParams<Real> lay_out(Arena& arena) const {
    SolveParams<Real> params{};
    const std::size_t teams = layout_.teams;
    params.layout = layout_;
    params.arrivals = arena.take<int>(teams, "arrivals of teams");
    params.records =
        arena.take<unsigned char>(teams * 2 * layout_.team_blocks * kRecordBytes, "records of blocks");
    params.rows.length = swapped_ ? p_.m : p_.n;
    params.columns.length = swapped_ ? p_.n : p_.m;
    params.rows.splits = layout_.segments;
    params.columns.splits = layout_.row_groups;
    if (tiles_) {
      params.rows.splits = parts(p_.n, p_.m);
      params.columns.splits = parts(p_.m, p_.n);
    }
    // One pass computes the sums of both sides: those of the columns have a part for every tile of rows.
    if (terms_ > 0 && p_.updates != SinkhornUpdates::kAlternating) {
      params.columns.splits = std::max(params.columns.splits, cuda::div_up(p_.n, own_points()));
    }
    const int columns = params.columns.length;
    const bool keeps = job_ == Job::kSolve && way_ == Way::kKeptRows;
    const bool shares = !tiles_ && !keeps && layout_.team_blocks > 1 && columns <= kMostShortColumns;
    params.short_sums = arena.take<Real>(
        shares ? teams * 2 * layout_.team_blocks * (columns + kShortMoves) : 0, "sums of short rows");
    const bool exchanges =
        keeps && (layout_.team_blocks > layout_.cluster || columns > kMostKeptColumns<Real>);
    params.kept_sums = arena.take<Real>(
        exchanges ? teams * 2 * layout_.team_blocks * (kept_stride(columns) + kToldFlags) : 0,
        "sums of blocks");
    params.kept_costs = arena.take<Real>(
        layout_.of_points ? teams * params.rows.length * kept_stride(columns) : 0, "costs of points");
    params.terms = terms_;
    params.centres = arena.take<float>(terms_ > 0 ? teams * p_.dim : 0, "centres");
    const bool has_parts = terms_ > 0 && has_gradients_;
    params.gradient_blocks =
        has_parts ? std::max(blocks_of_gradient(p_.n, p_.m), blocks_of_gradient(p_.m, p_.n)) : 0;
    params.gradient_parts =
        arena.take<float>(teams * params.gradient_blocks * kGradientPart, "parts of gradients");
    for (SideParams<Real>* const side : {&params.rows, &params.columns}) {
      const std::size_t length = side->length;
      side->potentials = arena.take<double>(teams * 3 * length, "potentials");
      side->partials = arena.take<Real>(teams * side->splits * length, "partial sums");
      const bool has_lengths = !p_.cost.data && p_.cost_kind == CostKind::kCosine;
      side->inverse_lengths = arena.take<Real>(has_lengths ? teams * length : 0, "lengths of points");
      const bool packs = terms_ > 0;
      side->packed = arena.take<std::byte>(
          packs ? teams * terms_ * unit_rows(side->length, p_.dim) * kUnitRowBytes : 0, "packed points");
      side->norms = arena.take<double>(packs ? teams * length : 0, "squares of points");
      side->near = arena.take<int>(
          terms_ == 3 && has_gradients_ ? teams * cuda::div_up(side->length, kUnitGradientPoints) : 0,
          "tiles whose gradients are differences");
      if (job_ != Job::kDifferentiate) continue;
      SideTangentParams<Real>& moved = side == &params.rows ? params.tangents.rows : params.tangents.columns;
      moved.stretches = arena.take<Real>(has_lengths ? teams * length : 0, "lengths of points");
      moved.arrays = arena.take<double>(teams * kTangentArrays * length, "arrays of the linear system");
      moved.partials = arena.take<double>(teams * 2 * side->splits * length, "partial sums of tangents");
    }
    return params;
  }

  // The parameters of a solve. Those of plan functions and tangents are unset.
  [[nodiscard]] SolveParams<Real> bound(const SinkhornOutputs& out, Workspace workspace) const {
    Arena arena(workspace.data);
    SolveParams<Real> params = lay_out(arena);
    const auto real = [](const void* data) { return static_cast<const Real*>(data); };
    const auto written = [](void* data) { return static_cast<Real*>(data); };
    SideParams<Real>& of_a = swapped_ ? params.columns : params.rows;
    SideParams<Real>& of_b = swapped_ ? params.rows : params.columns;
    const auto bind = [&](SideParams<Real>& side, const TransportSide& from, const void* start,
                          void* potential, void* gradient) {
      side.weights = real(from.weights);
      side.lengths = from.lengths;
      side.strength = from.strength;
      side.start = real(start);
      side.potential = written(potential);
      side.grad_weights = written(gradient);
    };
    bind(of_a, p_.a, p_.f0, out.f, out.grad_a);
    bind(of_b, p_.b, p_.g0, out.g, out.grad_b);
    of_a.has_lambda = true;
    if (!p_.cost.data) {
      params.dim = p_.dim;
      params.kind = p_.cost_kind;
      params.rows.points = table<Real>(p_.x, p_.dim);
      params.rows.grad_points = written(out.grad_x);
      params.columns.points = table<Real>(p_.y, p_.dim);
      params.columns.grad_points = written(out.grad_y);
    }
    params.cost = p_.cost.data;
    params.half_cost = p_.half_cost;
    params.plan = written(out.grad_cost);
    params.plan_scale = p_.cost_scale;
    const std::int64_t plan_stride[] = {std::int64_t{p_.n} * p_.m, p_.m, 1};
    for (int axis = 0; axis < 3; ++axis) {
      const int from = axis == 0 || !swapped_ ? axis : 3 - axis;
      params.cost_stride[axis] = p_.cost.stride[from];
      params.plan_stride[axis] = plan_stride[from];
    }
    if (layout_.of_points) {
      const int stride = kept_stride(params.columns.length);
      const std::int64_t of_costs[] = {std::int64_t{params.rows.length} * stride, stride, 1};
      std::copy_n(of_costs, 3, params.cost_stride);
      params.cost = params.kept_costs;
    }
    params.batch = p_.batch;
    params.cost_scale = p_.cost_scale;
    params.epsilon = p_.epsilon;
    params.epsilons = real(p_.epsilons);
    params.epsilon_start = p_.epsilon_start;
    params.epsilon_factor = p_.epsilon_factor;
    params.mass = p_.mass;
    params.tolerance = p_.tolerance;
    params.max_iterations = p_.max_iterations;
    params.product = p_.reference == TransportReference::kProduct;
    params.checks_sums = job_ == Job::kSolve;
    params.symmetric_iterations = symmetric_iterations(p_);
    // A pass over both sides then computes the rows' sums alone (points/point_sums.cuh).
    const bool of_points = way_ == Way::kPoints || way_ == Way::kPointsOnUnits;
    if (of_points && job_ == Job::kSolve && has_equal_sides(p_)) {
      params.columns.partials = params.rows.partials;
    }
    params.rows_first = swapped_;
    params.shift = written(out.shift);
    params.value = written(out.value);
    params.linear = written(out.linear);
    params.grad_epsilon = written(out.grad_epsilon);
    params.error = written(out.error);
    params.iterations = out.iterations;
    return params;
  }

  [[nodiscard]] Status launch(const SolveParams<Real>& params, cudaStream_t stream) const {
    const std::size_t teams = layout_.teams;
    if (Status s = cuda::set_memory(params.arrivals, 0, teams * sizeof(int), stream); !s.ok()) return s;
    Real* const tables[] = {params.plan, params.gradient.grad_cost};
    for (Real* const table : tables) {
      if (!table || !(p_.a.lengths || p_.b.lengths)) continue;  // padding is 0
      const std::size_t bytes = sizeof(Real) * p_.batch * p_.n * p_.m;
      if (Status s = cuda::set_memory(table, 0, bytes, stream); !s.ok()) return s;
    }
    return kernel_->launch(params, stream);
  }

 private:
  [[nodiscard]] int blocks_of_gradient(int length, int other_length) const {
    return gradient_blocks(length, other_length, p_.dim, layout_.team_blocks, layout_.sharing_steps);
  }
  // The points of one side that a block owns at a time.
  [[nodiscard]] int own_points() const {
    if (terms_ > 0) return unit_own_points(terms_, p_.dim);
    return p_.dim <= kMostDimOfRows ? kOwnPointsOfRows : kernel_->own_points;
  }
  // The number of parts of the sums of a side's points.
  [[nodiscard]] int parts(int length, int other_length) const {
    if (job_ != Job::kSolve) return point_splits(length, other_length, layout_.team_blocks);
    const int step = terms_ == 0 && p_.dim <= kMostDimOfRows ? kUnitOfRows : kPointsStage;
    return StepShare(cuda::div_up(length, own_points()), cuda::div_up(other_length, step),
                     layout_.team_blocks)
        .most_parts();
  }

  const SinkhornProblem& p_;
  Job job_;
  bool has_gradients_;
  bool swapped_;
  bool tiles_;
  Way way_;
  int terms_;  // SolveKey::terms()
  const SinkhornKernel<Real>* kernel_;
  SolveLayout layout_{};
  Status status_;
};

std::size_t workspace_bytes(const SinkhornProblem& p, const SinkhornOutputs& out, const Execution& execution,
                            Job job) {
  return visit_float32_float64(p.dtype, [&](auto type) {
    Arena arena;
    static_cast<void>(Plan<typename decltype(type)::Type>(p, out, execution, job).lay_out(arena));
    return arena.used();
  });
}

// Runs the kernel that reads the plan at the problem's potentials. give(params) sets the parameters of the
// requested result.
template <class Give>
Status read_off_plan(const SinkhornProblem& p, Workspace workspace, const Execution& execution,
                     const Give& give) {
  if (Status s = check_way(execution, kWays, "sinkhorn() on CUDA"); !s.ok()) return s;
  const SinkhornProblem of = at_its_potentials(p);
  return visit_float32_float64(p.dtype, [&](auto type) {
    const Plan<typename decltype(type)::Type> plan(of, {}, execution, Job::kReadPlan);
    if (!plan.status().ok()) return plan.status();
    plan.describe("plan of sinkhorn", execution);
    auto params = plan.bound({}, workspace);
    give(params);
    return plan.launch(params, static_cast<cudaStream_t>(execution.stream));
  });
}

bool is_by_warpgroups(Way way) { return way == Way::kHalfPointsByWarpgroups; }

void describe_half_points(const SinkhornProblem& p, Way way, const Execution& execution) {
  PlanLog* const log = PlanLog::current();
  if (!log) return;
  log->begin("sinkhorn", cuda::name_of_device(execution.cuda_device));
  log->way(kWays[static_cast<int>(way)], reason_of(way, execution));
  log->line("sizes", std::to_string(p.n) + " x " + std::to_string(p.m) + " points, features " +
                         std::to_string(p.dim) + ", " + std::to_string(p.max_iterations) + " iterations");
}

}  // namespace

const char* way_cuda(int index) { return way_at(kWays, index); }

std::size_t sinkhorn_cuda_workspace_bytes(const SinkhornProblem& p, const SinkhornOutputs& out,
                                          const Execution& execution) {
  if (!check_way_of(p, out, execution).ok()) return 0;
  const Way way = way_for(p, out, execution);
  if (way >= Way::kHalfPoints) return half_points_workspace_bytes(p, is_by_warpgroups(way));
  return workspace_bytes(p, out, execution, Job::kSolve);
}

Status sinkhorn_cuda(const SinkhornProblem& p, const SinkhornOutputs& out, Workspace workspace,
                     const Execution& execution) {
  if (Status s = check_way_of(p, out, execution); !s.ok()) return s;
  const Way way = way_for(p, out, execution);
  if (way >= Way::kHalfPoints) {
    describe_half_points(p, way, execution);
    return half_points_sinkhorn(p, out, workspace, execution, is_by_warpgroups(way));
  }
  return visit_float32_float64(p.dtype, [&](auto type) {
    const Plan<typename decltype(type)::Type> plan(p, out, execution, Job::kSolve);
    if (!plan.status().ok()) return plan.status();
    plan.describe("sinkhorn", execution);
    return plan.launch(plan.bound(out, workspace), static_cast<cudaStream_t>(execution.stream));
  });
}

std::size_t sinkhorn_jvp_cuda_workspace_bytes(const SinkhornProblem& p, const Execution& execution) {
  return workspace_bytes(at_the_solution(p), {}, execution, Job::kDifferentiate);
}

Status sinkhorn_jvp_cuda(const SinkhornProblem& problem, const SinkhornTangents& along,
                         const SinkhornOutputs& out, Workspace workspace, const Execution& execution) {
  if (Status s = check_way(execution, kWays, "sinkhorn() on CUDA"); !s.ok()) return s;
  const SinkhornProblem p = at_the_solution(problem);
  return visit_float32_float64(p.dtype, [&](auto type) {
    using Real = typename decltype(type)::Type;
    const Plan<Real> plan(p, {}, execution, Job::kDifferentiate);
    if (!plan.status().ok()) return plan.status();
    plan.describe("sinkhorn_jvp", execution);
    SolveParams<Real> params = plan.bound(out, workspace);
    const auto real = [](const void* data) { return static_cast<const Real*>(data); };
    TangentParams<Real>& to = params.tangents;
    to.rows.points = table<Real>(along.x, p.dim);
    to.columns.points = table<Real>(along.y, p.dim);
    to.rows.weights = real(along.a);
    to.columns.weights = real(along.b);
    to.rows.forces = real(along.f);
    to.columns.forces = real(along.g);
    to.cost = real(along.cost.data);
    std::copy_n(along.cost.stride, 3, to.cost_stride);
    to.epsilon = real(along.epsilon);
    to.log_scale = real(along.log_scale);
    to.shift = real(p.shift0);
    return plan.launch(params, static_cast<cudaStream_t>(execution.stream));
  });
}

std::size_t plan_cuda_workspace_bytes(const SinkhornProblem& p, const Execution& execution) {
  return workspace_bytes(at_its_potentials(p), {}, execution, Job::kReadPlan);
}

Status plan_apply_cuda(const SinkhornProblem& p, const PlanProduct& product, Workspace workspace,
                       const Execution& execution) {
  return read_off_plan(p, workspace, execution, [&]<class Real>(SolveParams<Real>& params) {
    params.factor = table<Real>(product.v, product.columns);
    params.result = static_cast<Real*>(product.result);
    params.transposed = product.transposed;
  });
}

Status plan_gradient_cuda(const SinkhornProblem& p, const PlanGradient& g, Workspace workspace,
                          const Execution& execution) {
  return read_off_plan(p, workspace, execution, [&]<class Real>(SolveParams<Real>& params) {
    const auto written = [](void* data) { return static_cast<Real*>(data); };
    params.gradient = {true,
                       static_cast<const Real*>(g.w.data),
                       {g.w.stride[0], g.w.stride[1], g.w.stride[2]},
                       {table<Real>(g.u, g.columns), table<Real>(g.v, g.columns)},
                       {written(g.row_sums), written(g.column_sums)},
                       {written(g.grad_a), written(g.grad_b)},
                       written(g.grad_cost),
                       written(g.grad_epsilon)};
    params.rows.grad_points = written(g.grad_x);
    params.columns.grad_points = written(g.grad_y);
  });
}

Status plan_sample_cuda(const SinkhornProblem& p, const PlanSamples& samples, Workspace workspace,
                        const Execution& execution) {
  return read_off_plan(p, workspace, execution, [&]<class Real>(SolveParams<Real>& params) {
    params.pairs = samples.pairs;
    params.pair_count = samples.count;
    params.seed = samples.seed;
  });
}

Status plan_topk_cuda(const SinkhornProblem& p, const PlanTop& top, Workspace workspace,
                      const Execution& execution) {
  return read_off_plan(p, workspace, execution, [&]<class Real>(SolveParams<Real>& params) {
    params.top_values = static_cast<Real*>(top.values);
    params.top_indices = top.indices;
    params.top_count = top.count;
    params.transposed = top.transposed;
  });
}

Status plan_dense_cuda(const SinkhornProblem& p, void* to, Workspace workspace, const Execution& execution) {
  return read_off_plan(p, workspace, execution, [&]<class Real>(SolveParams<Real>& params) {
    params.plan = static_cast<Real*>(to);
    params.plan_scale = 1;
  });
}

bool kernel_launches_cuda(int index, KernelLaunches& out) { return kKernels.read(index, out); }

}  // namespace warpalign::detail::transport
