// The LSTM's CUDA path against the float64 reference.
#include <gtest/gtest.h>

#include "cuda_fixture.h"
#if WARPALIGN_SIMT
#include "simt.h"
#endif

namespace warpalign::test {
namespace {

using reference::Lstm;

TEST_F(RecurrentCuda, KnownProblems) { expect_known_results<CudaRunner>(); }

TEST_F(RecurrentCuda, Sizes) {
  unsigned seed = 0;
  for (const auto& [steps, batch] : {std::pair{1, 1}, {2, 7}, {9, 1}, {3, 8}, {2, 17}}) {
    for (const auto& [hidden, input] : {std::pair{1, 1}, {16, 5}, {17, 64}, {33, 9}, {64, 130}}) {
      SCOPED_TRACE(testing::Message() << steps << " " << batch << " " << input << " " << hidden);
      Lstm p = plain(steps, batch, input, hidden);
      p.hard = ++seed % 2 == 0;
      const LstmCase given(p, DType::kFloat64, seed);
      expect_close(given, CudaRunner(given).run(), kFloat64Tolerance);
    }
  }
}

TEST_F(RecurrentCuda, Options) {
  unsigned seed = 100;
  for (const Lstm& p : options()) {
    ++seed;
#if WARPALIGN_SIMT
    if (seed % 7 != 0) continue;  // 9 of 64, with every option in some
#endif
    SCOPED_TRACE(seed);
    Lstm wide = p;
    if (seed % 2 == 0) wide.hidden = 67;  // more than a block holds
    LstmCase given(wide, DType::kFloat64, seed);
    given.packed = seed % 2 == 0 && !p.lengths.empty();
    expect_close(given, CudaRunner(given).run(),
                 20 * kFloat64Tolerance);  // layer norm divides by small deviations
  }
}

TEST_F(RecurrentCuda, SmallerTypes) {
  const struct {
    DType dtype, cell_dtype;
    double tolerance;  // of a unit in the last place, and what 9 steps make of it
  } types[] = {{DType::kFloat32, DType::kFloat32, 5e-6},
               {DType::kFloat16, DType::kFloat32, 0x1p-8},
               {DType::kFloat16, DType::kFloat16, 0x1p-8},
               {DType::kBFloat16, DType::kFloat32, 0x1p-5},
               {DType::kBFloat16, DType::kBFloat16, 0x1p-5}};
  for (const auto& type : types) {
    for (int more = 0; more < 3; ++more) {
      SCOPED_TRACE(testing::Message() << static_cast<int>(type.dtype) << " " << more);
      Lstm p = plain(9, 8, 60, 70);
      p.bidirectional = p.hard = more == 1;
      p.projection = more == 1 ? 33 : 0;
      p.layer_norm = more == 2;
      LstmCase given(p, type.dtype, 11, .5);
      given.cell_dtype = type.cell_dtype;
      expect_close(given, CudaRunner(given).run(), type.tolerance);
    }
  }
}

// Of a few steps of numbers around 1.
double tolerance_of(DType dtype) {
  return dtype == DType::kFloat32 ? 5e-6 : dtype == DType::kFloat16 ? 0x1p-8 : 0x1p-5;
}

// Sweeps in one launch, whose blocks wait for each other: units that a block or a word does not fill, slices
// of the batch, directions, stacks, and sizes beyond one round of a warp's reads.
// granule: units are multiples of so many.
void check_sweeps(const std::vector<DType>& dtypes, int granule, [[maybe_unused]] unsigned share_of_options) {
  const struct {
    int steps, batch, hidden;
    bool bidirectional, hard;
  } cases[] = {{1, 1, 132, false, false}, {4, 3, 148, false, true},   {3, 9, 156, false, false},
               {3, 17, 160, true, false}, {3, 26, 136, false, false}, {4, 8, 160, false, false}};
  for (const DType dtype : dtypes) {
    for (const auto& c : cases) {
      SCOPED_TRACE(testing::Message() << static_cast<int>(dtype) << " " << c.steps << " " << c.hidden);
      Lstm p = plain(c.steps, c.batch, 24, (c.hidden + granule - 1) / granule * granule);
      if (dtype == DType::kFloat32) p.hidden -= 32;  // clusters serve up to 128
      p.bidirectional = c.bidirectional, p.hard = c.hard;
      LstmCase given(p, dtype, 17, .5);
      if (c.batch % 2 == 0) {
        given.with_states = false;
        given.incoming.h_all.clear(), given.incoming.c_all.clear();
      }
      CudaRunner runner(given);
      const LstmRun run = runner.run(), without = runner.run(false);
      expect_close(given, run, tolerance_of(dtype));
      EXPECT_EQ(runner.run().bits, run.bits);
      // A single step without a tape, whose rows are whole 16 bytes, has another order of sums.
      if (c.steps == 1 && p.hidden * (dtype == DType::kFloat32 ? 4 : 2) % 16 == 0) continue;
      EXPECT_EQ(without.out.y, run.out.y);
      EXPECT_EQ(without.out.h_n, run.out.h_n);
      EXPECT_EQ(without.out.c_n, run.out.c_n);
      runner.wants_y = false;
      EXPECT_EQ(runner.run(false).out.h_n, run.out.h_n);
      runner.wants_y = true, runner.before_y = 1;  // no word of y can be waited for
      expect_close(given, runner.run(), tolerance_of(dtype));
    }
  }
  unsigned seed = 200;
  for (Lstm p : options()) {
    ++seed;
    if (p.projection > 0 || p.layer_norm) continue;  // 16 of 64 are left
#if WARPALIGN_SIMT
    if (seed % share_of_options != 0) continue;
#endif
    SCOPED_TRACE(seed);
    p.hidden = (132 + granule - 1) / granule * granule;
    p.hard = false;  // rounding puts units on the other side of a rail
    LstmCase given(p, DType::kFloat16, seed, .5);
    given.packed = seed % 2 == 0 && !p.lengths.empty();
    expect_close(given, CudaRunner(given).run(), 0x1p-8);
  }
  Lstm p = plain(5, 4, 9, 132);
  p.layers = 3, p.dropout = .3, p.weight_dropout = .2, p.training = true, p.seed = 5;
  const LstmCase stack(p, DType::kFloat16, 18, .5);
  expect_close(stack, CudaRunner(stack).run(), 0x1p-8);
}

TEST_F(RecurrentCuda, SweepsOfTheWholeGrid) {
#if WARPALIGN_SIMT
  simt::device.compute_capability_major = 8;  // no clusters
  simt::device.multiprocessors = 16;
  check_sweeps({DType::kFloat16}, 8, 5);
  simt::device.multiprocessors = 132;
#endif
  const LstmCase wide(plain(3, 2, 4, 1048), DType::kFloat16, 19, .5);  // a part of R in shared memory
  expect_close(wide, CudaRunner(wide).run(), 0x1p-8);
#if WARPALIGN_SIMT
  simt::device = {};
#endif
}

// Slices of several pairs of tiles of rows; the last tile may have no partner.
TEST_F(RecurrentCuda, SweepsOfPairsOfTiles) {
#if WARPALIGN_SIMT
  simt::device.compute_capability_major = 8;
  simt::device.multiprocessors = 3;
  constexpr int kBatch = 35, kHidden = 48;
#else
  constexpr int kBatch = 131, kHidden = 520;
  const LstmCase wide(plain(3, 50, 4, 1032), DType::kBFloat16, 24, .5);  // a part of R in shared memory
  expect_close(wide, CudaRunner(wide).run(), 0x1p-5);
#endif
  for (const bool ragged : {false, true}) {
    SCOPED_TRACE(ragged);
    Lstm p = plain(4, kBatch, 6, kHidden);
    if (ragged) {
      for (int b = 0; b < p.batch; ++b) p.lengths.push_back(b % 5);
      p.resets.assign(4 * kBatch, 0), p.resets[2 * kBatch + 9] = p.resets[kBatch + 3] = 1;
      p.zoneout_hidden = .25, p.zoneout_cell = .1;
    }
    const LstmCase given(p, DType::kFloat16, 24, .5);
    expect_close(given, CudaRunner(given).run(), 0x1p-8);
  }
#if WARPALIGN_SIMT
  simt::device = {};
#endif
}

// Blocks of a cluster that share units of the whole grid's backward sweep: two, or four where registers do
// not hold the weights; several pairs of tiles, of which the last one is not full, and blocks without units.
TEST_F(RecurrentCuda, SweepsOfSharedUnits) {
  for (const bool wide : {false, true}) {
    SCOPED_TRACE(wide);
#if WARPALIGN_SIMT
    simt::device.multiprocessors = wide ? 68 : 34;  // of one group
    const int hidden = wide ? 1032 : 520, batch = 18;
#else
    const int hidden = wide ? 1536 : 560, batch = wide ? 18 : 50;
#endif
    const LstmCase given(plain(3, batch, 6, hidden), DType::kFloat16, 25, .5);
    const std::string kernel = wide ? "grid of 4 back" : "grid of 2 back";
    [[maybe_unused]] const unsigned long long before = launches_of(kernel);
    expect_close(given, CudaRunner(given).run(), 0x1p-8);
#if WARPALIGN_SIMT
    EXPECT_EQ(launches_of(kernel), before + 1);
#endif
  }
#if WARPALIGN_SIMT
  simt::device = {};
#endif
}

TEST_F(RecurrentCuda, SweepsOfClusters) {
#if WARPALIGN_SIMT
  simt::device.multiprocessors = 16;
#endif
  check_sweeps({DType::kFloat16, DType::kBFloat16, DType::kFloat32}, 4, 3);
  // More than half of the most ranks, and the last one not full; several tiles of rows to a cluster.
  const LstmCase wide(plain(3, 9, 8, 420), DType::kFloat16, 20, .5);
  expect_close(wide, CudaRunner(wide).run(), 0x1p-8);
  for (const DType dtype : {DType::kFloat16, DType::kFloat32}) {
    const LstmCase many(plain(3, 35, 8, dtype == DType::kFloat16 ? 132 : 104), dtype, 20, .5);
    expect_close(many, CudaRunner(many).run(), tolerance_of(dtype));
  }
  const LstmCase floats(plain(4, 9, 8, 116), DType::kFloat32, 20, .5);
  expect_close(floats, CudaRunner(floats).run(), tolerance_of(DType::kFloat32));
  Lstm ends = plain(5, 19, 8, 136);  // lengths alone
  ends.bidirectional = true;
  for (int b = 0; b < ends.batch; ++b) ends.lengths.push_back(b % 6);
  const LstmCase ragged(ends, DType::kFloat16, 20, .5);
  expect_close(ragged, CudaRunner(ragged).run(), 0x1p-8);
#if WARPALIGN_SIMT
  simt::device = {};
#endif
}

// Clusters of whole and of partly filled blocks, up to the most; both directions.
TEST_F(RecurrentCuda, ClustersOfEveryWidth) {
#if WARPALIGN_SIMT
  simt::device.multiprocessors = 16;
#endif
  for (const int hidden : {100, 128, 132, 160, 256, 512}) {
#if WARPALIGN_SIMT
    if (hidden > 160) continue;
#endif
    for (const int batch : {1, 8, 9}) {
      SCOPED_TRACE(testing::Message() << hidden << " " << batch);
      Lstm p = plain(3, batch, 8, hidden);
      p.bidirectional = true;
      const DType dtype = hidden > 128 ? DType::kFloat16 : DType::kFloat32;
      const LstmCase given(p, dtype, 22, .5);
      expect_close(given, CudaRunner(given).run(), tolerance_of(dtype));
    }
  }
#if WARPALIGN_SIMT
  simt::device = {};
#endif
}

TEST_F(RecurrentCuda, WithoutTape) {
  for (const bool more : {false, true}) {
    Lstm p = plain(7, 5, 9, 21);
    p.layer_norm = p.bidirectional = more;
    p.layers = more ? 3 : 1;
    const LstmCase given(p, DType::kBFloat16, 5);
    CudaRunner runner(given);
    const LstmRun with = runner.run(), without = runner.run(false);
    ASSERT_TRUE(without.status.ok()) << to_string(without.status);
    EXPECT_EQ(with.out.y, without.out.y);
    EXPECT_EQ(with.out.c_n, without.out.c_n);
    EXPECT_EQ(with.out.c_all, without.out.c_all);
    EXPECT_EQ(with.out.h_all, without.out.h_all);
  }
}

// A launch per step on the matrix units: rows of weights and of the batch that no tile fills. Deeper
// products, which clusters share, are in simt_devices_test.cpp.
TEST_F(RecurrentCuda, StepsOnMatrixUnits) {
  const struct {
    int batch, hidden, projection;
    bool layer_norm;
    DType dtype;
  } cases[] = {{17, 264, 20, false, DType::kFloat16}, {3, 132, 130, true, DType::kFloat16},
               {16, 135, 0, false, DType::kFloat16},  {40, 132, 130, false, DType::kFloat16},
               {17, 68, 20, false, DType::kFloat32},  {65, 69, 0, false, DType::kFloat32},
               {35, 72, 65, true, DType::kFloat32},   {9, 70, 66, true, DType::kFloat32},
               {10, 70, 0, false, DType::kFloat32}};
  for (const auto& c : cases) {
    SCOPED_TRACE(testing::Message() << c.batch << " " << c.hidden);
    Lstm p = plain(3, c.batch, 5, c.hidden);
    p.projection = c.projection, p.layer_norm = c.layer_norm;
    p.bidirectional = c.batch == 3;
    if (c.batch == 17) p.lengths = {3, 3, 3, 3, 3, 2, 2, 2, 1, 1, 1, 1, 1, 1, 1, 0, 3};
    const LstmCase given(p, c.dtype, 31, .5);
    expect_close(given, CudaRunner(given).run(), c.dtype == DType::kFloat16 ? 0x1p-8 : 5e-6);
  }
}

// Matrices that are packed already are read where they are.
TEST_F(RecurrentCuda, PackedWeightsChangeNoBit) {
  for (const int variant : {0, 1, 2, 3}) {
    SCOPED_TRACE(variant);
    Lstm p = plain(3, 2, 19, variant < 2 ? 21 : 24);
    p.layers = 3;
    p.bidirectional = p.layer_norm = variant == 1;
    p.projection = variant == 0 ? 17 : variant == 2 ? 16 : 0;
    const LstmCase given(p, DType::kFloat16, 6);
    CudaRunner runner(given);
    const LstmRun expected = runner.run();
    runner.shift_weights();
    EXPECT_EQ(runner.run().bits, expected.bits);
    runner.pack();
    EXPECT_EQ(runner.run().bits, expected.bits);
  }
}

TEST_F(RecurrentCuda, RunsAreEqualBitForBit) {
  Lstm p = plain(9, 12, 20, 40);
  p.training = true, p.dropout = .3, p.zoneout_hidden = .2, p.layers = 2;
  const LstmCase given(p, DType::kFloat32, 8);
  CudaRunner runner(given);
  const LstmRun first = runner.run();
  ASSERT_TRUE(first.status.ok()) << to_string(first.status);
  EXPECT_EQ(runner.run().bits, first.bits);
}

TEST_F(RecurrentCuda, NearTheRails) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
    expect_slope_near_the_rails<CudaRunner>(dtype, 0.125);
  }
}

TEST_F(RecurrentCuda, NanStaysInItsRow) {
  expect_nan_to_stay_in_its_row<CudaRunner>(DType::kFloat32, true);
  for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
    expect_nan_to_stay_in_its_row<CudaRunner>(dtype, false);
  }
  expect_nan_to_stay_in_its_row<CudaRunner>(DType::kFloat16, false, 132);
}

TEST_F(RecurrentCuda, AnEmptyBatchHasZeroGradients) { expect_zero_gradients_of_an_empty_batch<CudaRunner>(); }

}  // namespace
}  // namespace warpalign::test
