// The CUDA entry points of a library whose CTC has no CUDA path: each is unsupported.
#include "ctc/problem.h"

namespace warpalign::detail::ctc {
namespace {

constexpr Status kNoPath =
    Status::unsupported("execution", "CTC has no CUDA path in this build of warpalign");

}  // namespace

std::size_t saved_bytes_cuda(const CtcProblem&, const Execution&) { return 0; }
std::size_t loss_workspace_bytes_cuda(const CtcProblem&, const CtcOutputs&, const Execution&) { return 0; }
Status loss_cuda(const CtcProblem&, const CtcOutputs&, Workspace, const Execution&) { return kNoPath; }
std::size_t gradient_workspace_bytes_cuda(const CtcProblem&, const CtcGradient&, const Execution&) {
  return 0;
}
Status gradient_cuda(const CtcProblem&, const CtcGradient&, Workspace, const Execution&) { return kNoPath; }
std::size_t posteriors_workspace_bytes_cuda(const CtcProblem&, const CtcPosteriors&, const Execution&) {
  return 0;
}
Status posteriors_cuda(const CtcProblem&, const CtcPosteriors&, Workspace, const Execution&) {
  return kNoPath;
}
std::size_t align_workspace_bytes_cuda(const CtcProblem&, const CtcAlignment&, const Execution&) { return 0; }
Status align_cuda(const CtcProblem&, const CtcAlignment&, Workspace, const Execution&) { return kNoPath; }
std::size_t monotonic_workspace_bytes_cuda(const MonotonicAlignmentProblem&, const MonotonicAlignment&,
                                           const Execution&) {
  return 0;
}
Status monotonic_cuda(const MonotonicAlignmentProblem&, const MonotonicAlignment&, Workspace,
                      const Execution&) {
  return kNoPath;
}

bool kernel_launches_cuda(int /*index*/, KernelLaunches& /*out*/) { return false; }

}  // namespace warpalign::detail::ctc
