// The LSTM's CUDA path with a tape that no later call reads.
#include <gtest/gtest.h>

#include "checks.h"

namespace warpalign::test {
namespace {

using reference::Lstm;

class RecurrentTapesCuda : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!has_gpu()) GTEST_SKIP() << "no GPU";
  }
};

// Gradients take the place of what is used up. No bit changes.
TEST_F(RecurrentTapesCuda, SpentTape) {
  for (const int variant : {0, 1, 2, 3}) {
    SCOPED_TRACE(variant);
    Lstm p = plain(5, 9, 6, variant == 1 ? 7 : 24);
    p.bidirectional = variant < 2, p.layers = 2;
    p.projection = variant == 2 ? 8 : 0, p.layer_norm = variant == 3;
    if (variant == 0) p.lengths = {5, 5, 4, 4, 3, 2, 1, 0, 5};
    const LstmCase given(p, DType::kFloat16, 6, .5);
    LstmRunnerIn<DeviceBuffer> runner(given, Execution::cuda(0, nullptr));
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

}  // namespace
}  // namespace warpalign::test
