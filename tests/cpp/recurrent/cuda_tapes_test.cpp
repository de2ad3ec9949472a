// The LSTM's CUDA path with a tape that no later call reads, and without a tape of all steps.
#include <gtest/gtest.h>

#include "cuda_fixture.h"
#if WARPALIGN_SIMT
#include "simt.h"
#endif

namespace warpalign::test {
namespace {

using reference::Lstm;

class RecurrentTapesCuda : public RecurrentCuda {};

// Gradients take the place of what is used up. No bit changes.
TEST_F(RecurrentTapesCuda, SpentTape) {
  for (const int variant : {0, 1, 2, 3, 4}) {
    SCOPED_TRACE(variant);
    Lstm p = plain(5, 9, 6, variant == 1 ? 7 : 24);
    p.bidirectional = variant < 2 || variant == 4, p.layers = 2;
    p.projection = variant == 2 ? 8 : 0, p.layer_norm = variant == 3;
    if (variant == 0) p.lengths = {5, 5, 4, 4, 3, 2, 1, 0, 5};
    for (const DType dtype : {DType::kFloat16, DType::kFloat32}) {
      const LstmCase given(p, dtype, 6, .5);
      CudaRunner runner(given);
      const LstmRun expected = runner.run();
      runner.spends_tape = true;
      const LstmRun run = runner.run();
      ASSERT_TRUE(run.status.ok()) << to_string(run.status);
      EXPECT_EQ(run.bits, expected.bits);
    }
  }
  LstmProblem p;
  p.dtype = DType::kFloat16, p.cell_dtype = DType::kFloat32;
  p.steps = 100, p.batch = 8, p.input = p.hidden = 64;
  LstmGradients gradients;
  const Execution execution = Execution::cuda(0, nullptr);
  const std::size_t kept = lstm_backward_workspace_bytes(p, gradients, execution);
  std::uint64_t tape = 0;
  gradients.spent_tape = &tape;
  const std::size_t dz = 100 * 8 * 4 * 64 * 2;
  EXPECT_EQ(lstm_backward_workspace_bytes(p, gradients, execution) + dz, kept);
}

// Blocks that share units hand dz on in a ring of 32 steps, some of which serve again. dz lies in memory of
// its own, or in the tape's place.
TEST_F(RecurrentTapesCuda, LongSweepsUseSlotsAgain) {
  struct Case {
    int steps, batch, hidden;
  };
#if WARPALIGN_SIMT
  simt::device.multiprocessors = 20;
  simt::device.largest_cluster = 8;  // too few for a sweep on clusters
  const Case cases[] = {{44, 17, 264}};
#else
  const Case cases[] = {{33, 65, 560}, {41, 65, 560}};  // the reference takes seconds for them
#endif
  for (const Case& c : cases) {
    SCOPED_TRACE(testing::Message() << c.steps << " " << c.batch << " " << c.hidden);
    Lstm p = plain(c.steps, c.batch, 6, c.hidden);
    for (int b = 0; b < c.batch && c.steps > 33; ++b) p.lengths.push_back(c.steps - b * 7 % c.steps);
    const LstmCase given(p, DType::kFloat16, 6, .25);
    CudaRunner runner(given);
    const LstmRun run = runner.run();
    expect_close(given, run, 0x1p-7);
    runner.spends_tape = true;
    EXPECT_EQ(runner.run().bits, run.bits);
  }
#if WARPALIGN_SIMT
  simt::device = {};
#endif
}

// Chunks of steps that are made again: the last one's of its own size, of every way, with masks and lengths.
TEST_F(RecurrentTapesCuda, Recompute) {
  for (const int variant : {0, 1, 2, 3, 4, 5, 6, 8}) {
    SCOPED_TRACE(variant);
#if WARPALIGN_SIMT
    simt::device.compute_capability_major = variant == 6 ? 8 : 9;  // a sweep of the whole grid
#endif
    Lstm p = plain(70, 3, 6, variant == 1 || variant == 8 ? 7 : 12);
    p.layers = variant < 3 ? 2 : 1;
    p.hard = variant % 2 == 1;
    p.training = true, p.seed = 7;
    p.dropout = p.weight_dropout = variant < 2 ? .2 : 0;
    p.zoneout_hidden = variant < 2 ? .3 : 0, p.zoneout_cell = variant < 2 ? .2 : 0;
    p.projection = variant == 2 ? 5 : 0, p.layer_norm = variant == 3;
    p.bidirectional = variant == 4;
    if (variant == 1 || variant == 3 || variant == 6) p.lengths = {70, 33, 0};
    if (variant == 5) p.resets.assign(70 * 3, 0), p.resets[40 * 3 + 1] = p.resets[0] = 1;
    const DType dtype = variant % 2 == 1 ? DType::kFloat64 : DType::kFloat16;
    LstmCase given(p, dtype, 30 + variant, .5);
    if (variant == 0) given.cell_dtype = dtype;
    LstmRunnerIn<DeviceBuffer> runner(given, Execution::cuda(0, nullptr));
    const LstmRun expected = runner.run(false);
    runner.problem().recompute = true;
    const LstmRun run = runner.run();
    expect_close(given, run, dtype == DType::kFloat64 ? 20 * kFloat64Tolerance : 0x1p-9);
    EXPECT_EQ(run.out.y, expected.out.y);
    EXPECT_EQ(run.out.c_n, expected.out.c_n);
  }
#if WARPALIGN_SIMT
  simt::device = {};
#endif
}

// h of all steps and c before chunks are kept, and one of 4 chunks has gates.
TEST_F(RecurrentTapesCuda, MemoryOfRecompute) {
  LstmProblem p;
  p.dtype = DType::kFloat16, p.cell_dtype = DType::kFloat32;
  p.steps = 600, p.batch = 8, p.input = p.hidden = 64, p.layers = 2;
  const Execution execution = Execution::cuda(0, nullptr);
  const LstmGradients gradients;
  const std::size_t whole = lstm_tape_bytes(p, execution);
  p.recompute = true;
  const std::size_t h = 600 * 8 * 64 * 2, c = 3 * 8 * 64 * 4;
  EXPECT_EQ(lstm_tape_bytes(p, execution), h + 2 * c);
  EXPECT_LT(lstm_backward_workspace_bytes(p, gradients, execution), whole / 2);
}

}  // namespace
}  // namespace warpalign::test
