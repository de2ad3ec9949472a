// How much memory a round of the gradient may take for the states that it sweeps again. Tests make it small.
#pragma once

#include <cstddef>

namespace warpalign::detail::ctc {

inline std::size_t round_budget = std::size_t{32} << 20;

}  // namespace warpalign::detail::ctc
