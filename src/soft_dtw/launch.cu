// Host side of the CUDA path: layout of the workspace, choice of the kernel, one or two launches.
//
// float32 runs Cell32 and behind it Cell64, whose blocks look at every pair's flag and recompute only those
// that Cell32 could not certify; float64 runs Cell64 alone.
#include <algorithm>
#include <cmath>
#include <utility>

#include "cuda/check.h"
#include "soft_dtw/kernel.cuh"
#include "soft_dtw/problem.h"

namespace warpalign::detail {
namespace {

using namespace softdtw;  // NOLINT: one operator's own names

template <class Cell>
constexpr CellSizes sizes() {
  return {sizeof(typename Cell::State), sizeof(typename Cell::Real)};
}

// Where everything is in the workspace. The Cell64 rerun uses the scratch of the Cell32 run, which is over by
// then.
struct Plan {
  bool float64;
  LaunchShape main;
  LaunchShape rerun;      // float32 only
  std::size_t flags;      // bytes, in front of the scratch
  std::size_t workspace;  // bytes
};

Plan plan_for(const SoftDtwProblem& problem, bool gradient, int n, int m, int device) {
  const DeviceLimits limits{cuda::attribute(cudaDevAttrMultiProcessorCount, device),
                            cuda::attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin, device)};
  Plan plan{};
  plan.float64 = problem.dtype == DType::kFloat64;
  if (plan.float64) {
    plan.main =
        launch_shape(problem.batch, n, m, gradient, sizes<Cell64>(), limits, 1, max_warps<Cell64, 1>());
    plan.workspace = plan.main.workspace_bytes();
    return plan;
  }
  const int columns_per_lane = strips_of(m, 1) <= max_warps<Cell32, 1>() ? 1 : 2;
  const int warps = columns_per_lane == 1 ? max_warps<Cell32, 1>() : max_warps<Cell32, 2>();
  plan.main = launch_shape(problem.batch, n, m, gradient, sizes<Cell32>(), limits, columns_per_lane, warps);
  plan.rerun =
      launch_shape(problem.batch, n, m, gradient, sizes<Cell64>(), limits, 1, max_warps<Cell64, 1>());
  if (gradient) plan.rerun.limit_scratch(plan.main.workspace_bytes());
  plan.flags = aligned(sizeof(int) * static_cast<std::size_t>(problem.batch));
  plan.workspace = plan.flags + std::max(plan.main.workspace_bytes(), plan.rerun.workspace_bytes());
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

// Strips lie along the longer series, which gives the most warps something to do. The problem is symmetric.
bool exchanges_series(const SoftDtwProblem& problem, const SoftDtwOutputs& out) {
  return !problem.cost.data && !out.alignment && problem.n > problem.m;
}

template <class In>
void exchange_series(Params<In>& p) {
  std::swap(p.x, p.y);
  std::swap(p.x_stride, p.y_stride);
  std::swap(p.x_lengths, p.y_lengths);
  std::swap(p.grad_x, p.grad_y);
  std::swap(p.n, p.m);
}

template <class Cell, class In, int W, bool kGradient>
Status launch(Params<In> p, const LaunchShape& shape, double scale, cudaStream_t stream) {
  p.shape = shape;
  p.scale = static_cast<typename Cell::Real>(scale);
  const auto kernel = soft_dtw_kernel<Cell, In, W, kGradient>;
  if (shape.shared_bytes > 48 * 1024) {
    const Status status = cuda::to_status(
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shape.shared_bytes));
    if (!status.ok()) return status;
  }
  kernel<<<shape.grid, 32 * shape.warps_per_pair * shape.pairs_per_block, shape.shared_bytes, stream>>>(p);
  return cuda::to_status(cudaGetLastError());
}

template <class In, bool kGradient>
Status run(const Params<In>& p, const Plan& plan, double scale, cudaStream_t stream) {
  if constexpr (sizeof(In) == 8) {
    return launch<Cell64, In, 1, kGradient>(p, plan.main, scale, stream);
  } else {
    const Status status = plan.main.columns_per_lane == 1
                              ? launch<Cell32, In, 1, kGradient>(p, plan.main, scale, stream)
                              : launch<Cell32, In, 2, kGradient>(p, plan.main, scale, stream);
    if (!status.ok()) return status;
    return launch<Cell64, In, 1, kGradient>(p, plan.rerun, scale, stream);
  }
}

template <class In>
Status run(const SoftDtwProblem& problem, const SoftDtwOutputs& out, const Plan& plan, Workspace workspace,
           cudaStream_t stream) {
  Params<In> p = params_for<In>(problem, out);
  if (exchanges_series(problem, out)) exchange_series(p);
  auto* base = static_cast<unsigned char*>(workspace.data);
  if (!plan.float64) p.uncertified = reinterpret_cast<int*>(base);
  p.scratch = base + plan.flags;
  const double scale = 1.4426950408889634074 / problem.gamma;  // log2(e) / gamma
  return out.wants_gradient() ? run<In, true>(p, plan, scale, stream)
                              : run<In, false>(p, plan, scale, stream);
}

Plan plan_for(const SoftDtwProblem& problem, const SoftDtwOutputs& out, int device) {
  int n = problem.n;
  int m = problem.m;
  if (exchanges_series(problem, out)) std::swap(n, m);
  return plan_for(problem, out.wants_gradient(), n, m, device);
}

}  // namespace

std::size_t soft_dtw_cuda_workspace_bytes(const SoftDtwProblem& problem, const SoftDtwOutputs& out,
                                          const Execution& execution) {
  return plan_for(problem, out, execution.cuda_device).workspace;
}

Status soft_dtw_cuda(const SoftDtwProblem& problem, const SoftDtwOutputs& out, Workspace workspace,
                     const Execution& execution) {
  const Plan plan = plan_for(problem, out, execution.cuda_device);
  const auto stream = static_cast<cudaStream_t>(execution.stream);
  return problem.dtype == DType::kFloat32 ? run<float>(problem, out, plan, workspace, stream)
                                          : run<double>(problem, out, plan, workspace, stream);
}

}  // namespace warpalign::detail
