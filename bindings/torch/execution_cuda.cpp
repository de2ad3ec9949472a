// On CUDA the execution is the tensor's device and torch's current stream on it.
#include <torch/csrc/inductor/aoti_torch/c/shim.h>

#include <cstdint>

#include "execution.h"

namespace warpalign::torch_binding {

Placement::Placement(const torch::stable::Tensor& tensor, Precision precision, bool batch_invariant) {
  const std::int32_t device = tensor.get_device_index();
  guard_.emplace(device);
  void* stream = nullptr;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_current_cuda_stream(device, &stream));
  execution_ = Execution::cuda(device, stream, precision);
  execution_.batch_invariant = batch_invariant;
}

}  // namespace warpalign::torch_binding
