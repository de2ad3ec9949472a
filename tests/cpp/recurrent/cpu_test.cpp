// The LSTM's CPU path against the float64 reference.
#include <gtest/gtest.h>

#include "checks.h"
#include "warpalign/thread_pool.h"

namespace warpalign::test {
namespace {

using reference::Lstm;

TEST_P(RecurrentPath, KnownProblems) { expect_known_results<LstmRunner>(); }

TEST_P(RecurrentPath, Sizes) {
  unsigned seed = 0;
  for (const auto& [steps, batch] : {std::pair{1, 1}, {2, 7}, {33, 1}, {3, 8}, {5, 9}, {2, 65}}) {
    for (const int hidden : {1, 16, 17, 31, 32, 33, 97, 128}) {
      for (const int input : {1, 5, 64, 130}) {
        SCOPED_TRACE(testing::Message() << steps << " " << batch << " " << input << " " << hidden);
        if (++seed % kOptionThinning != 0) continue;
        Lstm p = plain(steps, batch, input, hidden);
        p.hard = seed % 2 == 0;
        const LstmCase given(p, DType::kFloat64, seed);
        expect_close(given, LstmRunner(given).run(), kFloat64Tolerance);
      }
    }
  }
}

TEST_P(RecurrentPath, LargeHidden) {
  for (const int hidden : {255, 513, 801}) {
    const LstmCase given(plain(2, 3, 40, hidden), DType::kFloat64, hidden);
    expect_close(given, LstmRunner(given).run(), kFloat64Tolerance);
  }
}

TEST_P(RecurrentPath, Options) {
  unsigned seed = 100;
  for (const Lstm& p : options()) {
    SCOPED_TRACE(seed);
    LstmCase given(p, DType::kFloat64, ++seed);
    expect_close(given, LstmRunner(given).run(),
                 20 * kFloat64Tolerance);  // layer norm divides by small deviations
    if (p.lengths.empty()) continue;
    const LstmRun padded = LstmRunner(given).run();
    given.packed = true;
    const LstmRun packed = LstmRunner(given).run();
    ASSERT_TRUE(packed.status.ok()) << to_string(packed.status);
    EXPECT_EQ(packed.out.y, padded.out.y);
    EXPECT_EQ(packed.out.c_all, padded.out.c_all);
    EXPECT_EQ(packed.out.h_n, padded.out.h_n);
    EXPECT_EQ(packed.gradients.x, padded.gradients.x);
    EXPECT_EQ(packed.gradients.c0, padded.gradients.c0);
  }
}

// Without a tape the gates of some steps at a time are kept: the same bits.
TEST_P(RecurrentPath, WithoutTape) {
  for (Lstm p : {plain(90, 9, 20, 130), plain(7, 5, 9, 21)}) {
    for (const bool more : {false, true}) {
      p.layer_norm = p.bidirectional = more;
      p.layers = more ? 3 : 1;
      LstmCase given(p, DType::kFloat32, 5);
      LstmRunner runner(given);
      const LstmRun with = runner.run(), without = runner.run(false);
      ASSERT_TRUE(without.status.ok()) << to_string(without.status);
      EXPECT_EQ(with.out.y, without.out.y);
      EXPECT_EQ(with.out.c_n, without.out.c_n);
      EXPECT_EQ(with.out.c_all, without.out.c_all);
      EXPECT_EQ(with.out.h_all, without.out.h_all);
    }
  }
}

// The state after a call takes the place of that before.
TEST_P(RecurrentPath, InPlace) {
  for (Lstm p : {plain(1, 5, 9, 21), plain(7, 5, 9, 21)}) {
    for (const DType dtype : {DType::kFloat64, DType::kFloat32, DType::kBFloat16}) {
      p.layers = 2;
      const LstmCase given(p, dtype, 6);
      LstmRunner apart(given), in_place(given);
      in_place.in_place = true;
      const LstmRun expected = apart.run(false), found = in_place.run(false);
      ASSERT_TRUE(found.status.ok()) << to_string(found.status);
      EXPECT_EQ(found.out.y, expected.out.y);
      EXPECT_EQ(found.out.h_n, expected.out.h_n);
      EXPECT_EQ(found.out.c_n, expected.out.c_n);
    }
  }
}

TEST_P(RecurrentPath, PackedWeightsChangeNoBit) {
  for (const DType dtype : {DType::kFloat64, DType::kFloat32, DType::kBFloat16}) {
    for (const bool more : {false, true}) {
      Lstm p = plain(3, 2, 19, 21);
      p.layers = 3;
      p.bidirectional = p.layer_norm = more;
      p.projection = more ? 0 : 17;
      const LstmCase given(p, dtype, 6);
      LstmRunner runner(given);
      const LstmRun expected = runner.run();
      runner.pack();
      EXPECT_EQ(runner.run().bits, expected.bits);
    }
  }
}

TEST_P(RecurrentPath, ThreadsChangeNoBit) {
  Lstm p = plain(12, 9, 40, 130);
  for (const bool more : {false, true}) {
    p.layer_norm = p.bidirectional = more;
    p.layers = more ? 2 : 1;
    p.projection = more ? 70 : 0;
    const LstmCase given(p, DType::kFloat32, 7);
    const LstmRun alone = LstmRunner(given).run();
    for (const int threads : {2, 3}) {
      ThreadPool pool(threads);
      EXPECT_EQ(LstmRunner(given, pool.parallel_for()).run().bits, alone.bits) << threads;
    }
    // Tasks may also run one after the other.
    const ParallelFor in_turn{[](void*, int tasks, ParallelFor::Task task, void* state) {
                                for (int k = tasks - 1; k >= 0; --k) task(state, k);
                              },
                              nullptr, 4};
    EXPECT_EQ(LstmRunner(given, in_turn).run().bits, alone.bits);
  }
}

struct OneStepSizes {
  int input, hidden, projection;
};

// One step takes its weights as they are given, backward where rows have whole vectors; all others are
// packed. The order of sums is another one.
TEST_P(RecurrentPath, OneStep) {
  for (const auto& [input, hidden, projection] :
       {OneStepSizes{35, 21, 13}, OneStepSizes{48, 32, 16}, OneStepSizes{16, 80, 32}}) {
    for (const int batch : {1, 2, 3, 7, 8, 9, 17}) {
      for (const bool more : {false, true}) {
        SCOPED_TRACE(testing::Message() << input << " " << batch << " " << more);
        Lstm p = plain(1, batch, input, hidden);
        p.layers = 2;
        p.bidirectional = p.layer_norm = more;
        p.projection = more ? 0 : projection;
        p.training = true, p.seed = 3;
        // R as it is given, and with its dropout; dh with what zoneout keeps, and without.
        p.weight_dropout = input == 35 || batch % 2 == 1 ? .3 : 0;
        p.zoneout_hidden = batch % 3 == 0 ? .2 : 0;
        if (more) p.lengths.assign(batch, 1), p.lengths[batch / 2] = 0;
        const LstmCase given(p, DType::kFloat64, batch);
        expect_close(given, LstmRunner(given).run(), 20 * kFloat64Tolerance);
        const LstmCase single(p, DType::kFloat32, batch);
        LstmRunner runner(single);
        EXPECT_EQ(runner.run().out.y, runner.run(false).out.y);
        if (batch > 1) continue;
        const LstmCase half(p, DType::kFloat16, batch, .5);
        expect_close(half, LstmRunner(half).run(), 0x1p-9);
      }
    }
  }
}

// Gradients by weights whose rows are whole vectors are summed where they lie, for any number of rows.
TEST_P(RecurrentPath, GradientsWhereTheyLie) {
  for (const int steps : {2, 20, 300}) {
    SCOPED_TRACE(steps);
    const LstmCase given(plain(steps, 1, 32, 24), DType::kFloat64, steps);
    expect_close(given, LstmRunner(given).run(), 20 * kFloat64Tolerance);
  }
}

// A row's bits depend on no other row.
TEST_P(RecurrentPath, ARowAmongOthers) {
  for (const int steps : {6, 1}) {
    const Lstm p = plain(steps, 13, 30, 50);
    const LstmCase given(p, DType::kFloat32, 8);
    const LstmRun all = LstmRunner(given).run();
    for (const int b : {0, 5, 12}) {
      Lstm one = p;
      one.batch = 1;
      LstmCase alone = given;
      alone.problem = one;
      const auto row = [b](const std::vector<double>& v, int width, int rows) {
        std::vector<double> part;
        for (int t = 0; t < rows; ++t) {
          part.insert(part.end(), v.begin() + (t * 13 + b) * width, v.begin() + (t * 13 + b + 1) * width);
        }
        return part;
      };
      alone.inputs.x = row(given.inputs.x, 30, steps);
      alone.inputs.h0 = row(given.inputs.h0, 50, 1), alone.inputs.c0 = row(given.inputs.c0, 50, 1);
      alone.incoming.y = row(given.incoming.y, 50, steps);
      alone.incoming.h_n = row(given.incoming.h_n, 50, 1);
      alone.incoming.c_n = row(given.incoming.c_n, 50, 1);
      alone.incoming.h_all = row(given.incoming.h_all, 50, steps);
      alone.incoming.c_all = row(given.incoming.c_all, 50, steps);
      const LstmRun single = LstmRunner(alone).run();
      EXPECT_EQ(single.out.y, row(all.out.y, 50, steps));
      EXPECT_EQ(single.gradients.x, row(all.gradients.x, 30, steps));
      EXPECT_EQ(single.gradients.c0, row(all.gradients.c0, 50, 1));
    }
  }
}

// Against float64 on the numbers as they are stored. tests/python/recurrent compares with the plain loop of
// the same dtype instead.
TEST_P(RecurrentPath, SmallerTypes) {
  const struct {
    DType dtype, cell_dtype;
    double tolerance;  // of a unit in the last place, and what 9 steps make of it
  } types[] = {{DType::kFloat32, DType::kFloat32, 5e-6},
               {DType::kFloat16, DType::kFloat32, 0x1p-9},
               {DType::kFloat16, DType::kFloat16, 0x1p-9},
               {DType::kBFloat16, DType::kFloat32, 0x1p-6},
               {DType::kBFloat16, DType::kBFloat16, 0x1p-6}};
  for (const auto& type : types) {
    for (const bool more : {false, true}) {
      SCOPED_TRACE(testing::Message() << static_cast<int>(type.dtype) << " " << more);
      Lstm p = plain(9, 8, 60, 70);
      p.bidirectional = p.hard = more;
      p.projection = more ? 33 : 0;
      LstmCase given(p, type.dtype, 11, .5);
      given.cell_dtype = type.cell_dtype;
      expect_close(given, LstmRunner(given).run(), type.tolerance);
    }
  }
}

TEST_P(RecurrentPath, NearTheRails) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat16}) {
    for (const double slope : {0.125, 1.0 / 6, 0.2}) expect_slope_near_the_rails<LstmRunner>(dtype, slope);
  }
}

