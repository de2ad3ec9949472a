// The device on which an operator runs. Each library of a front end has its own implementation.
#pragma once

#include <optional>

#include "front_end.h"
#include "warpalign/execution.h"

namespace warpalign::binding {

// The execution for a tensor's device. During its lifetime that device is current. On the CPU it has no
// effect.
class Placement {
 public:
  Placement(const Tensor& tensor, Precision precision, bool batch_invariant);
  ~Placement() = default;
  Placement(const Placement&) = delete;
  Placement& operator=(const Placement&) = delete;

  [[nodiscard]] const Execution& execution() const { return execution_; }

 private:
  Execution execution_;
  std::optional<DeviceGuard> guard_;
};

}  // namespace warpalign::binding
