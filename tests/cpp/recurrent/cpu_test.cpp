// The LSTM's CPU path against the float64 reference.
#include <gtest/gtest.h>

#include "cases.h"
#include "testing.h"
#include "warpalign/thread_pool.h"

namespace warpalign::test {
namespace {

using reference::Lstm;

// float64's rounding over sums of a few hundred terms and steps; of gradients that cancel too.
constexpr double kFloat64 = 2e-13;

TEST_P(RecurrentPath, KnownProblems) {
  for (const Golden& golden : golden_cases()) {
    SCOPED_TRACE(golden.name);
    const LstmCase given(golden, DType::kFloat64);
    expect_close(given, LstmRunner(given).run(), kFloat64);
  }
}

TEST_P(RecurrentPath, Sizes) {
  unsigned seed = 0;
  for (const auto& [steps, batch] : {std::pair{1, 1}, {2, 7}, {33, 1}, {3, 8}, {5, 9}, {2, 65}}) {
    for (const int hidden : {1, 16, 17, 31, 32, 33, 97, 128}) {
      for (const int input : {1, 5, 64, 130}) {
        SCOPED_TRACE(testing::Message() << steps << " " << batch << " " << input << " " << hidden);
        Lstm p = plain(steps, batch, input, hidden);
        p.hard = ++seed % 2 == 0;
        const LstmCase given(p, DType::kFloat64, seed);
        expect_close(given, LstmRunner(given).run(), kFloat64);
      }
    }
  }
}

TEST_P(RecurrentPath, LargeHidden) {
  for (const int hidden : {255, 513, 801}) {
    const LstmCase given(plain(2, 3, 40, hidden), DType::kFloat64, hidden);
    expect_close(given, LstmRunner(given).run(), kFloat64);
  }
}

TEST_P(RecurrentPath, Options) {
  unsigned seed = 100;
  for (const Lstm& p : options()) {
    SCOPED_TRACE(seed);
    LstmCase given(p, DType::kFloat64, ++seed);
    expect_close(given, LstmRunner(given).run(), 20 * kFloat64);  // layer norm divides by small deviations
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

// A row's bits depend on no other row.
TEST_P(RecurrentPath, ARowAmongOthers) {
  const Lstm p = plain(6, 13, 30, 50);
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
    alone.inputs.x = row(given.inputs.x, 30, 6);
    alone.inputs.h0 = row(given.inputs.h0, 50, 1), alone.inputs.c0 = row(given.inputs.c0, 50, 1);
    alone.incoming.y = row(given.incoming.y, 50, 6);
    alone.incoming.h_n = row(given.incoming.h_n, 50, 1), alone.incoming.c_n = row(given.incoming.c_n, 50, 1);
    alone.incoming.h_all = row(given.incoming.h_all, 50, 6);
    alone.incoming.c_all = row(given.incoming.c_all, 50, 6);
    const LstmRun single = LstmRunner(alone).run();
    EXPECT_EQ(single.out.y, row(all.out.y, 50, 6));
    EXPECT_EQ(single.gradients.x, row(all.gradients.x, 30, 6));
    EXPECT_EQ(single.gradients.c0, row(all.gradients.c0, 50, 1));
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

// Strictly inside the rails a gate's derivative is the slope, however near the value is to the rail.
TEST_P(RecurrentPath, NearTheRails) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat16}) {
    for (const double slope : {0.125, 1.0 / 6, 0.2}) {
      const double rail = 0.5 / slope, step = dtype == DType::kFloat32 ? 0x1p-20 : 0x1p-8;
      for (const double z : {rail, rail - step, -rail, -rail + step}) {
        Lstm p = plain(1, 1, 1, 1);
        p.hard = true, p.slope = slope;
        LstmCase given(p, dtype, 12);
        given.cell_dtype = dtype;
        given.inputs.weights[0].ih = {1, 1, 0, 1}, given.inputs.weights[0].hh = {0, 0, 0, 0};
        given.inputs.weights[0].bias = {0, 0, .5, 0};
        given.inputs.x = rounded(dtype, {z}), given.inputs.h0 = {0}, given.inputs.c0 = {.25};
        // A slope that no rail belongs to exactly: the input's rounding decides the side.
        if (std::abs(given.inputs.x[0]) == rail || std::abs(z) < rail) {
          SCOPED_TRACE(testing::Message() << static_cast<int>(dtype) << " " << slope << " " << z);
          const LstmRun run = LstmRunner(given).run();
          const auto expected = reference::backward(given.problem, given.inputs, given.incoming);
          EXPECT_NEAR(run.gradients.x[0], expected.x[0], 4e-3 * std::abs(expected.x[0]));
          EXPECT_EQ(run.gradients.x[0] == 0, expected.x[0] == 0);
        }
      }
    }
  }
}

TEST_P(RecurrentPath, NanStaysInItsRow) {
  for (const bool more : {false, true}) {
    Lstm p = plain(5, 7, 10, 20);
    p.bidirectional = p.layer_norm = more;
    p.hard = !more;
    const LstmCase clean(p, DType::kFloat32, 13);
    const LstmRun expected = LstmRunner(clean).run();
    LstmCase given = clean;
    given.inputs.x[(2 * 7 + 3) * 10 + 4] = kNan;  // step 2 of row 3
    const LstmRun run = LstmRunner(given).run();
    const int width = p.directions() * 20;
    for (int n = 0; n < 35 * width; ++n) {
      if (n / width % 7 != 3) {
        ASSERT_EQ(run.out.y[n], expected.out.y[n]) << n;
      }
    }
    EXPECT_TRUE(std::isnan(run.out.y[(2 * 7 + 3) * width]) && std::isnan(run.out.y[(4 * 7 + 3) * width]));
    EXPECT_EQ(std::isnan(run.out.y[(1 * 7 + 3) * width + 20 % width]), more);
    for (int n = 0; n < 350; ++n) {
      if (n / 10 % 7 != 3) {
        ASSERT_EQ(run.gradients.x[n], expected.gradients.x[n]) << n;
      }
    }
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

TEST_P(RecurrentPath, AnEmptyBatchHasZeroGradients) {
  const LstmCase given(plain(3, 0, 4, 5), DType::kFloat32, 15);
  const LstmRun run = LstmRunner(given).run();
  ASSERT_TRUE(run.status.ok()) << to_string(run.status);
  EXPECT_EQ(run.gradients.weights[0].ih, std::vector<double>(80, 0.0));
  EXPECT_EQ(run.gradients.weights[0].hh, std::vector<double>(100, 0.0));
  EXPECT_EQ(run.gradients.weights[0].bias, std::vector<double>(20, 0.0));
}

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
