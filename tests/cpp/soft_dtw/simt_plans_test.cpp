// Plans of soft_dtw() that a thread keeps; on the CPU alone.
#include <cstddef>

#include "kept_plans.h"
#include "warpalign/soft_dtw.h"

namespace warpalign::test::soft_dtw {
namespace {

struct Call {
  SoftDtwProblem problem;
  bool gradient = true, alignment = false, grad_gamma = false, second_order = false, has_matrix = false,
       has_lengths = false, has_mask = false, has_gammas = false;
  Execution execution = Execution::cuda(0, nullptr);
  simt::Device device;

  explicit Call(int batch, int dim = 20) {
    device.multiprocessors = 16;
    problem.batch = batch;
    problem.n = 280;
    problem.m = 300;
    problem.dim = dim;
  }

  [[nodiscard]] Status run() const {
    Places places;
    SoftDtwProblem p = problem;
    SoftDtwOutputs out;
    out.value = places.next();
    SoftDtwTangents tangents;
    if (has_matrix) {
      p.dim = 0;
      p.cost = tangents.cost = places.tensor<3>({p.batch, p.n, p.m});
    } else {
      p.x = tangents.x = places.tensor<3>({p.batch, p.n, p.dim});
      p.y = tangents.y = places.tensor<3>({p.batch, p.m, p.dim});
      if (gradient) out.grad_x = places.next();
      if (gradient) out.grad_y = places.next();
    }
    if (alignment) out.alignment = places.next();
    if (grad_gamma) out.grad_gamma = places.next();
    if (has_lengths) p.x_lengths = static_cast<const std::int32_t*>(places.next());
    if (has_mask) p.x_mask = static_cast<const std::uint8_t*>(places.next());
    if (has_gammas) p.gammas = places.next();
    if (second_order) {
      const std::size_t bytes = soft_dtw_jvp_workspace_bytes(p, tangents, out, execution);
      return soft_dtw_jvp(p, tangents, out, places.workspace(bytes), execution);
    }
    const std::size_t bytes = soft_dtw_workspace_bytes(p, out, execution);
    return warpalign::soft_dtw(p, out, places.workspace(bytes), execution);
  }
};

TEST(PlansCuda, FollowFromEveryArgument) {
  expect_no_stale_plan<Call>({Call(4), Call(40), Call(400), Call(400, 2)},
                             {
                                 {"dtype", [](Call& c) { c.problem.dtype = DType::kFloat64; }},
                                 {"half series", [](Call& c) { c.problem.dtype = DType::kFloat16; }},
                                 {"batch", [](Call& c) { c.problem.batch = 90; }},
                                 {"n", [](Call& c) { c.problem.n = 900; }},
                                 {"m", [](Call& c) { c.problem.m = 900; }},
                                 {"dim", [](Call& c) { c.problem.dim = 4; }},
                                 {"gradient", [](Call& c) { c.gradient = false; }},
                                 {"alignment", [](Call& c) { c.alignment = true; }},
                                 {"grad_gamma", [](Call& c) { c.grad_gamma = true; }},
                                 {"second order", [](Call& c) { c.second_order = true; }},
                                 {"cost", [](Call& c) { c.has_matrix = true; }},
                                 {"lengths", [](Call& c) { c.has_lengths = true; }},
                                 {"mask", [](Call& c) { c.has_mask = true; }},
                                 {"hard", [](Call& c) { c.problem.gamma = 0; }},
                                 {"gamma", [](Call& c) { c.problem.gamma = 0.5; }, InPlan::kNo},
                                 {"gammas", [](Call& c) { c.has_gammas = true; }, InPlan::kNo},
                                 {"band",
                                  [](Call& c) {
                                    c.problem.band = {BandKind::kSakoeChiba, 20};
                                  }},
                                 {"step penalty", [](Call& c) { c.problem.step_penalty = 1; }},
                                 {"cost kind", [](Call& c) { c.problem.cost_kind = CostKind::kEuclidean; }},
                                 {"subsequence", [](Call& c) { c.problem.subsequence = true; }},
                                 {"batch_invariant", [](Call& c) { c.execution.batch_invariant = true; }},
                                 {"precision", [](Call& c) { c.execution.precision = Precision::kMedium; }},
                                 {"way", [](Call& c) { c.execution.way = "tiles"; }},
                                 {"multiprocessors", [](Call& c) { c.device.multiprocessors = 132; }},
                                 {"shared memory", [](Call& c) { c.device.shared_bytes = 64 * 1024; }},
                                 {"capability", [](Call& c) { c.device.compute_capability_major = 7; }},
                             });
}

}  // namespace
}  // namespace warpalign::test::soft_dtw
