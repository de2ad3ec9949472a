// CTC's losses, gradients and posteriors against the float64 reference.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "fixture.h"
#include "warpalign/thread_pool.h"
#include "warpalign/tuning.h"

namespace warpalign::test {
namespace {

WARPALIGN_FOR_EVERY(CtcPath, instruction_sets);

constexpr DType kDTypes[] = {DType::kFloat32, DType::kFloat64, DType::kFloat16, DType::kBFloat16};

CtcBatch random_batch(DType dtype, const Ctc& family, const std::vector<std::pair<int, int>>& sizes,
                      unsigned seed) {
  std::mt19937 random(seed);
  CtcBatch batch;
  batch.dtype = dtype;
  for (const auto& [frames, labels] : sizes) {
    Ctc one = family;
    one.frames = frames;
    one.targets = random_targets(family, labels, random);
    batch.add(one, random, 2);
  }
  return batch;
}

// Sizes around the vectors' widths, with few classes and with many.
TEST_P(CtcPath, Grid) {
  for (const DType dtype : kDTypes) {
    for (const int classes : {2, 5, 31, 33, 97, 257}) {
      std::vector<std::pair<int, int>> sizes;
      for (const int labels : {0, 1, 2, 7, 8, 9, 15, 16, 17, 31, 33})
        sizes.emplace_back(2 * labels + 3, labels);
      expect_close(random_batch(dtype, {1, classes, {}, classes / 2}, sizes, classes),
                   run(random_batch(dtype, {1, classes, {}, classes / 2}, sizes, classes)));
    }
  }
}

// Many frames: segments, and many labels in few frames.
TEST_P(CtcPath, LongUtterances) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat64}) {
    const CtcBatch batch = random_batch(
        dtype, {1, 9}, {{700, 200}, {300, 5}, {97, 60}, {255, 120}, {40, 39}, {20, 30}, {1, 0}}, 7);
    expect_close(batch, run(batch));
  }
}

TEST_P(CtcPath, Layouts) {
  const std::vector<std::pair<int, int>> sizes = {{12, 4}, {9, 0}, {0, 0}, {0, 3}, {7, 5}, {30, 6}};
  for (const DType dtype : kDTypes) {
    for (int option = 0; option < 64; ++option) {
      CtcBatch batch = random_batch(dtype, {1, 11, {}, 3}, sizes, 100 + option);
      batch.layout.time_major = (option & 1) != 0;
      batch.layout.wide_integers = (option & 2) != 0;
      batch.layout.flat_targets = (option & 4) != 0;
      batch.layout.in_place = (option & 8) != 0;
      batch.layout.gap = (option & 16) != 0 ? 5 : 0;
      batch.layout.classes_outside = (option & 32) != 0;
      if (option % 3 != 0) batch.grad_loss = {1, -2, 3, 0.5, 0, 0.125};
      expect_close(batch, run(batch));
    }
  }
}

TEST_P(CtcPath, WithoutLengths) {
  CtcBatch batch = random_batch(DType::kFloat32, {1, 6}, {{20, 7}, {20, 7}, {20, 7}}, 5);
  batch.layout.lengths = false;
  expect_close(batch, run(batch));
}

TEST_P(CtcPath, Options) {
  for (const DType dtype : kDTypes) {
    for (const bool log_probs : {false, true}) {
      for (const int star : {-1, 3, 50}) {
        for (const bool has_prior : {false, true}) {
          Ctc family{1, 12, {}, 2, star, {}, log_probs, false};
          for (int c = 0; has_prior && c < 12; ++c) family.prior.push_back(0.25 * c - 1.5);
          CtcBatch batch = random_batch(dtype, family, {{25, 9}, {14, 3}, {6, 6}, {3, 0}}, 31);
          batch.grad_loss = {1, 2, -1, 0.5};
          expect_close(batch, run(batch));
        }
      }
    }
  }
}

