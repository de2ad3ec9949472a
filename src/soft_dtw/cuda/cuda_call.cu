#include <algorithm>

#include "core/arena.h"
#include "cuda/check.h"
#include "soft_dtw/band.h"
#include "soft_dtw/cuda/cosine.h"
#include "soft_dtw/cuda/cuda_call.h"

namespace warpalign::detail::soft_dtw {
namespace {

bool readable_as_float4(const StridedTensor& t, const SoftDtwProblem& p) {
  return p.dtype == DType::kFloat32 && p.dim % 4 == 0 && t.stride[2] == 1 && t.stride[0] % 4 == 0 &&
         t.stride[1] % 4 == 0 && is_aligned(t.data, 16);
}

Call call_of(const SoftDtwProblem& problem, const SoftDtwTangents* tangents, const SoftDtwOutputs& out,
             const Execution& execution) {
  Call call{};
  call.problem = problem;
  // Kernels that know no band are faster.
  if (holds_everything(problem.band, problem.n, problem.m)) call.problem.band = {};
  call.out = out;
  call.second_order = tangents != nullptr;
  if (tangents) call.tangents = *tangents;
  call.vectorized =
      !problem.cost.data && readable_as_float4(problem.x, problem) && readable_as_float4(problem.y, problem);
  call.may_use_matrix_units = execution.precision != Precision::kHighest &&
                              cuda::attribute(cudaDevAttrComputeCapabilityMajor, execution.cuda_device) >= 8;
  call.three_terms = execution.precision == Precision::kHigh;
  call.batch_invariant = execution.batch_invariant;
  return call;
}

// The kernels divide E by a Euclidean distance where gradients of the series are wanted. They no longer have
// E itself then, and a second launch makes the alignment.
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
      stream_(execution.stream),
      device_status_(cuda::check_device(execution.cuda_device)) {
  if (!device_status_.ok()) return;
  const DeviceLimits device = cuda::limits_of(execution.cuda_device);
  const auto add = [&](const Call& call) { plans_[launches_++] = plan_for(call, device); };
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
  if (!device_status_.ok()) return device_status_;
  for (int k = 0; k < launches_; ++k) {
    if (plans_[k].fits()) continue;
    return Status::unsupported("execution",
                               "the GPU has too little shared memory: 60 KiB per block are needed, and 83 "
                               "KiB for second derivatives");
  }
  return {};
}

std::size_t CudaCall::workspace_bytes() const {
  return unit_bytes_ + std::max(plans_[0].workspace, plans_[1].workspace);
}

Status CudaCall::run(void* workspace) const {
  if (is_cosine(call_.problem)) {
    UnitCalls units(call_);
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
  if (makes_alignment_apart(call_)) {
    const Status status = launch(without_alignment(call_), plans_[0], workspace, stream_);
    return status.ok() ? launch(alignment_alone(call_), plans_[1], workspace, stream_) : status;
  }
  return launch(call_, plans_[0], workspace, stream_);
}

std::size_t workspace_bytes_cuda(const SoftDtwProblem& problem, const SoftDtwTangents* tangents,
                                 const SoftDtwOutputs& out, const Execution& execution) {
  return CudaCall(problem, tangents, out, execution).workspace_bytes();
}

}  // namespace warpalign::detail::soft_dtw
