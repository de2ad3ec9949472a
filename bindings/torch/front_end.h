// What the operators of bindings/operators ask of PyTorch: tensors, memory from its allocator, registration.
#pragma once

#include <torch/csrc/stable/accelerator.h>
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

namespace warpalign::binding {

using torch::headeronly::ScalarType;
using torch::headeronly::toString;
using torch::stable::Tensor;
using DeviceGuard = torch::stable::accelerator::DeviceGuard;

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

// A tensor that says a shape and a dtype, without memory for its elements.
inline Tensor shape_only(const Tensor& like, const int64_t* shape, std::size_t axes, ScalarType dtype) {
  const std::vector<int64_t> strides(axes, 0);
  return empty_strided(like, shape, strides.data(), axes, dtype);
}

// A result of the operator that is called, with these strides.
inline Tensor new_result(const Tensor& like, const int64_t* shape, const int64_t* strides, std::size_t axes,
                         ScalarType dtype) {
  return empty_strided(like, shape, strides, axes, dtype);
}

// Scratch memory of a call. Freed memory waits for the work that the stream has been given.
class Scratch {
 public:
  Scratch(std::size_t bytes, const Tensor& like) {
    constexpr int64_t kStride = 1;
    const auto size = static_cast<int64_t>(bytes);
    memory_ = empty_strided(like, &size, &kStride, 1, ScalarType::Byte);
  }
  [[nodiscard]] void* data() const { return memory_.mutable_data_ptr(); }

 private:
  Tensor memory_;
};

// Whether calls only say which results they would write. PyTorch asks Python instead, for tensors without
// data.
inline bool only_describes() { return false; }

}  // namespace warpalign::binding

#define WARPALIGN_SCHEMAS(library) STABLE_TORCH_LIBRARY_FRAGMENT(warpalign, library)
#define WARPALIGN_OPERATORS(library) STABLE_TORCH_LIBRARY_IMPL(warpalign, WARPALIGN_DISPATCH_KEY, library)
#define WARPALIGN_OPERATOR(function) TORCH_BOX(function)
