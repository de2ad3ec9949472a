// What the CUDA path alone has: panels on several blocks, exponents near and far, and arguments that are on
// the device, where the host cannot check them.
#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "device_buffer.h"
#include "testing.h"

namespace warpalign::test {
namespace {

using reference::Transducer;

Transducer plain(int frames, int labels_u, int v, std::mt19937& random) {
  Transducer p;
  p.frames = frames;
  p.labels = v;
  p.blank = v - 1;
  for (int u = 0; u < labels_u; ++u) p.targets.push_back(static_cast<int>(random() % (v - 5)));
  return p;
}

Transducer family(int number, int frames, int labels_u, int v, std::mt19937& random) {
  Transducer p = plain(frames, labels_u, v, random);
  if (number == 1) p.durations = {2, 4, 8}, p.big_blank_columns = {v - 2, v - 3, v - 4};
  if (number == 2) p.durations = {0, 1, 2, 3, 4}, p.tdt = true;
  if (number == 3) p.durations = {5, 0, 1, 2, 3, 4}, p.tdt = true;
  return p;
}
constexpr int kKinds = 4;  // 2, 5, 9 and 11 arcs

class TransducerCuda : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!has_gpu()) GTEST_SKIP() << "no GPU";
  }
  static TransducerRun run(const TransducerBatch& batch, bool want_gradient = true) {
    return run_on<DeviceBuffer>(batch, Execution::cuda(0, nullptr), want_gradient);
  }
};

// A panel has 128 columns.
TEST_F(TransducerCuda, ManyPanels) {
  for (int kind = 0; kind < kKinds; ++kind) {
    for (const DType dtype : {DType::kFloat32, DType::kFloat64}) {
      for (const auto& [frames, u] : {std::pair{40, 127}, {33, 128}, {1, 150}, {97, 256}, {20, 270}}) {
        SCOPED_TRACE(::testing::Message() << kind << ", " << frames << " x " << u + 1);
        std::mt19937 random(u);
        TransducerBatch batch;
        batch.dtype = dtype;
        batch.packed = frames == 97;
        batch.add(family(kind, frames, u, 11, random), random);
        batch.add(family(kind, 20, 3, 11, random), random);
        batch.add(family(kind, frames, u - 3, 11, random), random);
        expect_close(batch, run(batch));
      }
    }
  }
}

TEST_F(TransducerCuda, ManyFrames) {
  std::mt19937 random(1);
  TransducerBatch batch;
  batch.add(plain(66000, 1, 6, random), random);
  batch.add(plain(66000, 0, 6, random), random);
  expect_close(batch, run(batch));
}

// Weights steeper than 2^-32768 take the sweep's 64-bit exponents, for the groups of steps that have them.
TEST_F(TransducerCuda, SteepWeightsHereAndThere) {
  for (const double steep : {-1e3, -3e4, -1e6, -1e8, -kInf}) {
    SCOPED_TRACE(steep);
    std::mt19937 random(2);
    TransducerBatch batch;
    batch.add(plain(120, 60, 9, random), random);
    auto& one = batch.cases[0];
    for (int n = 0; n < 300; ++n) {
      const std::size_t node = random() % (120 * 61);
      const std::size_t u = node % 61;
      const int column = n % 2 && u < 60 ? one.problem.targets[u] : one.problem.blank;
      one.rows[node * 9 + column] = steep;
    }
    expect_close(batch, run(batch));
  }
}

// Whole frames without cheap ways: every path pays, and exponents of the strips drift far apart. Beyond some
// hundreds a float32 weight does not hold what distinguishes the paths, and only the loss is a stable number.
TEST_F(TransducerCuda, SteepFrames) {
  for (const double steep : {-100.0, -1e5, -1e7}) {
    SCOPED_TRACE(steep);
    std::mt19937 random(4);
    TransducerBatch batch;
    batch.add(plain(90, 140, 9, random), random);
    auto& one = batch.cases[0];
    for (int u = 0; u < 141; ++u) {
      for (const int t : {20, 21, 50}) one.rows[(t * 141 + u) * 9 + one.problem.blank] = steep;
    }
    const TransducerRun result = run(batch, steep == -100.0);
    expect_close(batch, result);
    EXPECT_EQ(run(batch).loss, result.loss);
  }
}

