// On CUDA the execution is the tensor's device and torch's current stream on it, and torch multiplies.
#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/csrc/inductor/aoti_torch/generated/c_shim_cuda.h>

#include <algorithm>
#include <cstdint>
#include <map>

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

// Makes a stream torch's current one while it lives.
class CurrentStream {
 public:
  CurrentStream(void* stream, int32_t device) : device_(device) {
    ok_ = aoti_torch_get_current_cuda_stream(device, &before_) == AOTI_TORCH_SUCCESS;
    switches_ = ok_ && stream != before_;
    if (switches_) ok_ = torch_set_current_cuda_stream(stream, device) == AOTI_TORCH_SUCCESS;
  }
  CurrentStream(const CurrentStream&) = delete;
  CurrentStream& operator=(const CurrentStream&) = delete;
  ~CurrentStream() {
    if (switches_) torch_set_current_cuda_stream(before_, device_);
  }
  [[nodiscard]] bool ok() const { return ok_; }

 private:
  int32_t device_;
  void* before_ = nullptr;
  bool ok_, switches_;
};

// cuBLAS by torch.mm, with the user's settings, on the current device and the stream that is the context.
bool multiply(void* stream, const MatrixProductCall& call) {
  int32_t device = 0;
  if (aoti_torch_get_current_device_index(&device) != AOTI_TORCH_SUCCESS) return false;
  const CurrentStream current(stream, device);
  if (!current.ok()) return false;
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
  execution_.matrix_product = {&multiply, stream};
}

std::vector<void*> side_streams_of(const Tensor& tensor, int count) {
  // As many as a GPU serves at once, unless CUDA_DEVICE_MAX_CONNECTIONS says otherwise.
  constexpr std::size_t kMost = 8;
  // A thread keeps its streams: cuBLAS keeps memory for each stream that it has multiplied on. One of them
  // may be the current one, as torch's pool hands streams out in turn.
  thread_local std::map<std::int32_t, std::vector<void*>> of_devices;
  const std::int32_t device = tensor.get_device_index();
  std::vector<void*>& own = of_devices[device];
  while (own.size() <= kMost) {
    void* stream = nullptr;
    TORCH_ERROR_CODE_CHECK(torch_get_cuda_stream_from_pool(false, device, &stream));
    own.push_back(stream);
  }
  void* current = nullptr;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_current_cuda_stream(device, &current));
  std::vector<void*> streams = own;
  std::erase(streams, current);
  streams.resize(std::min({streams.size(), static_cast<std::size_t>(count), kMost}));
  return streams;
}

}  // namespace warpalign::torch_binding
