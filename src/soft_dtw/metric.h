// The cost of two steps as a function of their features' differences.
#pragma once

#include <cstdint>

namespace warpalign::detail::soft_dtw {

// The cosine cost is computed as kSquared of steps of length 1.
enum class Metric : std::int32_t { kSquared, kNorm, kAbsolute, kHuber };

}  // namespace warpalign::detail::soft_dtw
