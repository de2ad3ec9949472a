// Host side of the CUDA path: layout of the workspace, choice of the kernel, one or two launches.
//
// float32 runs Cell32 and behind it Cell64, whose blocks look at every pair's flag and recompute only those
// that Cell32 could not certify; float64 runs Cell64 alone, and hard DTW CellHard. What was asked for beyond
// soft-DTW's plain form with squared distances makes it a kernel with so many options.
#include <algorithm>
#include <cmath>
#include <utility>

#include "core/arena.h"
#include "cuda/check.h"
#include "cuda/ragged.h"
#include "soft_dtw/cuda/launch.h"
#include "soft_dtw/cuda/unit_steps.h"
#include "soft_dtw/problem.h"

namespace warpalign::detail::soft_dtw {
namespace {

enum class Kernel { kFewFeatures, kFewFeaturesOptions, kTiles, kTensor, kOptions, kHard, kDual, kFloat64 };

// Where everything is in the workspace. The Cell64 rerun uses the scratch of the Cell32 run, which is over by
// then.
struct Plan {
  Kernel kernel;
  Layout main;
  Layout rerun;           // of Cell32 only
  std::size_t flags;      // bytes, at the start,
  std::size_t order;      // then these, of a ragged batch, and then the scratch
  std::size_t workspace;  // bytes

  [[nodiscard]] bool has_rerun() const { return kernel < Kernel::kHard; }
  [[nodiscard]] bool fits() const { return main.warps > 0 && (!has_rerun() || rerun.warps > 0); }
};

bool is_hard(const SoftDtwProblem& p) { return p.gamma == 0 && !p.gammas; }

Options options_of(const SoftDtwProblem& p, const SoftDtwOutputs& out) {
  const bool other_cost = !p.cost.data && p.cost_kind != CostKind::kSquaredEuclidean && !is_cosine(p);
  if (other_cost || p.x_mask || p.y_mask || p.subsequence || out.grad_gamma) return Options::kAll;
  return p.band.kind != BandKind::kNone || p.step_penalty != 0 ? Options::kPaths : Options::kNone;
}

// One call of one device. tangents: null for first order.
struct Call {
  SoftDtwProblem p;
  SoftDtwOutputs out;
  const SoftDtwTangents* tangents;
  int device;
  cudaStream_t stream;
  Precision precision;
  bool batch_invariant;

