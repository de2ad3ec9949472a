// Shared by the paths of soft-DTW, and the entry points of the CPU path. Those of the CUDA path are in
// cuda/call/cuda_call.h. api.cpp has checked the arguments; a path checks only what depends on the device.
#pragma once

#include "core/visit_dtype.h"
#include "soft_dtw/metric.h"
#include "warpalign/soft_dtw.h"
#include "warpalign/soft_dtw_sample.h"

namespace warpalign::detail::soft_dtw {

// Pair b's gamma, read on the host.
inline double gamma_of(const SoftDtwProblem& p, int b) {
  if (!p.gammas) return p.gamma;
  return visit_float32_float64(p.dtype, [&](auto type) {
    return static_cast<double>(static_cast<const typename decltype(type)::Type*>(p.gammas)[b]);
  });
}

// Steps of grad_x, or of grad_y, over the whole batch.
inline std::size_t gradient_rows(const SoftDtwProblem& p, bool of_y) {
  if (of_y ? p.y_offsets : p.x_offsets) return static_cast<std::size_t>(of_y ? p.y_steps : p.x_steps);
  return static_cast<std::size_t>(p.batch) * (of_y ? p.m : p.n);
}

inline bool is_cosine(const SoftDtwProblem& p) { return !p.cost.data && p.cost_kind == CostKind::kCosine; }

inline Metric metric_of(CostKind kind) {
  switch (kind) {
    case CostKind::kEuclidean:
      return Metric::kNorm;
    case CostKind::kL1:
      return Metric::kAbsolute;
    case CostKind::kHuber:
      return Metric::kHuber;
    case CostKind::kSquaredEuclidean:
    case CostKind::kCosine:
      break;
  }
  return Metric::kSquared;
}

// Whether the way that the execution names, if it does, can serve the call on a CPU.
Status check_way_cpu(const SoftDtwProblem&, bool second_order, const Execution&);

std::size_t workspace_bytes_cpu(const SoftDtwProblem&, const SoftDtwOutputs&, const Execution&);
Status run_cpu(const SoftDtwProblem&, const SoftDtwOutputs&, Workspace, const Execution&);

std::size_t jvp_workspace_bytes_cpu(const SoftDtwProblem&, const SoftDtwTangents&, const SoftDtwOutputs&,
                                    const Execution&);
Status jvp_cpu(const SoftDtwProblem&, const SoftDtwTangents&, const SoftDtwOutputs&, Workspace,
               const Execution&);

std::size_t sample_workspace_bytes_cpu(const SoftDtwProblem&, const SoftDtwSamples&, const Execution&);
Status sample_cpu(const SoftDtwProblem&, const SoftDtwSamples&, Workspace, const Execution&);

}  // namespace warpalign::detail::soft_dtw
