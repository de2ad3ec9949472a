// The memory that a round of the gradient may use for the states that it computes again, in bytes. Tests make
// it small.
#pragma once

#include <cstddef>

namespace warpalign::detail::ctc {

inline std::size_t round_budget = std::size_t{32} << 20;

}  // namespace warpalign::detail::ctc
