#include <algorithm>
#include <type_traits>
#include <utility>

#include "cuda/launch/launch.cuh"
#include "cuda/rows/ragged.h"
#include "soft_dtw/cuda/call/call.h"
#include "soft_dtw/cuda/call/kernel_list.cuh"
#include "soft_dtw/cuda/call/params.cuh"
#include "soft_dtw/cuda/panel/panel_tile.cuh"

namespace warpalign::detail::soft_dtw {
namespace {

void copy_strides(std::int64_t (&to)[3], const StridedTensor& from, const void*& data) {
  std::copy(from.stride, from.stride + 3, to);
  data = from.data;
}

// Whether a panel's gradients are products on matrix units.
bool multiplies(const Call& call) {
  const SoftDtwProblem& p = call.problem;
  return call.has_matrix_units && p.dim >= kFewestMultipliedFeatures &&
         !has_panel_options(metric_of(p.cost_kind), p.x_mask, p.y_mask, p.band);
}

Params params_of(const Call& call) {
  const SoftDtwProblem& problem = call.problem;
  const SoftDtwOutputs& out = call.out;
  Params p{};
  p.is_float64 = problem.dtype == DType::kFloat64;
  copy_strides(p.x_stride, problem.x, p.x);
  copy_strides(p.y_stride, problem.y, p.y);
  copy_strides(p.cost_stride, problem.cost, p.cost);
  copy_strides(p.tangents.x_stride, call.tangents.x, p.tangents.x);
  copy_strides(p.tangents.y_stride, call.tangents.y, p.tangents.y);
  copy_strides(p.tangents.cost_stride, call.tangents.cost, p.tangents.cost);
  p.x_lengths = problem.x_lengths;
  p.y_lengths = problem.y_lengths;
  p.x_offsets = problem.x_offsets;
  p.y_offsets = problem.y_offsets;
  p.value = out.value;
  p.grad_x = out.grad_x;
  p.grad_y = out.grad_y;
  p.alignment = out.alignment;
  p.batch = problem.batch;
  p.n = problem.n;
  p.m = problem.m;
  p.dim = problem.dim;
  p.gammas = problem.gammas;
  p.half = is_cosine(problem) ? 0.5 : 1.0;
  p.scale = problem.gamma == 0 ? 1.0 : scale_for(problem.gamma, p.half);
  p.series_type = call.series_type;
  p.vectorized = call.vectorized;
  p.on_matrix_units = call.may_use_matrix_units && problem.dim >= kFewestMultipliedFeatures;
  p.three_terms = call.three_terms;
  p.band = problem.band;
  p.step_penalty = problem.step_penalty;
  p.metric = metric_of(problem.cost_kind);
  p.subsequence = problem.subsequence;
  p.x_mask = problem.x_mask;
  p.y_mask = problem.y_mask;
  p.grad_gamma = out.grad_gamma;
  p.end_values = out.end_values;
  p.gradients_by_products = multiplies(call);
  return p;
}

void exchange_series(Params& p) {
  std::swap(p.x, p.y);
  std::swap(p.x_stride, p.y_stride);
  std::swap(p.tangents.x, p.tangents.y);
  std::swap(p.tangents.x_stride, p.tangents.y_stride);
  std::swap(p.x_lengths, p.y_lengths);
  std::swap(p.x_offsets, p.y_offsets);
  std::swap(p.x_mask, p.y_mask);
  std::swap(p.grad_x, p.grad_y);
  std::swap(p.n, p.m);
}

// Makes the kernels read the widened x and y.
void read_widened(Params& p, const Call& call) {
  StridedTensor x = call.widened_x(), y = call.widened_y();
  if (exchanges_series(call)) std::swap(x, y);
  copy_strides(p.x_stride, x, p.x);
  copy_strides(p.y_stride, y, p.y);
  p.series_type = DType::kFloat32;
}

// Writes zeros to the outputs that no sweep visits: cells outside of a band, and steps of packed series that
// belong to no pair.
Status clear_outputs(const Call& call, bool has_unswept_cells, cudaStream_t stream) {
  const SoftDtwProblem& p = call.problem;
  const std::size_t size = size_of(p.dtype), pairs = p.batch;
  const auto clear = [&](void* data, std::size_t numbers) {
    return data ? cuda::set_memory(data, 0, numbers * size, stream) : Status{};
  };
  if (has_unswept_cells || p.x_offsets) {
    if (Status s = clear(call.out.grad_x, gradient_rows(p, false) * p.dim); !s.ok()) return s;
  }
  if (has_unswept_cells || p.y_offsets) {
    if (Status s = clear(call.out.grad_y, gradient_rows(p, true) * p.dim); !s.ok()) return s;
  }
  return has_unswept_cells ? clear(call.out.alignment, pairs * p.n * p.m) : Status{};
}

Status launch_kernel(const Selection& selected, Params& p, cudaStream_t stream) {
  const Layout& l = p.layout = selected.layout;
  const SweepKernel& sweep = *selected.kernel;
  if (Status s = cuda::set_memory(p.scratch, 0xff, l.cleared(), stream); !s.ok()) return s;
  const int threads = 32 * l.warps * l.pairs_per_block * sweep.sizes.source.roles;
  const auto shared_bytes = static_cast<std::size_t>(l.shared_bytes);
  return cuda::launch(*sweep.kernel, {l.grid, threads, shared_bytes, stream}, p);
}

// The parameters of pairs first ... first + count - 1.
Params part_of(const Params& p, int first, int count) {
  Params part = p;
  const auto move = [&](auto*& data, std::int64_t stride) {
    using Number = std::conditional_t<std::is_const_v<std::remove_pointer_t<std::decay_t<decltype(data)>>>,
                                      const float, float>;
    if (data) data = static_cast<Number*>(data) + first * stride;
  };
  const auto move_series = [&](const void*& data, std::int64_t stride) {
    const int size = static_cast<int>(size_of(p.series_type));
    if (data) data = static_cast<const unsigned char*>(data) + first * stride * size;
  };
  if (!p.x_offsets) move_series(part.x, p.x_stride[0]);
  if (!p.y_offsets) move_series(part.y, p.y_stride[0]);
  move(part.cost, p.cost_stride[0]);
  move(part.gammas, 1);
  move(part.value, 1);
  if (!p.x_offsets) move(part.grad_x, static_cast<std::int64_t>(p.n) * p.dim);
  if (!p.y_offsets) move(part.grad_y, static_cast<std::int64_t>(p.m) * p.dim);
  move(part.alignment, static_cast<std::int64_t>(p.n) * p.m);
  if (part.x_lengths) part.x_lengths += first;
  if (part.y_lengths) part.y_lengths += first;
  if (part.x_offsets) part.x_offsets += first;
  if (part.y_offsets) part.y_offsets += first;
  if (part.x_mask) part.x_mask += static_cast<std::int64_t>(first) * p.n;
  if (part.y_mask) part.y_mask += static_cast<std::int64_t>(first) * p.m;
  part.uncertified += first;
  part.batch = count;
  return part;
}

// Launches the costs, the sweeps and the outputs of E, for as many pairs at a time as the panel holds.
Status launch_in_panel(const Plan& plan, Params p, cudaStream_t stream) {
  p.panel = plan.panel;
  unsigned char* const cells = p.scratch + aligned(plan.main.layout.scratch);
  p.panel.cells = reinterpret_cast<float*>(cells);
  p.panel.range = reinterpret_cast<int*>(cells + plan.panel.cell_bytes(plan.panel_pairs));
  const bool is_checked = p.gradients_by_products && !p.on_matrix_units;
  if (is_checked) p.cancelled = reinterpret_cast<int*>(cells + plan.panel.bytes(plan.panel_pairs));
  for (int first = 0; first < p.batch; first += plan.panel_pairs) {
    const Params part = part_of(p, first, std::min(plan.panel_pairs, p.batch - first));
    Params sweep = part;
    sweep.x = sweep.y = nullptr;
    sweep.grad_x = sweep.grad_y = sweep.alignment = nullptr;
    sweep.dim = 0;
    if (Status s = make_panel(part, stream); !s.ok()) return s;
    if (Status s = launch_kernel(plan.main, sweep, stream); !s.ok()) return s;
    if (Status s = make_panel_gradients(part, stream); !s.ok()) return s;
    if (!part.alignment) continue;
    if (Status s = copy_panel_alignment(part, stream); !s.ok()) return s;
  }
  return {};
}

}  // namespace

bool reads_halves(const Call& call, const Plan& plan) {
  return plan.panel_pairs > 0 && call.may_use_matrix_units && multiplies(call);
}

Status launch(const Call& call, const Plan& plan, void* workspace, void* on_stream) {
  const auto stream = static_cast<cudaStream_t>(on_stream);
  const SoftDtwProblem& problem = call.problem;
  auto* const base = static_cast<unsigned char*>(workspace);
  Params p = params_of(call);
  if (exchanges_series(call)) exchange_series(p);
  const bool has_unswept_cells = p.band.kind != BandKind::kNone && plan.panel_pairs == 0;
  if (Status s = clear_outputs(call, has_unswept_cells, stream); !s.ok()) return s;
  if (plan.has_rerun) p.uncertified = reinterpret_cast<int*>(base);
  p.scratch = base + plan.flags + plan.order;
  if (plan.order > 0) {
    int* const order = reinterpret_cast<int*>(base + plan.flags);
    auto* const counter = reinterpret_cast<int*>(p.scratch);
    if (Status s = cuda::find_longest_first({problem.x_lengths, problem.n}, {problem.y_lengths, problem.m},
                                            problem.batch, order, counter, stream);
        !s.ok()) {
      return s;
    }
    p.order = order;
  }
  const Status status =
      plan.panel_pairs > 0 ? launch_in_panel(plan, p, stream) : launch_kernel(plan.main, p, stream);
  if (!status.ok() || !plan.has_rerun) return status;
  p.order = nullptr;
  if (is_half(p.series_type)) {
    HalfSeries halves = call.widened;
    halves.only = p.uncertified;
    if (Status s = widen_series(halves, stream); !s.ok()) return s;
    read_widened(p, call);
  }
  return launch_kernel(plan.rerun, p, stream);
}

}  // namespace warpalign::detail::soft_dtw
