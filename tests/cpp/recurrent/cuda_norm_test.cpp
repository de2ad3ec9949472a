// The LSTM's CUDA path with layer norm: sweeps on clusters whose blocks merge the moments of a row.
#include <gtest/gtest.h>

#include <algorithm>

#include "cuda_fixture.h"
#if WARPALIGN_SIMT
#include "simt.h"
#endif

namespace warpalign::test {
namespace {

using reference::Lstm;

class RecurrentNormCuda : public RecurrentCuda {
#if WARPALIGN_SIMT
 protected:
  RecurrentNormCuda() { simt::device.multiprocessors = 20; }
  void TearDown() override { simt::device = {}; }
#endif
};

Lstm normalised(int steps, int batch, int hidden) {
  Lstm p = plain(steps, batch, 6, hidden);
  p.layer_norm = true;
  return p;
}
double tolerance_of(DType dtype) { return dtype == DType::kFloat16 ? 0x1p-8 : 0x1p-5; }

// One case, whose sweeps are one launch each where the emulator has clusters. The norm of R h divides by
// small deviations, so that many steps and units beside rails have larger errors; launches per step have the
// same.
void check(const LstmCase& given, [[maybe_unused]] bool on_clusters = true) {
  CudaRunner runner(given);
  [[maybe_unused]] const unsigned long long before = launches_of("clusters of up to");
  const LstmRun run = runner.run();
  const int layers = given.problem.layers;
  const Lstm& p = given.problem;
  const bool is_rough = p.hard || p.steps > 8 || p.hidden == 4;
#if WARPALIGN_SIMT
  EXPECT_EQ(launches_of("clusters of up to") - before, on_clusters ? 2 * layers : 0);
#endif
  expect_close(given, run, tolerance_of(given.dtype) * layers * (is_rough ? 4 : 1));
  EXPECT_EQ(runner.run().bits, run.bits);
  const LstmRun without = runner.run(false);
  EXPECT_EQ(without.out.y, run.out.y);
  EXPECT_EQ(without.out.h_n, run.out.h_n);
  EXPECT_EQ(without.out.c_n, run.out.c_n);
}

// Units that a warp, a block or a cluster does not fill; slices of the batch; directions; stacks.
TEST_F(RecurrentNormCuda, Sizes) {
  const struct {
    int steps, batch, hidden, layers;
    bool bidirectional, hard;
  } cases[] = {{3, 1, 4, 1, false, false},  {6, 3, 20, 1, true, false},  {5, 9, 36, 2, false, false},
               {4, 17, 32, 1, true, false}, {3, 20, 64, 1, false, true}, {7, 8, 100, 1, false, false},
               {4, 9, 264, 1, false, false}};
  for (const DType dtype : {DType::kFloat16, DType::kBFloat16}) {
    for (const auto& c : cases) {
#if WARPALIGN_SIMT
      if (dtype == DType::kBFloat16 && c.hidden > 36) continue;
#endif
      // Deviations of 4 numbers may be tiny, and rounding puts units on the other side of a rail.
      if (dtype == DType::kBFloat16 && (c.hidden == 4 || c.hard)) continue;
      SCOPED_TRACE(testing::Message() << static_cast<int>(dtype) << " " << c.steps << " " << c.hidden);
      Lstm p = normalised(c.steps, c.batch, c.hidden);
      p.layers = c.layers, p.bidirectional = c.bidirectional, p.hard = c.hard;
      LstmCase given(p, dtype, 17, .5);
      if (c.batch % 2 == 0) {
        given.with_states = false;
        given.incoming.h_all.clear(), given.incoming.c_all.clear();
      }
      check(given);
    }
  }
#if !WARPALIGN_SIMT
  for (const int hidden : {420, 512}) check(LstmCase(normalised(5, 20, hidden), DType::kBFloat16, 18, .5));
#endif
}

// Five tiles of rows, of which the last ones have no step at all, by lengths and as packed rows.
TEST_F(RecurrentNormCuda, RowsThatEnd) {
#if WARPALIGN_SIMT
  simt::device.multiprocessors = 4;  // two clusters
#endif
  for (int variant = 0; variant < 4; ++variant) {
    SCOPED_TRACE(variant);
    Lstm p = normalised(13, 37, 36);
    for (int b = 0; b < p.batch; ++b) p.lengths.push_back(std::max(b * 5 % p.batch * 16 / p.batch - 2, 0));
    p.bidirectional = variant % 2 == 1;
    if (variant / 2 == 1) std::sort(p.lengths.rbegin(), p.lengths.rend());
    LstmCase given(p, DType::kFloat16, 41 + variant, .5);
    given.packed = variant / 2 == 1;
    check(given);
  }
}

// Resets and zoneout take a launch per step.
TEST_F(RecurrentNormCuda, OtherOptions) {
  for (const bool resets : {false, true}) {
    Lstm p = normalised(5, 9, 20);
    if (resets) {
      p.resets.assign(45, 0), p.resets[20] = 1;
    } else {
      p.zoneout_hidden = .2;
    }
    check(LstmCase(p, DType::kFloat16, 51, .5), false);
  }
}

// The mean of c~ is far from 0, where its deviation is small.
TEST_F(RecurrentNormCuda, LargeMeans) {
  Lstm p = normalised(4, 9, 36);
  LstmCase given(p, DType::kFloat16, 61, .5);
  for (double& c : given.inputs.c0) c = std::ldexp(std::round(c * 16), -4) + 24;
  const LstmRun run = CudaRunner(given).run();
  ASSERT_TRUE(run.status.ok()) << to_string(run.status);
  const reference::Outputs expected = reference::forward(given.problem, given.inputs);
  EXPECT_LE(relative_error(run.out.y, expected.y), 0x1p-8);
  EXPECT_LE(relative_error(run.out.c_n, expected.c_n), 0x1p-8);
}

// A sweep on clusters reads the tape of launches per step, and the other way round.
TEST_F(RecurrentNormCuda, TapesOfOtherWays) {
#if WARPALIGN_SIMT
  for (const bool first : {false, true}) {
    SCOPED_TRACE(first);
    const LstmCase given(normalised(4, 9, 36), DType::kFloat16, 71, .5);
    CudaRunner runner(given);
    constexpr int kClusters = 9, kNone = 8;
    simt::device.compute_capability_major = first ? kClusters : kNone;
    runner.before_backward = [&] { simt::device.compute_capability_major = first ? kNone : kClusters; };
    const unsigned long long before = launches_of("clusters of up to");
    expect_close(given, runner.run(), 0x1p-8);
    EXPECT_EQ(launches_of("clusters of up to") - before, 1U);
  }
#else
  GTEST_SKIP() << "the emulator's";
#endif
}

TEST_F(RecurrentNormCuda, NanStaysInItsRow) {
  for (const DType dtype : {DType::kFloat16, DType::kBFloat16}) {
    expect_nan_to_stay_in_its_row<CudaRunner>(dtype, true);
  }
}

// A row has the same bits whatever rows it shares a tile with.
TEST_F(RecurrentNormCuda, ARowsBitsDependOnNoOtherRow) {
  Execution execution = Execution::cuda(0, nullptr);
  execution.batch_invariant = true;
  constexpr int kHidden = 36, kBatch = 9;
  const LstmCase given(normalised(3, kBatch, kHidden), DType::kFloat16, 81, .5);
  LstmCase other = given;
  for (std::size_t n = 0; n < other.inputs.x.size(); ++n) {
    if (n / 6 % kBatch % 2 == 1) other.inputs.x[n] *= -.5;
  }
  const LstmRun one = CudaRunner(given, execution).run();
  const LstmRun two = CudaRunner(other, execution).run();
  expect_same_bits_in_even_rows(one, two, kBatch, kHidden, 6);
}

}  // namespace
}  // namespace warpalign::test