  Call(const SoftDtwProblem& problem, const SoftDtwTangents* tangents_of, const SoftDtwOutputs& outputs,
       const Execution& execution)
      : p(problem),
        out(outputs),
        tangents(tangents_of),
        device(execution.cuda_device),
        stream(static_cast<cudaStream_t>(execution.stream)),
        precision(execution.precision),
        batch_invariant(execution.batch_invariant) {
    if (holds_everything(p.band, p.n, p.m)) p.band = {};  // and what knows no band is faster
  }
};

bool readable_as_float4(const StridedTensor& t, DType dtype, int dim) {
  return dtype == DType::kFloat32 && dim % 4 == 0 && t.stride[2] == 1 && t.stride[0] % 4 == 0 &&
         t.stride[1] % 4 == 0 && is_aligned(t.data, 16);
}

// Whether products are left to the matrix units: a permission, which needs vectors of features.
bool uses_tensor_cores(const Call& call) {
  const SoftDtwProblem& p = call.p;
  return call.precision != Precision::kHighest && !p.cost.data && p.dim > kMostFeatures &&
         p.dim <= (call.out.wants_gradient() ? kMostTensorGradientFeatures : kMostTensorFeatures) &&
         readable_as_float4(p.x, p.dtype, p.dim) && readable_as_float4(p.y, p.dtype, p.dim) &&
         is_aligned(call.out.grad_x, 16) && is_aligned(call.out.grad_y, 16) &&
         cuda::attribute(cudaDevAttrComputeCapabilityMajor, call.device) >= 8;
}

Kernel kernel_for(const Call& call) {
  const SoftDtwProblem& p = call.p;
  const SoftDtwOutputs& out = call.out;
  if (call.tangents) return Kernel::kDual;
  if (is_hard(p)) return Kernel::kHard;
  if (p.dtype == DType::kFloat64) return Kernel::kFloat64;
  const bool plain = options_of(p, out) == Options::kNone;
  if (plain && uses_tensor_cores(call)) return Kernel::kTensor;
  if (p.cost.data || out.alignment || p.dim > kMostFeatures) return plain ? Kernel::kTiles : Kernel::kOptions;
  return plain ? Kernel::kFewFeatures : Kernel::kFewFeaturesOptions;
}

// Strips lie along the longer series, which gives the most warps something to do, where the problem is
// symmetric: hard DTW prefers one of two equal steps.
bool exchanges_series(const SoftDtwProblem& p, const SoftDtwOutputs& out) {
  const bool symmetric =
      !p.cost.data && !out.alignment && !p.subsequence && !is_hard(p) && p.band.kind != BandKind::kItakura;
  return symmetric && p.n > p.m;
}

// Few pairs are swept from both ends at once, where there is room for all strips of both sweeps.
bool has_room_for_both_ends(const Request& r, int strips_of_multiprocessor, DeviceLimits device) {
  const double sweeps = 2.0 * r.batch * strips_of(r.m, r.columns_per_lane);
  return r.n >= kShortestMeeting && r.batch < device.multiprocessors &&
         sweeps <= static_cast<double>(strips_of_multiprocessor) * device.multiprocessors;
}
// What sweeps from both ends can do: other features sum up grad_y where the caller gets it, in training.
bool may_meet(const Call& call) {
  return !call.batch_invariant && !call.p.cost.data && !call.out.alignment &&
         call.p.dim <= kMostTensorGradientFeatures;
}

int features_for(int dim) { return dim <= 2 ? dim : kMostFeatures; }

void describe_few_features(Request& r, int dim, bool may_meet, DeviceLimits device) {
  r.features = features_for(dim);
  // Wide lanes do more work per instruction of overhead, narrow ones finish a single pair sooner.
  const double warps_of_two = static_cast<double>(r.batch) * strips_of(r.m, 2);
  const bool fills_device = warps_of_two >= 16.0 * device.multiprocessors;
  r.columns_per_lane = r.m <= 32 ? 1 : !r.gradient && fills_device && r.m > 64 ? 4 : 2;
  r.meets = may_meet && r.columns_per_lane == 2 && has_room_for_both_ends(r, kStripsOfMultiprocessor, device);
  if (!r.meets) return soft_dtw::describe_few_features(r);
  // Few strips have more warps each.
  for (const bool tight : {false, true}) {
    r.ahead = true;
    r.tight = tight;
    describe_few_features_meeting(r);
    const int per_strip = shared_bytes_per_warp(r.columns_per_lane, r.cell, r.source);
    const int most = std::min(device.shared_bytes_per_block / per_strip, r.most_strips);
    if (r.gradient && has_room_for_both_ends(r, most, device)) return;
  }
  r.ahead = r.tight = false;
  describe_few_features_meeting(r);
}

// Costs in tiles. A strip that has more warps, or registers, to itself is over sooner: few strips do, and
// those of many features. Bits are the same, but for sums over columns in grad_x.
template <class Describe>
void describe_tiled(Request& r, const Describe& describe, bool on_matrix_units, const Call& call,
                    DeviceLimits device) {
  r.columns_per_lane = 1;
  const auto meets_with = [&](int strips_of_multiprocessor) {
    return may_meet(call) && has_room_for_both_ends(r, strips_of_multiprocessor, device);
  };
  const double strips = static_cast<double>(r.batch) * strips_of(r.m, 1) / device.multiprocessors;
  // Matrix units gain even in two rounds; without them both ends at once are worth more.
  const bool only_small_crews_meet = meets_with(kTiledStrips) && !meets_with(kTiledStripsAhead);
  const bool is_over_sooner = !r.gradient       ? strips <= kTiledStripsAhead
                              : on_matrix_units ? strips <= 2 * kTiledStripsAhead
                                                : strips <= kTiledStripsAhead && !only_small_crews_meet;
  const bool keeps_bits = !r.gradient || !call.batch_invariant;
  r.ahead = r.dim > kMostTensorGradientFeatures || (is_over_sooner && keeps_bits);
  r.meets = meets_with(r.ahead && r.gradient ? kTiledStripsAhead : kTiledStrips);
  describe(r);
  if (!r.ahead || shared_bytes_per_warp(1, r.cell, r.source) <= device.shared_bytes_per_block) return;
  r.ahead = false;
  r.meets = meets_with(kTiledStrips);
  describe(r);
}

void describe(Kernel kernel, Request& r, const Call& call, DeviceLimits device) {
  const SoftDtwProblem& p = call.p;
  const bool float32_data = p.dtype == DType::kFloat32;
  switch (kernel) {
    case Kernel::kFewFeatures:
      return describe_few_features(r, p.dim, may_meet(call), device);
    case Kernel::kFewFeaturesOptions:
      r.features = features_for(p.dim);
      return describe_few_features_options(r);
    case Kernel::kTiles:
      return describe_tiled(r, describe_tiles, false, call, device);
    case Kernel::kTensor:
      return describe_tiled(r, describe_tensor, true, call, device);
    case Kernel::kOptions:
      return describe_options(r);
    case Kernel::kHard:
      return describe_hard(r, float32_data, device.shared_bytes_per_block);
    case Kernel::kDual:
      return describe_dual(r, device.shared_bytes_per_block);
    case Kernel::kFloat64:
      return describe_float64(r, device.shared_bytes_per_block);
  }
}

Plan plan_for(const Call& call) {
  const SoftDtwProblem& problem = call.p;
  const SoftDtwOutputs& out = call.out;
  const DeviceLimits limits{
      cuda::attribute(cudaDevAttrMultiProcessorCount, call.device),
      cuda::attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin, call.device) - cuda::kStaticSharedBytes};
  Request request{};
  request.batch = problem.batch;
  request.n = problem.n;
  request.m = problem.m;
  request.dim = problem.dim;
  request.gradient = out.wants_gradient();
  if (exchanges_series(problem, out)) std::swap(request.n, request.m);
  Request rerun = request;
  Plan plan{};
  plan.kernel = kernel_for(call);
  request.options = options_of(problem, out);
  describe(plan.kernel, request, call, limits);
  plan.main = layout_for(request, limits);
  const Layout& main = plan.main;
  const bool is_ragged = problem.x_lengths || problem.y_lengths;
  // Where every pair is taken right away there is nothing to put in order.
  if (is_ragged && !main.tickets && main.grid * main.pairs_per_block < problem.batch)
    plan.order = aligned(sizeof(int) * static_cast<std::size_t>(problem.batch));
  plan.workspace = plan.order + main.scratch;
  if (!plan.has_rerun()) return plan;
  describe(Kernel::kFloat64, rerun, call, limits);
  rerun.rerun = true;
  // Reruns are rare: they make do with the memory that is there, but for one pair's.
  rerun.scratch_limit = plan.main.scratch;
  plan.rerun = layout_for(rerun, limits);
  plan.flags = aligned(sizeof(int) * static_cast<std::size_t>(problem.batch));
  plan.workspace = plan.flags + plan.order + std::max(main.scratch, plan.rerun.scratch);
  return plan;
}

void copy_strides(std::int64_t (&to)[3], const StridedTensor& from, const void*& data) {
  std::copy(from.stride, from.stride + 3, to);
  data = from.data;
}

Params params_for(const Call& call) {
  const SoftDtwProblem& problem = call.p;
  const SoftDtwOutputs& out = call.out;
  Params p{};
  p.is_float64 = problem.dtype == DType::kFloat64;
  copy_strides(p.x_stride, problem.x, p.x);
  copy_strides(p.y_stride, problem.y, p.y);
  copy_strides(p.cost_stride, problem.cost, p.cost);
  if (call.tangents) {
    copy_strides(p.tangents.x_stride, call.tangents->x, p.tangents.x);
    copy_strides(p.tangents.y_stride, call.tangents->y, p.tangents.y);
    copy_strides(p.tangents.cost_stride, call.tangents->cost, p.tangents.cost);
  }
  p.x_lengths = problem.x_lengths;
  p.y_lengths = problem.y_lengths;
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
  p.scale = is_hard(problem) ? 1.0 : scale_for(problem.gamma, p.half);
  p.vectorized = !problem.cost.data && readable_as_float4(problem.x, problem.dtype, problem.dim) &&
                 readable_as_float4(problem.y, problem.dtype, problem.dim);
  p.three_terms = call.precision == Precision::kHigh;
  p.band = problem.band;
  p.step_penalty = problem.step_penalty;
  p.metric = metric_of(problem.cost_kind);
  p.subsequence = problem.subsequence;
  p.x_mask = problem.x_mask;
  p.y_mask = problem.y_mask;
  p.grad_gamma = out.grad_gamma;
  p.end_values = out.end_values;
  return p;
}

void exchange_series(Params& p) {
  std::swap(p.x, p.y);
  std::swap(p.x_stride, p.y_stride);
  std::swap(p.tangents.x, p.tangents.y);
  std::swap(p.tangents.x_stride, p.tangents.y_stride);
  std::swap(p.x_lengths, p.y_lengths);
  std::swap(p.x_mask, p.y_mask);
  std::swap(p.grad_x, p.grad_y);
  std::swap(p.n, p.m);
}

Status launch(Kernel kernel, const Params& p, bool gradient, cudaStream_t stream) {
  switch (kernel) {
    case Kernel::kFewFeatures:
      return p.layout.meets ? launch_few_features_meeting(p, gradient, stream)
                            : launch_few_features(p, gradient, stream);
    case Kernel::kFewFeaturesOptions:
      return launch_few_features_options(p, gradient, stream);
    case Kernel::kTiles:
      return launch_tiles(p, gradient, stream);
    case Kernel::kTensor:
      return launch_tensor(p, gradient, stream);
    case Kernel::kOptions:
      return launch_options(p, gradient, stream);
    case Kernel::kHard:
      return launch_hard(p, gradient, stream);
    case Kernel::kDual:
      return launch_dual(p, gradient, stream);
    case Kernel::kFloat64:
      break;
  }
  return launch_float64(p, gradient, stream);
}

// What a band leaves out is never come by.
Status clear_gradients(const Params& p, cudaStream_t stream) {
  const std::size_t pairs = p.batch;
  const auto clear = [&](void* data, std::size_t rows, std::size_t columns) {
    if (!data) return Status{};
    const std::size_t bytes = pairs * rows * columns * (p.is_float64 ? sizeof(double) : sizeof(float));
    return cuda::to_status(cudaMemsetAsync(data, 0, bytes, stream));
  };
  if (Status s = clear(p.grad_x, p.n, p.dim); !s.ok()) return s;
  if (Status s = clear(p.grad_y, p.m, p.dim); !s.ok()) return s;
  return clear(p.alignment, p.n, p.m);
}

Status run_plan(const Call& call, const Plan& plan, void* workspace) {
  Params p = params_for(call);
  if (exchanges_series(call.p, call.out)) exchange_series(p);
  if (p.band.kind != BandKind::kNone) {
    if (Status s = clear_gradients(p, call.stream); !s.ok()) return s;
  }
  auto* base = static_cast<unsigned char*>(workspace);
  if (plan.has_rerun()) p.uncertified = reinterpret_cast<int*>(base);
  p.scratch = base + plan.flags + plan.order;
  if (plan.order > 0) {
    int* const order = reinterpret_cast<int*>(base + plan.flags);
    auto* const counter = reinterpret_cast<int*>(p.scratch);
    const SoftDtwProblem& problem = call.p;
    if (Status s = cuda::find_longest_first({problem.x_lengths, problem.n}, {problem.y_lengths, problem.m},
                                            problem.batch, order, counter, call.stream);
        !s.ok()) {
      return s;
    }
    p.order = order;
  }
  p.layout = plan.main;
  const bool gradient = call.out.wants_gradient();
  const Status status = launch(plan.kernel, p, gradient, call.stream);
  if (!status.ok() || !plan.has_rerun()) return status;
  p.layout = plan.rerun;
  p.order = nullptr;
  return launch(Kernel::kFloat64, p, gradient, call.stream);
}

// Of a Euclidean distance the kernels divide E by the cost where gradients of the series are wanted, and then
// no longer have E itself.
bool runs_twice(const Call& call) {
  const bool is_norm = !call.p.cost.data && call.p.cost_kind == CostKind::kEuclidean;
  return is_norm && call.out.alignment && (call.out.grad_x || call.out.grad_y);
}
Call without_alignment(Call call) {
  call.out.alignment = nullptr;
  return call;
}
Call alignment_alone(Call call) {
  call.out.grad_x = call.out.grad_y = call.out.grad_gamma = call.out.end_values = nullptr;
  return call;
}

// Enough whichever kernel the outputs' addresses, which need not be known yet, will call for.
std::size_t planned_bytes(Call call) {
  const std::size_t bytes = plan_for(call).workspace;
  if (call.precision == Precision::kHighest) return bytes;
  call.precision = Precision::kHighest;
  return std::max(bytes, plan_for(call).workspace);
}

std::size_t plain_bytes(const Call& call) {
  if (!runs_twice(call)) return planned_bytes(call);
  return std::max(planned_bytes(without_alignment(call)), planned_bytes(alignment_alone(call)));
}

Status run_plain(const Call& call, void* workspace) {
  if (runs_twice(call)) {
    const Status status = run_plain(without_alignment(call), workspace);
    return status.ok() ? run_plain(alignment_alone(call), workspace) : status;
  }
  const Plan plan = plan_for(call);
  if (!plan.fits()) {
    return Status::unsupported("execution",
                               "the GPU has too little shared memory: 60 KiB per block are needed, and 83 "
                               "KiB for second derivatives");
  }
  return run_plan(call, plan, workspace);
}

// A call for the cosine: the one whose steps have unit length, and where they and their gradients are.
struct UnitCall {
  Call call;
  UnitSteps x;
  UnitSteps y;
  SoftDtwTangents unit_tangents;
  SoftDtwOutputs first_order;  // of the units, which their second order needs besides
  std::byte* rest;             // of the workspace
  std::size_t bytes;           // before the rest

