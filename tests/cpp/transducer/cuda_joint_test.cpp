// What the joint's CUDA path alone promises: values on the device are not checked but clamped or marked, and
// what a device cannot do is said.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "device_buffer.h"
#include "families.h"
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

// So many labels that warpgroups multiply, where there are any. Families: RNN-T, multi-blank, TDT.
JointBatch many_labels(DType dtype, int number, int hidden, int v = 140) {
  std::mt19937 random(20 + number);
  JointBatch batch;
  batch.dtype = dtype;
  batch.network.hidden = hidden;
  batch.network.tanh = number == 1;
  batch.gap = number;
  for (const auto& [frames, labels] : {std::pair{17, 9}, {1, 3}, {4, 40}, {0, 2}, {6, 0}}) {
    reference::Transducer p;
    p.frames = frames;
    p.labels = v;
    p.blank = v - 1;
    p.fastemit = 0.1;
    p.delay = 0.01;
    p.sigma = 0.05;
    p.clamp = number == 0 ? 0 : 0.4;
    if (number == 1) {
      p.durations = {2, 4};
      p.big_blank_columns = {3, std::max(v - 10, 2)};
      p.star = v + 5;
      p.star_penalty = 0.5;
    } else if (number == 2) {
      p.tdt = true;
      p.durations = {0, 1, 3, 2, 4, 5, 6, 7, 8, 9};
      p.without_durations = frames == 4;
    }
    for (int u = 0; u < labels; ++u)
      p.targets.push_back(4 + static_cast<int>(random() % std::max(v - 14, 3)));
    if (number == 1 && labels > 4) p.targets[2] = p.star;
    batch.add(p, random, labels == 3 ? -0.5 : 1.5);
  }
  return batch;
}
double product_error(DType dtype) { return dtype == DType::kFloat16 ? 0x1p-10 : 0x1p-7; }

TEST(TransducerJointCuda, HalfTypesWithManyLabels) {
  if (!has_gpu()) GTEST_SKIP() << "no GPU";
  for (int number = 0; number < 3; ++number) {
    for (const DType dtype : {DType::kFloat16, DType::kBFloat16}) {
      // Products of 216 and of 256 columns, and the fewest labels that are multiplied so.
      for (const auto& [hidden, v] : {std::pair{19, 140}, {240, 140}, {19, 17}, {19, 8}}) {
        if (hidden > 19 && number > 0) continue;
        SCOPED_TRACE(::testing::Message() << "family " << number << " " << static_cast<int>(dtype) << " H "
                                          << hidden << " V " << v);
        const JointBatch batch = many_labels(dtype, number, hidden, v);
        expect_close(batch, run_on_device(batch), product_error(dtype));
      }
    }
  }
}

// A band of every width and family, by warpgroups where there are any, in one chunk and in several.
TEST(TransducerJointCuda, BandsOfHalfTypes) {
  if (!has_gpu()) GTEST_SKIP() << "no GPU";
  for (int number = 0; number < 3; ++number) {
    for (const int width : {2, 5}) {
      SCOPED_TRACE(::testing::Message() << "family " << number << " s " << width);
      JointBatch batch = many_labels(DType::kBFloat16, number, 40);
      for (reference::Transducer& p : batch.problems) {
        p.band_states = width;
        for (int t = 0; t < p.frames; ++t) {
          p.band.push_back(std::max(p.states() - width, 0) * (t + 1) / p.frames);
        }
        if (!p.band.empty()) p.band.front() = 0;
      }
      const JointRun once = run_on_device(batch);
      expect_close(batch, once, product_error(batch.dtype));
      batch.workspace_limit = 0;
      const JointRun chunks = run_on_device(batch);
      ASSERT_TRUE(chunks.status.ok());
      EXPECT_EQ(chunks.loss, once.loss);
      EXPECT_EQ(chunks.encoder, once.encoder);
      EXPECT_EQ(chunks.predictor, once.predictor);
    }
  }
}

