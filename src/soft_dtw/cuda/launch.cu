// Host side of the CUDA path: layout of the workspace, choice of the kernel, one or two launches.
//
// float32 runs Cell32 and behind it Cell64, whose blocks look at every pair's flag and recompute only those
// that Cell32 could not certify; float64 runs Cell64 alone.
#include <algorithm>
#include <cmath>
#include <utility>

#include "cuda/check.h"
#include "soft_dtw/cuda/launch.h"
#include "soft_dtw/problem.h"

namespace warpalign::detail {
namespace {

using namespace softdtw;  // NOLINT: one operator's own names

// Where everything is in the workspace. The Cell64 rerun uses the scratch of the Cell32 run, which is over by
// then.
struct Plan {
  Layout main;
  Layout rerun;           // float32 only
  std::size_t flags;      // bytes, in front of the scratch
  std::size_t workspace;  // bytes
};

// Strips lie along the longer series, which gives the most warps something to do. The problem is symmetric.
bool exchanges_series(const SoftDtwProblem& problem, const SoftDtwOutputs& out) {
  return !problem.cost.data && !out.alignment && problem.n > problem.m;
}

void describe_float32(Request& r, const SoftDtwProblem& problem, const SoftDtwOutputs& out,
                      DeviceLimits device) {
  if (problem.cost.data || out.alignment || problem.dim > kMostFeatures) {
    describe_tiles(r);
    return;
  }
  r.features = problem.dim <= 2 ? problem.dim : kMostFeatures;
  // Wide lanes do more work per instruction of overhead, narrow ones finish a single pair sooner.
  const double warps_of_two = static_cast<double>(problem.batch) * strips_of(r.m, 2);
  const bool fills_device = warps_of_two >= 16.0 * device.multiprocessors;
  r.columns_per_lane = r.m <= 32 ? 1 : !r.gradient && fills_device && r.m > 64 ? 4 : 2;
  describe_few_features(r);
}

Plan plan_for(const SoftDtwProblem& problem, const SoftDtwOutputs& out, int device) {
  const DeviceLimits limits{cuda::attribute(cudaDevAttrMultiProcessorCount, device),
                            cuda::attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin, device)};
  Request request{};
  request.batch = problem.batch;
  request.n = problem.n;
  request.m = problem.m;
  request.gradient = out.wants_gradient();
  if (exchanges_series(problem, out)) std::swap(request.n, request.m);
  Plan plan{};
  if (problem.dtype == DType::kFloat64) {
    describe_float64(request, false);
    plan.main = layout_for(request, limits);
    plan.workspace = plan.main.scratch;
    return plan;
  }
  Request rerun = request;
  describe_float32(request, problem, out, limits);
  plan.main = layout_for(request, limits);
  describe_float64(rerun, true);
  rerun.rerun = true;
  // Reruns are rare: they make do with the memory that is there, but for one pair's.
  rerun.scratch_limit = plan.main.scratch;
  plan.rerun = layout_for(rerun, limits);
  plan.flags = aligned(sizeof(int) * static_cast<std::size_t>(problem.batch));
  plan.workspace = plan.flags + std::max(plan.main.scratch, plan.rerun.scratch);
  return plan;
}

template <class In>
void copy_strides(std::int64_t (&to)[3], const StridedTensor& from, const In*& data) {
  std::copy(from.stride, from.stride + 3, to);
  data = static_cast<const In*>(from.data);
}

bool readable_as_float4(const StridedTensor& t, DType dtype, int dim) {
  return dtype == DType::kFloat32 && dim % 4 == 0 && t.stride[2] == 1 && t.stride[0] % 4 == 0 &&
         t.stride[1] % 4 == 0 && reinterpret_cast<std::uintptr_t>(t.data) % 16 == 0;
}

template <class In>
Params<In> params_for(const SoftDtwProblem& problem, const SoftDtwOutputs& out) {
  Params<In> p{};
  copy_strides(p.x_stride, problem.x, p.x);
  copy_strides(p.y_stride, problem.y, p.y);
  copy_strides(p.cost_stride, problem.cost, p.cost);
  p.x_lengths = problem.x_lengths;
  p.y_lengths = problem.y_lengths;
  p.value = static_cast<In*>(out.value);
  p.grad_x = static_cast<In*>(out.grad_x);
  p.grad_y = static_cast<In*>(out.grad_y);
  p.alignment = static_cast<In*>(out.alignment);
  p.batch = problem.batch;
  p.n = problem.n;
  p.m = problem.m;
  p.dim = problem.dim;
  p.vectorized = !problem.cost.data && readable_as_float4(problem.x, problem.dtype, problem.dim) &&
                 readable_as_float4(problem.y, problem.dtype, problem.dim);
  return p;
}

template <class In>
void exchange_series(Params<In>& p) {
  std::swap(p.x, p.y);
  std::swap(p.x_stride, p.y_stride);
  std::swap(p.x_lengths, p.y_lengths);
  std::swap(p.grad_x, p.grad_y);
  std::swap(p.n, p.m);
}

Status run(Params<double>& p, const Plan& plan, bool gradient, cudaStream_t stream) {
  p.layout = plan.main;
  return launch_float64(p, gradient, stream);
}

Status run(Params<float>& p, const Plan& plan, bool gradient, cudaStream_t stream) {
  p.layout = plan.main;
  const Status status =
      p.layout.features > 0 ? launch_few_features(p, gradient, stream) : launch_tiles(p, gradient, stream);
  if (!status.ok()) return status;
  p.layout = plan.rerun;
  return launch_float64(p, gradient, stream);
}

template <class In>
Status run(const SoftDtwProblem& problem, const SoftDtwOutputs& out, const Plan& plan, Workspace workspace,
           cudaStream_t stream) {
  Params<In> p = params_for<In>(problem, out);
  if (exchanges_series(problem, out)) exchange_series(p);
  auto* base = static_cast<unsigned char*>(workspace.data);
  if (plan.flags > 0) p.uncertified = reinterpret_cast<int*>(base);
  p.scratch = base + plan.flags;
  p.scale = 1.4426950408889634074 / problem.gamma;  // log2(e) / gamma
  return run(p, plan, out.wants_gradient(), stream);
}

// What this path does not have yet.
Status check_available(const SoftDtwProblem& problem, const SoftDtwOutputs& out) {
  const char* option = nullptr;
  if (problem.band.kind != BandKind::kNone) option = "band";
  if (problem.step_penalty != 0) option = "step_penalty";
  if (problem.cost_kind != CostKind::kSquaredEuclidean) option = "cost_kind";
  if (problem.gamma == 0) option = "gamma";
  if (problem.gammas) option = "gammas";
  if (problem.x_mask) option = "x_mask";
  if (problem.y_mask) option = "y_mask";
  if (out.grad_gamma) option = "grad_gamma";
  if (problem.subsequence) option = "subsequence";
  return option ? Status::unsupported(option, "not available on CUDA yet") : Status{};
}

}  // namespace

std::size_t soft_dtw_cuda_workspace_bytes(const SoftDtwProblem& problem, const SoftDtwOutputs& out,
                                          const Execution& execution) {
  return plan_for(problem, out, execution.cuda_device).workspace;
}

Status soft_dtw_cuda(const SoftDtwProblem& problem, const SoftDtwOutputs& out, Workspace workspace,
                     const Execution& execution) {
  if (Status s = check_available(problem, out); !s.ok()) return s;
  const Plan plan = plan_for(problem, out, execution.cuda_device);
  const bool needs_rerun = problem.dtype == DType::kFloat32;
  if (plan.main.warps < 1 || (needs_rerun && plan.rerun.warps < 1)) {
    return Status::unsupported("execution",
                               "the GPU has too little shared memory: 74 KiB per block are needed");
  }
  const auto stream = static_cast<cudaStream_t>(execution.stream);
  return problem.dtype == DType::kFloat32 ? run<float>(problem, out, plan, workspace, stream)
                                          : run<double>(problem, out, plan, workspace, stream);
}

}  // namespace warpalign::detail
