// Checks that are common to all functions of CTC.
#pragma once

#include <cstddef>
#include <cstdint>

#include "warpalign/ctc.h"
#include "warpalign/monotonic_alignment.h"

namespace warpalign::detail::ctc {

// Bytes of a real number (loss, prior) of a call whose logits have this dtype.
std::size_t real_size(DType dtype);

// Checks everything that sizes depend on: extents, dtype and flags.
Status check_extents(const CtcProblem& problem);
Status check_extents(const MonotonicAlignmentProblem& problem);

// Where a call has its logits: as the problem names them, or in an argument of its own.
enum class Logits { kOfProblem, kElsewhere };

// Checks everything but the outputs. Values of lengths and labels are checked if they are in host memory.
Status check_problem(const CtcProblem& problem, const Execution& execution,
                     Logits logits = Logits::kOfProblem);
Status check_problem(const MonotonicAlignmentProblem& problem, const Execution& execution);

// A tensor of these extents with strides >= 0, aligned to its elements.
Status check_tensor(const char* name, const void* data, const std::int64_t (&stride)[3], DType dtype);

}  // namespace warpalign::detail::ctc
