// Sampled alignments on a GPU.
#pragma once

#include <cstddef>

#include "warpalign/soft_dtw_sample.h"

namespace warpalign::detail::soft_dtw {

std::size_t sample_workspace_bytes_cuda(const SoftDtwProblem&, const SoftDtwSamples&, const Execution&);
Status sample_cuda(const SoftDtwProblem&, const SoftDtwSamples&, Workspace, const Execution&);

}  // namespace warpalign::detail::soft_dtw