// The same of lattices with more arcs, which go on with 64 bits from the first group on that needs them.
// Strips and panels differ in where that is.
TEST_F(TransducerCuda, SteepWeightsOfManyArcs) {
  for (int kind = 1; kind < kKinds; ++kind) {
    for (const double steep : {-1e3, -3e4, -1e6, -1e8, -kInf}) {
      for (const int u : {60, 150}) {
        SCOPED_TRACE(::testing::Message() << kind << ", " << steep << ", " << u);
        std::mt19937 random(2);
        TransducerBatch batch;
        batch.add(family(kind, 120, u, 11, random), random);
        auto& one = batch.cases[0];
        const int width = one.width();
        for (int n = 0; n < 300; ++n) {
          const std::size_t node = (n % 2 ? 70 : 0) * (u + 1) + random() % (40 * (u + 1));
          const std::size_t state = node % (u + 1);
          const int label = state < static_cast<std::size_t>(u) ? one.problem.targets[state] : 0;
          const int column = n % 3 == 0 ? label : n % 3 == 1 ? one.problem.blank : one.problem.blank - 2;
          one.rows[node * width + column] = steep;
        }
        expect_close(batch, run(batch));
      }
    }
  }
}

// Whole frames without a cheap way: exponents of strips drift beyond what 32 bits are allowed.
TEST_F(TransducerCuda, SteepFramesOfManyArcs) {
  for (int kind = 1; kind < kKinds; ++kind) {
    for (const double steep : {-100.0, -1e5, -1e7}) {
      SCOPED_TRACE(::testing::Message() << kind << ", " << steep);
      std::mt19937 random(4);
      TransducerBatch batch;
      batch.add(family(kind, 90, 140, 11, random), random);
      auto& one = batch.cases[0];
      const int width = one.width();
      for (int u = 0; u < 141; ++u) {
        for (int t = 20; t < 40; ++t) {
          for (int k = 6; k < 11; ++k) one.rows[(t * 141 + u) * width + k] = steep;  // blanks
          one.rows[(t * 141 + u) * width + 5] = 0;
        }
      }
      const TransducerRun result = run(batch, steep == -100.0);
      expect_close(batch, result);
      EXPECT_EQ(run(batch).loss, result.loss);
    }
  }
}

TransducerBatch four_utterances(std::mt19937& random) {
  TransducerBatch batch;
  for (int b = 0; b < 4; ++b) batch.add(plain(12, 7, 13, random), random);
  return batch;
}

TEST_F(TransducerCuda, InvalidLabelsMakeTheirUtteranceNan) {
  for (int kind = 0; kind < 3; ++kind) {
    for (const bool packed : {false, true}) {
      std::mt19937 random(3);
      TransducerBatch batch;
      batch.packed = batch.flat_targets = packed;
      for (int b = 0; b < 5; ++b) batch.add(family(kind, 12, 7, 13, random), random);
      const TransducerRun expected = run(batch);
      batch.cases[0].problem.targets[0] = -1;
      batch.cases[2].problem.targets[6] = 13;
      batch.cases[3].problem.targets[3] = batch.family().blank;
      const TransducerRun result = run(batch);
      for (int b = 0; b < 5; ++b) {
        if (b == 1 || b == 4) {
          EXPECT_EQ(result.loss[b], expected.loss[b]);
          EXPECT_EQ(result.gradient[b], expected.gradient[b]);
          continue;
        }
        EXPECT_TRUE(std::isnan(result.loss[b])) << b;
        for (const double g : result.gradient[b]) ASSERT_TRUE(std::isnan(g)) << b;
      }
    }
  }
}

TEST_F(TransducerCuda, LengthsOutOfRangeAreClamped) {
  std::mt19937 random(5);
  TransducerBatch batch = four_utterances(random);
  const TransducerRun expected = run(batch);
  const DeviceBuffer frames(std::vector<std::int32_t>{12, 99, -3, 12});
  const DeviceBuffer labels(std::vector<std::int32_t>{1 << 30, 7, 7, 7});
  batch.adjust = [&](TransducerProblem& p) {
    p.lattice.logit_lengths = static_cast<const std::int32_t*>(frames.data());
    p.lattice.target_lengths = static_cast<const std::int32_t*>(labels.data());
  };
  const TransducerRun result = run(batch);
  for (const int b : {0, 1, 3}) {
    EXPECT_EQ(result.loss[b], expected.loss[b]);
    EXPECT_EQ(result.gradient[b], expected.gradient[b]);
  }
  EXPECT_EQ(result.loss[2], kInf);
  for (const double g : result.gradient[2]) ASSERT_EQ(g, 0);
}