// An utterance that becomes NaN makes the gradients of its band's nodes NaN, and no other utterance's.
TEST(TransducerJointCuda, AnInvalidUtteranceOfABand) {
  if (!has_gpu()) GTEST_SKIP() << "no GPU";
  JointBatch batch = two_utterances(DType::kFloat32);
  batch.problems[0].band = {0, 0, 0, 1, 1, 2, 2};
  batch.problems[1].band = {0, 0, 0, 1, 1, 1, 2, 2, 2};
  for (reference::Transducer& p : batch.problems) p.band_states = 2;
  const JointRun before = run_on_device(batch);
  expect_close(batch, before);
  batch.problems[0].targets[1] = -1;
  const JointRun run = run_on_device(batch);
  ASSERT_TRUE(run.status.ok());
  EXPECT_TRUE(std::isnan(run.loss[0]));
  EXPECT_EQ(run.loss[1], before.loss[1]);
  for (int n = 0; n < 7 * 12; ++n) EXPECT_TRUE(std::isnan(run.encoder[n])) << n;
  for (std::size_t n = 9 * 12; n < run.encoder.size(); ++n) EXPECT_EQ(run.encoder[n], before.encoder[n]) << n;
}

// A NaN among the inputs of a node of the band, and of one outside of it.
TEST(TransducerJointCuda, NaNInABand) {
  if (!has_gpu()) GTEST_SKIP() << "no GPU";
  JointBatch batch = two_utterances(DType::kFloat32);
  batch.problems[0].band = {0, 0, 0, 1, 1, 2, 2};
  batch.problems[1].band = {0, 0, 0, 1, 1, 1, 2, 2, 2};
  for (reference::Transducer& p : batch.problems) p.band_states = 2;
  const JointRun before = run_on_device(batch);
  batch.encoder[1][8 * 12 + 3] = NAN;  // the last frame
  const JointRun run = run_on_device(batch);
  ASSERT_TRUE(run.status.ok());
  EXPECT_EQ(run.loss[0], before.loss[0]);
  EXPECT_TRUE(std::isnan(run.loss[1]));
}

// Relative L2 distance of the gradients of encoder, predictor, weight and bias.
double distance(const JointRun& a, const JointRun& b) {
  double difference = 0, norm = 0;
  for (const auto gradient : {&JointRun::encoder, &JointRun::predictor, &JointRun::weight, &JointRun::bias}) {
    for (std::size_t n = 0; n < (b.*gradient).size(); ++n) {
      const double one = (a.*gradient)[n] - (b.*gradient)[n];
      difference += one * one;
      norm += (b.*gradient)[n] * (b.*gradient)[n];
    }
  }
  return std::sqrt(difference / norm);
}

// float32 numbers as sums of bfloat16: three parts have float32's errors, two parts 16 bits.
TEST(TransducerJointCuda, Float32InPartsWithManyLabels) {
  if (!has_gpu()) GTEST_SKIP() << "no GPU";
  for (const auto& [number, hidden] : {std::pair{0, 19}, {0, 240}, {1, 24}, {2, 19}}) {
    SCOPED_TRACE(::testing::Message() << "family " << number << " H " << hidden);
    const JointBatch batch = many_labels(DType::kFloat32, number, hidden);
    const auto run = [&](Precision precision, const char* way) {
      Execution execution = Execution::cuda(0, nullptr, precision);
      execution.way = way;
      return run_joint_on<DeviceBuffer>(batch, execution, true);
    };
    const JointRun highest = run(Precision::kHighest, nullptr), high = run(Precision::kHigh, nullptr),
                   blocks = run(Precision::kHighest, "blocks");
    expect_close(batch, highest);
    expect_close(batch, high, 0x1p-16);
    EXPECT_LE(distance(highest, blocks), 2e-6);
    EXPECT_LE(distance(high, blocks), 2e-5);
    EXPECT_GT(distance(high, blocks), distance(highest, blocks));
  }
}

