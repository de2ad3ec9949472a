#include <algorithm>

#include "core/arena.h"
#include "core/ways.h"
#include "cuda/launch/check.h"
#include "soft_dtw/band.h"
#include "soft_dtw/cuda/call/cuda_call.h"
#include "soft_dtw/cuda/series/cosine.h"

namespace warpalign::detail::soft_dtw {
namespace {

// Whether four neighbouring features can be read at a time.
bool readable_by_fours(const StridedTensor& t, const SoftDtwProblem& p) {
  return p.dtype != DType::kFloat64 && p.dim % 4 == 0 && t.stride[2] == 1 && t.stride[0] % 4 == 0 &&
         t.stride[1] % 4 == 0 && is_aligned(t.data, 4 * size_of(p.dtype));
}

Call call_of(const SoftDtwProblem& problem, const SoftDtwTangents* tangents, const SoftDtwOutputs& out,
             const Execution& execution) {
  Call call{};
  call.problem = problem;
  call.series_type = problem.dtype;
  if (is_half(problem.dtype)) {
    call.problem.dtype = DType::kFloat32;
    call.widened = HalfSeries::of(problem);
  }
  // Kernels that know no band are faster.
  if (holds_everything(problem.band, problem.n, problem.m)) call.problem.band = {};
  call.out = out;
  call.second_order = tangents != nullptr;
  if (tangents) call.tangents = *tangents;
  call.vectorized =
      !problem.cost.data && readable_by_fours(problem.x, problem) && readable_by_fours(problem.y, problem);
  const DeviceTraits device = cuda::traits_of(execution.cuda_device);
  call.has_matrix_units = device.has_matrix_units &&
                          device.shared_bytes_per_block + cuda::kStaticSharedBytes >= kMostProductBytes;
  call.may_use_matrix_units = call.has_matrix_units && execution.precision != Precision::kHighest;
  call.three_terms = execution.precision != Precision::kMedium;
  call.batch_invariant = execution.batch_invariant;
  // Second derivatives have one way.
  if (const int way = named_way(execution, kWays); way >= 0 && !tangents) call.way = static_cast<Way>(way);
  return call;
}

// For gradients of a Euclidean distance the kernels divide E by the distance, in place. The alignment is then
// made by a second launch.
bool makes_alignment_apart(const Call& call) {
  const bool is_norm = !call.problem.cost.data && metric_of(call.problem.cost_kind) == Metric::kNorm;
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

}  // namespace

CudaCall::CudaCall(const SoftDtwProblem& problem, const SoftDtwTangents* tangents, const SoftDtwOutputs& out,
                   const Execution& execution)
    : call_(call_of(problem, tangents, out, execution)),
      ordinal_(execution.cuda_device),
      stream_(execution.stream),
      status_(cuda::check_device(execution.cuda_device)) {
  if (status_.ok()) status_ = check_way(execution, kWays, "soft_dtw() on CUDA");
  if (!status_.ok()) return;
  const DeviceTraits device = cuda::traits_of(execution.cuda_device);
  const auto add = [&](const Call& call) {
    const int way = call.way ? static_cast<int>(*call.way) : -1;
    const auto reason = [&](int of) { return why_not(static_cast<Way>(of), call, device); };
    if (status_.ok()) status_ = check_serves(way, kWays, reason);
    if (status_.ok()) plans_[launches_++] = plan_for(call, device);
  };
  if (is_cosine(problem)) {
    const UnitCalls units(call_);
    unit_bytes_ = units.workspace_bytes();
    if (units.needs_first_order()) add(units.first_order());
    add(units.main());
  } else if (makes_alignment_apart(call_)) {
    add(without_alignment(call_));
    add(alignment_alone(call_));
  } else {
    add(call_);
  }
}

Status CudaCall::check() const {
  if (!status_.ok()) return status_;
  for (int k = 0; k < launches_; ++k) {
    if (plans_[k].fits()) continue;
    return Status::unsupported("execution",
                               "the GPU has too little shared memory: 60 KiB per block are needed, and 83 "
                               "KiB for second derivatives");
  }
  return {};
}

std::size_t CudaCall::workspace_bytes() const {
  return widened_bytes() + unit_bytes_ + std::max(plans_[0].workspace, plans_[1].workspace);
}

std::size_t CudaCall::widened_bytes(bool of_x_alone) const {
  const SoftDtwProblem& p = call_.problem;
  if (!is_half(call_.series_type)) return 0;
  const auto bytes = [&](bool of_y) { return aligned(sizeof(float) * gradient_rows(p, of_y) * p.dim); };
  return bytes(false) + (of_x_alone ? 0 : bytes(true));
}

Status CudaCall::run(void* workspace) const {
  if (PlanLog* const log = PlanLog::current()) describe(*log);
  if (!is_half(call_.series_type)) return run(call_, workspace);
  auto* const memory = static_cast<unsigned char*>(workspace);
  Call call = call_;
  call.widened.x.widened = reinterpret_cast<float*>(memory);
  call.widened.y.widened = reinterpret_cast<float*>(memory + widened_bytes(true));
  if (!is_cosine(call.problem) && !makes_alignment_apart(call) && reads_halves(call, plans_[0])) {
    return run(call, memory + widened_bytes());
  }
  const Status status = widen_series(call.widened, static_cast<cudaStream_t>(stream_));
  if (!status.ok()) return status;
  call.series_type = DType::kFloat32;
  call.problem.x = call.widened_x();
  call.problem.y = call.widened_y();
  call.vectorized = call.problem.dim % 4 == 0;
  return run(call, memory + widened_bytes());
}

Status CudaCall::run(const Call& call, void* workspace) const {
  if (is_cosine(call.problem)) {
    UnitCalls units(call);
    units.place(workspace);
    const auto stream = static_cast<cudaStream_t>(stream_);
    auto* const rest = static_cast<unsigned char*>(workspace) + unit_bytes_;
    const Plan* plan = plans_;
    if (Status s = units.make_steps(stream); !s.ok()) return s;
    if (units.needs_first_order()) {
      if (Status s = launch(units.first_order(), *plan++, rest, stream_); !s.ok()) return s;
    }
    if (Status s = launch(units.main(), *plan, rest, stream_); !s.ok()) return s;
    return units.make_gradients(stream);
  }
  if (makes_alignment_apart(call)) {
    const Status status = launch(without_alignment(call), plans_[0], workspace, stream_);
    return status.ok() ? launch(alignment_alone(call), plans_[1], workspace, stream_) : status;
  }
  return launch(call, plans_[0], workspace, stream_);
}

const char* way_cuda(int index) { return way_at(kWays, index); }

std::size_t workspace_bytes_cuda(const SoftDtwProblem& problem, const SoftDtwTangents* tangents,
                                 const SoftDtwOutputs& out, const Execution& execution) {
  return CudaCall(problem, tangents, out, execution).workspace_bytes();
}

}  // namespace warpalign::detail::soft_dtw