TEST_F(TransducerCuda, PackedUtterancesWithoutAllOfTheirRowsAreNan) {
  std::mt19937 random(6);
  TransducerBatch batch = four_utterances(random);
  batch.packed = true;
  const TransducerRun expected = run(batch);
  // The third has more frames than the caller's rows; what is left of them belongs to it.
  const DeviceBuffer frames(std::vector<std::int32_t>{12, 12, 25, 12});
  batch.adjust = [&](TransducerProblem& p) {
    p.lattice.frames = 25;
    p.lattice.logit_lengths = static_cast<const std::int32_t*>(frames.data());
  };
  const TransducerRun too_many = run(batch);
  for (int b = 0; b < 4; ++b) {
    EXPECT_EQ(std::isnan(too_many.loss[b]), b >= 2);
    if (b < 2) {
      EXPECT_EQ(too_many.gradient[b], expected.gradient[b]);
    }
    for (const double g : too_many.gradient[b]) ASSERT_EQ(std::isnan(g), b >= 2);
  }
  // Rows of no utterance.
  const DeviceBuffer fewer(std::vector<std::int32_t>{12, 12, 12, 3});
  batch.adjust = [&](TransducerProblem& p) {
    p.lattice.logit_lengths = static_cast<const std::int32_t*>(fewer.data());
  };
  const TransducerRun too_few = run(batch);
  EXPECT_EQ(too_few.gradient[2], expected.gradient[2]);
  for (std::size_t n = 3 * 8 * 13; n < too_few.gradient[3].size(); ++n) ASSERT_EQ(too_few.gradient[3][n], 0);
}

TEST_F(TransducerCuda, FlatTargetsThatEndTooSoonAreNan) {
  std::mt19937 random(7);
  TransducerBatch batch = four_utterances(random);
  batch.flat_targets = true;
  const TransducerRun expected = run(batch);
  batch.adjust = [](TransducerProblem& p) { p.lattice.target_count = 27; };
  const TransducerRun result = run(batch);
  for (int b = 0; b < 3; ++b) EXPECT_EQ(result.gradient[b], expected.gradient[b]);
  EXPECT_TRUE(std::isnan(result.loss[3]));
  for (const double g : result.gradient[3]) ASSERT_TRUE(std::isnan(g));
}

// What a front end allocates without asking the device.
TEST_F(TransducerCuda, SavedBytesHaveTheirBound) {
  const Execution cuda = Execution::cuda(0, nullptr);
  for (int kind = 0; kind < 3; ++kind) {
    for (const DType dtype : {DType::kFloat32, DType::kFloat64, DType::kBFloat16}) {
      for (const int batch : {1, 2, 77}) {
        for (const int frames : {0, 1, 31, 400}) {
          for (const int states : {1, 2, 31, 32, 33, 101, 300}) {
            std::mt19937 random(1);
            TransducerBatch one;
            one.dtype = dtype;
            one.add(family(kind, 1, 0, 11, random), random);
            TransducerProblem p = problem_of(one);
            p.lattice.batch = batch;
            p.lattice.frames = frames;
            p.lattice.states = states;
            p.lattice.flat_targets = kind == 1;
            EXPECT_LE(transducer_saved_bytes(p, cuda), transducer_most_saved_bytes(p));
            p.packed = true;
            for (const std::int64_t rows : {0, 1, 100, 5000, 1000000}) {
              p.packed_rows = rows;
              EXPECT_LE(transducer_saved_bytes(p, cuda), transducer_most_saved_bytes(p));
            }
          }
        }
      }
    }
  }
}

// The bounds of packed rows may be far above the true lengths.
TEST_F(TransducerCuda, BoundsOfPackedRowsMayBeLoose) {
  for (int kind = 0; kind < 3; ++kind) {
    std::mt19937 random(8);
    TransducerBatch batch;
    batch.packed = batch.flat_targets = true;
    for (const auto& [frames, u] : {std::pair{30, 11}, {0, 3}, {64, 5}, {7, 150}, {1, 0}}) {
      batch.add(family(kind, frames, u, 13, random), random);
    }
    const TransducerRun expected = run(batch);
    expect_close(batch, expected);
    batch.adjust = [](TransducerProblem& p) {
      p.lattice.frames = 100000;
      p.lattice.states = 1000;
    };
    EXPECT_EQ(run(batch).bits, expected.bits);
  }
}

TEST_F(TransducerCuda, ManyShortUtterances) {
  std::mt19937 random(9);
  for (const bool packed : {false, true}) {
    TransducerBatch batch;
    batch.packed = batch.flat_targets = packed;
    for (int b = 0; b < 600; ++b) {
      batch.add(plain(static_cast<int>(random() % 4), static_cast<int>(random() % 3), 7, random), random);
    }
    expect_close(batch, run(batch));
  }
}

}  // namespace
}  // namespace warpalign::test
