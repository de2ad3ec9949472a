// What a plan says of itself.
#include <algorithm>
#include <string>

#include "core/plan_log.h"
#include "cuda/launch/check.h"
#include "soft_dtw/cuda/call/cuda_call.h"

namespace warpalign::detail::soft_dtw {
namespace {

std::string times(int n, int m) { return std::to_string(n) + " x " + std::to_string(m); }

void describe_plan(const Call& call, const Plan& plan, PlanLog& log) {
  const SoftDtwProblem& p = call.problem;
  const Layout& l = plan.main.layout;
  log.way(kWays[static_cast<int>(plan.way())], reason_of(plan, call));
  log.line("sizes", std::to_string(p.batch) + " pairs of " + times(p.n, p.m) + " steps, " +
                        std::to_string(p.dim) + " features" +
                        (exchanges_series(call) ? "; strips lie along x, the longer series" : ""));
  log.line("sweep", name_of(plan.main.kernel->key).text);
  log.line("layout", std::to_string(l.panels) + " blocks of " + std::to_string(l.warps) +
                         " strips a pair and sweep, " + std::to_string(l.slots) + " pairs in flight");
  if (plan.panel_pairs > 0) {
    log.line("panel", std::to_string(plan.panel_pairs) + " pairs at a time, " +
                          std::to_string(plan.panel.bytes(1)) + " bytes each");
  }
  if (plan.has_rerun) {
    log.line("rerun", std::string(name_of(plan.rerun.kernel->key).text) +
                          ", of pairs that float32 cannot certify, " +
                          std::to_string(plan.rerun.layout.slots) + " at a time");
  }
}

}  // namespace

void CudaCall::describe(PlanLog& log) const {
  log.begin(call_.second_order ? "soft_dtw_jvp" : "soft_dtw", cuda::name_of_device(ordinal_));
  for (int k = 0; k < launches_; ++k) describe_plan(call_, plans_[k], log);
  log.memory("series in float32", widened_bytes());
  log.memory("unit steps", unit_bytes_);
  const Plan& plan = plans_[plans_[1].workspace > plans_[0].workspace ? 1 : 0];
  const std::size_t panel = plan.panel_pairs > 0 ? plan.panel.bytes(plan.panel_pairs) : 0;
  log.memory("flags of pairs", plan.flags);
  log.memory("order of pairs", plan.order);
  log.memory("panel", panel);
  log.memory("flags of gradients", plan.cancelled);
  log.memory("sweeps", plan.workspace - plan.flags - plan.order - panel - plan.cancelled);
}

}  // namespace warpalign::detail::soft_dtw
