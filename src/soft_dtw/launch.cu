#include "soft_dtw/problem.h"

namespace warpalign::detail {

std::size_t soft_dtw_cuda_workspace_bytes(const SoftDtwProblem&, const SoftDtwOutputs&, const Execution&) {
  return 0;
}

Status soft_dtw_cuda(const SoftDtwProblem&, const SoftDtwOutputs&, Workspace, const Execution&) {
  return Status::unsupported("execution", "the CUDA path is being built");
}

}  // namespace warpalign::detail
