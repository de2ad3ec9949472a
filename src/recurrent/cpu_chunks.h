// The CPU path of LstmProblem::recompute: the backward pass runs both passes of a chunk of steps at a time.
#pragma once

#include "recurrent/problem.h"

namespace warpalign::detail::recurrent {

// Bytes of the states before chunks, which are in the tape's place.
std::size_t kept_state_bytes(const LstmProblem&);
// backward_workspace_bytes_cpu() and backward_cpu() of such a problem.
std::size_t backward_by_chunks_bytes(const LstmProblem&, const LstmGradients&, const Execution&);
Status backward_by_chunks(const LstmProblem&, const LstmKept&, const LstmIncoming&, const LstmGradients&,
                          Workspace, const Execution&);

}  // namespace warpalign::detail::recurrent