// Dropped hidden numbers are -0, in all their parts.
TEST(TransducerJointCuda, Float32InPartsWithDropout) {
  if (!has_gpu()) GTEST_SKIP() << "no GPU";
  for (const bool tanh : {false, true}) {
    JointBatch batch = many_labels(DType::kFloat32, 0, 23);
    batch.network.tanh = tanh;
    batch.network.dropout = 0.3;
    batch.network.seed = 5;
    expect_close(batch, run_on_device(batch));
  }
}

// Chunks end within a frame, and a batch has other chunks than an utterance alone.
void expect_same_bits_in_chunks(DType dtype) {
  const JointBatch batch = many_labels(dtype, 0, 40);
  const JointRun once = run_on_device(batch);
  JointBatch chunks = batch;
  chunks.workspace_limit = 0;
  const JointRun all = run_on_device(chunks);
  ASSERT_TRUE(all.status.ok());
  EXPECT_EQ(all.loss, once.loss);
  EXPECT_EQ(all.encoder, once.encoder);
  EXPECT_EQ(all.predictor, once.predictor);
  EXPECT_EQ(run_on_device(chunks).weight, all.weight);
  JointBatch alone = batch;
  alone.problems = {batch.problems[2]};
  alone.encoder = {batch.encoder[2]};
  alone.predictor = {batch.predictor[2]};
  alone.grad_loss = {batch.grad_loss[2]};
  const JointRun one = run_on_device(alone);
  ASSERT_TRUE(one.status.ok());
  EXPECT_EQ(one.loss[0], once.loss[2]);
  EXPECT_TRUE(
      std::equal(one.encoder.begin(), one.encoder.begin() + 4 * 40, once.encoder.begin() + 2 * 17 * 40));
  EXPECT_TRUE(std::equal(one.predictor.begin(), one.predictor.end(), once.predictor.begin() + 2 * 41 * 40));
}
TEST(TransducerJointCuda, ChunksAndBatchMatesChangeNoBit) {
  if (!has_gpu()) GTEST_SKIP() << "no GPU";
  expect_same_bits_in_chunks(DType::kBFloat16);
  expect_same_bits_in_chunks(DType::kFloat32);
}

// float32 as TF32: one product has 11 bits of each factor, three have float32's class of errors. Nodes of
// several chunks, tiles and stages.
TEST(TransducerJointCuda, Float32OnMatrixUnits) {
  if (!has_gpu()) GTEST_SKIP() << "no GPU";
  for (const auto& [number, hidden] : {std::pair{0, 19}, {2, 130}}) {
    JointBatch batch = many_labels(DType::kFloat32, number, hidden);
    if (number == 0) batch.workspace_limit = 0;
    const auto run = [&](Precision precision) {
      Execution execution = Execution::cuda(0, nullptr, precision);
      execution.way = "tf32";
      return run_joint_on<DeviceBuffer>(batch, execution, true);
    };
    SCOPED_TRACE(number);
    const JointRun high = run(Precision::kHigh), medium = run(Precision::kMedium);
    expect_close(batch, high, 0x1p-20);
    expect_close(batch, medium, 0x1p-10);
    EXPECT_NE(medium.weight, high.weight);
  }
}

// A bias of -inf is a label that never comes, and NaN stays NaN.
TEST(TransducerJointCuda, InfiniteBiasesOnMatrixUnits) {
  if (!has_gpu()) GTEST_SKIP() << "no GPU";
  for (const Precision precision : {Precision::kHigh, Precision::kMedium}) {
    const Execution cuda = Execution::cuda(0, nullptr, precision);
    JointBatch batch = two_utterances(DType::kFloat32);
    batch.network.bias[5] = -INFINITY;
    expect_close(batch, run_joint_on<DeviceBuffer>(batch, cuda, true), 0x1p-10);
    batch.network.bias[0] = -INFINITY;  // the blank's
    const JointRun none = run_joint_on<DeviceBuffer>(batch, cuda, true);
    for (const double loss : none.loss) EXPECT_EQ(loss, INFINITY);
    for (const double g : none.weight) EXPECT_EQ(g, 0);
    batch = two_utterances(DType::kFloat32);
    batch.problems[1].targets[1] = -1;
    const JointRun run = run_joint_on<DeviceBuffer>(batch, cuda, true);
    EXPECT_TRUE(std::isnan(run.loss[1]) && !std::isnan(run.loss[0]));
    for (const double g : run.weight) EXPECT_TRUE(std::isnan(g));
  }
}

