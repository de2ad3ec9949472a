#include "front_end.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <stdexcept>
#include <string>

#include "call_context.h"

namespace warpalign::binding {
namespace {

std::string text_of(ScalarType type, const std::vector<int64_t>& sizes) {
  std::string text = std::string(toString(type)) + " (";
  for (std::size_t axis = 0; axis < sizes.size(); ++axis)
    text += (axis ? ", " : "") + std::to_string(sizes[axis]);
  return text + ")";
}

// Addresses of results that are only described are not null, and nobody reads them.
alignas(64) char no_memory[64];  // NOLINT(cppcoreguidelines-avoid-non-const-global-variables)

}  // namespace

const char* toString(ScalarType type) {
  constexpr const char* kNames[] = {"float64", "float32", "float16", "bfloat16",
                                    "int32",   "int64",   "uint8",   "bool"};
  return kNames[static_cast<int>(type)];
}

std::size_t size_of(ScalarType type) {
  constexpr std::size_t kSizes[] = {8, 4, 2, 2, 4, 8, 1, 1};
  return kSizes[static_cast<int>(type)];
}

int64_t Tensor::stride(int64_t axis) const {
  int64_t stride = 1;
  for (int64_t later = dim() - 1; later > axis; --later) stride *= std::max<int64_t>(size(later), 1);
  return stride;
}

int64_t Tensor::numel() const {
  return std::accumulate(sizes_.begin(), sizes_.end(), int64_t{1}, std::multiplies<>());
}

Tensor shape_only(const Tensor& /*like*/, const int64_t* shape, std::size_t axes, ScalarType dtype) {
  return {dtype, {shape, shape + axes}, no_memory};
}

Tensor new_result(const Tensor& /*like*/, const int64_t* shape, const int64_t* /*strides*/, std::size_t axes,
                  ScalarType dtype) {
  CallContext& context = CallContext::current();
  std::vector<int64_t> sizes(shape, shape + axes);
  if (context.describes) return {dtype, std::move(sizes), no_memory};
  if (context.next_result >= context.results.size()) {
    throw std::logic_error("warpalign: the operator has more results than XLA has given memory for");
  }
  const Tensor& result = context.results[context.next_result++];
  const bool more_bytes = dtype == ScalarType::Byte && axes == 1 && result.dim() == 1 &&
                          result.scalar_type() == ScalarType::Byte && result.size(0) >= sizes[0];
  if (!more_bytes && (result.scalar_type() != dtype || result.sizes() != sizes)) {
    throw std::logic_error("warpalign: result " + std::to_string(context.next_result - 1) + ": expected " +
                           text_of(dtype, sizes) + ", got memory of " +
                           text_of(result.scalar_type(), result.sizes()));
  }
  return result;
}

Scratch::Scratch(std::size_t bytes, const Tensor& /*like*/) : data_(CallContext::current().scratch(bytes)) {}

bool only_describes() { return CallContext::current().describes; }

}  // namespace warpalign::binding
