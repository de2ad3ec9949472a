// The checks of warpalign/transducer.h's contract that more than one function makes. Each returns an ok
// Status, or the first violation with the argument's name.
#pragma once

#include <cstddef>
#include <cstdint>

#include "warpalign/transducer.h"

namespace warpalign::detail::transducer {

// Bytes of a loss or a score for logits of this type.
std::size_t loss_size(DType dtype);

// TDT's durations: two columns of one duration would share a meaning.
Status check_different(const std::int32_t* durations, std::int32_t count);

// Sizes and types, which workspace sizes follow from: of a lattice, and of logits with their lattice.
Status check_lattice_extents(const TransducerLattice& lattice);
Status check_extents(const TransducerProblem& problem);

// Blank, big blanks, durations and penalties, for logits with so many columns.
Status check_settings(const TransducerLattice& lattice, std::int32_t columns);

// Rows of logits, or of their gradient: there, aligned, with strides of at least 0.
Status check_rows(const char* name, const TransducerProblem& problem, const void* data,
                  const std::int64_t* stride);

// Labels and lengths are there and aligned. On the host their values are checked too, and *rows becomes the
// sum of T_b (U_b + 1). needs_lengths: both must be there.
Status check_lattice(const TransducerLattice& lattice, std::int32_t columns, bool needs_lengths,
                     const Execution& execution, std::int64_t* rows);

// Whether there is a row of logits.
bool has_logits(const TransducerProblem& problem);

// All of a problem.
Status check_problem(const TransducerProblem& problem, const Execution& execution);

}  // namespace warpalign::detail::transducer