// TF32 would round a bias to three digits, in the same direction for all of a path's blanks.
TEST(TransducerJointCuda, BiasesAreNotRoundedOnMatrixUnits) {
  if (!has_gpu()) GTEST_SKIP() << "no GPU";
  JointBatch batch = two_utterances(DType::kFloat32);
  batch.network.weight.assign(batch.network.weight.size(), 0);
  for (const Precision precision : {Precision::kHigh, Precision::kMedium}) {
    expect_close(batch, run_joint_on<DeviceBuffer>(batch, Execution::cuda(0, nullptr, precision), false));
  }
}

// Sums of states have parts of 32 frames. Chunks end in the first, a middle and the last one, and between
// utterances. In a band, most frames are of the first states.
TEST(TransducerJointCuda, SumsOfStatesGoOverManyFrames) {
  if (!has_gpu()) GTEST_SKIP() << "no GPU";
  for (const auto& [dtype, width] :
       {std::pair{DType::kBFloat16, 0}, {DType::kBFloat16, 3}, {DType::kFloat32, 0}, {DType::kFloat32, 3}}) {
    SCOPED_TRACE(::testing::Message() << static_cast<int>(dtype) << " s " << width);
    std::mt19937 random(31);
    JointBatch batch;
    batch.dtype = dtype;
    batch.network.hidden = width > 0 ? 67 : 11;
    for (const auto& [frames, labels] : {std::pair{100, 4}, {1, 0}, {300, 2}, {33, 5}}) {
      reference::Transducer p = plain(frames, labels, 140, random);
      p.band_states = width;
      for (int t = 0; width > 0 && t < frames; ++t) {
        const int next = t == 0 || t < frames * 4 / 5 ? 0 : p.band.back() + width - 1;
        p.band.push_back(std::min(next, std::max(p.states() - width, 0)));
      }
      batch.add(p, random);
    }
    const JointRun whole = run_on_device(batch);
    expect_close(batch, whole, dtype == DType::kFloat32 ? 0 : product_error(dtype));
    batch.workspace_limit = 0;
    EXPECT_EQ(run_on_device(batch).predictor, whole.predictor);
  }
}

#if WARPALIGN_SIMT
// sm_75 has no TF32.
TEST(TransducerJointCuda, Float32WithoutMatrixUnits) {
  const JointBatch batch = two_utterances(DType::kFloat32);
  struct Restored {
    simt::Device before = simt::device;
    ~Restored() { simt::device = before; }
  } const restored;
  simt::device.compute_capability_major = 8;
  const JointRun expected = run_on_device(batch);  // by blocks, as there are no warpgroups
  simt::device.compute_capability_major = 7;
  const JointRun run =
      run_joint_on<DeviceBuffer>(batch, Execution::cuda(0, nullptr, Precision::kMedium), true);
  EXPECT_EQ(run.weight, expected.weight);
}

// sm_80: the same by blocks whose warps multiply.
TEST(TransducerJointCuda, HalfTypesWithoutWarpgroups) {
  struct Restored {
    simt::Device before = simt::device;
    ~Restored() { simt::device = before; }
  } const restored;
  simt::device.compute_capability_major = 8;
  for (const DType dtype : {DType::kFloat16, DType::kBFloat16}) {
    const JointBatch batch = many_labels(dtype, 2, 19);
    expect_close(batch, run_on_device(batch), product_error(dtype));
  }
}

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
