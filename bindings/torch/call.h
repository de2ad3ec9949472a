// From an operator's tensors to one call of the core: memory from torch's allocator, the device, the outcome.
#pragma once

#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "checks.h"
#include "execution.h"
#include "warpalign/execution.h"
#include "warpalign/status.h"

namespace warpalign::torch_binding {

// An uninitialised contiguous tensor of like's device, and of its dtype unless another is named. An output
// that is not wanted has the shape (0,).
inline Tensor allocate(const Tensor& like, std::initializer_list<int64_t> sizes, bool wanted = true,
                       std::optional<ScalarType> dtype = std::nullopt) {
  const std::vector<int64_t> shape = wanted ? std::vector<int64_t>(sizes) : std::vector<int64_t>{0};
  return torch::stable::new_empty(like, shape, dtype);
}

inline void* data_or_null(const Tensor& tensor, bool wanted) {
  return wanted ? tensor.mutable_data_ptr() : nullptr;
}

inline Tensor workspace_of(std::size_t bytes, const Tensor& like) {
  return allocate(like, {static_cast<int64_t>(bytes)}, true, ScalarType::Byte);
}

// The nearest int32: as a radius it means the same, as an enumerator the core refuses it.
inline std::int32_t narrowed(int64_t v) {
  using Limits = std::numeric_limits<std::int32_t>;
  return static_cast<std::int32_t>(std::clamp<int64_t>(v, Limits::min(), Limits::max()));
}

// An enumerator by its number in a schema. The core checks its range.
template <class Enum>
Enum enumerator(int64_t number) {
  return static_cast<Enum>(narrowed(number));  // NOLINT(clang-analyzer-optin.core.EnumCastOutOfRange)
}

// Throws what a status other than ok says: with an argument to blame, in the form of checks.h.
inline void check_status(const Status& status) {
  if (!status.ok()) throw std::runtime_error("warpalign: " + to_string(status));
}

// Runs one call of the core where `like` lies: asks workspace_bytes(execution), allocates so much, and holds
// the Status of call(workspace, execution) to be ok.
template <class WorkspaceBytes, class Call>
void call_core(const Tensor& like, int64_t precision, bool batch_invariant,
               const WorkspaceBytes& workspace_bytes, const Call& call) {
  const Placement placement(like, enumerator<Precision>(precision), batch_invariant);
  const std::size_t bytes = workspace_bytes(placement.execution());
  const Tensor workspace = workspace_of(bytes, like);
  check_status(call(Workspace{workspace.mutable_data_ptr(), bytes}, placement.execution()));
}

}  // namespace warpalign::torch_binding
