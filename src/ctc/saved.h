// How much ctc_loss() on CUDA may keep for ctc_gradient() to spare it a pass.
#pragma once

#include <cstdint>

#include "warpalign/ctc.h"

namespace warpalign::detail::ctc {

inline constexpr std::int64_t kMostKeptWhole = std::int64_t{32} << 20;

// The bytes of the states at every 16th frame from both ends, and of those that cross between strips of 32
// labels at every frame. A device keeps them if these are at most kMostKeptWhole. The expression is a part of
// ctc_saved_formula(); b, t, u: batch, frames, labels; wide: 2 for float64, else 1.
#define WARPALIGN_CTC_WHOLE (b * t * ((5 * u + 8) / 2) * wide)

inline std::int64_t whole_bytes(const CtcProblem& p) {
  const std::int64_t b = p.batch, t = p.frames, u = p.labels, wide = p.dtype == DType::kFloat64 ? 2 : 1;
  return WARPALIGN_CTC_WHOLE;
}

}  // namespace warpalign::detail::ctc
