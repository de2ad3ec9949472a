// What holds on both devices: tests over the runner of a device.
#pragma once

#include "cases.h"
#include "testing.h"

namespace warpalign::test {

// float64's rounding over sums of a few hundred terms and steps; of gradients that cancel too.
constexpr double kFloat64Tolerance = 2e-13;

template <class Runner>
void expect_known_results() {
  for (const Golden& golden : golden_cases()) {
    SCOPED_TRACE(golden.name);
    const LstmCase given(golden, DType::kFloat64);
    expect_close(given, Runner(given).run(), kFloat64Tolerance);
  }
}

// Strictly inside the rails a gate's derivative is the slope, however near the value is to the rail.
template <class Runner>
void expect_slope_near_the_rails(DType dtype, double slope) {
  const double rail = 0.5 / slope;
  const double step = dtype == DType::kFloat32 ? 0x1p-20 : dtype == DType::kFloat16 ? 0x1p-8 : 0x1p-5;
  for (const double z : {rail, rail - step, -rail, -rail + step}) {
    reference::Lstm p = plain(1, 1, 1, 1);
    p.hard = true, p.slope = slope;
    LstmCase given(p, dtype, 12);
    given.cell_dtype = dtype;
    given.inputs.weights[0].ih = {1, 1, 0, 1}, given.inputs.weights[0].hh = {0, 0, 0, 0};
    given.inputs.weights[0].bias = {0, 0, .5, 0};
    given.inputs.x = rounded(dtype, {z}), given.inputs.h0 = {0}, given.inputs.c0 = {.25};
    // A slope that no rail belongs to exactly: the input's rounding decides the side.
    if (std::abs(given.inputs.x[0]) != rail && std::abs(z) == rail) continue;
    SCOPED_TRACE(testing::Message() << static_cast<int>(dtype) << " " << slope << " " << z);
    const LstmRun run = Runner(given).run();
    const auto expected = reference::backward(given.problem, given.inputs, given.incoming);
    const double tolerance = dtype == DType::kBFloat16 ? 3e-2 : 4e-3;
    EXPECT_NEAR(run.gradients.x[0], expected.x[0], tolerance * std::abs(expected.x[0]));
    EXPECT_EQ(run.gradients.x[0] == 0, expected.x[0] == 0);
  }
}

template <class Runner>
void expect_nan_to_stay_in_its_row(DType dtype, bool layer_norm, int hidden = 20) {
  reference::Lstm p = plain(5, 7, 10, hidden);
  p.bidirectional = true;
  p.layer_norm = layer_norm;
  p.hard = !layer_norm;
  const LstmCase clean(p, dtype, 13);
  const LstmRun expected = Runner(clean).run();
  LstmCase given = clean;
  given.inputs.x[(2 * 7 + 3) * 10 + 4] = kNan;  // step 2 of row 3
  const LstmRun run = Runner(given).run();
  const int width = 2 * hidden;
  for (int n = 0; n < 35 * width; ++n) {
    if (n / width % 7 != 3) {
      ASSERT_EQ(run.out.y[n], expected.out.y[n]) << n;
    }
  }
  const auto is_nan = [&](int t, int unit) { return std::isnan(run.out.y[(t * 7 + 3) * width + unit]); };
  for (int t = 0; t < 5; ++t) {
    EXPECT_EQ(is_nan(t, 0), t >= 2) << t;
    EXPECT_EQ(is_nan(t, hidden), t <= 2) << t;  // the other direction
  }
  for (int n = 0; n < 350; ++n) {
    if (n / 10 % 7 != 3) {
      ASSERT_EQ(run.gradients.x[n], expected.gradients.x[n]) << n;
    }
  }
}

template <class Runner>
void expect_zero_gradients_of_an_empty_batch() {
  const LstmCase given(plain(3, 0, 4, 5), DType::kFloat32, 15);
  const LstmRun run = Runner(given).run();
  ASSERT_TRUE(run.status.ok()) << to_string(run.status);
  EXPECT_EQ(run.gradients.weights[0].ih, std::vector<double>(80, 0.0));
  EXPECT_EQ(run.gradients.weights[0].hh, std::vector<double>(100, 0.0));
  EXPECT_EQ(run.gradients.weights[0].bias, std::vector<double>(20, 0.0));
}

}  // namespace warpalign::test
