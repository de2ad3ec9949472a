// Checks that are common to the public functions of both headers.
#pragma once

#include "warpalign/execution.h"
#include "warpalign/sinkhorn.h"
#include "warpalign/status.h"

namespace warpalign::detail::transport {

// Whether the batch is not empty and the sizes are within their limits.
bool has_sizes(const SinkhornProblem& problem);

// Checks everything that concerns only the problem. A build without a CUDA path refuses CUDA executions.
Status check_problem(const SinkhornProblem& problem, const Execution& execution);

// Checks that balanced weights have equal sums. For functions that solve a problem, not for those that read a
// plan.
Status check_sums(const SinkhornProblem& problem, const Execution& execution);

}  // namespace warpalign::detail::transport
