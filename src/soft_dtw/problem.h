// What the soft-DTW paths share: the entry points behind warpalign::soft_dtw, one pair per device. Arguments
// have been checked by api.cpp; a path checks only what it alone can know.
#pragma once

#include "warpalign/soft_dtw.h"

namespace warpalign::detail {

// Pair b's gamma, on the host.
inline double gamma_of(const SoftDtwProblem& p, int b) {
  if (!p.gammas) return p.gamma;
  return p.dtype == DType::kFloat32 ? static_cast<double>(static_cast<const float*>(p.gammas)[b])
                                    : static_cast<const double*>(p.gammas)[b];
}

std::size_t soft_dtw_cpu_workspace_bytes(const SoftDtwProblem&, const SoftDtwOutputs&, const Execution&);
Status soft_dtw_cpu(const SoftDtwProblem&, const SoftDtwOutputs&, Workspace, const Execution&);

std::size_t soft_dtw_jvp_cpu_workspace_bytes(const SoftDtwProblem&, const SoftDtwTangents&,
                                             const SoftDtwOutputs&, const Execution&);
Status soft_dtw_jvp_cpu(const SoftDtwProblem&, const SoftDtwTangents&, const SoftDtwOutputs&, Workspace,
                        const Execution&);

std::size_t soft_dtw_cuda_workspace_bytes(const SoftDtwProblem&, const SoftDtwOutputs&, const Execution&);
Status soft_dtw_cuda(const SoftDtwProblem&, const SoftDtwOutputs&, Workspace, const Execution&);

std::size_t soft_dtw_jvp_cuda_workspace_bytes(const SoftDtwProblem&, const SoftDtwTangents&,
                                              const SoftDtwOutputs&, const Execution&);
Status soft_dtw_jvp_cuda(const SoftDtwProblem&, const SoftDtwTangents&, const SoftDtwOutputs&, Workspace,
                         const Execution&);

}  // namespace warpalign::detail
