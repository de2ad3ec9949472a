// The checks of warpalign/transducer.h's contract that more than one function makes. Each returns an ok
// Status, or the first violation with the argument's name.
#pragma once

#include <cstddef>
#include <cstdint>

#include "warpalign/transducer.h"

namespace warpalign::detail::transducer {

// Bytes of a loss or a score for logits of this type.
std::size_t loss_size(DType dtype);

// TDT's durations must be different.
Status check_different(const std::int32_t* durations, std::int32_t count);

// Check the sizes and types that determine workspace sizes: of a lattice, and of logits with their lattice.
Status check_lattice_extents(const TransducerLattice& lattice);
Status check_extents(const TransducerProblem& problem);

// Checks blank, big blanks, durations and penalties, for logits with this number of columns.
Status check_settings(const TransducerLattice& lattice, std::int32_t columns);

// Checks rows of logits, or of their gradient: not null, aligned, with strides >= 0.
Status check_rows(const char* name, const TransducerProblem& problem, const void* data,
                  const std::int64_t* stride);

// Checks that labels and lengths are not null and aligned. In host memory their values are checked too, and
// *rows is set to the sum of T_b (U_b + 1). needs_lengths: neither length may be null.
Status check_lattice(const TransducerLattice& lattice, std::int32_t columns, bool needs_lengths,
                     const Execution& execution, std::int64_t* rows);

// Whether there is a row of logits.
bool has_logits(const TransducerProblem& problem);

// All checks of a problem.
Status check_problem(const TransducerProblem& problem, const Execution& execution);

}  // namespace warpalign::detail::transducer
