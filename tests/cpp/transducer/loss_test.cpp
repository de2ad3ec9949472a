// The losses and gradients of every path against known results and the float64 reference.
#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "families.h"
#include "fixture.h"
#include "golden.h"
#include "random_batches.h"
#include "warpalign/thread_pool.h"

namespace warpalign::test {
namespace {

TEST_P(TransducerPath, KnownResults) {
  for (const Golden& golden : golden_results()) {
    SCOPED_TRACE(golden.input.name);
    TransducerBatch batch;
    batch.dtype = DType::kFloat64;
    batch.add(golden.input);
    const TransducerRun result = run(batch);
    expect_close(batch, result);
    EXPECT_NEAR(result.loss[0], golden.loss, golden.tolerance);
    double sum = 0;
    for (const double g : result.gradient[0]) sum += std::abs(g);
    if (golden.sum_of_gradient >= 0) {
      EXPECT_NEAR(sum, golden.sum_of_gradient, 1e-10);
    }
  }
}

TEST_P(TransducerPath, EverySize) {
  int turn = 0;
  for (const int frames : {1, 2, 31, 32, 33, 97}) {
    for (const int states : {1, 2, 31, 32, 33, 97}) {
      for (const int v : {1, 2, 29, 64, 65}) {
        if (turn++ % kThinning || (v == 1 && states > 1)) continue;
        SCOPED_TRACE(::testing::Message() << frames << " x " << states << " x " << v);
        std::mt19937 random(turn);
        TransducerBatch batch;
        batch.dtype = kEveryDType[turn / kThinning % 2];
        batch.add(plain(frames, states - 1, v, random), random);
        expect_close(batch, run(batch));
      }
    }
  }
}

TEST_P(TransducerPath, EveryFamilyAndPenaltyInRaggedBatches) {
  for_ragged_batches([](TransducerBatch batch, int penalty) {
    for (std::size_t k = 1; k <= batch.cases.size(); ++k) {
      batch.grad_loss.push_back(penalty % 2 ? -.75 + .5 * static_cast<double>(k) : 1);
    }
    expect_close(batch, run(batch));
  });
}

TEST_P(TransducerPath, LongArcs) {
  for_long_arcs([](const TransducerBatch& batch) { expect_close(batch, run(batch)); });
}

// A node has two arcs, as in plain RNN-T, but not its durations; or fewer slots than utterances without any.
TEST_P(TransducerPath, OneDuration) {
  for (const int duration : {1, 2, 3}) {
    std::mt19937 random(duration);
    TransducerBatch batch;
    for (const auto& [frames, u] : {std::pair{42, 9}, {6, 1}, {12, 0}, {72, 33}}) {
      Transducer p = with_durations(plain(frames, u, 14, random), {duration});
      p.without_durations = u == 9;
      batch.add(p, random);
    }
    expect_close(batch, run(batch));
  }
}

TEST_P(TransducerPath, WideRows) {
  for (const int v : {127, 1025, 4096}) {
    for (const DType dtype : kEveryDType) {
      SCOPED_TRACE(::testing::Message() << v << ", dtype " << static_cast<int>(dtype));
      std::mt19937 random(v);
      TransducerBatch batch;
      batch.dtype = dtype;
      batch.add(plain(7, 4, v, random), random, 3);
      batch.add(plain(5, 2, v, random), random, 3);
      expect_close(batch, run(batch));
    }
  }
}

TEST_P(TransducerPath, SteepLogits) {
  for (const double scale : {30.0, 1000.0, 1e5}) {
    for (const DType dtype : {DType::kFloat32, DType::kFloat64}) {
      SCOPED_TRACE(scale);
      std::mt19937 random(5);
      TransducerBatch batch;
      batch.dtype = dtype;
      batch.add(plain(50, 20, 30, random), random, scale);
      const TransducerRun result = run(batch);
      const auto& one = batch.cases[0];
      const auto expected = reference::transducer(one.problem, one.logits());
      // Ties between paths of such weights are decided by rounding: only the loss is a stable number.
      EXPECT_NEAR(result.loss[0], expected.loss, (dtype == DType::kFloat64 ? 1e-15 : 4e-7) * expected.loss);
      for (const double g : result.gradient[0]) ASSERT_TRUE(std::isfinite(g));
    }
  }
}

TEST_P(TransducerPath, SpecialValuesStayInTheirUtterance) {
  for (const DType dtype : kEveryDType) {
    for (const bool zero_infinity : {false, true}) {
      std::mt19937 random(3);
      TransducerBatch batch;
      batch.dtype = dtype;
      Transducer p = plain(9, 4, 12, random);
      p.zero_infinity = zero_infinity;
      for (int b = 0; b < 8; ++b) batch.add(p, random);
      const auto at = [&](int b, int t, int u, int k) -> double& {
        return batch.cases[b].rows[(t * 5 + u) * 12 + k];
      };
      at(0, 3, 2, 5) = kNan;
      at(1, 8, 4, 0) = kInf;
      at(2, 4, 1, 11) = -kInf;                              // one blank
      for (int u = 0; u < 5; ++u) at(3, 6, u, 11) = -kInf;  // no blank leaves frame 6: no path
      for (int k = 0; k < 12; ++k) at(4, 5, 3, k) = -kInf;  // a whole row
      for (int k = 0; k < 12; ++k) at(5, 0, 0, k) = -kInf;  // no path
      for (int u = 0; u < 5; ++u) at(6, 6, u, 11) = -kInf;  // no path and a NaN
      at(6, 1, 1, 2) = kNan;
      batch.grad_loss = {1, 1, -1, 1, 0, 1, 1, 0};
      for (const bool in_place : {false, true}) {
        batch.in_place = in_place;
        expect_close(batch, run(batch));
      }
    }
  }
}

TEST_P(TransducerPath, BitsDependOnTheUtteranceAlone) {
  for (int kind = 0; kind < 3; ++kind) {
    for (const DType dtype : kEveryDType) {
      std::mt19937 random(kind + 1);
      TransducerBatch padded;
      padded.dtype = dtype;
      for (const auto& [frames, u] : {std::pair{30, 11}, {64, 5}, {7, 20}}) {
        padded.add(family(kind, frames, u, 37, random), random);
      }
      const TransducerRun expected = run(padded);
      TransducerBatch packed = padded;
      packed.packed = packed.flat_targets = true;
      EXPECT_EQ(run(packed).bits, expected.bits);
      TransducerBatch in_place = padded;
      in_place.in_place = true;
      in_place.gap = 1;
      EXPECT_EQ(run(in_place).bits, expected.bits);
      EXPECT_EQ(run(padded).bits, expected.bits);
      for (std::size_t b = 0; b < padded.cases.size(); ++b) {
        TransducerBatch alone;
        alone.dtype = dtype;
        alone.add(padded.cases[b]);
        alone.lengths = false;
        const TransducerRun result = run(alone);
        EXPECT_EQ(result.loss[0], expected.loss[b]);
        EXPECT_EQ(result.gradient[0], expected.gradient[b]);
      }
      EXPECT_EQ(run(padded, false).loss, expected.loss);
    }
  }
}

TEST_P(TransducerPath, ShiftsOfRowsAndBigBlanksWithoutWeightChangeNothing) {
  std::mt19937 random(11);
  TransducerBatch batch;
  batch.dtype = DType::kFloat64;
  batch.add(plain(20, 6, 15, random), random);
  const TransducerRun expected = run(batch);
  TransducerBatch shifted = batch;
  for (std::size_t n = 0; n < shifted.cases[0].rows.size(); ++n)
    shifted.cases[0].rows[n] += 3.0 * static_cast<double>(n / 15 % 7);
  const TransducerRun moved = run(shifted);
  EXPECT_NEAR(moved.loss[0], expected.loss[0], 1e-12);
  for (std::size_t n = 0; n < expected.gradient[0].size(); ++n) {
    EXPECT_NEAR(moved.gradient[0][n], expected.gradient[0][n], 1e-13);
  }
  for (std::size_t row = 0; row < expected.gradient[0].size(); row += 15) {
    double sum = 0;
    for (int k = 0; k < 15; ++k) sum += expected.gradient[0][row + k];
    EXPECT_NEAR(sum, 0, 1e-15);
  }
  TransducerBatch big = batch;
  Transducer& p = big.cases[0].problem;
  for (int& label : p.targets) label %= 12;
  TransducerBatch plain_again = big;
  p.durations = {2, 3};
  p.big_blank_columns = {13, 12};
  for (TransducerBatch* one : {&big, &plain_again}) {
    for (std::size_t n = 0; n < one->cases[0].rows.size(); ++n) {
      if (n % 15 == 12 || n % 15 == 13) one->cases[0].rows[n] = -kInf;
    }
  }
  const TransducerRun with = run(big), without = run(plain_again);
  EXPECT_NEAR(with.loss[0], without.loss[0], 1e-13);
  for (std::size_t n = 0; n < with.gradient[0].size(); ++n) {
    EXPECT_NEAR(with.gradient[0][n], without.gradient[0][n], 1e-14);
  }
}

WARPALIGN_FOR_EVERY(TransducerPath, all_paths);

}  // namespace
}  // namespace warpalign::test
