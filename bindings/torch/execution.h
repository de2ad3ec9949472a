// Where an operator runs: one implementation per library.
#pragma once

#include <torch/csrc/stable/accelerator.h>
#include <torch/csrc/stable/tensor.h>

#include <optional>

#include "warpalign/execution.h"

namespace warpalign::torch_binding {

// Makes the tensor's device current while it lives. Does nothing on the CPU.
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

}  // namespace warpalign::torch_binding