  UnitCall(const Call& of, void* workspace)
      : call(of),
        x{of.p.dtype, of.p.batch, of.p.n, of.p.dim, false, of.p.x, of.p.x_lengths, of.p.x_mask, nullptr},
        y{of.p.dtype, of.p.batch, of.p.m, of.p.dim, true, of.p.y, of.p.y_lengths, of.p.y_mask, nullptr} {
    Arena arena = workspace ? Arena(workspace) : Arena();
    call.p.dim = unit_features(of.p.dim);
    call.p.x = series(x.units = take(arena, x), x);
    call.p.y = series(y.units = take(arena, y), y);
    if (of.out.grad_x) call.out.grad_x = take(arena, x);
    if (of.out.grad_y) call.out.grad_y = take(arena, y);
    if (of.tangents) {
      x.tangents = of.tangents->x;
      y.tangents = of.tangents->y;
      unit_tangents.x = series(x.unit_tangents = take(arena, x), x);
      unit_tangents.y = series(y.unit_tangents = take(arena, y), y);
      call.tangents = &unit_tangents;
      first_order.value = arena.take<double>(of.p.batch);
      if (of.out.grad_x) first_order.grad_x = take(arena, x);
      if (of.out.grad_y) first_order.grad_y = take(arena, y);
    }
    bytes = aligned(arena.used());
    rest = static_cast<std::byte*>(workspace) + bytes;
  }
  UnitCall(const UnitCall&) = delete;  // call points to unit_tangents
  UnitCall& operator=(const UnitCall&) = delete;

