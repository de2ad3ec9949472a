// The LSTM's CUDA path with a tape that no later call reads.
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
  for (const int variant : {0, 1, 2, 3}) {
    SCOPED_TRACE(variant);
    Lstm p = plain(5, 9, 6, variant == 1 ? 7 : 24);
    p.bidirectional = variant < 2, p.layers = 2;
    p.projection = variant == 2 ? 8 : 0, p.layer_norm = variant == 3;
    if (variant == 0) p.lengths = {5, 5, 4, 4, 3, 2, 1, 0, 5};
    const LstmCase given(p, DType::kFloat16, 6, .5);
    CudaRunner runner(given);
    const LstmRun expected = runner.run();
    runner.spends_tape = true;
    const LstmRun run = runner.run();
    ASSERT_TRUE(run.status.ok()) << to_string(run.status);
    EXPECT_EQ(run.bits, expected.bits);
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

// Blocks that share units hand dz on in a ring of 32 steps: of so many steps, of one more, and of many. dz
// lies in memory of its own, or in the tape's place.
TEST_F(RecurrentTapesCuda, LongSweepsUseSlotsAgain) {
  struct Case {
    int steps, batch, hidden;
  };
#if WARPALIGN_SIMT
  simt::device.multiprocessors = 20;
  simt::device.largest_cluster = 8;  // too few for a sweep on clusters
  const Case cases[] = {{44, 17, 264}};
#else
  const Case cases[] = {{32, 100, 520}, {33, 100, 520}, {44, 100, 520}, {200, 90, 520}, {200, 60, 1032}};
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

}  // namespace
}  // namespace warpalign::test
