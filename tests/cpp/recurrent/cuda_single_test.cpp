// One step without a tape, as streams take it, on CUDA: a launch for each layer, by lanes or on the matrix
// units. What the step is compared with has a tape, and so takes another way.
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "cuda_fixture.h"
#if WARPALIGN_SIMT
#include "simt.h"
#endif

namespace warpalign::test {
namespace {

using reference::Lstm;

class SingleStepCuda : public RecurrentCuda {
 protected:
#if WARPALIGN_SIMT
  void TearDown() override { simt::device = {}; }
#endif

  static void check(const Lstm& p, DType dtype, bool with_states, Precision precision = Precision::kHighest) {
    LstmCase given(p, dtype, 23, .5);
    given.with_states = with_states;
    CudaRunner runner(given);
    CudaRunner without_tape(given, Execution::cuda(0, nullptr, precision));
    const LstmRun with = runner.run(), without = without_tape.run(false);
    ASSERT_TRUE(without.status.ok()) << to_string(without.status);
    const bool is_tf32 = dtype == DType::kFloat32 && precision == Precision::kMedium;
    const double tolerance = dtype == DType::kBFloat16             ? 0x1p-6
                             : dtype == DType::kFloat16 || is_tf32 ? 0x1p-9
                                                                   : 1e-6;
    expect_near(without.out.y, with.out.y, tolerance);
    expect_near(without.out.h_n, with.out.h_n, tolerance);
    expect_near(without.out.c_n, with.out.c_n, tolerance);
    expect_near(without.out.h_all, with.out.h_all, tolerance);
    expect_near(without.out.c_all, with.out.c_all, tolerance);
  }

