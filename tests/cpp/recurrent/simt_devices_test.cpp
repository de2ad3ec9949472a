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

// Tensors end where their last number does, and AddressSanitizer sees a byte that is read behind it. Rows of
// odd lengths begin at every place of 16 bytes.
TEST_F(Devices, NothingIsReadBehindTensors) {
  for (const DType dtype : {DType::kFloat16, DType::kFloat32}) {
    for (const int major : {9, 7}) {
      simt::device.compute_capability_major = major;
      for (const auto& [input, hidden] : {std::pair{5, 7}, {8, 8}, {9, 16}}) {
        reference::Lstm p = plain(2, 3, input, hidden);
        p.bidirectional = hidden == 7;
        p.layer_norm = hidden == 16;
        const LstmCase given(p, dtype, 1, .5);
        expect_close(given, LstmRunnerIn<DeviceBuffer>(given, Execution::cuda(0, nullptr)).run(),
                     dtype == DType::kFloat16 ? 0x1p-7 : 1e-5);
      }
    }
  }
}

}  // namespace
}  // namespace warpalign::test
