#include <algorithm>
#include <optional>
#include <utility>

#include "soft_dtw/cuda/call/call.h"
#include "soft_dtw/tuning.h"

namespace warpalign::detail::soft_dtw {
namespace {

bool is_hard(const SoftDtwProblem& p) { return p.gamma == 0 && !p.gammas; }

Arithmetic arithmetic_of(const Call& call) {
  const bool is_float32 = call.problem.dtype == DType::kFloat32;
  if (call.second_order) return Arithmetic::kDual;
  if (is_hard(call.problem)) return is_float32 ? Arithmetic::kHardFloat32 : Arithmetic::kHardFloat64;
  return is_float32 ? Arithmetic::kFloat32 : Arithmetic::kFloat64;
}

Options options_of(const SoftDtwProblem& p, const SoftDtwOutputs& out) {
  const bool other_cost = !p.cost.data && metric_of(p.cost_kind) != Metric::kSquared;
  if (other_cost || p.x_mask || p.y_mask || p.subsequence || out.grad_gamma) return Options::kAll;
  return p.band.kind != BandKind::kNone || p.step_penalty != 0 ? Options::kPaths : Options::kNone;
}

// The options of a panel's sweeps; metrics and masks concern only its costs and gradients. None if a panel
// cannot serve the problem: the gradient of a Euclidean distance needs the costs, which E has overwritten.
std::optional<Options> options_in_panel(const SoftDtwProblem& p, const SoftDtwOutputs& out) {
  const bool is_norm = !p.cost.data && metric_of(p.cost_kind) == Metric::kNorm;
  if (is_norm || p.subsequence || out.grad_gamma) return std::nullopt;
  return p.band.kind != BandKind::kNone || p.step_penalty != 0 ? Options::kPaths : Options::kNone;
}

Need need_of(const Call& call) {
  const SoftDtwProblem& p = call.problem;
  Need need{arithmetic_of(call),
            options_of(p, call.out),
            call.out.wants_gradient(),
            p.batch,
            p.n,
            p.m,
            p.dim,
            p.cost.data || call.out.alignment,
            call.batch_invariant,
            false};
  if (exchanges_series(call)) std::swap(need.n, need.m);
  return need;
}

// The most bytes of a panel and the states of its sweeps: a constant, or twice the size of the inputs if that
// is more. A cost matrix is an input here unless there is a band, with which tiles are fast.
std::size_t panel_limit(const Need& need, bool has_matrix, std::size_t panel_bytes) {
  const double n = need.n, m = need.m;
  const double inputs = 4.0 * need.batch * (has_matrix ? n * m : (n + m) * need.dim);
  return std::max(panel_bytes, static_cast<std::size_t>(2 * inputs));
}

struct PanelPlan {
  int pairs = 0;  // number at a time; 0: no panel
  Panel panel{};
  Selection sweep{};
};

// The number of warps at work at the same time if a panel's sweeps take this many pairs. Each strip begins 39
// steps after the strip on its left, so that strips of few rows are not all at work at the same time.
int warps_at_work(const PanelPlan& plan, int pairs) {
  constexpr int kApart = kPanelFurtherRows + kGroup;
  return pairs * std::min(plan.panel.strips, div_up(plan.panel.lines, kApart)) * plan.sweep.layout.ends();
}

// Whether pairs that take turns in a panel are faster than all of them in tiles at the same time. With few
// features each turn has to fill the device. Tiles make costs alone as fast as a panel's kernel does, and
// save what a band leaves out.
bool turns_pay(const Need& need, Options in_panel, int warps, DeviceTraits device) {
  const CudaTuning tuning = cuda_tuning(device);
  if (need.dim >= tuning.turn_features) return true;
  const bool costs_alone = !need.gradient && need.options == Options::kNone;
  const bool is_led_by_tiles = !need.holds_cells && (costs_alone || in_panel == Options::kPaths);
  const int least = is_led_by_tiles ? tuning.turn_warps_of_fast_tiles : tuning.turn_warps;
  return warps >= double(least) * device.multiprocessors;
}

// Distances of many features, and cost matrices, go to a panel if it holds all pairs, or if turns pay. With
// batch_invariant the decision must not depend on the batch.
PanelPlan panel_for(const Need& need, std::optional<Options> options, bool has_matrix, DeviceTraits device) {
  PanelPlan plan;
  plan.panel = panel_of(need.n, need.m);
  const bool is_possible =
      need.arithmetic == Arithmetic::kFloat32 && options && (need.holds_cells || need.dim > kMostFewFeatures);
  const auto panel_bytes = static_cast<std::size_t>(cuda_tuning(device).panel_bytes);
  const std::size_t limit = need.batch_invariant
                                ? panel_bytes
                                : panel_limit(need, has_matrix && options == Options::kNone, panel_bytes);
  if (!is_possible || static_cast<double>(plan.panel.pair_cells()) * sizeof(float) > limit) return plan;
  Need part = need;
  part.in_panel = true;
  part.options = *options;
  part.dim = 0;
  const auto bytes_of = [&](int pairs) {
    part.batch = pairs;
    plan.sweep = select(part, device);
    return plan.sweep.layout.scratch + plan.panel.bytes(pairs);
  };
  int parts = static_cast<int>(1 + static_cast<double>(plan.panel.bytes(1)) * need.batch / limit);
  for (std::size_t bytes; (bytes = bytes_of(div_up(need.batch, parts))) > limit && parts < need.batch;) {
    const double more = parts * (static_cast<double>(bytes) / limit);
    parts = std::min(need.batch, std::max(parts + 1, static_cast<int>(more)));
  }
  const int pairs = div_up(need.batch, parts);
  if (bytes_of(pairs) > limit || !plan.sweep.fits()) return plan;
  const int warps = warps_at_work(plan, pairs);
  if (parts == 1 || need.batch_invariant || turns_pay(need, *options, warps, device)) plan.pairs = pairs;
  return plan;
}

}  // namespace

bool exchanges_series(const Call& call) {
  const SoftDtwProblem& p = call.problem;
  // Hard DTW is not symmetric: its rule for ties prefers the step from above.
  const bool is_symmetric = !p.cost.data && !call.out.alignment && !p.subsequence && !is_hard(p) &&
                            p.band.kind != BandKind::kItakura;
  return is_symmetric && p.n > p.m;
}

Plan plan_for(const Call& call, DeviceTraits device) {
  const SoftDtwProblem& p = call.problem;
  const Need need = need_of(call);
  const std::size_t bytes_of_numbers = aligned(sizeof(int) * static_cast<std::size_t>(p.batch));
  Plan plan{};
  const PanelPlan in_panel = panel_for(need, options_in_panel(p, call.out), p.cost.data != nullptr, device);
  plan.panel_pairs = in_panel.pairs;
  plan.panel = in_panel.panel;
  plan.main = in_panel.pairs > 0 ? in_panel.sweep : select(need, device);
  const Layout& l = plan.main.layout;
  // An order is of use only if some pairs wait.
  const bool takes_turns = !l.tickets && l.grid * l.pairs_per_block < p.batch;
  if ((p.x_lengths || p.y_lengths) && takes_turns && plan.panel_pairs == 0) plan.order = bytes_of_numbers;
  std::size_t scratch = l.scratch;
  if (plan.panel_pairs > 0) {
    const int blocks = gradient_blocks(need.n, need.m, need.dim, need.gradient, need.gradient).per_pair();
    plan.cancelled = aligned(sizeof(int) * static_cast<std::size_t>(plan.panel_pairs) * blocks);
    scratch = aligned(scratch) + plan.panel.bytes(plan.panel_pairs) + plan.cancelled;
  }
  plan.has_rerun = need.arithmetic == Arithmetic::kFloat32;
  if (plan.has_rerun) {
    plan.flags = bytes_of_numbers;
    plan.rerun = select_rerun(need, scratch, device);
    scratch = std::max(scratch, plan.rerun.layout.scratch);
  }
  plan.workspace = plan.flags + plan.order + scratch;
  return plan;
}

}  // namespace warpalign::detail::soft_dtw
