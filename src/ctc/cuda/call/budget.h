// The memory that states may use, in bytes. Tests make it small.
#pragma once

#include <cstddef>

namespace warpalign::detail::ctc {

// In a round of the gradient, for the states that it computes again.
inline std::size_t round_budget = std::size_t{32} << 20;
// For all states that the gradient reads, saved by the loss; at most kMostKeptWhole (ctc/saved.h).
inline std::size_t whole_budget = std::size_t{32} << 20;

}  // namespace warpalign::detail::ctc
