#include <algorithm>
#include <optional>
#include <utility>

#include "core/plan_cache.h"
#include "soft_dtw/band.h"
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

// The options of a panel's sweeps; metrics and masks concern only its costs and gradients. Empty if a panel
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
            0,
            p.cost.data || call.out.alignment,
            call.batch_invariant,
            false,
            call.way};
  if (exchanges_series(call)) std::swap(need.n, need.m);
  need.rows_in_band = mean_rows_in_band(p.band, need.n, need.m);
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

// The number of warps that are active at the same time if a panel's sweeps take this many pairs. Each strip
// begins 39 steps after the strip on its left, so that strips with few rows are not all active at the same
// time.
int warps_at_work(const PanelPlan& plan, int pairs) {
  constexpr int kApart = kPanelFurtherRows + kGroup;
  return pairs * std::min(plan.panel.strips, div_up(plan.panel.lines, kApart)) * plan.sweep.layout.ends();
}

// Whether pairs that take turns in a panel are faster than all of them in tiles at the same time. With few
// features each turn has to fill the device. Tiles compute costs alone as fast as a panel's kernel, and skip
// costs outside the band.
bool turns_pay(const Need& need, Options in_panel, int warps, DeviceTraits device) {
  const CudaTuning tuning = cuda_tuning(device);
  if (need.dim >= tuning.turn_features) return true;
  const bool costs_alone = !need.gradient && need.options == Options::kNone;
  const bool is_led_by_tiles = !need.holds_cells && (costs_alone || in_panel == Options::kPaths);
  const int least = is_led_by_tiles ? tuning.turn_warps_of_fast_tiles : tuning.turn_warps;
  return warps >= double(least) * device.multiprocessors;
}

// Distances of many features, and cost matrices, use a panel if it holds all pairs, or if turns pay. With
// batch_invariant the decision must not depend on the batch.
PanelPlan panel_for(const Need& need, std::optional<Options> options, bool has_matrix, DeviceTraits device) {
  PanelPlan plan;
  plan.panel = panel_of(need.n, need.m);
  const bool is_possible = need.arithmetic == Arithmetic::kFloat32 && options &&
                           (need.holds_cells || need.dim > kMostFewFeatures) &&
                           (!need.way || source_of(*need.way) == CostSource::kPanel);
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
  if (parts == 1 || need.batch_invariant || need.way || turns_pay(need, *options, warps, device)) {
    plan.pairs = pairs;
  }
  return plan;
}

// Everything that determines a plan.
struct PlanKey {
  Need need;
  std::optional<Options> in_panel;
  bool has_matrix;
  bool is_ragged;
  DeviceTraits device;

  friend bool operator==(const PlanKey&, const PlanKey&) = default;
};

Plan make_plan(const PlanKey& key) {
  const Need& need = key.need;
  const DeviceTraits& device = key.device;
  const std::size_t bytes_of_numbers = aligned(sizeof(int) * static_cast<std::size_t>(need.batch));
  Plan plan{};
  const PanelPlan in_panel = panel_for(need, key.in_panel, key.has_matrix, device);
  plan.panel_pairs = in_panel.pairs;
  plan.panel = in_panel.panel;
  plan.main = in_panel.pairs > 0 ? in_panel.sweep : select(need, device);
  const Layout& l = plan.main.layout;
  // An order is useful only if some pairs wait.
  const bool takes_turns = !l.tickets && l.grid * l.pairs_per_block < need.batch;
  if (key.is_ragged && takes_turns && plan.panel_pairs == 0) plan.order = bytes_of_numbers;
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

}  // namespace

bool exchanges_series(const Call& call) {
  const SoftDtwProblem& p = call.problem;
  // Hard DTW is not symmetric: its rule for ties prefers the step from above.
  const bool is_symmetric = !p.cost.data && !call.out.alignment && !p.subsequence && !is_hard(p) &&
                            p.band.kind != BandKind::kItakura;
  return is_symmetric && p.n > p.m;
}

