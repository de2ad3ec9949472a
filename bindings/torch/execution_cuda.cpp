// On CUDA the execution has the tensor's device and torch's current stream there, and torch's matrix product.
#include <cuda_runtime.h>
#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/csrc/inductor/aoti_torch/generated/c_shim_cuda.h>

#include <algorithm>
#include <cstdint>
#include <map>

#include "execution.h"
#include "streams.h"

namespace warpalign::binding {
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

// A tensor over memory that it does not own. Returns false if torch reports an error.
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

// Makes a stream torch's current one during its lifetime. torch's own guard restores the previous one,
// because torch identifies a stream of its pool by more than its handle.
class CurrentStream {
 public:
  CurrentStream(void* stream, int32_t device) {
    void* current = nullptr;
    ok_ = aoti_torch_get_current_cuda_stream(device, &current) == AOTI_TORCH_SUCCESS;
    if (!ok_ || stream == current) return;
    ok_ = aoti_torch_create_cuda_stream_guard(stream, device, &guard_) == AOTI_TORCH_SUCCESS;
  }
  CurrentStream(const CurrentStream&) = delete;
  CurrentStream& operator=(const CurrentStream&) = delete;
  ~CurrentStream() {
    if (guard_) aoti_torch_delete_cuda_stream_guard(guard_);
  }
  [[nodiscard]] bool ok() const { return ok_; }

 private:
  CUDAStreamGuardHandle guard_ = nullptr;
  bool ok_;
};

bool is_captured(void* stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  if (cudaStreamIsCapturing(static_cast<cudaStream_t>(stream), &status) == cudaSuccess) {
    return status == cudaStreamCaptureStatusActive;
  }
  cudaGetLastError();  // the null stream, while another one is captured: clears the error, which torch would
                       // report
  return false;
}

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
  // The number of streams that a GPU serves at the same time, by the default of CUDA_DEVICE_MAX_CONNECTIONS.
  constexpr std::size_t kMost = 8;
  // A thread reuses its streams, because cuBLAS holds memory for each stream on which it has multiplied.
  // Captured calls use other streams than eager ones, because a graph may be replayed concurrently with eager
  // calls.
  struct Streams {
    std::vector<void*> eager, captured;
  };
  thread_local std::map<std::int32_t, Streams> of_devices;
  const std::int32_t device = tensor.get_device_index();
  void* current = nullptr;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_current_cuda_stream(device, &current));
  Streams& streams = of_devices[device];
  std::vector<void*>& own = is_captured(current) ? streams.captured : streams.eager;
  const auto has = [](const std::vector<void*>& in, void* stream) {
    return std::find(in.begin(), in.end(), stream) != in.end();
  };
  // torch's pool hands out 32 streams in turn. The current one may be among them.
  for (int draws = 0; own.size() <= kMost && draws < 64; ++draws) {
    void* stream = nullptr;
    TORCH_ERROR_CODE_CHECK(torch_get_cuda_stream_from_pool(false, device, &stream));
    if (!has(streams.eager, stream) && !has(streams.captured, stream)) own.push_back(stream);
  }
  std::vector<void*> lent = own;
  std::erase(lent, current);
  lent.resize(std::min({lent.size(), static_cast<std::size_t>(count), kMost}));
  return lent;
}

}  // namespace warpalign::binding
