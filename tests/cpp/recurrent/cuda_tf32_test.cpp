// The LSTM's steps of float32 by one product of TF32, as precisions below "highest" ask for.
#include <gtest/gtest.h>

#include "cuda_fixture.h"
#if WARPALIGN_SIMT
#include "simt.h"
#endif

namespace warpalign::test {
namespace {

using reference::Lstm;

// Factors keep 11 bits, as binary16 does.
constexpr double kTolerance = 0x1p-9;

Execution execution_with(Precision precision, bool invariant = false) {
  Execution execution = Execution::cuda(0, nullptr);
  execution.precision = precision, execution.batch_invariant = invariant;
  return execution;
}

class RecurrentTf32Cuda : public RecurrentCuda {
 protected:
  void TearDown() override {
#if WARPALIGN_SIMT
    simt::device = {};
#endif
  }
  static void set_multiprocessors([[maybe_unused]] int count) {
#if WARPALIGN_SIMT
    simt::device.multiprocessors = count;
#endif
  }
};

// Odd batches have lengths.
Lstm problem_of_units(int batch, int hidden, int projection, bool layer_norm) {
  Lstm p = plain(3, batch, 5, hidden);
  p.projection = projection, p.layer_norm = layer_norm;
  if (batch % 2 == 1) {
    for (int b = 0; b < batch; ++b) p.lengths.push_back(b % 4);
  }
  return p;
}

// "high" has the bits of "highest", which are those of three products.
void check(const Lstm& p) {
  const LstmCase given(p, DType::kFloat32, 31, .5);
  const LstmRun medium = CudaRunner(given, execution_with(Precision::kMedium)).run();
  expect_close(given, medium, kTolerance);
  const LstmRun highest = CudaRunner(given, execution_with(Precision::kHighest)).run();
  expect_close(given, highest, 5e-6);
  EXPECT_TRUE(highest.bits != medium.bits);
  EXPECT_TRUE(CudaRunner(given, execution_with(Precision::kHigh)).run().bits == highest.bits);
}

// Projections have three products in every precision.
TEST_F(RecurrentTf32Cuda, StepsOnMatrixUnits) {
  const struct {
    int multiprocessors, batch, hidden, projection;
    bool layer_norm;
    std::vector<std::string> kernels;
  } cases[] = {
      {40, 29, 132, 0, false, {"units, cell, TF32", "units back, cell, TF32"}},
      {2,
       17,
       132,
       0,
       false,
       {"units, cell, TF32", "wide units back, cell, TF32", "wide units, cell float32"}},
      {10, 17, 100, 98, false, {"units, cell, TF32", "units, projection", "units back, cell, TF32"}},
      {2, 25, 100, 70, true, {"units, cell, TF32", "units, projection", "wide units back, cell, TF32"}},
      {12, 17, 100, 0, true, {"units, cell, TF32", "units back, cell, TF32"}},
      {2, 28, 100, 70, false, {"units, cell, TF32"}},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(testing::Message() << c.multiprocessors << " " << c.batch);
    set_multiprocessors(c.multiprocessors);
#if WARPALIGN_SIMT
    const int batch = c.batch;
#else
    const int batch = 272;  // so many that blocks by lanes would take turns
#endif
    [[maybe_unused]] std::vector<unsigned long long> before;
    for (const std::string& kernel : c.kernels) before.push_back(launches_of(kernel));
    check(problem_of_units(batch, c.hidden, c.projection, c.layer_norm));
#if WARPALIGN_SIMT
    for (std::size_t n = 0; n < c.kernels.size(); ++n) {
      EXPECT_GT(launches_of(c.kernels[n]), before[n]) << c.kernels[n];
    }
#endif
  }
}

// Forward steps from 32 rows on. Units, rows of the batch and columns end within tiles.
TEST_F(RecurrentTf32Cuda, Tiles) {
  const struct {
    int multiprocessors, batch, hidden;
    bool has_more;
    const char* kernel;
  } cases[] = {{40, 37, 132, false, "small tiles, cell, TF32"},
               {60, 33, 135, true, "small tiles, cell, TF32"},
               {16, 65, 132, false, "tiles of 32 rows, cell, TF32"},
               {8, 70, 149, true, "tiles of 32 rows, cell, TF32"}};
  for (const auto& c : cases) {
    SCOPED_TRACE(testing::Message() << c.multiprocessors << " " << c.batch << " " << c.hidden);
    set_multiprocessors(c.multiprocessors);
    Lstm p = plain(3, c.batch, 4, c.hidden);
    p.bidirectional = c.has_more;
    if (c.has_more) {
      for (int b = 0; b < c.batch; ++b) p.lengths.push_back(b % 4);
      p.resets.assign(3 * c.batch, 0), p.resets[c.batch + 5] = 1;
    }
    [[maybe_unused]] const unsigned long long before = launches_of(c.kernel);
    check(p);
#if WARPALIGN_SIMT
    EXPECT_EQ(launches_of(c.kernel), before + 3);  // of one precision
#endif
  }
}

// Rows keep their bits in every batch by three products.
TEST_F(RecurrentTf32Cuda, InvariantCallsAreAsWithTheHighestPrecision) {
  const LstmCase given(problem_of_units(17, 132, 0, false), DType::kFloat32, 32, .5);
  const LstmRun expected = CudaRunner(given, execution_with(Precision::kHighest, true)).run();
  ASSERT_TRUE(expected.status.ok()) << to_string(expected.status);
  EXPECT_TRUE(CudaRunner(given, execution_with(Precision::kMedium, true)).run().bits == expected.bits);
}

}  // namespace
}  // namespace warpalign::test
