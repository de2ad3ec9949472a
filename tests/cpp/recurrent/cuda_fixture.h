// What the tests of the LSTM's CUDA path share.
#pragma once

#include <gtest/gtest.h>

#include "checks.h"
#include "device_buffer.h"

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

}  // namespace warpalign::test
