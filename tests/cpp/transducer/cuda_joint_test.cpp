// What the joint's CUDA path alone promises: values on the device are not checked but clamped or marked, and
// what a device cannot do is said.
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "device_buffer.h"
#include "joint_testing.h"
#if WARPALIGN_SIMT
#include "simt.h"
#endif

namespace warpalign::test {
namespace {

JointBatch two_utterances(DType dtype) {
  std::mt19937 random(8);
  JointBatch batch;
  batch.dtype = dtype;
  batch.network.hidden = 12;
  for (const int frames : {7, 9}) {
    reference::Transducer p;
    p.frames = frames;
    p.labels = 10;
    p.targets = {1, 2, 3};
    batch.add(p, random);
  }
  return batch;
}

JointRun run_on_device(const JointBatch& batch) {
  return run_joint_on<DeviceBuffer>(batch, Execution::cuda(0, nullptr), true);
}

TEST(TransducerJointCuda, AnInvalidLabelMarksItsUtterance) {
  if (!has_gpu()) GTEST_SKIP() << "no GPU";
  for (const int label : {0, -1, 10, 1 << 30}) {
    JointBatch batch = two_utterances(DType::kFloat32);
    const JointRun before = run_on_device(batch);
    ASSERT_TRUE(before.status.ok());
    batch.problems[1].targets[1] = label;
    const JointRun run = run_on_device(batch);
    ASSERT_TRUE(run.status.ok());
    EXPECT_EQ(run.loss[0], before.loss[0]);
    EXPECT_TRUE(std::isnan(run.loss[1]));
    for (std::size_t n = 0; n < run.encoder.size(); ++n) {
      const bool own = n >= 9 * 12;  // the second utterance has all frames
      EXPECT_EQ(std::isnan(run.encoder[n]), own) << n;
      if (!own) {
        EXPECT_EQ(run.encoder[n], before.encoder[n]) << n;
      }
    }
    for (std::size_t n = 0; n < run.predictor.size(); ++n) {
      EXPECT_EQ(std::isnan(run.predictor[n]), n >= 4 * 12) << n;
    }
    for (const double g : run.bias) EXPECT_TRUE(std::isnan(g));
  }
}

TEST(TransducerJointCuda, NothingIsLiveWithoutPaths) {
  if (!has_gpu()) GTEST_SKIP() << "no GPU";
  JointBatch batch = two_utterances(DType::kFloat16);
  // Columns that every path needs: the blank's.
  batch.network.bias[0] = -INFINITY;
  const JointRun run = run_on_device(batch);
  ASSERT_TRUE(run.status.ok());
  for (const double loss : run.loss) EXPECT_EQ(loss, INFINITY);
  for (const auto* gradient : {&run.encoder, &run.predictor, &run.weight, &run.bias}) {
    for (const double g : *gradient) EXPECT_EQ(g, 0);
  }
}

#if WARPALIGN_SIMT
TEST(TransducerJointCuda, HalfTypesNeedMatrixUnits) {
  struct Restored {
    simt::Device before = simt::device;
    ~Restored() { simt::device = before; }
  } const restored;
  simt::device.compute_capability_major = 7;
  EXPECT_TRUE(run_on_device(two_utterances(DType::kFloat32)).status.ok());
  for (const DType dtype : {DType::kFloat16, DType::kBFloat16}) {
    const Status status = run_on_device(two_utterances(dtype)).status;
    EXPECT_EQ(status.code, StatusCode::kUnsupported);
    EXPECT_STREQ(status.argument, "dtype");
  }
}
#endif

}  // namespace
}  // namespace warpalign::test
