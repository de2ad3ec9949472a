// Plans of sinkhorn(), of its derivatives, and of what is read off a plan, that a thread keeps; on the CPU
// alone.
#include <cstddef>

#include "kept_plans.h"
#include "warpalign/sinkhorn.h"
#include "warpalign/transport_plan.h"

namespace warpalign::test {
namespace {

enum class Job { kSolve, kApply, kDifferentiate };

struct Call {
  SinkhornProblem problem;
  bool has_matrix = false, is_column_major = false, has_weights = false, has_lengths = false,
       gradient = false;
  Job job = Job::kSolve;
  Execution execution = Execution::cuda(0, nullptr);
  simt::Device device;

  explicit Call(bool has_matrix_, int batch = 2) : has_matrix(has_matrix_) {
    device.multiprocessors = 16;
    problem.batch = batch;
    problem.n = 600;
    problem.m = 700;
    problem.dim = 6;
    problem.max_iterations = 50;
    problem.tolerance = 0;
  }

  [[nodiscard]] Status run() const {
    Places places;
    SinkhornProblem p = problem;
    SinkhornOutputs out;
    out.value = places.next();
    if (has_matrix) {
      p.dim = 0;
      p.cost = places.tensor<3>({p.batch, p.n, p.m});
      if (is_column_major) p.cost = {p.cost.data, {p.cost.stride[0], 1, p.n}};
      if (gradient) out.grad_cost = places.next();
    } else {
      p.x = places.tensor<3>({p.batch, p.n, p.dim});
      p.y = places.tensor<3>({p.batch, p.m, p.dim});
      if (gradient) out.grad_x = places.next();
    }
    if (has_weights) p.a.weights = places.next();
    if (has_lengths) p.b.lengths = static_cast<const std::int32_t*>(places.next());
    if (job == Job::kSolve) {
      const std::size_t bytes = sinkhorn_workspace_bytes(p, out, execution);
      return sinkhorn(p, out, places.workspace(bytes), execution);
    }
    p.f0 = places.next();
    p.g0 = places.next();
    if (job == Job::kApply) {
      const PlanProduct product{false, 3, places.tensor<3>({p.batch, p.m, 3}), places.next()};
      const std::size_t bytes = plan_apply_workspace_bytes(p, product, execution);
      return plan_apply(p, product, places.workspace(bytes), execution);
    }
    SinkhornTangents tangents;
    tangents.epsilon = places.next();
    const std::size_t bytes = sinkhorn_jvp_workspace_bytes(p, tangents, out, execution);
    return sinkhorn_jvp(p, tangents, out, places.workspace(bytes), execution);
  }
};

TEST(PlansCuda, OfPointsFollowFromEveryArgument) {
  expect_no_stale_plan<Call>(
      {Call(false), Call(false, 40)},
      {
          {"dtype", [](Call& c) { c.problem.dtype = DType::kFloat64; }},
          {"batch", [](Call& c) { c.problem.batch = 7; }},
          {"n", [](Call& c) { c.problem.n = 2000; }},
          {"m", [](Call& c) { c.problem.m = 2000; }},
          {"dim", [](Call& c) { c.problem.dim = 40; }},
          {"costs", [](Call& c) { c.has_matrix = true; }},
          {"cost kind", [](Call& c) { c.problem.cost_kind = CostKind::kCosine; }},
          {"gradient", [](Call& c) { c.gradient = true; }, InPlan::kNo},
          {"weights", [](Call& c) { c.has_weights = true; }, InPlan::kNo},
          {"lengths", [](Call& c) { c.has_lengths = true; }, InPlan::kNo},
          {"updates", [](Call& c) { c.problem.updates = SinkhornUpdates::kSymmetric; }, InPlan::kNo},
          {"tolerance", [](Call& c) { c.problem.tolerance = 1e-3; }, InPlan::kNo},
          {"epsilon", [](Call& c) { c.problem.epsilon = 0.1; }, InPlan::kNo},
          {"mass", [](Call& c) { c.problem.mass = 0.5; }},
          {"iterations", [](Call& c) { c.problem.max_iterations = 5; }},
          {"batch_invariant", [](Call& c) { c.execution.batch_invariant = true; }},
          {"high precision", [](Call& c) { c.execution.precision = Precision::kHigh; }},
          {"medium precision", [](Call& c) { c.execution.precision = Precision::kMedium; }},
          {"one problem of points rounded to binary16",
           [](Call& c) { c.execution.precision = Precision::kMedium, c.problem.batch = 1; }},
          {"way", [](Call& c) { c.execution.way = "points"; }},
          {"plan_apply()", [](Call& c) { c.job = Job::kApply; }},
          {"sinkhorn_jvp()", [](Call& c) { c.job = Job::kDifferentiate; }},
          {"multiprocessors", [](Call& c) { c.device.multiprocessors = 132; }},
          {"shared memory", [](Call& c) { c.device.shared_bytes = 64 * 1024; }},
          {"capability", [](Call& c) { c.device.compute_capability_major = 7; }},
      });
}

TEST(PlansCuda, OnMatrixUnitsFollowFromEveryArgument) {
  Call call(false);
  call.execution.precision = Precision::kHigh;
  call.problem.n = 6000;
  call.problem.dim = 20;
  expect_no_stale_plan<Call>(
      {call}, {
                  {"dim", [](Call& c) { c.problem.dim = 3; }},
                  {"gradient", [](Call& c) { c.gradient = true; }},
                  {"updates", [](Call& c) { c.problem.updates = SinkhornUpdates::kSymmetric; }},
                  {"precision", [](Call& c) { c.execution.precision = Precision::kMedium; }},
                  {"highest", [](Call& c) { c.execution.precision = Precision::kHighest; }},
                  {"way", [](Call& c) { c.execution.way = "points"; }},
                  {"capability", [](Call& c) { c.device.compute_capability_major = 7; }},
              });
}

TEST(PlansCuda, OfGivenCostsFollowFromEveryArgument) {
  expect_no_stale_plan<Call>(
      {Call(true), Call(true, 40)},
      {
          {"dtype", [](Call& c) { c.problem.dtype = DType::kFloat64; }},
          {"batch", [](Call& c) { c.problem.batch = 7; }},
          {"n", [](Call& c) { c.problem.n = 2000; }},
          {"m", [](Call& c) { c.problem.m = 100; }},
          {"points", [](Call& c) { c.has_matrix = false; }},
          {"column-major costs", [](Call& c) { c.is_column_major = true; }},
          {"costs of binary16", [](Call& c) { c.problem.half_cost = true; }},
          {"batch_invariant", [](Call& c) { c.execution.batch_invariant = true; }},
          {"precision", [](Call& c) { c.execution.precision = Precision::kHigh; }, InPlan::kNo},
          {"way", [](Call& c) { c.execution.way = "block_rows"; }},
          {"plan_apply()", [](Call& c) { c.job = Job::kApply; }},
          {"sinkhorn_jvp()", [](Call& c) { c.job = Job::kDifferentiate; }},
          {"multiprocessors", [](Call& c) { c.device.multiprocessors = 132; }},
          {"shared memory", [](Call& c) { c.device.shared_bytes = 64 * 1024; }},
          {"capability", [](Call& c) { c.device.compute_capability_major = 8; }},
      });
}

TEST(PlansCuda, OfKeptRowsFollowFromEveryArgument) {
  const auto call = [](int batch) {
    Call of(true, batch);
    of.problem.m = 300;
    return of;
  };
  expect_no_stale_plan<Call>(
      {call(2), call(40)},
      {
          {"dtype", [](Call& c) { c.problem.dtype = DType::kFloat64; }},
          {"batch", [](Call& c) { c.problem.batch = 7; }},
          {"n", [](Call& c) { c.problem.n = 2000; }},
          {"m", [](Call& c) { c.problem.m = 100; }},
          {"points", [](Call& c) { c.has_matrix = false; }},
          {"points of many features", [](Call& c) { c.has_matrix = false, c.problem.dim = 40; }},
          {"column-major costs", [](Call& c) { c.is_column_major = true; }},
          {"costs of binary16", [](Call& c) { c.problem.half_cost = true; }, InPlan::kNo},
          {"mass", [](Call& c) { c.problem.mass = 0.5; }},
          {"iterations", [](Call& c) { c.problem.max_iterations = 5; }},
          {"updates", [](Call& c) { c.problem.updates = SinkhornUpdates::kMixed; }, InPlan::kNo},
          {"precision", [](Call& c) { c.execution.precision = Precision::kHigh; }, InPlan::kNo},
          {"batch_invariant", [](Call& c) { c.execution.batch_invariant = true; }},
          {"way", [](Call& c) { c.execution.way = "block_rows"; }},
          {"multiprocessors", [](Call& c) { c.device.multiprocessors = 132; }},
          {"shared memory", [](Call& c) { c.device.shared_bytes = 64 * 1024; }},
          {"capability", [](Call& c) { c.device.compute_capability_major = 8; }},
      });
}

}  // namespace
}  // namespace warpalign::test
