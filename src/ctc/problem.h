// The entry points of CTC's paths, one set per device. api.cpp has checked the arguments; a path checks only
// what depends on the device. B >= 1 in every call.
#pragma once

#include "warpalign/ctc.h"
#include "warpalign/kernel_launches.h"
#include "warpalign/monotonic_alignment.h"

namespace warpalign::detail::ctc {

std::size_t saved_bytes_cpu(const CtcProblem&, const Execution&);
std::size_t loss_workspace_bytes_cpu(const CtcProblem&, const CtcOutputs&, const Execution&);
Status loss_cpu(const CtcProblem&, const CtcOutputs&, Workspace, const Execution&);
std::size_t gradient_workspace_bytes_cpu(const CtcProblem&, const CtcGradient&, const Execution&);
Status gradient_cpu(const CtcProblem&, const CtcGradient&, Workspace, const Execution&);
std::size_t posteriors_workspace_bytes_cpu(const CtcProblem&, const CtcPosteriors&, const Execution&);
Status posteriors_cpu(const CtcProblem&, const CtcPosteriors&, Workspace, const Execution&);
std::size_t align_workspace_bytes_cpu(const CtcProblem&, const CtcAlignment&, const Execution&);
Status align_cpu(const CtcProblem&, const CtcAlignment&, Workspace, const Execution&);
std::size_t monotonic_workspace_bytes_cpu(const MonotonicAlignmentProblem&, const MonotonicAlignment&,
                                          const Execution&);
Status monotonic_cpu(const MonotonicAlignmentProblem&, const MonotonicAlignment&, Workspace,
                     const Execution&);

std::size_t saved_bytes_cuda(const CtcProblem&, const Execution&);
std::size_t loss_workspace_bytes_cuda(const CtcProblem&, const CtcOutputs&, const Execution&);
Status loss_cuda(const CtcProblem&, const CtcOutputs&, Workspace, const Execution&);
std::size_t gradient_workspace_bytes_cuda(const CtcProblem&, const CtcGradient&, const Execution&);
Status gradient_cuda(const CtcProblem&, const CtcGradient&, Workspace, const Execution&);
std::size_t posteriors_workspace_bytes_cuda(const CtcProblem&, const CtcPosteriors&, const Execution&);
Status posteriors_cuda(const CtcProblem&, const CtcPosteriors&, Workspace, const Execution&);
std::size_t align_workspace_bytes_cuda(const CtcProblem&, const CtcAlignment&, const Execution&);
Status align_cuda(const CtcProblem&, const CtcAlignment&, Workspace, const Execution&);
std::size_t monotonic_workspace_bytes_cuda(const MonotonicAlignmentProblem&, const MonotonicAlignment&,
                                           const Execution&);
Status monotonic_cuda(const MonotonicAlignmentProblem&, const MonotonicAlignment&, Workspace,
                      const Execution&);

// See ctc_way().
const char* way_cuda(int index);
// See ctc_kernel_launches().
bool kernel_launches_cuda(int index, KernelLaunches& out);

}  // namespace warpalign::detail::ctc
