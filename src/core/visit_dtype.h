// From a DType to a C++ type: calls a visitor with the type that the elements have on the host.
#pragma once

#include <utility>

#include "core/half.h"
#include "warpalign/dtype.h"

namespace warpalign::detail {

// The argument of a visitor: `[](auto type) { using T = typename decltype(type)::Type; ... }`.
template <class T>
struct ElementType {
  using Type = T;
};

// visitor(ElementType<T>{}) for T = float or double. The operator's checks have refused every other dtype.
template <class Visitor>
decltype(auto) visit_float32_float64(DType dtype, Visitor&& visitor) {
  if (dtype == DType::kFloat64) return std::forward<Visitor>(visitor)(ElementType<double>{});
  return std::forward<Visitor>(visitor)(ElementType<float>{});
}

// visitor(ElementType<T>{}) for T = float, double, Float16 or BFloat16. The dtype must be one of DType's.
template <class Visitor>
decltype(auto) visit_dtype(DType dtype, Visitor&& visitor) {
  switch (dtype) {
    case DType::kFloat16:
      return std::forward<Visitor>(visitor)(ElementType<Float16>{});
    case DType::kBFloat16:
      return std::forward<Visitor>(visitor)(ElementType<BFloat16>{});
    case DType::kFloat32:
    case DType::kFloat64:
      break;
  }
  return visit_float32_float64(dtype, std::forward<Visitor>(visitor));
}

}  // namespace warpalign::detail
