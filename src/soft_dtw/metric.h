// How a step's cost is made from differences of features.
#pragma once

#include <cstdint>

namespace warpalign::detail::soft_dtw {

// The cosine cost is computed as kSquared of steps of length 1.
enum class Metric : std::int32_t { kSquared, kNorm, kAbsolute, kHuber };

}  // namespace warpalign::detail::soft_dtw
