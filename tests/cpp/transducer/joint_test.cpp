// The joint's losses and gradients on every path against the float64 reference.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "cpu/isa.h"
#include "joint_testing.h"

namespace warpalign::test {
namespace {

using reference::Transducer;

constexpr DType kEveryDType[] = {DType::kFloat32, DType::kFloat64, DType::kFloat16, DType::kBFloat16};

// What h and logits lose where they are kept in the input's type.
double of_matrix_units(DType dtype) {
  if (dtype == DType::kBFloat16) {
    return TransducerPath::GetParam().cuda || cpu::has_bfloat16_products() ? 0x1p-7 : 0;
  }
  return TransducerPath::GetParam().cuda && dtype == DType::kFloat16 ? 0x1p-10 : 0;
}

// Families: RNN-T, multi-blank, TDT.
Transducer family(int number, int frames, int labels_u, int v, std::mt19937& random) {
  Transducer p;
  p.frames = frames;
  p.labels = v;
  p.blank = v - 1;
  const int reserved = number == 1 ? 3 : 1;
  for (int u = 0; v > reserved && u < labels_u; ++u) {
    p.targets.push_back(static_cast<int>(random() % (v - reserved)));
  }
  if (number == 1) {
    p.durations = {2, 4};
    p.big_blank_columns = {v - 2, v - 3};
  } else if (number == 2) {
    p.tdt = true;
    p.durations = {0, 1, 3};
  }
  return p;
}

TEST_P(TransducerPath, JointOfEveryFamilyAndType) {
  for (const DType dtype : kEveryDType) {
    for (int number = 0; number < 3; ++number) {
      for (const bool tanh : {false, true}) {
        SCOPED_TRACE(::testing::Message() << static_cast<int>(dtype) << " family " << number << " " << tanh);
        std::mt19937 random(7 + number);
        JointBatch batch;
        batch.dtype = dtype;
        batch.network.hidden = 19;
        batch.network.tanh = tanh;
        batch.add(family(number, 13, 5, 11, random), random, 1.5);
        batch.add(family(number, 4, 7, 11, random), random, -0.5);
        batch.add(family(number, 9, 0, 11, random), random, 0);
        expect_close(batch, run_joint(batch), of_matrix_units(dtype));
      }
    }
  }
}

// A band of `width` states that climbs from the first state to the last one.
void add_band(JointBatch& batch, int width) {
  for (Transducer& p : batch.problems) {
    p.band_states = std::min(width, batch.states);
    const int last = std::max(p.states() - p.band_states, 0), steps = std::max(p.frames - 1, 1);
    p.band.clear();
    for (int t = 0; t < p.frames; ++t) p.band.push_back(last * t / steps);
  }
}

TEST_P(TransducerPath, JointOfABand) {
  for (const DType dtype : kEveryDType) {
    for (int number = 0; number < 3; ++number) {
      for (const int width : {2, 3, 7, 100}) {
        SCOPED_TRACE(::testing::Message()
                     << static_cast<int>(dtype) << " family " << number << " s " << width);
        std::mt19937 random(17 + number);
        JointBatch batch;
        batch.dtype = dtype;
        batch.network.hidden = 19;
        batch.network.tanh = width % 2 == 0;
        batch.network.dropout = width == 3 ? 0.2 : 0;
        batch.workspace_limit = width == 7 ? 0 : batch.workspace_limit;
        batch.add(family(number, 40, 34, 11, random), random, 1.5);
        batch.add(family(number, 9, 7, 11, random), random, -0.5);
        batch.add(family(number, 5, 0, 11, random), random, 1);
        batch.add(family(number, 1, 1, 11, random), random, 1);
        add_band(batch, width);
        expect_close(batch, run_joint(batch), of_matrix_units(dtype));
      }
    }
  }
}

// A band that a path cannot go through, and one that lies outside of the batch.
TEST_P(TransducerPath, JointOfABandWithoutPaths) {
  std::mt19937 random(5);
  JointBatch batch;
  batch.network.hidden = 8;
  batch.add(family(0, 6, 8, 11, random), random, 1);
  batch.add(family(0, 7, 8, 11, random), random, 1);
  add_band(batch, 3);
  batch.problems[0].band = {0, 0, 0, 6, 6, 6};
  const JointRun run = run_joint(batch);
  ASSERT_TRUE(run.status.ok());
  EXPECT_EQ(run.loss[0], INFINITY);
  EXPECT_TRUE(std::isfinite(run.loss[1]));
  for (int n = 0; n < 6 * 8; ++n) EXPECT_EQ(run.encoder[n], 0) << n;
  JointBatch beyond = batch, nearest = batch;
  beyond.problems[1].band = {-5, INT32_MIN, 2, 5, 7, 100, INT32_MAX};
  nearest.problems[1].band = {0, 0, 2, 5, 6, 6, 6};
  const JointRun clamped = run_joint(beyond), exact = run_joint(nearest);
  ASSERT_TRUE(clamped.status.ok());
  EXPECT_EQ(clamped.loss[1], exact.loss[1]);
  EXPECT_EQ(clamped.weight, exact.weight);
  EXPECT_EQ(clamped.encoder, exact.encoder);
}

// Bands of few states have a lattice pass of their own: many frames, bands that fall, skip states and end
// early, weights far beyond a float's range, and utterances shorter than the batch.
TEST_P(TransducerPath, JointOfALongBand) {
  for (const int width : {1, 2, 5, 8}) {
    for (const double scale : {1.0, 200.0}) {
      SCOPED_TRACE(::testing::Message() << "s " << width << " scale " << scale);
      std::mt19937 random(width);
      JointBatch batch;
      batch.network.hidden = 3;
      const int labels = width == 1 ? 0 : 40;
      batch.add(family(0, 300, labels, 5, random), random, 1.5);
      batch.add(family(0, 77, labels / 2, 5, random), random, -0.5);
      batch.add(family(0, 2, 0, 5, random), random, 1);
      for (double& w : batch.network.weight) w = rounded(batch.dtype, scale * w);
      add_band(batch, width);
      std::vector<int>& band = batch.problems[0].band;
      for (std::size_t t = 20; t + 20 < band.size(); t += 31) {
        band[t] = std::max(band[t] - 1, 0);
        band[t + 7] = std::min(band[t + 7] + 1, batch.states - width);
      }
      // Logits of hundreds have errors of 1e-5 themselves, which posteriors inherit.
      expect_close(batch, run_joint(batch), scale > 1 ? 1e-3 : 0);
    }
  }
}

TEST_P(TransducerPath, JointOfEverySize) {
  int turn = 0;
  for (const int v : {2, 15, 17, 33, 64, 130}) {
    for (const int hidden : {1, 15, 16, 17, 33, 257}) {
      for (const int frames : {1, 2, 33}) {
        for (const int u : {0, 1, 8}) {
          if (++turn % kThinning != 0) continue;
          SCOPED_TRACE(::testing::Message() << "V " << v << " H " << hidden << " T " << frames << " U " << u);
          std::mt19937 random(turn);
          JointBatch batch;
          batch.dtype = kEveryDType[turn % 4];
          batch.network.hidden = hidden;
          batch.network.tanh = turn % 3 == 0;
          batch.gap = turn % 4;
          batch.has_bias = turn % 5 != 0;
          batch.flat_targets = turn % 7 == 1;
          batch.add(family(0, frames, u, v, random), random, 0.7);
          batch.add(family(0, 3, 2, v, random), random, 1.3);
          expect_close(batch, run_joint(batch), of_matrix_units(batch.dtype));
        }
      }
    }
  }
}

TEST_P(TransducerPath, JointWithEveryPenalty) {
  for (int number = 0; number < 3; ++number) {
    SCOPED_TRACE(number);
    std::mt19937 random(number);
    JointBatch batch;
    batch.dtype = DType::kFloat64;
    batch.network.hidden = 12;
    Transducer p = family(number, 11, 6, 14, random);
    p.sigma = 0.05;
    p.fastemit = 0.1;
    p.delay = 0.01;
    p.eos = p.targets[5];
    p.eos_penalty = 0.2;
    p.clamp = 0.2;
    if (number < 2) {
      p.star = 13 + 20;
      p.star_penalty = 0.5;
      p.targets[2] = p.star;
    } else {
      p.without_durations = true;
    }
    batch.add(p, random, 2);
    p.without_durations = false;
    batch.add(p, random, 1);
    expect_close(batch, run_joint(batch));
  }
}

// The mask is a node's own: the same in both calls, in every chunk and on every device.
TEST_P(TransducerPath, JointWithDropout) {
  for (const DType dtype : {DType::kFloat64, DType::kFloat32, DType::kBFloat16}) {
    for (const bool tanh : {false, true}) {
      SCOPED_TRACE(::testing::Message() << static_cast<int>(dtype) << " " << tanh);
      std::mt19937 random(6);
      JointBatch batch;
      batch.dtype = dtype;
      batch.network.hidden = 23;
      batch.network.tanh = tanh;
      batch.network.dropout = 0.3;
      batch.network.seed = 0x1234567890abcdef;
      const int v = dtype == DType::kBFloat16 ? 140 : 12;
      batch.add(family(0, 9, 4, v, random), random, 1.5);
      batch.add(family(0, 7, 5, v, random), random, -0.5);
      const JointRun run = run_joint(batch);
      expect_close(batch, run, of_matrix_units(dtype));
      batch.network.seed = 1;
      EXPECT_NE(run_joint(batch, false).loss, run.loss);
    }
  }
}

TEST_P(TransducerPath, JointWithoutPathOrWithNaN) {
  std::mt19937 random(5);
  JointBatch batch;
  batch.network.hidden = 8;
  batch.add(family(0, 6, 3, 9, random), random);
  batch.add(family(0, 0, 2, 9, random), random);  // no frame: no path
  batch.add(family(0, 5, 2, 9, random), random);
  expect_close(batch, run_joint(batch));
  batch.encoder[2][3] = kNan;
  const JointRun run = run_joint(batch);
  ASSERT_TRUE(run.status.ok());
  EXPECT_FALSE(std::isnan(run.loss[0]));
  EXPECT_TRUE(std::isnan(run.loss[2]));
  for (std::size_t n = 0; n < run.encoder.size(); ++n) {
    EXPECT_EQ(std::isnan(run.encoder[n]), n >= 2 * 6 * 8 && n < (2 * 6 + 5) * 8) << n;
  }
  for (std::size_t n = 0; n < run.predictor.size(); ++n) {
    EXPECT_EQ(std::isnan(run.predictor[n]), n >= 2 * 4 * 8 && n < (2 * 4 + 3) * 8) << n;
  }
  for (const double g : run.weight) EXPECT_TRUE(std::isnan(g));
  for (const double g : run.bias) EXPECT_TRUE(std::isnan(g));
}

#if WARPALIGN_SIMT
constexpr int kShorter = 2;
#else
constexpr int kShorter = 1;
#endif

// Long enough for dead nodes.
JointBatch long_batch(DType dtype) {
  std::mt19937 random(11);
  JointBatch batch;
  batch.dtype = dtype;
  batch.network.hidden = 24;
  for (const auto& [frames, u] :
       {std::pair{150 / kShorter, 40}, {1, 3}, {60 / kShorter, 70}, {0, 0}, {33, 0}}) {
    batch.add(family(0, frames, u, 40, random), random, 0.5);
  }
  return batch;
}

TEST_P(TransducerPath, JointOfDeadNodes) {
  const JointBatch batch = long_batch(DType::kFloat32);
  expect_close(batch, run_joint(batch));
  const JointRun value = run_joint(batch, false);
  EXPECT_EQ(value.loss, run_joint(batch).loss);
}

TEST_P(TransducerPath, JointOfAnUtteranceAloneHasTheSameBits) {
  for (const DType dtype : kEveryDType) {
    const JointBatch batch = long_batch(dtype);
    const JointRun all = run_joint(batch);
    ASSERT_TRUE(all.status.ok());
    JointBatch alone = batch;
    alone.problems = {batch.problems[2]};
    alone.encoder = {batch.encoder[2]};
    alone.predictor = {batch.predictor[2]};
    alone.grad_loss = {batch.grad_loss[2]};
    const JointRun one = run_joint(alone);
    ASSERT_TRUE(one.status.ok());
    EXPECT_EQ(one.loss[0], all.loss[2]);
    const auto part = [](const std::vector<double>& from, std::size_t rows, std::size_t b) {
      const auto begin = from.begin() + static_cast<std::ptrdiff_t>(b * rows * 24);
      return std::vector<double>(begin, begin + static_cast<std::ptrdiff_t>(rows * 24));
    };
    EXPECT_EQ(one.encoder, part(all.encoder, batch.frames, 2));
    EXPECT_EQ(one.predictor, part(all.predictor, batch.states, 2));
  }
}

TEST_P(TransducerPath, JointRunsAgainWithTheSameBits) {
  const JointBatch batch = long_batch(DType::kFloat32);
  const JointRun first = run_joint(batch), again = run_joint(batch);
  ASSERT_TRUE(first.status.ok());
  EXPECT_EQ(again.loss, first.loss);
  EXPECT_EQ(again.encoder, first.encoder);
  EXPECT_EQ(again.predictor, first.predictor);
  EXPECT_EQ(again.weight, first.weight);
  EXPECT_EQ(again.bias, first.bias);
}

// Nodes go through the workspace in the smallest chunks, with borders within an utterance and a frame.
TEST_P(TransducerPath, JointOfSeveralChunks) {
  std::mt19937 random(3);
  JointBatch batch;
  batch.dtype = DType::kFloat64;
  batch.network.hidden = 9;
  batch.network.tanh = true;
  batch.workspace_limit = 0;
  for (const auto& [frames, u] : {std::pair{25, 20}, {30, 24}}) {
    reference::Transducer p;
    p.frames = frames;
    p.labels = 300;
    for (int k = 0; k < u; ++k) p.targets.push_back(1 + static_cast<int>(random() % 299));
    batch.add(p, random, 0.5);
  }
  const JointRun all = run_joint(batch);
  expect_close(batch, all);
  // In float64 all 1275 nodes are live.
  JointBatch alone = batch;
  alone.problems = {batch.problems[1]};
  alone.encoder = {batch.encoder[1]};
  alone.predictor = {batch.predictor[1]};
  alone.grad_loss = {batch.grad_loss[1]};
  const JointRun one = run_joint(alone);
  ASSERT_TRUE(one.status.ok());
  EXPECT_EQ(one.loss[0], all.loss[1]);
  EXPECT_TRUE(std::equal(one.encoder.begin(), one.encoder.end(), all.encoder.begin() + 30 * 9));
  EXPECT_TRUE(std::equal(one.predictor.begin(), one.predictor.end(), all.predictor.begin() + 25 * 9));
}

// What a call needs besides its inputs and results, where the logits have 1.2 GiB.
TEST_P(TransducerPath, JointMemoryIsBounded) {
  TransducerJointProblem p;
  p.dtype = DType::kBFloat16;
  p.hidden = 640;
  p.labels = 1024;
  p.lattice.batch = 16;
  p.lattice.frames = 400;
  p.lattice.states = 101;
  char place = 0;
  const TransducerOutputs outputs{&place, &place};
  const TransducerJointGradient gradient{&place, &place, 1, &place, &place, &place, &place};
  const Execution execution = GetParam().cuda ? Execution::cuda(0, nullptr) : Execution::host();
  const std::size_t saved = transducer_joint_saved_bytes(p, execution);
  EXPECT_GT(saved, std::size_t{7} << 20);
  EXPECT_LE(saved, transducer_joint_most_saved_bytes(p, execution.device));
  for (const std::int64_t mib : {48, 128}) {
    p.workspace_limit = mib << 20;
    const std::size_t most = static_cast<std::size_t>(mib + 16) << 20;
    EXPECT_LE(saved + transducer_joint_workspace_bytes(p, outputs, execution), most);
    EXPECT_LE(saved + transducer_joint_gradient_workspace_bytes(p, gradient, execution), most);
  }
}

// Of a band of few states CUDA saves these states alone.
TEST_P(TransducerPath, JointSavesTheBandAlone) {
  TransducerJointProblem p;
  p.dtype = DType::kBFloat16;
  p.hidden = 64;
  p.labels = 100;
  p.lattice.batch = 3;
  p.lattice.frames = 200;
  p.lattice.states = 150;
  const std::int32_t first = 0;
  p.band = &first;
  const Execution execution = GetParam().cuda ? Execution::cuda(0, nullptr) : Execution::host();
  for (const int width : {1, 5, 8, 9, 150}) {
    p.band_states = width;
    const std::size_t saved = transducer_joint_saved_bytes(p, execution);
    const std::size_t most = transducer_joint_most_saved_bytes(p, execution.device);
    EXPECT_LE(saved, most) << width;
    if (GetParam().cuda && width <= 8) {
      EXPECT_LE(most, std::size_t{320} << 10) << width;
    } else {
      EXPECT_GT(saved, std::size_t{1} << 20) << width;
    }
  }
}

WARPALIGN_FOR_EVERY(TransducerPath, all_paths);

}  // namespace
}  // namespace warpalign::test
