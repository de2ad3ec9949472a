// Lengths and labels in the integer type that a tensor has, as the core reads them.
#pragma once

#include <optional>
#include <string>

#include "checks.h"
#include "warpalign/integers.h"

namespace warpalign::binding {

inline Integers integers(const Tensor& tensor, const char* name) {
  Integers view;
  view.data = tensor.const_data_ptr();
  if (tensor.scalar_type() == ScalarType::Int) return view;
  if (tensor.scalar_type() != ScalarType::Long) fail(name, "dtype int32 or int64", dtype_of(tensor));
  view.type = IntegerType::kInt64;
  return view;
}

inline Integers lengths_of(const std::optional<Tensor>& lengths, const char* name, const Tensor& first,
                           const char* first_name) {
  if (!lengths) return {};
  check_same_device(*lengths, name, first, first_name);
  if (lengths->dim() != 1 || lengths->size(0) != first.size(0) || !lengths->is_contiguous()) {
    fail(name, "a contiguous tensor (B,) with B = " + std::to_string(first.size(0)), shape_of(*lengths));
  }
  return integers(*lengths, name);
}

inline void check_axes(const Tensor& tensor, const char* name, const char* axes) {
  if (tensor.dim() != 3) fail(name, std::string("3 axes ") + axes, shape_of(tensor));
}

}  // namespace warpalign::binding
