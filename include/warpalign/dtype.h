// Element types of the core. Half precisions are widened by the front ends: no operator accumulates below
// float32.
#pragma once

#include <cstddef>

namespace warpalign {

enum class DType { kFloat32, kFloat64 };

constexpr std::size_t size_of(DType dtype) { return dtype == DType::kFloat32 ? 4 : 8; }

}  // namespace warpalign
