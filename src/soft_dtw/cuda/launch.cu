// Host side of the CUDA path: layout of the workspace, choice of the kernel, one or two launches.
//
// float32 runs Cell32 and behind it Cell64, whose blocks look at every pair's flag and recompute only those
// that Cell32 could not certify; float64 runs Cell64 alone, and hard DTW CellHard. Whatever but soft-DTW's
// plain form with squared distances was asked for makes it a kernel with options.
#include <algorithm>
#include <cmath>
#include <utility>

#include "core/arena.h"
#include "cuda/check.h"
#include "soft_dtw/cuda/launch.h"
#include "soft_dtw/cuda/unit_steps.h"
#include "soft_dtw/problem.h"

namespace warpalign::detail {
namespace {

using namespace softdtw;  // NOLINT: one operator's own names

enum class Kernel { kFewFeatures, kTiles, kOptions, kHard, kFloat64 };

// Where everything is in the workspace. The Cell64 rerun uses the scratch of the Cell32 run, which is over by
// then.
struct Plan {
  Kernel kernel;
  Layout main;
  Layout rerun;           // of Cell32 only
  std::size_t flags;      // bytes, in front of the scratch
  std::size_t workspace;  // bytes

  [[nodiscard]] bool has_rerun() const { return kernel < Kernel::kHard; }
  [[nodiscard]] bool fits() const { return main.warps > 0 && (!has_rerun() || rerun.warps > 0); }
};

bool is_hard(const SoftDtwProblem& p) { return p.gamma == 0 && !p.gammas; }
bool is_cosine(const SoftDtwProblem& p) { return !p.cost.data && p.cost_kind == CostKind::kCosine; }

bool has_options(const SoftDtwProblem& p, const SoftDtwOutputs& out) {
  const bool other_cost = !p.cost.data && p.cost_kind != CostKind::kSquaredEuclidean && !is_cosine(p);
  return other_cost || p.band.kind != BandKind::kNone || p.step_penalty != 0 || p.x_mask || p.y_mask ||
         p.subsequence || out.grad_gamma;
}

Kernel kernel_for(const SoftDtwProblem& p, const SoftDtwOutputs& out) {
  if (is_hard(p)) return Kernel::kHard;
  if (p.dtype == DType::kFloat64) return Kernel::kFloat64;
  if (has_options(p, out)) return Kernel::kOptions;
  return p.cost.data || out.alignment || p.dim > kMostFeatures ? Kernel::kTiles : Kernel::kFewFeatures;
}

// Strips lie along the longer series, which gives the most warps something to do, where the problem is
// symmetric: hard DTW prefers one of two equal steps.
bool exchanges_series(const SoftDtwProblem& p, const SoftDtwOutputs& out) {
  const bool symmetric =
      !p.cost.data && !out.alignment && !p.subsequence && !is_hard(p) && p.band.kind != BandKind::kItakura;
  return symmetric && p.n > p.m;
}

void describe_few_features(Request& r, int dim, DeviceLimits device) {
  r.features = dim <= 2 ? dim : kMostFeatures;
  // Wide lanes do more work per instruction of overhead, narrow ones finish a single pair sooner.
  const double warps_of_two = static_cast<double>(r.batch) * strips_of(r.m, 2);
  const bool fills_device = warps_of_two >= 16.0 * device.multiprocessors;
  r.columns_per_lane = r.m <= 32 ? 1 : !r.gradient && fills_device && r.m > 64 ? 4 : 2;
  softdtw::describe_few_features(r);
}

void describe(Kernel kernel, Request& r, const SoftDtwProblem& p, DeviceLimits device) {
  const bool float32_data = p.dtype == DType::kFloat32;
  switch (kernel) {
    case Kernel::kFewFeatures:
      return describe_few_features(r, p.dim, device);
    case Kernel::kTiles:
      return describe_tiles(r);
    case Kernel::kOptions:
      return describe_options(r);
    case Kernel::kHard:
      return describe_hard(r, float32_data);
    case Kernel::kFloat64:
      return describe_float64(r, float32_data);
  }
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
  Request rerun = request;
  Plan plan{};
  plan.kernel = kernel_for(problem, out);
  describe(plan.kernel, request, problem, limits);
  plan.main = layout_for(request, limits);
  plan.workspace = plan.main.scratch;
  if (!plan.has_rerun()) return plan;
  describe(Kernel::kFloat64, rerun, problem, limits);
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

Metric metric_of(CostKind kind) {
  switch (kind) {
    case CostKind::kEuclidean:
      return Metric::kNorm;
    case CostKind::kL1:
      return Metric::kAbsolute;
    case CostKind::kHuber:
      return Metric::kHuber;
    case CostKind::kSquaredEuclidean:
    case CostKind::kCosine:  // of unit steps
      break;
  }
  return Metric::kSquared;
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
  p.gamma = problem.gamma;
  p.gammas = static_cast<const In*>(problem.gammas);
  p.half = is_cosine(problem) ? 0.5 : 1.0;
  p.vectorized = !problem.cost.data && readable_as_float4(problem.x, problem.dtype, problem.dim) &&
                 readable_as_float4(problem.y, problem.dtype, problem.dim);
  p.band = problem.band;
  p.step_penalty = problem.step_penalty;
  p.metric = metric_of(problem.cost_kind);
  p.subsequence = problem.subsequence;
  p.x_mask = problem.x_mask;
  p.y_mask = problem.y_mask;
  p.grad_gamma = static_cast<In*>(out.grad_gamma);
  p.end_values = static_cast<In*>(out.end_values);
  return p;
}

template <class In>
void exchange_series(Params<In>& p) {
  std::swap(p.x, p.y);
  std::swap(p.x_stride, p.y_stride);
  std::swap(p.x_lengths, p.y_lengths);
  std::swap(p.x_mask, p.y_mask);
  std::swap(p.grad_x, p.grad_y);
  std::swap(p.n, p.m);
}

Status launch(Kernel kernel, const Params<double>& p, bool gradient, cudaStream_t stream) {
  return kernel == Kernel::kHard ? launch_hard(p, gradient, stream) : launch_float64(p, gradient, stream);
}
Status launch(Kernel kernel, const Params<float>& p, bool gradient, cudaStream_t stream) {
  switch (kernel) {
    case Kernel::kFewFeatures:
      return launch_few_features(p, gradient, stream);
    case Kernel::kTiles:
      return launch_tiles(p, gradient, stream);
    case Kernel::kOptions:
      return launch_options(p, gradient, stream);
    case Kernel::kHard:
      return launch_hard(p, gradient, stream);
    case Kernel::kFloat64:
      break;
  }
  return launch_float64(p, gradient, stream);
}

// What a band leaves out is never come by.
template <class In>
Status clear_gradients(const Params<In>& p, cudaStream_t stream) {
  const auto clear = [&](In* data, std::size_t rows, std::size_t columns) {
    if (!data) return Status{};
    return cuda::to_status(cudaMemsetAsync(data, 0, sizeof(In) * p.batch * rows * columns, stream));
  };
  if (Status s = clear(p.grad_x, p.n, p.dim); !s.ok()) return s;
  if (Status s = clear(p.grad_y, p.m, p.dim); !s.ok()) return s;
  return clear(p.alignment, p.n, p.m);
}

template <class In>
Status run_as(const SoftDtwProblem& problem, const SoftDtwOutputs& out, const Plan& plan, void* workspace,
              cudaStream_t stream) {
  Params<In> p = params_for<In>(problem, out);
  if (exchanges_series(problem, out)) exchange_series(p);
  if (p.band.kind != BandKind::kNone) {
    if (Status s = clear_gradients(p, stream); !s.ok()) return s;
  }
  auto* base = static_cast<unsigned char*>(workspace);
  if (plan.has_rerun()) p.uncertified = reinterpret_cast<int*>(base);
  p.scratch = base + plan.flags;
  p.layout = plan.main;
  const Status status = launch(plan.kernel, p, out.wants_gradient(), stream);
  if (!status.ok() || !plan.has_rerun()) return status;
  p.layout = plan.rerun;
  return launch(Kernel::kFloat64, p, out.wants_gradient(), stream);
}

// Of a Euclidean distance the kernels divide E by the cost where gradients of the series are wanted, and then
// no longer have E itself.
bool runs_twice(const SoftDtwProblem& p, const SoftDtwOutputs& out) {
  return !p.cost.data && p.cost_kind == CostKind::kEuclidean && out.alignment && (out.grad_x || out.grad_y);
}
SoftDtwOutputs without_alignment(SoftDtwOutputs out) {
  out.alignment = nullptr;
  return out;
}
SoftDtwOutputs alignment_alone(const SoftDtwOutputs& out) {
  SoftDtwOutputs alone;
  alone.value = out.value;
  alone.alignment = out.alignment;
  return alone;
}

// The problem whose steps have unit length, and where they and their gradients are.
struct UnitProblem {
  SoftDtwProblem problem;
  SoftDtwOutputs out;
  UnitSteps x;
  UnitSteps y;

  UnitProblem(Arena& arena, const SoftDtwProblem& p, const SoftDtwOutputs& wanted)
      : problem(p),
        out(wanted),
        x{p.dtype, p.batch, p.n, p.dim, false, p.x, p.x_lengths, p.x_mask, nullptr},
        y{p.dtype, p.batch, p.m, p.dim, true, p.y, p.y_lengths, p.y_mask, nullptr} {
    problem.dim = unit_features(p.dim);
    problem.x = series(arena, x);
    problem.y = series(arena, y);
    if (wanted.grad_x) out.grad_x = take(arena, x);
    if (wanted.grad_y) out.grad_y = take(arena, y);
  }

 private:
  static void* take(Arena& arena, const UnitSteps& side) {
    const std::size_t elements = static_cast<std::size_t>(side.batch) * side.length * unit_features(side.dim);
    const std::size_t bytes = elements * (side.dtype == DType::kFloat32 ? sizeof(float) : sizeof(double));
    static std::byte measured;  // not null: that is what says whether an output is wanted
    std::byte* const data = arena.take<std::byte>(aligned(bytes));
    return data ? data : &measured;
  }
  static StridedTensor series(Arena& arena, UnitSteps& side) {
    side.units = take(arena, side);
    const std::int64_t features = unit_features(side.dim);
    return {side.units, {side.length * features, features, 1}};
  }
};

std::size_t plain_bytes(const SoftDtwProblem& p, const SoftDtwOutputs& out, int device) {
  if (!runs_twice(p, out)) return plan_for(p, out, device).workspace;
  return std::max(plan_for(p, without_alignment(out), device).workspace,
                  plan_for(p, alignment_alone(out), device).workspace);
}

Status run_plain(const SoftDtwProblem& p, const SoftDtwOutputs& out, void* workspace,
                 const Execution& execution) {
  if (runs_twice(p, out)) {
    const Status status = run_plain(p, without_alignment(out), workspace, execution);
    return status.ok() ? run_plain(p, alignment_alone(out), workspace, execution) : status;
  }
  const Plan plan = plan_for(p, out, execution.cuda_device);
  if (!plan.fits()) {
    return Status::unsupported("execution",
                               "the GPU has too little shared memory: 74 KiB per block are needed");
  }
  const auto stream = static_cast<cudaStream_t>(execution.stream);
  return p.dtype == DType::kFloat32 ? run_as<float>(p, out, plan, workspace, stream)
                                    : run_as<double>(p, out, plan, workspace, stream);
}

Status run_units(const SoftDtwProblem& p, const SoftDtwOutputs& out, void* workspace,
                 const Execution& execution) {
  const auto stream = static_cast<cudaStream_t>(execution.stream);
  Arena arena(workspace);
  const UnitProblem units(arena, p, out);
  if (Status s = make_unit_steps(units.x, stream); !s.ok()) return s;
  if (Status s = make_unit_steps(units.y, stream); !s.ok()) return s;
  auto* const rest = static_cast<std::byte*>(workspace) + aligned(arena.used());
  if (Status s = run_plain(units.problem, units.out, rest, execution); !s.ok()) return s;
  if (out.grad_x) {
    const Status s = from_unit_gradient(units.x, units.out.grad_x, out.grad_x, stream);
    if (!s.ok()) return s;
  }
  return out.grad_y ? from_unit_gradient(units.y, units.out.grad_y, out.grad_y, stream) : Status{};
}

}  // namespace

std::size_t soft_dtw_cuda_workspace_bytes(const SoftDtwProblem& problem, const SoftDtwOutputs& out,
                                          const Execution& execution) {
  if (!is_cosine(problem)) return plain_bytes(problem, out, execution.cuda_device);
  Arena arena;
  const UnitProblem units(arena, problem, out);
  return aligned(arena.used()) + plain_bytes(units.problem, units.out, execution.cuda_device);
}

Status soft_dtw_cuda(const SoftDtwProblem& problem, const SoftDtwOutputs& out, Workspace workspace,
                     const Execution& execution) {
  return is_cosine(problem) ? run_units(problem, out, workspace.data, execution)
                            : run_plain(problem, out, workspace.data, execution);
}

}  // namespace warpalign::detail