TEST_P(RecurrentPath, NanStaysInItsRow) {
  for (const bool layer_norm : {false, true}) {
    expect_nan_to_stay_in_its_row<LstmRunner>(DType::kFloat32, layer_norm);
  }
}

TEST_P(RecurrentPath, InfiniteInputsSaturate) {
  for (const bool hard : {false, true}) {
    Lstm p = plain(5, 3, 4, 21);  // 21: padded units see the infinity times 0
    p.hard = hard;
    LstmCase given(p, DType::kFloat32, 14);
    given.inputs.x[(1 * 3 + 1) * 4 + 2] = kInf;
    const LstmRun run = LstmRunner(given).run();
    const auto out = reference::forward(p, given.inputs);
    const auto expected = reference::backward(p, given.inputs, given.incoming);
    EXPECT_LE(relative_error(run.out.y, out.y), 2e-6);
    EXPECT_LE(relative_error(run.out.c_n, out.c_n), 2e-6);
    EXPECT_LE(relative_error(run.gradients.x, expected.x), 1e-5);
    EXPECT_LE(relative_error(run.gradients.c0, expected.c0), 1e-5);
    EXPECT_LE(relative_error(run.gradients.weights[0].hh, expected.weights[0].hh), 1e-5);
  }
}

TEST_P(RecurrentPath, AnEmptyBatchHasZeroGradients) { expect_zero_gradients_of_an_empty_batch<LstmRunner>(); }

TEST_P(RecurrentPath, EverythingBehindProbabilityZeroIsPlain) {
  Lstm p = plain(6, 4, 10, 20);
  p.layers = 2;
  const LstmCase given(p, DType::kFloat32, 9);
  LstmCase training = given;
  training.problem.training = true;
  EXPECT_EQ(LstmRunner(training).run().bits, LstmRunner(given).run().bits);
}

WARPALIGN_FOR_EVERY(RecurrentPath, instruction_sets);

}  // namespace
}  // namespace warpalign::test
