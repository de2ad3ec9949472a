// Checks of a soft-DTW problem that several public functions make.
#pragma once

#include <algorithm>
#include <cstddef>

#include "warpalign/soft_dtw.h"

namespace warpalign::detail::soft_dtw {

// Sizes alone.
Status check_extents(const SoftDtwProblem& p);
// The execution, and all of the problem that holds for an empty batch too.
Status check_settings(const SoftDtwProblem& p, const Execution& execution);
// Which data there are, lengths, gammas, and whether the band holds a path. The batch is not empty.
Status check_data(const SoftDtwProblem& p, const Execution& execution);
// Every input's strides and alignment; a null pointer has neither.
Status check_inputs(const SoftDtwProblem& p, const SoftDtwTangents& tangents);

// Bytes of an element of an output, and of gammas: those of float32 if the series have a half type.
inline std::size_t result_size(const SoftDtwProblem& p) {
  return std::max(size_of(p.dtype), size_of(DType::kFloat32));
}

}  // namespace warpalign::detail::soft_dtw
