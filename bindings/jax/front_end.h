// What the operators of bindings/operators ask of JAX: views of XLA's buffers as tensors, results that XLA
// has allocated, scratch memory, registration. None of it includes XLA's headers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "warpalign/execution.h"

namespace warpalign::binding {

// Numbers that Python knows (python/warpalign/jax/_library.py).
enum class ScalarType : std::int8_t { Double, Float, Half, BFloat16, Int, Long, Byte, Bool };

const char* toString(ScalarType type);
std::size_t size_of(ScalarType type);

// A contiguous buffer that XLA owns.
class Tensor {
 public:
  Tensor() = default;
  Tensor(ScalarType type, std::vector<int64_t> sizes, void* data)
      : type_(type), sizes_(std::move(sizes)), data_(data) {}

  [[nodiscard]] ScalarType scalar_type() const { return type_; }
  [[nodiscard]] int64_t dim() const { return static_cast<int64_t>(sizes_.size()); }
  [[nodiscard]] int64_t size(int64_t axis) const { return sizes_[static_cast<std::size_t>(axis)]; }
  [[nodiscard]] int64_t stride(int64_t axis) const;
  [[nodiscard]] int64_t numel() const;
  [[nodiscard]] std::size_t element_size() const { return size_of(type_); }
  [[nodiscard]] const void* const_data_ptr() const { return data_; }
  [[nodiscard]] void* mutable_data_ptr() const { return data_; }
  [[nodiscard]] static bool is_contiguous() { return true; }
  // All buffers of a call lie on one device, of which the library is.
  [[nodiscard]] static constexpr bool is_cuda() { return WARPALIGN_JAX_CUDA != 0; }
  [[nodiscard]] static std::int32_t get_device_index() { return 0; }
  [[nodiscard]] const std::vector<int64_t>& sizes() const { return sizes_; }

 private:
  ScalarType type_ = ScalarType::Float;
  std::vector<int64_t> sizes_;
  void* data_ = nullptr;
};

// A tensor that says a shape and a dtype, without memory for its elements.
Tensor shape_only(const Tensor& like, const int64_t* shape, std::size_t axes, ScalarType dtype);

// The next result of the call that this thread runs, which must have this shape and dtype. Bytes may be more
// than the operator asks for. Results are contiguous.
Tensor new_result(const Tensor& like, const int64_t* shape, const int64_t* strides, std::size_t axes,
                  ScalarType dtype);

// Scratch memory, which the call gives back when it returns.
class Scratch {
 public:
  Scratch(std::size_t bytes, const Tensor& like);
  [[nodiscard]] void* data() const { return data_; }

 private:
  void* data_;
};

// Whether this thread only asks which results an operator has.
bool only_describes();

// On CUDA makes the call's device current during its lifetime; on a CPU has no effect.
class DeviceGuard {
 public:
  explicit DeviceGuard(std::int32_t device);
  ~DeviceGuard();  // NOLINT(performance-trivially-destructible): only a CPU's does nothing
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;

 private:
  std::int32_t previous_;
};

}  // namespace warpalign::binding

#include "registry.h"  // IWYU pragma: export
