// The sizes of what first calls save for second calls, as text: for front ends whose sizes are symbols. The
// functions ..._most_saved_bytes() compute the very same expressions.
#pragma once

#include "warpalign/transducer.h"

namespace warpalign {

// transducer_most_saved_bytes() as an expression of integers with +, *, /, which rounds down, parentheses,
// and least(p, q). b, t, s: batch, frames and states of the lattice; rows: b t s, or TransducerProblem's
// packed_rows; arcs: transducer_arcs(); size: 8 for float64, else 4.
const char* transducer_saved_formula(bool packed);
// Numbers that a node keeps. Looks at kind, durations and duration of the lattice.
int transducer_arcs(const TransducerLattice& lattice);

// ctc_most_saved_bytes() in the same form, with most(p, q). b, t, u: batch, frames, labels; root: the square
// root of t, rounded up; wide: 2 for float64, else 1.
const char* ctc_saved_formula();

}  // namespace warpalign
