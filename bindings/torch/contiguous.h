// Checks of tensors that operators have made themselves.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "checks.h"

namespace warpalign::binding {

// A contiguous tensor of these extents; below 0: any.
inline void check_contiguous(const Tensor& tensor, const char* name, const char* axes,
                             const std::vector<int64_t>& sizes, ScalarType dtype, const Tensor& first,
                             const char* first_name) {
  check_same_device(tensor, name, first, first_name);
  if (tensor.scalar_type() != dtype) {
    fail(name, std::string("dtype ") + torch::headeronly::toString(dtype), dtype_of(tensor));
  }
  bool fits = tensor.dim() == static_cast<int64_t>(sizes.size()) && tensor.is_contiguous();
  for (std::size_t axis = 0; fits && axis < sizes.size(); ++axis) {
    fits = sizes[axis] < 0 || tensor.size(static_cast<int64_t>(axis)) == sizes[axis];
  }
  if (!fits) fail(name, std::string("a contiguous tensor ") + axes, shape_of(tensor));
}

}  // namespace warpalign::binding
