// The entry points of decoding (warpalign/ctc_decode.h), one set per device. api_decode.cpp has checked the
// arguments; B >= 1.
#pragma once

#include "warpalign/ctc_decode.h"

namespace warpalign::detail::ctc {

std::size_t greedy_workspace_bytes_cpu(const CtcProblem&, const CtcGreedy&, const Execution&);
Status greedy_cpu(const CtcProblem&, const CtcGreedy&, Workspace, const Execution&);
std::size_t beam_workspace_bytes_cpu(const CtcProblem&, const CtcBeam&, const Execution&);
Status beam_cpu(const CtcProblem&, const CtcBeam&, Workspace, const Execution&);
Status beam_labels_cpu(const CtcBeamLabels&, const Execution&);

std::size_t greedy_workspace_bytes_cuda(const CtcProblem&, const CtcGreedy&, const Execution&);
Status greedy_cuda(const CtcProblem&, const CtcGreedy&, Workspace, const Execution&);
std::size_t beam_workspace_bytes_cuda(const CtcProblem&, const CtcBeam&, const Execution&);
Status beam_cuda(const CtcProblem&, const CtcBeam&, Workspace, const Execution&);
Status beam_labels_cuda(const CtcBeamLabels&, const Execution&);

}  // namespace warpalign::detail::ctc
