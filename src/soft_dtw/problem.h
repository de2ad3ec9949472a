// What the soft-DTW paths share: the entry points behind warpalign::soft_dtw, one pair per device. Arguments
// have been checked by api.cpp; a path checks only what it alone can know.
#pragma once

#include "warpalign/soft_dtw.h"

namespace warpalign::detail {

std::size_t soft_dtw_cpu_workspace_bytes(const SoftDtwProblem&, const SoftDtwOutputs&, const Execution&);
Status soft_dtw_cpu(const SoftDtwProblem&, const SoftDtwOutputs&, Workspace, const Execution&);

std::size_t soft_dtw_cuda_workspace_bytes(const SoftDtwProblem&, const SoftDtwOutputs&, const Execution&);
Status soft_dtw_cuda(const SoftDtwProblem&, const SoftDtwOutputs&, Workspace, const Execution&);

}  // namespace warpalign::detail
