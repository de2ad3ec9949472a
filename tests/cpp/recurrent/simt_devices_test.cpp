// The CUDA path of the LSTM on devices of other sizes than the one at hand.
#include <gtest/gtest.h>

#include "cases.h"
#include "device_buffer.h"
#include "simt.h"
#include "testing.h"

namespace warpalign::test {
namespace {

class Devices : public ::testing::Test {
 protected:
  void TearDown() override { simt::device = {}; }

  static void check() {
    reference::Lstm p = plain(3, 5, 12, 64);
    p.bidirectional = true;
    const LstmCase given(p, DType::kFloat16, 1, .5);
    expect_close(given, LstmRunnerIn<DeviceBuffer>(given, Execution::cuda(0, nullptr)).run(), 0x1p-8);
  }
};

// A sweep in one launch has no more blocks than are resident; where they are too few it is a launch per step.
TEST_F(Devices, FewAndManyMultiprocessors) {
  for (const int multiprocessors : {1, 4, 20}) {
    simt::device.multiprocessors = multiprocessors;
    check();
  }
}

TEST_F(Devices, WithoutMatrixInstructionsOfThisKind) {
  simt::device.multiprocessors = 20;
  simt::device.compute_capability_major = 7;
  check();
}

TEST_F(Devices, TooLittleSharedMemory) {
  simt::device.shared_bytes = 16 * 1024;
  check();
}

}  // namespace
}  // namespace warpalign::test
