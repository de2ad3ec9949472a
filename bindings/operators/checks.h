// Checks of the operators' arguments. Messages name the argument, the expected value and the actual one.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>

#include "front_end.h"
#include "warpalign/dtype.h"
#include "warpalign/tensor.h"

namespace warpalign::binding {

[[noreturn]] inline void fail(const std::string& argument, const std::string& expected,
                              const std::string& came) {
  throw std::runtime_error("warpalign: " + argument + ": expected " + expected + ", got " + came);
}

inline std::string shape_of(const Tensor& tensor) {
  std::ostringstream text;
  text << "shape (";
  for (int64_t axis = 0; axis < tensor.dim(); ++axis) text << (axis ? ", " : "") << tensor.size(axis);
  text << ")";
  return text.str();
}

inline std::string dtype_of(const Tensor& tensor) {
  return std::string("dtype ") + toString(tensor.scalar_type());
}

inline void check_same_device(const Tensor& tensor, const char* name, const Tensor& first,
                              const char* first_name) {
  if (tensor.is_cuda() != first.is_cuda() || tensor.get_device_index() != first.get_device_index()) {
    fail(name, std::string("the device of ") + first_name, "another device");
  }
}

inline DType check_table(const Tensor& tensor, const char* name, const char* axes,
                         bool takes_halves = false) {
  if (tensor.dim() != 3) fail(name, std::string("3 axes ") + axes, shape_of(tensor));
  for (int64_t axis = 0; axis < 3; ++axis) {
    const bool fits = tensor.size(axis) <= std::numeric_limits<std::int32_t>::max();
    if (!fits || (axis > 0 && tensor.size(axis) == 0)) {
      fail(name, std::string("every axis of ") + axes + " below 2^31, and none but the batch empty",
           shape_of(tensor));
    }
  }
  if (tensor.scalar_type() == ScalarType::Float) return DType::kFloat32;
  if (tensor.scalar_type() == ScalarType::Double) return DType::kFloat64;
  if (takes_halves && tensor.scalar_type() == ScalarType::Half) return DType::kFloat16;
  if (takes_halves && tensor.scalar_type() == ScalarType::BFloat16) return DType::kBFloat16;
  fail(name, takes_halves ? "dtype float32, float64, float16 or bfloat16" : "dtype float32 or float64",
       dtype_of(tensor));
}

// A tensor of kRank axes as the core's view.
template <int kRank>
StridedTensorOf<kRank> strided(const Tensor& tensor) {
  StridedTensorOf<kRank> view;
  view.data = tensor.const_data_ptr();
  for (int axis = 0; axis < kRank; ++axis) view.stride[axis] = tensor.stride(axis);
  return view;
}

inline const std::int32_t* check_lengths(const std::optional<Tensor>& lengths, const char* name,
                                         const Tensor& first, const char* first_name) {
  if (!lengths) return nullptr;
  check_same_device(*lengths, name, first, first_name);
  if (lengths->scalar_type() != ScalarType::Int) fail(name, "dtype int32", dtype_of(*lengths));
  if (lengths->dim() != 1 || lengths->size(0) != first.size(0) || !lengths->is_contiguous()) {
    fail(name, "a contiguous tensor (B,) with B = " + std::to_string(first.size(0)), shape_of(*lengths));
  }
  return static_cast<const std::int32_t*>(lengths->const_data_ptr());
}

// One number per pair, of first's dtype.
inline const void* check_vector(const Tensor& vector, const char* name, const Tensor& first,
                                const char* first_name) {
  check_same_device(vector, name, first, first_name);
  if (vector.scalar_type() != first.scalar_type()) {
    fail(name, std::string("the dtype of ") + first_name + ", " + dtype_of(first), dtype_of(vector));
  }
  if (vector.dim() != 1 || vector.size(0) != first.size(0) || !vector.is_contiguous()) {
    fail(name, "a contiguous tensor (B,) with B = " + std::to_string(first.size(0)), shape_of(vector));
  }
  return vector.const_data_ptr();
}

inline const std::uint8_t* check_mask(const Tensor& mask, const char* name, const Tensor& series) {
  check_same_device(mask, name, series, "x");
  if (mask.scalar_type() != ScalarType::Bool) fail(name, "dtype bool", dtype_of(mask));
  if (mask.dim() != 2 || mask.size(0) != series.size(0) || mask.size(1) != series.size(1) ||
      !mask.is_contiguous()) {
    fail(name, "a contiguous tensor of the first two axes of the series, which has " + shape_of(series),
         shape_of(mask));
  }
  return static_cast<const std::uint8_t*>(mask.const_data_ptr());
}

}  // namespace warpalign::binding
