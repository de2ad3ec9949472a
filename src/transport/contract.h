// Checks that the public functions of both headers make.
#pragma once

#include "warpalign/execution.h"
#include "warpalign/sinkhorn.h"
#include "warpalign/status.h"

namespace warpalign::detail::transport {

// Whether there is a problem whose sizes are within their limits.
bool has_sizes(const SinkhornProblem& problem);

// Everything that concerns the problem alone. A build without a CUDA path refuses CUDA executions.
Status check_problem(const SinkhornProblem& problem, const Execution& execution);

// That balanced weights have equal sums: what solves a problem asks, what reads a plan does not.
Status check_sums(const SinkhornProblem& problem, const Execution& execution);

// For functions without a CUDA path.
Status check_on_host(const Execution& execution);

}  // namespace warpalign::detail::transport
