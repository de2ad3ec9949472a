// Where a pair's series begins in its tensor, padded or packed: one rule for all paths.
#pragma once

#include <cstdint>

#include "core/anywhere.h"

namespace warpalign::detail::soft_dtw {

// The first element of pair b's series. offsets: the problem's x_offsets or y_offsets, or null.
WARPALIGN_ANYWHERE inline std::int64_t first_element(const std::int64_t* offsets,
                                                     const std::int64_t (&stride)[3], int b) {
  return offsets ? offsets[b] * stride[1] : b * stride[0];
}

// Steps of grad_x or grad_y, counted over the whole batch.
struct GradientSteps {
  std::int64_t first;
  std::int32_t count;
};

// The steps that a pair owns: `padded` ones, or `length` ones, the true length, of packed series.
WARPALIGN_ANYWHERE inline GradientSteps gradient_steps(const std::int64_t* offsets, int b,
                                                       std::int32_t padded, std::int32_t length) {
  if (offsets) return {offsets[b], length};
  return {static_cast<std::int64_t>(b) * padded, padded};
}

}  // namespace warpalign::detail::soft_dtw
