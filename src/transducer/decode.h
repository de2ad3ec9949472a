// The entry points of the paths of decoding (warpalign/transducer_decode.h), one set per device.
// api_decode.cpp has checked the arguments.
#pragma once

#include "warpalign/transducer_decode.h"

namespace warpalign::detail::transducer {

std::size_t scores_workspace_bytes_cpu(const TransducerScores&, const Execution&);
Status scores_cpu(const TransducerScores&, Workspace, const Execution&);
std::size_t greedy_step_workspace_bytes_cpu(const TransducerGreedyStep&, const Execution&);
Status greedy_step_cpu(const TransducerGreedyStep&, Workspace, const Execution&);
std::size_t beam_step_workspace_bytes_cpu(const TransducerBeamStep&, const Execution&);
Status beam_step_cpu(const TransducerBeamStep&, Workspace, const Execution&);

std::size_t scores_workspace_bytes_cuda(const TransducerScores&, const Execution&);
Status scores_cuda(const TransducerScores&, Workspace, const Execution&);
std::size_t greedy_step_workspace_bytes_cuda(const TransducerGreedyStep&, const Execution&);
Status greedy_step_cuda(const TransducerGreedyStep&, Workspace, const Execution&);
std::size_t beam_step_workspace_bytes_cuda(const TransducerBeamStep&, const Execution&);
Status beam_step_cuda(const TransducerBeamStep&, Workspace, const Execution&);

}  // namespace warpalign::detail::transducer