  [[nodiscard]] bool needs_first_order() const { return first_order.grad_x || first_order.grad_y; }
  [[nodiscard]] Call of_first_order() const {
    Call first = call;
    first.tangents = nullptr;
    first.out = first_order;
    return first;
  }

 private:
  static void* take(Arena& arena, const UnitSteps& side) {
    const std::size_t elements = static_cast<std::size_t>(side.batch) * side.length * unit_features(side.dim);
    const std::size_t size = elements * (side.dtype == DType::kFloat32 ? sizeof(float) : sizeof(double));
    static std::byte measured;  // not null: that is what says whether an output is wanted
    std::byte* const data = arena.take<std::byte>(aligned(size));
    return data ? data : &measured;
  }
  static StridedTensor series(const void* data, const UnitSteps& side) {
    const std::int64_t features = unit_features(side.dim);
    return {data, {side.length * features, features, 1}};
  }
};

std::size_t unit_bytes(const Call& call) {
  const UnitCall units(call, nullptr);
  const std::size_t first = units.needs_first_order() ? plain_bytes(units.of_first_order()) : 0;
  return units.bytes + std::max(first, plain_bytes(units.call));
}

Status run_units(const Call& call, void* workspace) {
  const UnitCall units(call, workspace);
  if (Status s = make_unit_steps(units.x, call.stream); !s.ok()) return s;
  if (Status s = make_unit_steps(units.y, call.stream); !s.ok()) return s;
  if (units.needs_first_order()) {
    if (Status s = run_plain(units.of_first_order(), units.rest); !s.ok()) return s;
  }
  if (Status s = run_plain(units.call, units.rest); !s.ok()) return s;
  const auto back = [&](const UnitSteps& side, const void* first, const void* found, void* to) {
    if (!to) return Status{};
    return call.tangents ? from_unit_tangent(side, first, found, to, call.stream)
                         : from_unit_gradient(side, found, to, call.stream);
  };
  const SoftDtwOutputs& first = units.first_order;
  if (Status s = back(units.x, first.grad_x, units.call.out.grad_x, call.out.grad_x); !s.ok()) return s;
  return back(units.y, first.grad_y, units.call.out.grad_y, call.out.grad_y);
}

std::size_t bytes_of(const Call& call) { return is_cosine(call.p) ? unit_bytes(call) : plain_bytes(call); }

Status run(const Call& call, void* workspace) {
  return is_cosine(call.p) ? run_units(call, workspace) : run_plain(call, workspace);
}

}  // namespace

std::size_t workspace_bytes_cuda(const SoftDtwProblem& problem, const SoftDtwOutputs& out,
                                 const Execution& execution) {
  return bytes_of(Call(problem, nullptr, out, execution));
}
Status run_cuda(const SoftDtwProblem& problem, const SoftDtwOutputs& out, Workspace workspace,
                const Execution& execution) {
  return run(Call(problem, nullptr, out, execution), workspace.data);
}

std::size_t jvp_workspace_bytes_cuda(const SoftDtwProblem& problem, const SoftDtwTangents& tangents,
                                     const SoftDtwOutputs& out, const Execution& execution) {
  return bytes_of(Call(problem, &tangents, out, execution));
}
Status jvp_cuda(const SoftDtwProblem& problem, const SoftDtwTangents& tangents, const SoftDtwOutputs& out,
                Workspace workspace, const Execution& execution) {
  return run(Call(problem, &tangents, out, execution), workspace.data);
}

}  // namespace warpalign::detail::soft_dtw
