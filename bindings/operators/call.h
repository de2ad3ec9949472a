// One call of the core for an operator's tensors: memory from the front end's allocator, the device, and
// errors.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "checks.h"
#include "execution.h"
#include "huge_pages.h"
#include "warpalign/execution.h"
#include "warpalign/status.h"
#include "ways.h"

namespace warpalign::binding {

// A contiguous result of the operator that is called, of like's dtype unless another is named. Operators
// allocate their results in the order in which they return them: a front end may own their memory already.
inline Tensor empty(const Tensor& like, const int64_t* shape, std::size_t axes,
                    std::optional<ScalarType> dtype) {
  constexpr std::size_t kMostAxes = 8;
  if (axes > kMostAxes) throw std::runtime_error("warpalign: a tensor of more than 8 axes");
  int64_t strides[kMostAxes];
  int64_t stride = 1;
  for (std::size_t axis = axes; axis-- > 0; stride *= std::max<int64_t>(shape[axis], 1))
    strides[axis] = stride;
  return new_result(like, shape, strides, axes, dtype.value_or(like.scalar_type()));
}

// The same. A result that is not requested has the shape (0,).
inline Tensor allocate(const Tensor& like, std::initializer_list<int64_t> sizes, bool wanted = true,
                       std::optional<ScalarType> dtype = std::nullopt) {
  constexpr int64_t kNone = 0;
  return wanted ? empty(like, sizes.begin(), sizes.size(), dtype) : empty(like, &kNone, 1, dtype);
}

inline void* data_or_null(const Tensor& tensor, bool wanted) {
  return wanted ? tensor.mutable_data_ptr() : nullptr;
}

// The nearest int32. As a radius it has the same effect; as an enumerator the core rejects it.
inline std::int32_t narrowed(int64_t v) {
  using Limits = std::numeric_limits<std::int32_t>;
  return static_cast<std::int32_t>(std::clamp<int64_t>(v, Limits::min(), Limits::max()));
}

// The enumerator with this number in a schema. The core checks its range.
template <class Enum>
Enum enumerator(int64_t number) {
  return static_cast<Enum>(narrowed(number));  // NOLINT(clang-analyzer-optin.core.EnumCastOutOfRange)
}

// Throws unless the status is ok. An error of an argument has the form of checks.h.
inline void check_status(const Status& status) {
  if (!status.ok()) throw std::runtime_error("warpalign: " + to_string(status));
}

// The status with the operator's name of an argument, if the core has another name for it.
inline Status named(Status status, std::string_view of_core, const char* of_operator) {
  if (std::string_view(status.argument) == of_core) status.argument = of_operator;
  return status;
}

// Runs one call of an operator where `like` lies: asks workspace_bytes(execution), allocates so much, and
// holds the Status of call(workspace, execution) to be ok.
template <class WorkspaceBytes, class Call>
void call_core(Operator of, const Tensor& like, int64_t precision, bool batch_invariant,
               const WorkspaceBytes& workspace_bytes, const Call& call) {
  if (only_describes()) return;
  const Placement placement(like, enumerator<Precision>(precision), batch_invariant);
  Execution execution = placement.execution();
  execution.way = forced_way(of);
  const std::size_t bytes = workspace_bytes(execution);
  const Scratch scratch(bytes, like);
  if (!like.is_cuda()) prefer_huge_pages(scratch.data(), bytes);
  check_status(call(Workspace{scratch.data(), bytes}, execution));
}

}  // namespace warpalign::binding
