// The dtypes of floating-point tensors, as the core names them.
#pragma once

#include "checks.h"
#include "warpalign/dtype.h"

namespace warpalign::binding {

inline DType float_dtype(const Tensor& tensor, const char* name) {
  switch (tensor.scalar_type()) {
    case ScalarType::Float:
      return DType::kFloat32;
    case ScalarType::Double:
      return DType::kFloat64;
    case ScalarType::Half:
      return DType::kFloat16;
    case ScalarType::BFloat16:
      return DType::kBFloat16;
    default:
      fail(name, "dtype float64, float32, float16 or bfloat16", dtype_of(tensor));
  }
}

}  // namespace warpalign::binding
