// What the tests of the LSTM's CUDA path share.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "checks.h"
#include "device_buffer.h"
#include "warpalign/kernel_launches.h"

namespace warpalign::test {

class RecurrentCuda : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!has_gpu()) GTEST_SKIP() << "no GPU";
  }
};

class CudaRunner : public LstmRunnerIn<DeviceBuffer> {
 public:
  explicit CudaRunner(const LstmCase& given, const Execution& execution = Execution::cuda(0, nullptr))
      : LstmRunnerIn(given, execution) {}
};

// Launches of the kernels whose name begins so.
inline unsigned long long launches_of(const std::string& name) {
  unsigned long long sum = 0;
  KernelLaunches one{};
  for (int index = 0; recurrent_kernel_launches(index, &one); ++index) {
    if (std::string(one.kernel).rfind(name, 0) == 0) sum += one.launches;
  }
  return sum;
}

}  // namespace warpalign::test
