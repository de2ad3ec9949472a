// Two layers of the LSTM at a time, on the whole grid.
#include <gtest/gtest.h>

#include "cuda_fixture.h"
#if WARPALIGN_SIMT
#include "simt.h"
#endif

namespace warpalign::test {
namespace {

using reference::Lstm;

class RecurrentTwoLayersCuda : public RecurrentCuda {
 protected:
  void SetUp() override {
    RecurrentCuda::SetUp();
#if WARPALIGN_SIMT
    simt::device = {.multiprocessors = 36, .compute_capability_major = 8};  // no clusters
#endif
  }
  void TearDown() override {
#if WARPALIGN_SIMT
    simt::device = {};
#endif
  }
};

// More units than single blocks and clusters have; the emulator has no clusters here.
#if WARPALIGN_SIMT
constexpr int kHidden = 136;
#else
constexpr int kHidden = 520;
#endif

Lstm stack(int steps, int batch, int layers) {
  Lstm p = plain(steps, batch, 6, kHidden);
  p.layers = layers;
  return p;
}

// Even and odd numbers of layers; chunks of one size, and last ones that are shorter or of an odd number of
// steps; one tile of rows, and several.
TEST_F(RecurrentTwoLayersCuda, Stacks) {
  struct Case {
    int steps, batch, layers, chunks;
  };
#if WARPALIGN_SIMT
  const Case cases[] = {{65, 9, 3, 2}, {89, 1, 2, 3}};
#else
  const Case cases[] = {{64, 1, 2, 2}, {65, 1, 3, 2}};  // the reference takes a second for each
#endif
  for (const Case& c : cases) {
    SCOPED_TRACE(testing::Message() << c.steps << " " << c.batch << " " << c.layers);
    const LstmCase given(stack(c.steps, c.batch, c.layers), DType::kFloat16, 40, .5);
    CudaRunner runner(given);
    const unsigned long long before = launches_of("grid");
    const LstmRun run = runner.run();
    // Layers take turns on two halves of the blocks, of which the second one is a launch behind.
    const int launches = c.layers % 2 == 0 ? c.layers / 2 * c.chunks + 1 : (c.layers + 1) / 2 * c.chunks;
    EXPECT_EQ(launches_of("grid") - before, 2 * launches);
    expect_close(given, run, 0x1p-8);
    runner.spends_tape = true;
    EXPECT_EQ(runner.run().bits, run.bits);
    const LstmRun without = runner.run(false);
    EXPECT_EQ(without.out.y, run.out.y);
    EXPECT_EQ(without.out.h_n, run.out.h_n);
    EXPECT_EQ(without.out.c_n, run.out.c_n);
    EXPECT_EQ(without.out.h_all, run.out.h_all);
    EXPECT_EQ(without.out.c_all, run.out.c_all);
    runner.wants_y = false;
    EXPECT_EQ(runner.run(false).out.h_n, run.out.h_n);
  }
}

#if WARPALIGN_SIMT
// Rows that end in all chunks, or have no step at all; masks, whose numbers of steps go on from chunk to
// chunk.
TEST_F(RecurrentTwoLayersCuda, Options) {
  for (const int variant : {0, 1, 2, 3}) {
    SCOPED_TRACE(variant);
    Lstm p = stack(64 + variant, variant == 2 ? 9 : 3, 2 + variant % 2);
    if (variant != 1) {
      for (int b = 0; b < p.batch; ++b) p.lengths.push_back(b * 32 % (p.steps + 1));
    }
    p.hard = variant == 3;
    p.training = variant != 2, p.seed = 11;
    p.dropout = .2, p.weight_dropout = .2;
    if (variant != 0) p.zoneout_hidden = .3, p.zoneout_cell = .2;
    LstmCase given(p, DType::kFloat16, 50 + variant, .5);
    if (variant == 1) given.cell_dtype = DType::kFloat16;
    if (variant == 2) {
      given.with_states = false;
      given.incoming.h_all.clear(), given.incoming.c_all.clear();
    }
    expect_close(given, CudaRunner(given).run(), variant == 3 ? 0x1p-6 : 0x1p-8);
  }
}
#endif

// Layers in turn, which resets ask for, have the same bits; here they have the same way of a sweep, too.
TEST_F(RecurrentTwoLayersCuda, BitsOfLayersInTurn) {
  for (const bool zoneout : {false, true}) {
    SCOPED_TRACE(zoneout);
    Lstm p = stack(65, 8, 3);
    if (zoneout) p.zoneout_hidden = .3, p.zoneout_cell = .2, p.training = true, p.seed = 3;
    p.lengths.assign(8, 65), p.lengths[3] = 12;
    const LstmCase at_once(p, DType::kBFloat16, 60, .5);
    p.resets.assign(65 * 8, 0);
    const LstmCase in_turn(p, DType::kBFloat16, 60, .5);
    const unsigned long long before = launches_of("grid");
    const LstmRun expected = CudaRunner(in_turn).run();
    EXPECT_EQ(launches_of("grid") - before, 2 * 3);
    ASSERT_TRUE(expected.status.ok()) << to_string(expected.status);
    const LstmRun run = CudaRunner(at_once).run();
    EXPECT_EQ(launches_of("grid") - before, 2 * 3 + 2 * 4);
    EXPECT_EQ(run.bits, expected.bits);
  }
}

// A y that begins within a word: the last layer takes a launch per step, beside the sweeps of the others.
TEST_F(RecurrentTwoLayersCuda, UnalignedOutput) {
  const LstmCase given(stack(64, 1, 2), DType::kFloat16, 70, .5);
  CudaRunner runner(given);
  runner.before_y = 1;
  expect_close(given, runner.run(), 0x1p-8);
}

// Calls of few steps, of many rows, of rows that are the same in all batches, and of other ways.
TEST_F(RecurrentTwoLayersCuda, OthersRunInTurn) {
  for (const int variant : {0, 1, 2, 3}) {
    SCOPED_TRACE(variant);
    constexpr int kManyRows = 8 * 6 * 2 + 1;  // 6 tiles for each of a layer's 2 groups, and a row
    Lstm p = stack(variant == 0 ? 63 : 64, variant == 1 ? kManyRows : 2, 2);
    if (variant == 3) p.bidirectional = true;
    const LstmCase given(p, DType::kFloat16, 80, .5);
    Execution execution = Execution::cuda(0, nullptr);
    execution.batch_invariant = variant == 2;
    CudaRunner runner(given, execution);
    const unsigned long long before = launches_of("grid");
    ASSERT_TRUE(runner.run(false).status.ok());
    EXPECT_EQ(launches_of("grid") - before, 2);
  }
}

#if WARPALIGN_SIMT
// Blocks that share units hand dz on by a ring, of each layer; a slot is used again in chunks of 34 steps.
TEST_F(RecurrentTwoLayersCuda, SharedUnits) {
  simt::device = {.multiprocessors = 36, .largest_cluster = 8};
  Lstm p = plain(66, 17, 6, 264);
  p.layers = 2;
  const LstmCase given(p, DType::kFloat16, 90, .5);
  CudaRunner runner(given);
  runner.spends_tape = true;
  const unsigned long long before = launches_of("grid of 2 back");
  expect_close(given, runner.run(), 0x1p-8);
  EXPECT_EQ(launches_of("grid of 2 back"), before + 3);
}
#endif

}  // namespace
}  // namespace warpalign::test
