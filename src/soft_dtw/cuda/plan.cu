#include <algorithm>
#include <utility>

#include "soft_dtw/cuda/call.h"

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

bool uses_matrix_units(const Call& call) {
  const int dim = call.problem.dim;
  const int most = call.out.wants_gradient() ? kMostTensorGradientFeatures : kMostTensorFeatures;
  return call.may_use_matrix_units && call.vectorized && call.gradients_vectorized &&
         dim > kMostFewFeatures && dim <= most;
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
            uses_matrix_units(call),
            call.batch_invariant};
  if (exchanges_series(call)) std::swap(need.n, need.m);
  return need;
}

}  // namespace

bool exchanges_series(const Call& call) {
  const SoftDtwProblem& p = call.problem;
  // Hard DTW prefers one of two equal steps.
  const bool is_symmetric = !p.cost.data && !call.out.alignment && !p.subsequence && !is_hard(p) &&
                            p.band.kind != BandKind::kItakura;
  return is_symmetric && p.n > p.m;
}

Plan plan_for(const Call& call, DeviceLimits device) {
  const SoftDtwProblem& p = call.problem;
  const Need need = need_of(call);
  const std::size_t bytes_of_numbers = aligned(sizeof(int) * static_cast<std::size_t>(p.batch));
  Plan plan{};
  plan.main = select(need, device);
  const Layout& l = plan.main.layout;
  // Where every pair is taken right away there is nothing to put in order.
  const bool takes_turns = !l.tickets && l.grid * l.pairs_per_block < p.batch;
  if ((p.x_lengths || p.y_lengths) && takes_turns) plan.order = bytes_of_numbers;
  std::size_t scratch = l.scratch;
  plan.has_rerun = need.arithmetic == Arithmetic::kFloat32;
  if (plan.has_rerun) {
    plan.flags = bytes_of_numbers;
    plan.rerun = select_rerun(need, l.scratch, device);
    scratch = std::max(scratch, plan.rerun.layout.scratch);
  }
  plan.workspace = plan.flags + plan.order + scratch;
  return plan;
}

}  // namespace warpalign::detail::soft_dtw
