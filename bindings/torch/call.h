// One call of the core for an operator's tensors: memory from torch's allocator, the device, and errors.
#pragma once

#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include <algorithm>
#include <cmath>
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
#include "warpalign/execution.h"
#include "warpalign/status.h"
#include "ways.h"

namespace warpalign::torch_binding {

// Raised in torch's own words, which trainers that look for a smaller batch search for. Torch's C functions
// return a code in place of its exception, so this is a RuntimeError and not a torch.OutOfMemoryError.
[[noreturn]] inline void raise_out_of_memory(bool on_gpu, const int64_t* shape, const int64_t* strides,
                                             std::size_t axes, ScalarType dtype) {
  std::string sizes;
  double elements = 1;  // to the last one that the strides reach
  for (std::size_t axis = 0; axis < axes; ++axis) {
    sizes += (axis > 0 ? ", " : "") + std::to_string(shape[axis]);
    elements += static_cast<double>(shape[axis] - 1) * static_cast<double>(strides[axis]);
  }
  const double mib =
      elements * static_cast<double>(aoti_torch_dtype_element_size(static_cast<int32_t>(dtype))) / (1 << 20);
  throw std::runtime_error(
      std::string(on_gpu ? "CUDA out of memory. " : "DefaultCPUAllocator: can't allocate memory: ") +
      "warpalign tried to allocate " + std::to_string(std::llround(mib)) + " MiB for a tensor of shape (" +
      sizes + "): use a smaller batch or shorter sequences");
}

// An uninitialised tensor of like's device. Torch's C function costs a third of torch::stable::new_empty,
// which looks its operator up by name in every call.
inline Tensor empty_strided(const Tensor& like, const int64_t* shape, const int64_t* strides,
                            std::size_t axes, ScalarType dtype) {
  int32_t device = 0;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_device_type(like.get(), &device));
  AtenTensorHandle made = nullptr;
  if (aoti_torch_empty_strided(static_cast<int64_t>(axes), shape, strides, static_cast<int32_t>(dtype),
                               device, like.get_device_index(), &made) != AOTI_TORCH_SUCCESS)
    raise_out_of_memory(device == aoti_torch_device_type_cuda(), shape, strides, axes, dtype);
  return Tensor(made);
}

// The same, contiguous, and of like's dtype unless another is named. An output that is not requested has the
// shape (0,).
inline Tensor empty(const Tensor& like, const int64_t* shape, std::size_t axes,
                    std::optional<ScalarType> dtype) {
  constexpr std::size_t kMostAxes = 8;
  STD_TORCH_CHECK(axes <= kMostAxes, "warpalign: a tensor of more than 8 axes");
  int64_t strides[kMostAxes];
  int64_t stride = 1;
  for (std::size_t axis = axes; axis-- > 0; stride *= std::max<int64_t>(shape[axis], 1))
    strides[axis] = stride;
  return empty_strided(like, shape, strides, axes, dtype.value_or(like.scalar_type()));
}

inline Tensor allocate(const Tensor& like, std::initializer_list<int64_t> sizes, bool wanted = true,
                       std::optional<ScalarType> dtype = std::nullopt) {
  constexpr int64_t kNone = 0;
  return wanted ? empty(like, sizes.begin(), sizes.size(), dtype) : empty(like, &kNone, 1, dtype);
}

inline void* data_or_null(const Tensor& tensor, bool wanted) {
  return wanted ? tensor.mutable_data_ptr() : nullptr;
}

inline Tensor workspace_of(std::size_t bytes, const Tensor& like) {
  return allocate(like, {static_cast<int64_t>(bytes)}, true, ScalarType::Byte);
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
  const Placement placement(like, enumerator<Precision>(precision), batch_invariant);
  Execution execution = placement.execution();
  execution.way = forced_way(of);
  const std::size_t bytes = workspace_bytes(execution);
  const Tensor workspace = workspace_of(bytes, like);
  check_status(call(Workspace{workspace.mutable_data_ptr(), bytes}, execution));
}

}  // namespace warpalign::torch_binding