 private:
  static void expect_near(const std::vector<double>& a, const std::vector<double>& b, double tolerance) {
    ASSERT_EQ(a.size(), b.size());
    for (std::size_t k = 0; k < a.size(); ++k) EXPECT_NEAR(a[k], b[k], tolerance) << k;
  }
};

TEST_F(SingleStepCuda, Sizes) {
  for (const DType dtype : {DType::kFloat64, DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
    for (const int batch : {1, 3, 9, 17}) {
      SCOPED_TRACE(testing::Message() << static_cast<int>(dtype) << " " << batch);
      Lstm p = plain(1, batch, 16, 24);
      p.layers = 2, p.hard = batch == 9;
      check(p, dtype, batch != 3);
    }
  }
}

// The state after a step takes the place of that before, where every block reads all of h. Layers at once, a
// layer that is no step at once beside them, sweeps in blocks and launches of steps.
TEST_F(SingleStepCuda, InPlace) {
  for (const DType dtype : {DType::kFloat64, DType::kFloat32, DType::kBFloat16}) {
    for (const auto& [steps, batch, hidden] :
         {std::array{1, 1, 24}, {1, 9, 136}, {1, 9, 18}, {5, 3, 24}, {4, 3, 136}}) {
      SCOPED_TRACE(testing::Message()
                   << static_cast<int>(dtype) << " " << steps << " " << batch << " " << hidden);
      Lstm p = plain(steps, batch, 16, hidden);
      p.layers = 3;
      const LstmCase given(p, dtype, 24, .5);
      CudaRunner apart(given), in_place(given);
      in_place.in_place = true;
      const LstmRun expected = apart.run(false), found = in_place.run(false);
      ASSERT_TRUE(found.status.ok()) << to_string(found.status);
      EXPECT_EQ(found.out.y, expected.out.y);
      EXPECT_EQ(found.out.h_n, expected.out.h_n);
      EXPECT_EQ(found.out.c_n, expected.out.c_n);
    }
  }
}

// So much depth that a warp's weights of R and of W are many chunks each, of which the last one is not full;
// and more rows than a block by lanes has.
TEST_F(SingleStepCuda, Depth) {
  for (const auto& [input, hidden] : {std::pair{520, 264}, {72, 520}, {648, 40}}) {
    for (const int batch : {8, 16, 35}) {
      for (const DType dtype : {DType::kFloat16, DType::kFloat32}) {
        SCOPED_TRACE(testing::Message() << input << " " << hidden << " " << batch);
#if WARPALIGN_SIMT
        if (batch != 8 && hidden > 264) continue;
        simt::device.multiprocessors = batch == 16 ? 1 : 20;
#endif
        check(plain(1, batch, input, hidden), dtype, batch != 16);
      }
    }
  }
}

// Float32 as TF32 has it: to the nearest, of two equally near ones to the larger one.
std::vector<double> as_tf32(std::vector<double> values) {
  for (double& v : values) {
    const auto bits = std::bit_cast<std::uint32_t>(static_cast<float>(v));
    v = std::bit_cast<float>((bits + 0x1000u) & ~0x1fffu);
  }
  return values;
}

// With medium precision the error is that of factors that are rounded to TF32, and nothing else is rounded.
TEST_F(SingleStepCuda, Tf32) {
  for (const auto& [input, hidden] : {std::pair{520, 264}, {72, 44}, {16, 1456}}) {
    for (const int batch : {1, 2, 9, 17, 40, 64}) {
      if (hidden > 264 && batch != 40) continue;
#if WARPALIGN_SIMT
      if (hidden == 264) simt::device.multiprocessors = 20;
#endif
      for (const Precision precision : {Precision::kHighest, Precision::kHigh, Precision::kMedium}) {
        if (hidden > 264 && precision != Precision::kMedium) continue;  // the reference takes long
        SCOPED_TRACE(testing::Message()
                     << input << " " << hidden << " " << batch << " " << static_cast<int>(precision));
        LstmCase given(plain(1, batch, input, hidden), DType::kFloat32, 31);
        const LstmRun run = CudaRunner(given, Execution::cuda(0, nullptr, precision)).run(false);
        ASSERT_TRUE(run.status.ok()) << to_string(run.status);
        const reference::Outputs expected = reference::forward(given.problem, given.inputs);
        double of_y = 0, of_c = 0;
        // One row goes by lanes, in float32.
        if (precision == Precision::kMedium && batch > 1) {
          reference::Weights& w = given.inputs.weights[0];
          for (auto* values : {&given.inputs.x, &given.inputs.h0, &w.ih, &w.hh}) *values = as_tf32(*values);
          const reference::Outputs rounded = reference::forward(given.problem, given.inputs);
          of_y = relative_error(rounded.y, expected.y), of_c = relative_error(rounded.c_n, expected.c_n);
        }
        EXPECT_LE(relative_error(run.out.y, expected.y), 2 * of_y + 2e-6);
        EXPECT_LE(relative_error(run.out.c_n, expected.c_n), 2 * of_c + 2e-6);
      }
    }
  }
}

// What is not finite stays so where factors are rounded: the matrix units do not see a NaN's last bits.
TEST_F(SingleStepCuda, Tf32OfWhatIsNotFinite) {
  LstmCase given(plain(1, 3, 16, 24), DType::kFloat32, 33);
  given.inputs.x[16] = kNan;
  given.inputs.x[32] = std::numeric_limits<double>::infinity();
  const LstmRun run = CudaRunner(given, Execution::cuda(0, nullptr, Precision::kMedium)).run(false);
  ASSERT_TRUE(run.status.ok()) << to_string(run.status);
  for (int unit = 0; unit < 24; ++unit) {
    EXPECT_TRUE(std::isfinite(run.out.y[unit])) << unit;
    EXPECT_TRUE(std::isnan(run.out.y[24 + unit])) << unit;
    EXPECT_TRUE(std::isfinite(run.out.y[48 + unit])) << unit;  // gates are 0 or 1
  }
}

// The rows of a larger batch have the bits that they have in a small one.
TEST_F(SingleStepCuda, RowsOfOtherBatches) {
  for (const auto& [dtype, precision] : {std::pair{DType::kFloat16, Precision::kHighest},
                                         {DType::kFloat32, Precision::kHighest},
                                         {DType::kFloat32, Precision::kMedium}}) {
    const int most = 31, input = 72, hidden = 40;
    LstmCase given(plain(1, most, input, hidden), dtype, 29);
    const Execution execution = Execution::cuda(0, nullptr, precision);
    const LstmRun all = CudaRunner(given, execution).run(false);
    ASSERT_TRUE(all.status.ok()) << to_string(all.status);
    for (const int batch : {2, 9, 17}) {
      SCOPED_TRACE(batch);
      LstmCase part = given;
      part.problem.batch = batch;
      part.inputs.x.resize(batch * input);
      for (auto* state : {&part.inputs.h0, &part.inputs.c0}) state->resize(batch * hidden);
      for (auto* rows : {&part.incoming.y, &part.incoming.h_n, &part.incoming.c_n, &part.incoming.h_all,
                         &part.incoming.c_all}) {
        rows->resize(batch * hidden);
      }
      const LstmRun some = CudaRunner(part, execution).run(false);
      ASSERT_TRUE(some.status.ok()) << to_string(some.status);
      for (int k = 0; k < batch * hidden; ++k) {
        ASSERT_EQ(some.out.y[k], all.out.y[k]) << k;
        ASSERT_EQ(some.out.c_n[k], all.out.c_n[k]) << k;
      }
    }
  }
}

#if WARPALIGN_SIMT
// Every kernel on the matrix units. The last block has fewer units, and the last group fewer rows.
TEST_F(SingleStepCuda, Blocks) {
  const auto check_is = [](const std::string& name, int multiprocessors, int batch, DType dtype,
                           int hidden = 0, Precision precision = Precision::kHighest) {
    SCOPED_TRACE(name);
    simt::device.multiprocessors = multiprocessors;
    const auto before = launches_of("single step on " + name);
    if (hidden == 0) hidden = dtype == DType::kFloat32 ? 44 : 40;  // whole pieces
    check(plain(1, batch, 72, hidden), dtype, true, precision);
    EXPECT_EQ(launches_of("single step on " + name), before + 1);
  };
  for (const DType dtype : {DType::kFloat16, DType::kBFloat16, DType::kFloat32}) {
    check_is(dtype == DType::kFloat32 ? "units, 8 rows" : "units, 16 rows", 20, 2, dtype);
    check_is("units, 16 rows", 20, 16, dtype);
    check_is("units, 32 rows", 20, 31, dtype);
    check_is("units, 32 rows", 20, 61, dtype);
    if (dtype == DType::kFloat32) {
      check_is("units, 32 rows", 5, 61, dtype);
      check_is("wide units, 32 rows", 4, 61, dtype);
      const Precision medium = Precision::kMedium;
      check_is("units, 8 rows, TF32", 20, 2, dtype, 0, medium);
      check_is("units, 16 rows, TF32", 20, 16, dtype, 0, medium);
      check_is("units, 32 rows, TF32", 20, 31, dtype, 0, medium);
      check_is("units, 32 rows, TF32", 5, 61, dtype, 0, medium);
      check_is("wide units, 64 rows, TF32", 4, 61, dtype, 0, medium);
    } else {
      check_is("wide units, 32 rows", 5, 61, dtype);
      check_is("wide units, 64 rows", 3, 61, dtype);
      check_is("units, 16 rows", 20, 1, dtype, 768);
    }
  }
}

// A block may have too little shared memory, and a batch too many rows.
TEST_F(SingleStepCuda, OtherWays) {
  const auto before = launches_of("single step");
  simt::device.shared_bytes = 64 * 1024;
  check(plain(1, 9, 16, 40), DType::kFloat16, true);
  simt::device = {};
  check(plain(1, 65, 16, 40), DType::kFloat16, true);
  EXPECT_EQ(launches_of("single step"), before);
  // A row alone then goes by lanes.
  simt::device.shared_bytes = 64 * 1024;
  check(plain(1, 1, 16, 768), DType::kFloat16, true);
  EXPECT_EQ(launches_of("single step"), before + 1);
}
#endif

}  // namespace
}  // namespace warpalign::test