Way Plan::way() const {
  const bool both_ends = main.layout.meets;
  if (panel_pairs > 0) return both_ends ? Way::kPanelBothEnds : Way::kPanel;
  if (main.kernel && main.kernel->key.source == CostSource::kFewFeatures) {
    return both_ends ? Way::kFewFeaturesBothEnds : Way::kFewFeatures;
  }
  return both_ends ? Way::kTilesBothEnds : Way::kTiles;
}

const char* why_not(Way way, const Call& call, DeviceTraits device) {
  const SoftDtwProblem& p = call.problem;
  const Need need = need_of(call);
  const CostSource source = source_of(way);
  const bool few_features = !need.holds_cells && need.dim <= kMostFewFeatures;
  if (source != CostSource::kTiles || from_both_ends(way)) {
    if (need.arithmetic != Arithmetic::kFloat32) {
      return "float64, hard DTW and second derivatives are computed in tiles, from one end";
    }
  }
  if (source == CostSource::kFewFeatures && !few_features) {
    return "it takes series of at most 4 features, and makes no alignment";
  }
  if (source == CostSource::kPanel) {
    if (few_features) return "series of at most 4 features need no panel";
    if (!options_in_panel(p, call.out)) {
      return "a panel has no Euclidean distance, subsequence or gradient by gamma";
    }
  }
  if (from_both_ends(way)) {
    if (need.batch_invariant) return "sums from both ends depend on the batch, and batch_invariant is set";
    if (need.n < kShortestMeeting) return "sweeps from both ends take 64 rows or more";
    const bool of_panel = source == CostSource::kPanel;
    const Options options = of_panel ? *options_in_panel(p, call.out) : need.options;
    if (options == Options::kAll) {
      return "sweeps from both ends take squared distances, and of the options a band and a step penalty";
    }
    const bool in_tiles = source == CostSource::kTiles;
    if (in_tiles && (options != Options::kNone || need.holds_cells || need.dim > kMostMeetingFeatures)) {
      return "tiles are swept from both ends for at most 64 features, without options and an alignment";
    }
  }
  Call forced = call;
  forced.way = way;
  const Plan plan = plan_for(forced, device);
  if (plan.way() == way) return nullptr;
  if (source == CostSource::kPanel && plan.panel_pairs == 0) {
    return "the panel of one pair takes more memory than a workspace may have";
  }
  return "the device does not hold all strips of both sweeps at the same time";
}

const char* reason_of(const Plan& plan, const Call& call) {
  if (call.way) return "named by Execution::way";
  const Need need = need_of(call);
  const bool both_ends = plan.main.layout.meets;
  if (plan.panel_pairs > 0 && plan.panel_pairs < need.batch) {
    return both_ends ? "pairs take turns in a panel, which fill the device; strips of both ends find room"
                     : "pairs take turns in a panel, which fill the device";
  }
  if (plan.panel_pairs > 0) {
    return both_ends ? "a panel holds all pairs; strips of both ends find room" : "a panel holds all pairs";
  }
  if (plan.way() == Way::kFewFeatures) return "at most 4 features stay in registers";
  if (plan.way() == Way::kFewFeaturesBothEnds) {
    return "at most 4 features stay in registers; strips of both ends find room";
  }
  if (need.arithmetic != Arithmetic::kFloat32) return "float64, hard DTW and second derivatives have one way";
  if (!options_in_panel(call.problem, call.out)) {
    return "a panel has no Euclidean distance, subsequence or gradient by gamma";
  }
  return both_ends ? "tiles are faster than turns in a panel; strips of both ends find room"
                   : "tiles are faster than turns in a panel, or a pair's panel is too large";
}

Plan plan_for(const Call& call, DeviceTraits device) {
  const SoftDtwProblem& p = call.problem;
  const PlanKey key{need_of(call), options_in_panel(p, call.out), p.cost.data != nullptr,
                    p.x_lengths || p.y_lengths, device};
  thread_local PlanCache<PlanKey, Plan> plans;
  return plans.find(key, [&] { return make_plan(key); });
}

}  // namespace warpalign::detail::soft_dtw
