// The device on which an operator runs. Each of the two libraries has its own implementation.
#pragma once

#include <torch/csrc/stable/accelerator.h>
#include <torch/csrc/stable/tensor.h>

#include <optional>
#include <vector>

#include "warpalign/execution.h"

namespace warpalign::torch_binding {

// The execution for a tensor's device. During its lifetime that device is current. On the CPU it has no
// effect.
class Placement {
 public:
  Placement(const torch::stable::Tensor& tensor, Precision precision, bool batch_invariant);
  ~Placement() = default;
  Placement(const Placement&) = delete;
  Placement& operator=(const Placement&) = delete;

  [[nodiscard]] const Execution& execution() const { return execution_; }

 private:
  Execution execution_;
  std::optional<torch::stable::accelerator::DeviceGuard> guard_;
};

// Up to `count` streams of torch's pool on a tensor's device, none of them torch's current one; on the CPU
// none.
std::vector<void*> side_streams_of(const torch::stable::Tensor& tensor, int count);

}  // namespace warpalign::torch_binding
