// On CUDA the execution is the tensor's device and torch's current stream on it, and torch multiplies.
#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/csrc/inductor/aoti_torch/generated/c_shim_cuda.h>

#include <algorithm>
#include <cstdint>

#include "execution.h"

namespace warpalign::torch_binding {
namespace {

using torch::headeronly::ScalarType;
using torch::stable::Tensor;

ScalarType scalar_type_of(DType dtype) {
  switch (dtype) {
    case DType::kFloat64:
      return ScalarType::Double;
    case DType::kFloat16:
      return ScalarType::Half;
    case DType::kBFloat16:
      return ScalarType::BFloat16;
    case DType::kFloat32:
      break;
  }
  return ScalarType::Float;
}

// Borrows memory that somebody else owns; false: torch refused.
bool matrix_of(const void* data, const int64_t (&sizes)[2], const int64_t (&strides)[2], DType dtype,
               int32_t device, Tensor& to) {
  AtenTensorHandle made = nullptr;
  const auto error = aoti_torch_create_tensor_from_blob(const_cast<void*>(data), 2, sizes, strides, 0,
                                                        static_cast<int32_t>(scalar_type_of(dtype)),
                                                        aoti_torch_device_type_cuda(), device, &made);
  if (error != AOTI_TORCH_SUCCESS) return false;
  to = Tensor(made);
  return true;
}

// cuBLAS by torch.mm, with the user's settings: on the current device and stream, which are the execution's.
bool multiply(void* /*context*/, const MatrixProductCall& call) {
  int32_t device = 0;
  if (aoti_torch_get_current_device_index(&device) != AOTI_TORCH_SUCCESS) return false;
  Tensor a, b, c;
  if (!matrix_of(call.a, {call.rows, call.depth}, call.a_stride, call.dtype, device, a) ||
      !matrix_of(call.b, {call.depth, call.columns}, call.b_stride, call.dtype, device, b) ||
      !matrix_of(call.c, {call.rows, call.columns}, {call.c_stride, 1}, call.dtype, device, c)) {
    return false;
  }
  const auto error = call.add ? aoti_torch_cuda_addmm_out(c.get(), c.get(), a.get(), b.get(), 1.0, 1.0)
                              : aoti_torch_cuda_mm_out(c.get(), a.get(), b.get());
  return error == AOTI_TORCH_SUCCESS;
}

}  // namespace

Placement::Placement(const Tensor& tensor, Precision precision, bool batch_invariant) {
  const std::int32_t device = tensor.get_device_index();
  guard_.emplace(device);
  void* stream = nullptr;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_current_cuda_stream(device, &stream));
  execution_ = Execution::cuda(device, stream, precision);
  execution_.batch_invariant = batch_invariant;
  execution_.matrix_product.run = &multiply;
}

std::vector<void*> side_streams_of(const Tensor& tensor, int count) {
  constexpr int kMost =
      8;  // as many as a GPU serves at once, unless CUDA_DEVICE_MAX_CONNECTIONS says otherwise
  const std::int32_t device = tensor.get_device_index();
  void* current = nullptr;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_current_cuda_stream(device, &current));
  std::vector<void*> streams;
  for (int n = std::min(count, kMost); n > 0; --n) {  // the pool hands its streams out in turn
    void* stream = nullptr;
    TORCH_ERROR_CODE_CHECK(torch_get_cuda_stream_from_pool(false, device, &stream));
    if (stream != current) streams.push_back(stream);
  }
  return streams;
}

}  // namespace warpalign::torch_binding
