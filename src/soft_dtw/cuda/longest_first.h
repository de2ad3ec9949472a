// The order in which a ragged batch is worked on: long pairs first, so that what is left at the end is short.
#pragma once

#include <cuda_runtime.h>

#include "warpalign/soft_dtw.h"

namespace warpalign::detail::soft_dtw {

// order[0 ... batch-1]: the pairs, by falling n m, to 0.1 % of the largest possible one. *counter becomes 0.
Status find_longest_first(const SoftDtwProblem& problem, int* order, int* counter, cudaStream_t stream);

}  // namespace warpalign::detail::soft_dtw