TEST_P(CtcPath, NoPath) {
  for (const bool zero_infinity : {false, true}) {
    CtcBatch batch;
    const Ctc family{0, 4, {}, 0, -1, {}, false, zero_infinity};
    std::mt19937 random(3);
    Ctc one = family;
    one.frames = 3;
    one.targets = {1, 1, 2};  // takes four frames
    batch.add(one, random);
    one.frames = 4;
    batch.add(one, random);
    one.frames = 0;
    batch.add(one, random);
    one.targets = {};
    batch.add(one, random);
    const CtcRun result = run(batch);
    expect_close(batch, result);
    EXPECT_EQ(result.loss[0], zero_infinity ? 0 : kInf);
    EXPECT_EQ(result.loss[3], 0);
    for (const double g : result.gradient[0]) EXPECT_EQ(g, 0);
  }
}

// Classes that cannot be emitted, frames without any class, NaN and +inf.
TEST_P(CtcPath, ExtremeLogits) {
  for (const DType dtype : kDTypes) {
    for (const int star : {-1, 9}) {
      CtcBatch batch =
          random_batch(dtype, {1, 7, {}, 0, star}, {{9, 3}, {9, 3}, {9, 3}, {9, 3}, {9, 3}, {9, 2}}, 77);
      for (int t = 0; t < 9; ++t) batch.logits[0][t * 7 + t % 7] = -kInf;
      for (int t = 2; t < 9; ++t) batch.logits[1][t * 7] = -kInf;
      for (int c = 0; c < 7; ++c) batch.logits[2][4 * 7 + c] = -kInf;
      batch.logits[3][5] = std::numeric_limits<double>::quiet_NaN();
      batch.logits[4][50] = kInf;
      for (double& x : batch.logits[5]) x = rounded(dtype, x * 1000);
      const CtcRun result = run(batch);
      expect_close(batch, result);
      for (const double g : result.gradient[0]) EXPECT_TRUE(std::isfinite(g));
      for (const double g : result.gradient[2]) EXPECT_EQ(g, 0);
      EXPECT_EQ(result.loss[2], kInf);
      EXPECT_TRUE(std::isnan(result.loss[3]));
      EXPECT_TRUE(std::isnan(result.loss[4]));
    }
  }
}

// With log-probabilities, only entries that states name are looked at.
TEST_P(CtcPath, UnnamedLogProbs) {
  for (const int classes : {6, 200}) {
    CtcBatch batch = random_batch(DType::kFloat32, {1, classes, {}, 0, -1, {}, true}, {{9, 0}, {9, 0}}, 5);
    for (int b = 0; b < 2; ++b) {
      batch.utterances[b].targets = {1, 3, 1};
      for (int t = 0; t < 9; ++t) batch.logits[b][t * classes + 4] = b == 0 ? kInf : std::nan("");
    }
    batch.labels = 3;
    const CtcRun result = run(batch);
    expect_close(batch, result);
    EXPECT_TRUE(std::isfinite(result.loss[0]));
    EXPECT_TRUE(std::isfinite(result.loss[1]));
  }
}

// Alphas that fall far below the smallest number, and that a state far from the others carries.
TEST_P(CtcPath, HugeScores) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat64}) {
    for (const double scale : {30.0, 300.0, 1e4}) {
      std::mt19937 random(9);
      CtcBatch batch;
      batch.dtype = dtype;
      for (const int frames : {30, 40, 200}) {
        Ctc one{frames, 12, {}, 0};
        one.targets = random_targets(one, 20, random);
        batch.add(one, random, scale);
      }
      expect_close(batch, run(batch));
    }
  }
}

TEST_P(CtcPath, SameBitsForAnyThreads) {
  if (on_cuda()) GTEST_SKIP() << "host threads";
  for (const int star : {-1, 20}) {
    CtcBatch batch =
        random_batch(DType::kFloat32, {1, 20, {}, 0, star}, {{300, 30}, {80, 20}, {500, 11}}, 12);
    const CtcRun alone = run(batch);
    for (const int threads : {2, 3, 7}) {
      ThreadPool pool(threads);
      const CtcRun shared = run(batch, true, pool.parallel_for());
      EXPECT_EQ(shared.bits, alone.bits) << threads << " threads";
    }
    CtcBatch one;
    one.add(batch.utterances[2], batch.logits[2]);
    EXPECT_EQ(run(one).loss[0], alone.loss[2]);
    EXPECT_EQ(run(one).gradient[0], alone.gradient[2]);
  }
}

