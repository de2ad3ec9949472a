// The LSTM's CUDA path where one block holds R and some rows of the batch.
#include <gtest/gtest.h>

#include <algorithm>

#include "cuda_fixture.h"
#if WARPALIGN_SIMT
#include "simt.h"
#endif

namespace warpalign::test {
namespace {

using reference::Lstm;

class RecurrentBlocksCuda : public RecurrentCuda {
 protected:
#if WARPALIGN_SIMT
  void TearDown() override { simt::device = {}; }
#endif

  // Of a few steps of numbers around 1.
  static double tolerance_of(DType dtype) {
    if (dtype == DType::kFloat16) return 0x1p-8;
    if (dtype == DType::kBFloat16) return 0x1p-5;
    return dtype == DType::kFloat32 ? 2e-6 : kFloat64Tolerance;
  }

  // So many rows that a block has several.
  static int many_rows() {
#if WARPALIGN_SIMT
    simt::device.multiprocessors = 1;
    return 7;
#else
    return 300;
#endif
  }
};

// Units that no warp and no piece of 16 bytes fills, and the most that a block holds.
TEST_F(RecurrentBlocksCuda, Sizes) {
  const struct {
    int steps, batch, hidden;
    bool bidirectional, hard;
    DType dtype;
    const char* kernel;
  } cases[] = {{1, 1, 1, false, false, DType::kFloat32, "block of 32"},
               {7, 3, 7, true, true, DType::kFloat32, "block of 32"},
               {5, 2, 32, false, false, DType::kFloat32, "block of 32"},
               {6, 1, 33, false, false, DType::kFloat32, "block of 64"},
               {3, 2, 64, true, false, DType::kFloat32, "block of 64"},
               {2, 2, 65, false, true, DType::kFloat32, "block of 96"},
               {6, 1, 96, false, false, DType::kFloat32, "block of 96"},
               {5, 2, 31, true, false, DType::kFloat64, "block of 64"},
               {4, 2, 64, false, false, DType::kFloat64, "block of 64"},
               {1, 1, 1, false, false, DType::kFloat16, "block of 32"},
               {7, 3, 7, true, false, DType::kFloat16, "block of 32"},
               {5, 2, 32, false, true, DType::kBFloat16, "block of 32"},
               {6, 1, 33, true, false, DType::kFloat16, "block of 64"},
               {5, 2, 64, false, false, DType::kBFloat16, "block of 64"},
               {3, 2, 67, false, false, DType::kFloat16, "block of 128"},
               {6, 1, 96, true, false, DType::kFloat16, "block of 128"},
               {3, 2, 97, false, false, DType::kBFloat16, "block of 128"},
               {6, 1, 128, false, false, DType::kFloat16, "block of 128"}};
  for (const auto& c : cases) {
    SCOPED_TRACE(testing::Message() << c.steps << " " << c.batch << " " << c.hidden);
    Lstm p = plain(c.steps, c.batch, 9, c.hidden);
    p.bidirectional = c.bidirectional, p.hard = c.hard;
    const LstmCase given(p, c.dtype, 71, .5);
    CudaRunner runner(given);
    const unsigned long long before = launches_of(c.kernel);
    const LstmRun run = runner.run();
    EXPECT_EQ(launches_of(c.kernel), before + 2);
    expect_close(given, run, tolerance_of(c.dtype));
    EXPECT_EQ(runner.run().bits, run.bits);
    if (c.steps == 1) continue;  // a single step without a tape has an order of sums of its own
    const LstmRun without = runner.run(false);
    EXPECT_EQ(without.out.y, run.out.y);
    EXPECT_EQ(without.out.c_n, run.out.c_n);
  }
}

// A row has the same bits in blocks of one row and of several, whose kernels may be of other depths; the last
// block is not full.
TEST_F(RecurrentBlocksCuda, ARowsBitsDependOnNoOtherRow) {
  Execution execution = Execution::cuda(0, nullptr);
  execution.batch_invariant = true;
  const struct {
    int hidden;
    DType dtype;
    const char* kernel;
  } cases[] = {{24, DType::kFloat32, "rows of 64"},  {52, DType::kFloat32, "rows of 64"},
               {71, DType::kFloat32, "block of 96"}, {20, DType::kFloat64, "block of 64"},
               {36, DType::kFloat64, "block of 64"}, {24, DType::kFloat16, "rows of 64"},
               {52, DType::kBFloat16, "rows of 64"}, {71, DType::kFloat16, "rows of 128"},
               {116, DType::kFloat16, "rows of 128"}};
  for (const bool has_options : {false, true}) {
    for (const auto& c : cases) {
      // On clusters, and by launches.
      if (has_options && (c.hidden > 96 || c.dtype == DType::kFloat64)) continue;
      SCOPED_TRACE(testing::Message() << c.hidden << " " << has_options);
      Lstm p = plain(5, many_rows(), 4, c.hidden);
      p.bidirectional = true;
      if (has_options) {
        for (int b = 0; b < p.batch; ++b) p.lengths.push_back((b + 3) % 6);
        p.resets.assign(static_cast<std::size_t>(p.steps) * p.batch, 0);
        for (std::size_t n = 0; n < p.resets.size(); n += 3) p.resets[n] = 1;
        p.zoneout_hidden = .25, p.zoneout_cell = .1, p.training = true, p.seed = 78;
      }
      const LstmCase all(p, c.dtype, 72, .5);
      const std::string kernel = has_options ? "block of 96" : c.kernel;
      const unsigned long long before = launches_of(kernel);
      const LstmRun run = CudaRunner(all, execution).run();
      EXPECT_EQ(launches_of(kernel), before + 2);
      expect_close(all, run, tolerance_of(c.dtype));
      LstmCase few = all;  // the first two rows
      few.problem.batch = 2;
      const auto cut = [&](std::vector<double>& v, int width) {
        std::vector<double> kept;
        for (std::size_t n = 0; n < v.size(); ++n) {
          if (n / width % p.batch < 2) kept.push_back(v[n]);
        }
        v = kept;
      };
      if (has_options) {
        few.problem.lengths.resize(2);
        std::vector<int> resets;
        for (std::size_t n = 0; n < p.resets.size(); ++n) {
          if (n % p.batch < 2) resets.push_back(p.resets[n]);
        }
        few.problem.resets.assign(resets.begin(), resets.end());
      }
      cut(few.inputs.x, p.input), cut(few.inputs.h0, p.hidden), cut(few.inputs.c0, p.hidden);
      cut(few.incoming.y, 2 * p.hidden), cut(few.incoming.h_n, p.hidden), cut(few.incoming.c_n, p.hidden);
      cut(few.incoming.h_all, p.hidden), cut(few.incoming.c_all, p.hidden);
      const LstmRun alone = CudaRunner(few, execution).run();
      LstmRun expected = run;
      cut(expected.out.y, 2 * p.hidden), cut(expected.out.c_all, p.hidden);
      cut(expected.gradients.x, p.input), cut(expected.gradients.h0, p.hidden);
      EXPECT_EQ(alone.out.y, expected.out.y);
      EXPECT_EQ(alone.out.c_all, expected.out.c_all);
      EXPECT_EQ(alone.gradients.x, expected.gradients.x);
      EXPECT_EQ(alone.gradients.h0, expected.gradients.h0);
    }
  }
}

// Packed rows have the bits of padded ones, and full lengths those of none.
TEST_F(RecurrentBlocksCuda, LengthsChangeNoBit) {
  Execution execution = Execution::cuda(0, nullptr);
  execution.batch_invariant = true;
  for (const DType dtype : {DType::kFloat32, DType::kFloat16}) {
    Lstm p = plain(6, 5, 4, 44);
    p.bidirectional = true;
    LstmCase given(p, dtype, 73, .5);
    const LstmRun plain_run = CudaRunner(given, execution).run();
    given.problem.lengths = {6, 6, 6, 6, 6};
    const LstmRun full = CudaRunner(given, execution).run();
    EXPECT_EQ(full.out.y, plain_run.out.y);
    EXPECT_EQ(full.gradients.x, plain_run.gradients.x);
    given.problem.lengths = {6, 4, 4, 1, 0};
    const LstmRun padded = CudaRunner(given, execution).run();
    given.packed = true;
    const LstmRun packed = CudaRunner(given, execution).run();
    EXPECT_EQ(packed.out.y, padded.out.y);
    EXPECT_EQ(packed.gradients.x, padded.gradients.x);
    EXPECT_EQ(packed.gradients.h0, padded.gradients.h0);
  }
}

// c, and the gradient by it, in the type itself and in float32.
TEST_F(RecurrentBlocksCuda, CellsOfBothTypes) {
  for (const DType cell_dtype : {DType::kFloat16, DType::kFloat32}) {
    Lstm p = plain(5, 3, 4, 20);
    p.lengths = {5, 0, 3};
    p.resets.assign(15, 0), p.resets[6] = p.resets[8] = 1;
    LstmCase given(p, DType::kFloat16, 74, .5);
    given.cell_dtype = cell_dtype;
    given.inputs.c0 = rounded(cell_dtype, given.inputs.c0);
    const LstmRun run = CudaRunner(given).run();
    expect_close(given, run, tolerance_of(DType::kFloat16));
    EXPECT_EQ(run.out.c_n == rounded(DType::kFloat16, run.out.c_n), cell_dtype == DType::kFloat16);
  }
}

// A device before sm_80 has no products of matrices for these types.
#if WARPALIGN_SIMT
TEST_F(RecurrentBlocksCuda, WithoutMatrixInstructions) {
  simt::device.compute_capability_major = 7;
  const LstmCase given(plain(3, 2, 4, 20), DType::kFloat16, 75, .5);
  const unsigned long long before = launches_of("block of 32");
  expect_close(given, CudaRunner(given).run(), tolerance_of(DType::kFloat16));
  EXPECT_EQ(launches_of("block of 32"), before);
}
#endif

}  // namespace
}  // namespace warpalign::test
