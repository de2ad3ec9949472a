// Checks that all of CTC's functions make.
#pragma once

#include <cstddef>
#include <cstdint>

#include "warpalign/ctc.h"
#include "warpalign/monotonic_alignment.h"

namespace warpalign::detail::ctc {

// Bytes of a real number beside elements of dtype.
std::size_t real_size(DType dtype);

// What sizes depend on: extents, dtype, and flags.
Status check_extents(const CtcProblem& problem);
Status check_extents(const MonotonicAlignmentProblem& problem);

// Everything but the outputs. Lengths and labels are looked at on the host alone.
Status check_problem(const CtcProblem& problem, const Execution& execution);
Status check_problem(const MonotonicAlignmentProblem& problem, const Execution& execution);

// A tensor of these extents with strides >= 0, aligned to its elements.
Status check_tensor(const char* name, const void* data, const std::int64_t (&stride)[3], DType dtype);

}  // namespace warpalign::detail::ctc