// Stripes of few pairs, so that an utterance has several of them.
class NarrowStripes {
 public:
  NarrowStripes() { EXPECT_TRUE(force_ctc_threshold("stripe_pairs", 16)); }
  ~NarrowStripes() { force_ctc_threshold("stripe_pairs", kMeasuredThreshold); }
  NarrowStripes(const NarrowStripes&) = delete;
  NarrowStripes& operator=(const NarrowStripes&) = delete;
};

// Threads share stripes of pairs. Of the utterances, one is far shorter than its stripes, one has as many
// frames as labels, one has no path, and one no labels.
TEST_P(CtcPath, Stripes) {
  if (on_cuda()) GTEST_SKIP() << "host threads";
  const NarrowStripes stripes;
  for (const int star : {-1, 3}) {
    for (const std::vector<std::pair<int, int>>& sizes : {std::vector<std::pair<int, int>>{{310, 150}},
                                                          {{190, 97}, {40, 12}, {90, 90}, {30, 50}, {20, 0}},
                                                          {{1200, 800}}}) {
      CtcBatch batch = random_batch(DType::kFloat32, {1, 4, {}, 0, star}, sizes, 31);
      const CtcRun alone = run(batch);
      expect_close(batch, alone);
      const std::vector<double> alone_posteriors = posteriors(batch);
      for (const int threads : {2, 3, 7}) {
        ThreadPool pool(threads);
        EXPECT_EQ(run(batch, true, pool.parallel_for()).bits, alone.bits) << threads << " threads";
        EXPECT_EQ(posteriors(batch, pool.parallel_for()), alone_posteriors) << threads << " threads";
      }
      CtcBatch last;  // alone it has the same bits
      last.add(batch.utterances.back(), batch.logits.back());
      EXPECT_EQ(run(last).gradient[0], alone.gradient.back());
      if (batch.size() > 1) {
        CtcBatch second;
        second.add(batch.utterances[1], batch.logits[1]);
        EXPECT_EQ(run(second).gradient[0], alone.gradient[1]);
        CtcBatch longer = random_batch(DType::kFloat32, {1, 4, {}, 0, star}, {{600, 290}}, 7);
        longer.add(batch.utterances[0], batch.logits[0]);
        EXPECT_EQ(run(longer).gradient[1], alone.gradient[0]);
      }
      batch.logits[0][4 * 180] = std::nan("");  // in frame 180
      ThreadPool pool(3);
      EXPECT_TRUE(std::isnan(run(batch, true, pool.parallel_for()).loss[0]));
    }
  }
}

TEST_P(CtcPath, Posteriors) {
  for (const DType dtype : kDTypes) {
    for (const int star : {-1, 30}) {
      CtcBatch batch =
          random_batch(dtype, {1, 9, {}, 0, star}, {{40, 17}, {12, 3}, {3, 5}, {0, 0}, {5, 0}, {300, 2}}, 21);
      batch.logits[1][4] = std::nan("");
      const std::vector<double> found = posteriors(batch);
      for (int b = 0; b < batch.size(); ++b) {
        const Ctc& one = batch.utterances[b];
        const reference::CtcResult expected = reference::ctc(one, batch.logits[b]);
        // As expect_close() has it for gradients.
        const double tolerance = dtype != DType::kFloat64       ? 2e-7
                                 : std::isfinite(expected.loss) ? 1e-13 + 2e-15 * expected.loss
                                                                : 0;
        for (int t = 0; t < batch.frames; ++t) {
          for (int k = 0; k < batch.labels; ++k) {
            const double g = found[(static_cast<std::size_t>(b) * batch.frames + t) * batch.labels + k];
            if (t >= one.frames || k >= one.labels()) {
              EXPECT_EQ(g, 0);
            } else if (b == 1) {
              EXPECT_TRUE(std::isnan(g));
            } else {
              EXPECT_NEAR(g, expected.posteriors[static_cast<std::size_t>(t) * one.states() + 2 * k + 1],
                          tolerance);
            }
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace warpalign::test
