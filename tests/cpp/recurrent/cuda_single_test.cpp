// One step without a tape, as streams take it, on CUDA: a launch for each layer, by lanes or on the matrix
// units. What the step is compared with has a tape, and so takes another way.
#include <gtest/gtest.h>

#include "cuda_fixture.h"
#if WARPALIGN_SIMT
#include "simt.h"
#endif

namespace warpalign::test {
namespace {

using reference::Lstm;

class SingleStep : public RecurrentCuda {
 protected:
#if WARPALIGN_SIMT
  void TearDown() override { simt::device = {}; }
#endif

  static void check(const Lstm& p, DType dtype, bool with_states) {
    LstmCase given(p, dtype, 23, .5);
    given.with_states = with_states;
    CudaRunner runner(given);
    const LstmRun with = runner.run(), without = runner.run(false);
    ASSERT_TRUE(without.status.ok()) << to_string(without.status);
    const double tolerance = dtype == DType::kBFloat16 ? 0x1p-6 : dtype == DType::kFloat16 ? 0x1p-9 : 1e-6;
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

TEST_F(SingleStep, Sizes) {
  for (const DType dtype : {DType::kFloat64, DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
    for (const int batch : {1, 3, 9, 17}) {
      SCOPED_TRACE(testing::Message() << static_cast<int>(dtype) << " " << batch);
      Lstm p = plain(1, batch, 16, 24);
      p.layers = 2, p.hard = batch == 9;
      check(p, dtype, batch != 3);
    }
  }
}

// So much depth that a warp's weights of R and of W are many chunks each, of which the last one is not full;
// and more rows than a block by lanes has.
TEST_F(SingleStep, Depth) {
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

// The rows of a larger batch have the bits that they have in a small one.
TEST_F(SingleStep, RowsOfOtherBatches) {
  for (const DType dtype : {DType::kFloat16, DType::kFloat32}) {
    const int most = 31, input = 72, hidden = 40;
    LstmCase given(plain(1, most, input, hidden), dtype, 29);
    const LstmRun all = CudaRunner(given).run(false);
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
      const LstmRun some = CudaRunner(part).run(false);
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
TEST_F(SingleStep, Blocks) {
  const auto check_is = [](const std::string& name, int multiprocessors, int batch, DType dtype,
                           int hidden = 0) {
    SCOPED_TRACE(name);
    simt::device.multiprocessors = multiprocessors;
    const auto before = launches_of("single step on " + name);
    if (hidden == 0) hidden = dtype == DType::kFloat32 ? 44 : 40;  // whole pieces
    check(plain(1, batch, 72, hidden), dtype, true);
    EXPECT_EQ(launches_of("single step on " + name), before + 1);
  };
  for (const DType dtype : {DType::kFloat16, DType::kBFloat16, DType::kFloat32}) {
    check_is("units, 8 rows", 20, 2, dtype);
    check_is("units, 16 rows", 20, 16, dtype);
    check_is("units, 32 rows", 20, 31, dtype);
    check_is("units, 32 rows", 20, 61, dtype);
    if (dtype == DType::kFloat32) {
      check_is("units, 32 rows", 5, 61, dtype);
      check_is("wide units, 32 rows", 4, 61, dtype);
    } else {
      check_is("wide units, 32 rows", 5, 61, dtype);
      check_is("wide units, 64 rows", 3, 61, dtype);
      check_is("units, 8 rows", 20, 1, dtype, 768);
    }
  }
}

// A block may have too little shared memory, and a batch too many rows.
TEST_F(SingleStep, OtherWays) {
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
