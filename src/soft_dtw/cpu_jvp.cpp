// Second order on the CPU: the driver of the sweeps in cpu_jvp.inl. All computation is float64 for any dtype:
// R's tangent is a sum along whole paths, and results are differences of such sums.
#include <cfloat>
#include <cmath>
#include <limits>
#include <numbers>

#include "cpu/describe.h"
#include "cpu/team.h"
#include "soft_dtw/cpu_pair.h"

namespace warpalign::detail::soft_dtw {
namespace {

// One pair with its tangents.
struct DualPair {
  CpuPair64 pair;
  CpuTangents tangents;
  Norms norms;  // of cosine series
  Norms norm_tangents;
};

DualPair lay_out(Arena& arena, const SoftDtwProblem& p, const SoftDtwOutputs& out) {
  DualPair dual;
  const bool of_series = out.grad_x || out.grad_y;
  // The cosine's gradient is a projection of the sum of E times slopes, which is therefore computed as well.
  const Extent extent{true, of_series && is_cosine(p)};
  dual.pair = lay_out<double, double>(arena, p, extent);
  lay_out_scratch(arena, p, extent, dual.pair);
  dual.norms = lay_out_norms(arena, p);
  dual.norm_tangents = lay_out_norms(arena, p);
  CpuTangents& q = dual.tangents;
  const std::size_t h = std::min(p.n, kCpuOneTile);
  const std::size_t w = std::min(p.m, kCpuOneTile);
  const std::size_t slots = h + 2 * kCpuPad;
  const std::size_t border = static_cast<std::size_t>(p.m) + 1;
  const std::size_t x_elements = p.cost.data ? 0 : padded(p.n) * most_features(p);
  const std::size_t y_elements = p.cost.data ? 0 : padded(p.m) * most_features(p);
  q.x = arena.take<double>(x_elements);
  double* const y = arena.take<double>(y_elements + kCpuPad);
  if (y) q.y = y + kCpuPad;
  q.row = arena.take<double>((tiles(p.n) + 1) * border);
  q.column = arena.take<double>(static_cast<std::size_t>(tiles(p.m)) * p.n);
  q.diagonal = arena.take<double>(3 * slots);
  q.diagonal_cost = arena.take<double>(kCpuCostDiagonals * slots);
  q.diagonal_inverse = arena.take<double>(kCpuCostDiagonals * slots);
  q.weight_up = arena.take<double>(h * w + (h + w) * kCpuPad);
  q.weight_left = arena.take<double>(h * w + (h + w) * kCpuPad);
  q.want_gradient = of_series || out.alignment;
  if (!q.want_gradient) return dual;
  if (of_series) {
    q.grad_x = arena.take<double>(x_elements);
    q.grad_y = arena.take<double>(y_elements);
  }
  q.flow_below = arena.take<double>(2 * border);
  q.flow_right = arena.take<double>(2 * h);
  q.diagonal_flow = arena.take<double>(4 * slots);
  return dual;
}

cpu::Team team_of(const SoftDtwProblem& p, const SoftDtwOutputs& out, const Execution& execution) {
  Arena arena;
  lay_out(arena, p, out);
  cpu::Team team = cpu::Team::of(p.batch, execution, 1);
  team.item_bytes = cpu::rounded_to_worker(arena.used());
  return team;
}

// One side's tangents, packed as the side itself: the features that `from` has, and 0 for further packed
// ones.
template <class Storage>
void bind_side(const StridedTensor& from, const Job& job, int length, bool backwards, std::int64_t stride,
               int packed_dim, const double* weight, double* to) {
  const int dim = from.data ? job.p.dim : 0;
  const std::int64_t first = from.data ? job.b * from.stride[0] : 0;  // no tangents, no strides
  pack_series<Storage>(from, first, length, dim, backwards, stride, to);
  std::fill(to + dim * stride, to + packed_dim * stride, 0.0);
  if (weight) clear_missing(weight, stride, dim, to);
}

template <class Storage>
void bind_tangents(const Job& job, const SoftDtwTangents& from, DualPair& dual) {
  static constexpr double kZero = 0;
  const CpuPair64& pair = dual.pair;
  CpuTangents& q = dual.tangents;
  q.inverse_gamma = std::min(1.0 / job.gamma, DBL_MAX);
  if (job.p.cost.data) {
    q.cost = from.cost.data ? static_cast<const void*>(element<Storage>(from.cost, job.b)) : &kZero;
    q.cost_stride[0] = from.cost.data ? from.cost.stride[1] : 0;
    q.cost_stride[1] = from.cost.data ? from.cost.stride[2] : 0;
    return;
  }
  auto* const x = const_cast<double*>(q.x);
  auto* const y = const_cast<double*>(q.y);
  bind_side<Storage>(from.x, job, job.n, false, pair.x_stride, pair.dim, pair.x_weight, x);
  bind_side<Storage>(from.y, job, job.m, true, pair.y_stride, pair.dim, pair.y_weight, y);
  if (dual.norms.x) {
    normalize_tangents(pair.x, pair.x_stride, job.p.dim, dual.norms.x, x, dual.norm_tangents.x);
    normalize_tangents(pair.y, pair.y_stride, job.p.dim, dual.norms.y, y, dual.norm_tangents.y);
  } else if (pair.metric == Metric::kSquared) {
    q.cost_factor = 2;
  }
  if (!q.grad_x) return;
  std::fill_n(q.grad_x, pair.x_stride * pair.dim, 0.0);
  std::fill_n(q.grad_y, pair.y_stride * pair.dim, 0.0);
}

template <class Storage>
void write_gradients(const Job& job, const DualPair& dual) {
  const CpuPair64& pair = dual.pair;
  const CpuTangents& q = dual.tangents;
  if (pair.grad_x) {
    denormalize_tangent(pair.x, q.x, pair.grad_x, pair.x_stride, job.n, job.p.dim, dual.norms.x,
                        dual.norm_tangents.x, q.grad_x);
    denormalize_tangent(pair.y, q.y, pair.grad_y, pair.y_stride, job.m, job.p.dim, dual.norms.y,
                        dual.norm_tangents.y, q.grad_y);
  }
  unpack_gradient<Storage>(q.grad_x, pair.x_stride, job.n, job.p.dim, false, q.cost_factor, x_steps_of(job),
                           job.out.grad_x);
  unpack_gradient<Storage>(q.grad_y, pair.y_stride, job.m, job.p.dim, true, -q.cost_factor, y_steps_of(job),
                           job.out.grad_y);
  zero_padding<Storage>(job.out.alignment, job.b, job.p.n, job.p.m, job.n, job.m);
}

template <class Storage>
void solve(const Job& job, const SoftDtwTangents& from, void* memory) {
  Arena arena(memory);
  DualPair dual = lay_out(arena, job.p, job.out);
  CpuPair64& pair = dual.pair;
  const double scale = std::min(std::numbers::log2e / job.gamma, DBL_MAX);
  pair.scale = dual.norms.x ? scale / 2 : scale;
  bind_penalty(job.p.step_penalty * scale, pair);
  bind_pair<Storage>(job, dual.norms, pair);
  bind_tangents<Storage>(job, from, dual);

  const CpuOutcome outcome = job.kernels.forward_jvp(pair, dual.tangents);
  if (std::isnan(outcome.largest_cost)) {
    const double nan = std::numeric_limits<double>::quiet_NaN();
    return write_constant<Storage>(job, nan, nan);
  }
  if (outcome.exponent < -1e298) return write_constant<Storage>(job, 0.0, 0.0);  // every path costs inf
  const double value = dual.tangents.row[last_row(pair) + pair.m];
  static_cast<Storage*>(job.out.value)[job.b] = static_cast<Storage>(value);
  if (!dual.tangents.want_gradient) return;
  job.kernels.reverse_jvp(pair, dual.tangents);
  write_gradients<Storage>(job, dual);
}

}  // namespace

std::size_t jvp_workspace_bytes_cpu(const SoftDtwProblem& p, const SoftDtwTangents&,
                                    const SoftDtwOutputs& out, const Execution& execution) {
  return team_of(p, out, execution).bytes();
}

Status jvp_cpu(const SoftDtwProblem& p, const SoftDtwTangents& tangents, const SoftDtwOutputs& out,
               Workspace workspace, const Execution& execution) {
  const cpu::Team team = team_of(p, out, execution);
  if (PlanLog* const log = PlanLog::current()) {
    log->begin("soft_dtw_jvp", cpu::name_of_threads(execution));
    cpu::describe_team(team, {}, "second derivatives of a pair are one thread's work", *log);
    return {};
  }
  const CpuKernels& kernels = selected_kernels();
  cpu::run_team(team, workspace, execution, [&](int b, const cpu::ItemMemory& memory) {
    const Job job = job_of(p, out, kernels, b);
    visit_float32_float64(
        p.dtype, [&](auto type) { solve<typename decltype(type)::Type>(job, tangents, memory.item); });
  });
  return {};
}

}  // namespace warpalign::detail::soft_dtw
