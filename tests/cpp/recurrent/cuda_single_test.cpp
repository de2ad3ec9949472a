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

// So much depth that a warp's weights of R and of W are several blocks each, of which the last one is not
// full: even and odd numbers of them, with R and without; and so few multiprocessors that a block has several
// tiles.
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

}  // namespace
}  // namespace warpalign::test
