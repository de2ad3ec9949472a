// The LSTM's CUDA path where rows end before the last step: tiles of a cluster that work at some places only.
#include <gtest/gtest.h>

#include <algorithm>

#include "cuda_fixture.h"
#if WARPALIGN_SIMT
#include "simt.h"
#endif

namespace warpalign::test {
namespace {

using reference::Lstm;

class RecurrentEndsCuda : public RecurrentCuda {
#if WARPALIGN_SIMT
 protected:
  RecurrentEndsCuda() { simt::device.multiprocessors = 4; }  // two clusters
  void TearDown() override { simt::device = {}; }
#endif
};

constexpr int kSteps = 13, kBatch = 37, kHidden = 132;

// Five tiles of rows, of which the last ones have no step at all.
Lstm ragged(int variant) {
  Lstm p = plain(kSteps, kBatch, 6, kHidden);
  for (int b = 0; b < p.batch; ++b) p.lengths.push_back(std::max(b * 5 % p.batch * 16 / p.batch - 2, 0));
  p.bidirectional = variant % 2 == 1;
  if (variant / 2 == 1) {
    p.resets.assign(static_cast<std::size_t>(p.steps) * p.batch, 0);
    for (std::size_t n = 0; n < p.resets.size(); n += 7) p.resets[n] = 1;
    p.zoneout_hidden = .25, p.zoneout_cell = .1, p.training = true, p.seed = 77;
  }
  return p;
}

TEST_F(RecurrentEndsCuda, TilesEndWithTheirLongestRows) {
  for (int variant = 0; variant < 4; ++variant) {
    SCOPED_TRACE(variant);
    const LstmCase given(ragged(variant), DType::kFloat16, 41 + variant, .5);
    CudaRunner runner(given);
    const LstmRun run = runner.run(), without = runner.run(false);
    expect_close(given, run, 0x1p-8);
    EXPECT_EQ(without.out.y, run.out.y);
    EXPECT_EQ(without.out.h_n, run.out.h_n);
    EXPECT_EQ(without.out.c_n, run.out.c_n);
  }
}

TEST_F(RecurrentEndsCuda, PackedRows) {
  for (int variant = 0; variant < 4; ++variant) {
    SCOPED_TRACE(variant);
    Lstm p = ragged(variant);
    std::sort(p.lengths.rbegin(), p.lengths.rend());
    LstmCase given(p, DType::kFloat16, 51 + variant, .5);
    given.packed = true;
    const std::string kernel = variant < 2 ? "clusters of up to 8, lengths" : "clusters of up to 16, options";
    [[maybe_unused]] const unsigned long long before = launches_of(kernel);
    expect_close(given, CudaRunner(given).run(), 0x1p-8);
#if WARPALIGN_SIMT
    EXPECT_EQ(launches_of(kernel), before + 1);
#endif
  }
}

// A row has the same bits whatever rows it shares a tile with.
TEST_F(RecurrentEndsCuda, ARowsBitsDependOnNoOtherRow) {
  Execution execution = Execution::cuda(0, nullptr);
  execution.batch_invariant = true;
  const Lstm p = ragged(1);
  const LstmCase given(p, DType::kFloat16, 61, .5);
  LstmCase other = given;  // the rows whose numbers are odd end elsewhere
  for (int b = 1; b < p.batch; b += 2) other.problem.lengths[b] = p.steps - p.lengths[b];
  const LstmRun one = CudaRunner(given, execution).run();
  const LstmRun two = CudaRunner(other, execution).run();
  expect_same_bits_in_even_rows(one, two, kBatch, 2 * kHidden, 6);
}

}  // namespace
}  // namespace warpalign::test
