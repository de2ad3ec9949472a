// CUDA: the tensor's device and torch's current stream on it.
#include <torch/csrc/inductor/aoti_torch/c/shim.h>

#include "execution.h"

namespace warpalign::torch_binding {

Placement::Placement(const torch::stable::Tensor& tensor)
    : guard_(new torch::stable::accelerator::DeviceGuard(tensor.get_device_index())) {
  void* stream = nullptr;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_current_cuda_stream(tensor.get_device_index(), &stream));
  execution_ = Execution::cuda(tensor.get_device_index(), stream);
}

Placement::~Placement() { delete static_cast<torch::stable::accelerator::DeviceGuard*>(guard_); }

}  // namespace warpalign::torch_binding
