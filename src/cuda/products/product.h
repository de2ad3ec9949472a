// Products of matrices on the device: the caller's (Execution::matrix_product), or a kernel of this library.
#pragma once

#include "warpalign/execution.h"
#include "warpalign/status.h"

namespace warpalign::cuda {

// Extents may be 0: a product of depth 0 is 0.
Status multiply(const MatrixProductCall& call, const Execution& execution);

}  // namespace warpalign::cuda
