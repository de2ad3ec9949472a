// Alignments on the CUDA path alone: several passes and panels, and arguments on the device, where the host
// cannot check them.
#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "aligning.h"
#include "device_buffer.h"
#include "families.h"

namespace warpalign::test {
namespace {

class AlignCuda : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!has_gpu()) GTEST_SKIP() << "no GPU";
  }
  static AlignmentRun align(const TransducerBatch& batch, bool want_posteriors = true) {
    return align_on<DeviceBuffer>(batch, Execution::cuda(0, nullptr), want_posteriors);
  }
};

void expect_same(const Alignment& a, const Alignment& b) {
  EXPECT_EQ(a.score, b.score);
  EXPECT_EQ(a.frames, b.frames);
  EXPECT_EQ(a.durations, b.durations);
  EXPECT_EQ(a.blanks, b.blanks);
  EXPECT_EQ(a.blank, b.blank);
  EXPECT_EQ(a.label, b.label);
}

void expect_nan(const Alignment& a) {
  EXPECT_TRUE(std::isnan(a.score));
  for (const auto* integers : {&a.frames, &a.durations, &a.blanks}) {
    for (const std::int32_t v : *integers) EXPECT_EQ(v, -1);
  }
  for (const double v : a.blank) ASSERT_TRUE(std::isnan(v));
  for (const double v : a.label) ASSERT_TRUE(std::isnan(v));
}

// A pass has 512 columns.
TEST_F(AlignCuda, SeveralPasses) {
  for (int kind = 0; kind < 3; ++kind) {
    for (const auto& [frames, u] : {std::pair{20, 511}, {40, 512}, {9, 600}, {33, 1030}}) {
      SCOPED_TRACE(::testing::Message() << kind << ", " << frames << " x " << u + 1);
      std::mt19937 random(u);
      TransducerBatch batch;
      batch.dtype = u % 3 ? DType::kFloat32 : DType::kFloat64;
      batch.packed = frames == 9;
      batch.add(family(kind, frames, u, 14, random), random);
      batch.add(family(kind, 12, 3, 14, random), random);
      batch.add(family(kind, frames, u - 70, 14, random), random);
      expect_aligned(batch, align(batch, frames == 40));
    }
  }
}

TEST_F(AlignCuda, InvalidLabelsMakeTheirUtteranceNan) {
  for (int kind = 0; kind < 3; ++kind) {
    for (const bool packed : {false, true}) {
      std::mt19937 random(3);
      TransducerBatch batch;
      batch.packed = batch.flat_targets = packed;
      for (int b = 0; b < 4; ++b) batch.add(family(kind, 12, 7, 14, random), random);
      const AlignmentRun expected = align(batch);
      batch.cases[0].problem.targets[0] = -1;
      batch.cases[2].problem.targets[6] = 14;
      batch.cases[3].problem.targets[3] = batch.family().blank;
      const AlignmentRun result = align(batch);
      expect_same(result.all[1], expected.all[1]);
      for (const int b : {0, 2, 3}) expect_nan(result.all[b]);
    }
  }
}

TEST_F(AlignCuda, LengthsOutOfRangeAreClamped) {
  std::mt19937 random(5);
  TransducerBatch batch;
  for (int b = 0; b < 4; ++b) batch.add(family(0, 12, 7, 13, random), random);
  const AlignmentRun expected = align(batch);
  const DeviceBuffer frames(std::vector<std::int32_t>{12, 99, -3, 12});
  const DeviceBuffer labels(std::vector<std::int32_t>{1 << 30, 7, 7, 7});
  batch.adjust = [&](TransducerProblem& p) {
    p.lattice.logit_lengths = static_cast<const std::int32_t*>(frames.data());
    p.lattice.target_lengths = static_cast<const std::int32_t*>(labels.data());
  };
  const AlignmentRun result = align(batch);
  for (const int b : {0, 1, 3}) expect_same(result.all[b], expected.all[b]);
  EXPECT_EQ(result.all[2].score, -kInf);
  for (const double g : result.all[2].blank) EXPECT_EQ(g, 0);
}

TEST_F(AlignCuda, PackedUtterancesWithoutAllOfTheirRowsAreNan) {
  std::mt19937 random(6);
  TransducerBatch batch;
  batch.packed = true;
  for (int b = 0; b < 4; ++b) batch.add(family(0, 12, 7, 13, random), random);
  const AlignmentRun expected = align(batch);
  const DeviceBuffer frames(std::vector<std::int32_t>{12, 12, 25, 12});
  batch.adjust = [&](TransducerProblem& p) {
    p.lattice.frames = 25;
    p.lattice.logit_lengths = static_cast<const std::int32_t*>(frames.data());
  };
  const AlignmentRun result = align(batch);
  for (const int b : {0, 1}) expect_same(result.all[b], expected.all[b]);
  for (const int b : {2, 3}) EXPECT_TRUE(std::isnan(result.all[b].score));
}

TEST_F(AlignCuda, ManyShortUtterances) {
  std::mt19937 random(9);
  for (const bool packed : {false, true}) {
    TransducerBatch batch;
    batch.packed = batch.flat_targets = packed;
    for (int b = 0; b < 200; ++b) {
      batch.add(family(0, static_cast<int>(random() % 4), static_cast<int>(random() % 3), 7, random), random);
    }
    expect_aligned(batch, align(batch));
  }
}

}  // namespace
}  // namespace warpalign::test
