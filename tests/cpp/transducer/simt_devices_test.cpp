// The CUDA path on devices of other sizes than the one at hand; on the CPU alone, where they can be had.
#include <gtest/gtest.h>

#include <random>

#include "aligning.h"
#include "device_buffer.h"
#include "families.h"
#include "joint_testing.h"
#include "simt.h"
#include "testing.h"

namespace warpalign::test {
namespace {

class Devices : public ::testing::Test {
 protected:
  void TearDown() override { simt::device = {}; }
};

TransducerBatch long_arcs() {
  std::mt19937 random(1);
  TransducerBatch batch;
  batch.dtype = DType::kFloat64;
  reference::Transducer p;
  p.frames = 80;
  p.labels = 9;
  p.blank = 8;
  p.durations = {64, 3};
  p.big_blank_columns = {7, 6};
  for (int u = 0; u < 140; ++u) p.targets.push_back(u % 6);
  batch.add(p, random);
  return batch;
}

// 99 KiB of shared memory per block (sm_86) hold fewer strips of float64 with arcs of 64 frames. Bits do not
// depend on how many strips a panel has. 64 KiB (sm_75) take the kernel for any number of arcs, which adds
// them up in an order of its own.
TEST_F(Devices, LittleSharedMemory) {
  const TransducerBatch batch = long_arcs();
  const Execution cuda = Execution::cuda(0, nullptr);
  const TransducerRun expected = run_on<DeviceBuffer>(batch, cuda);
  expect_close(batch, expected);
  simt::device.shared_bytes = 99 * 1024;
  EXPECT_EQ(run_on<DeviceBuffer>(batch, cuda).bits, expected.bits);
  simt::device.shared_bytes = 64 * 1024;
  expect_close(batch, run_on<DeviceBuffer>(batch, cuda));
}

TEST_F(Devices, OneBlockAtATime) {
  simt::device.multiprocessors = simt::device.resident = 1;
  const TransducerBatch batch = long_arcs();
  expect_close(batch, run_on<DeviceBuffer>(batch, Execution::cuda(0, nullptr)));
}

// The same of best paths: fewer strips in a pass, and slots that come from global memory.
TEST_F(Devices, LittleSharedMemoryForBestPaths) {
  std::mt19937 random(2);
  TransducerBatch batch = long_arcs();
  TransducerBatch durations;
  durations.dtype = DType::kFloat64;
  durations.add(family(5, 70, 100, 20, random), random);
  const Execution cuda = Execution::cuda(0, nullptr);
  for (const TransducerBatch* one : {&batch, &durations}) {
    const AlignmentRun expected = align_on<DeviceBuffer>(*one, cuda);
    expect_aligned(*one, expected);
    for (const int kib : {64, 99}) {
      simt::device.shared_bytes = kib * 1024;
      const AlignmentRun run = align_on<DeviceBuffer>(*one, cuda);
      expect_aligned(*one, run);
      EXPECT_EQ(run.all[0].score, expected.all[0].score);
      EXPECT_EQ(run.all[0].frames, expected.all[0].frames);
      EXPECT_EQ(run.all[0].blanks, expected.all[0].blanks);
      if (kib == 99) {
        EXPECT_EQ(run.all[0].label, expected.all[0].label);
      }
    }
    simt::device = {};
  }
}

// Tensors end where their last number does, and AddressSanitizer sees a byte that is read behind it. Rows of
// many lengths begin at every place of 16 bytes.
TEST_F(Devices, LossesReadNothingBehindTensors) {
  const Execution cuda = Execution::cuda(0, nullptr);
  for (const DType dtype : {DType::kFloat16, DType::kBFloat16, DType::kFloat32, DType::kFloat64}) {
    for (const int labels : {12, 13, 15, 17, 23, 129}) {
      std::mt19937 random(labels);
      TransducerBatch batch;
      batch.dtype = dtype;
      batch.packed = labels % 4 == 1;
      batch.add(family(labels == 23 ? 2 : 0, 3, 1, labels, random), random);  // 6 rows
      expect_close(batch, run_on<DeviceBuffer>(batch, cuda));
    }
  }
}

// Of odd lengths, so that no row but the first begins at 16 bytes, and of 8, so that all do.
TEST_F(Devices, JointsReadNothingBehindTensors) {
  for (const DType dtype : {DType::kFloat16, DType::kFloat32}) {
    for (const auto& [labels, hidden] : {std::pair{13, 5}, {131, 7}, {131, 8}}) {
      std::mt19937 random(hidden);
      JointBatch batch;
      batch.dtype = dtype;
      batch.network.hidden = hidden;
      batch.add(family(0, 3, 2, labels, random), random);
      for (const Precision precision : {Precision::kHighest, Precision::kHigh}) {
        if (dtype == DType::kFloat16 && precision == Precision::kHigh) continue;
        const Execution cuda = Execution::cuda(0, nullptr, precision);
        expect_close(batch, run_joint_on<DeviceBuffer>(batch, cuda, true),
                     dtype == DType::kFloat16        ? 0x1p-10
                     : precision == Precision::kHigh ? 0x1p-16
                                                     : 0);
      }
    }
  }
}

}  // namespace
}  // namespace warpalign::test
