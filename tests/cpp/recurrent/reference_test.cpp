// The float64 reference of the LSTM against known results and central differences.
#include "recurrent/reference.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "golden.h"

namespace warpalign::test {
namespace {

using reference::Gradients;
using reference::Inputs;
using reference::Lstm;
using reference::Outputs;

double dot(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (std::size_t n = 0; n < b.size(); ++n) sum += a[n] * b[n];
  return sum;
}
double sum_of_magnitudes(const std::vector<double>& v) {
  double sum = 0;
  for (const double a : v) sum += std::abs(a);
  return sum;
}
double loss_of(const Outputs& out, const Outputs& incoming) {
  return dot(out.y, incoming.y) + dot(out.h_n, incoming.h_n) + dot(out.c_n, incoming.c_n) +
         dot(out.h_all, incoming.h_all) + dot(out.c_all, incoming.c_all);
}

// Known numbers have this many digits.
constexpr double kLossDigits = 6e-13, kSumDigits = 6e-11;

TEST(RecurrentReference, KnownNumbers) {
  for (const Golden& golden : golden_cases()) {
    SCOPED_TRACE(golden.name);
    const GoldenInputs given(golden.problem);
    EXPECT_NEAR(loss_of(forward(golden.problem, given.inputs), given.incoming), golden.loss, kLossDigits);
    const Gradients g = backward(golden.problem, given.inputs, given.incoming);
    const auto expect_sum = [](const std::vector<double>& v, double known) {
      if (known >= 0) {
        EXPECT_NEAR(sum_of_magnitudes(v), known, kSumDigits);
      }
    };
    expect_sum(g.x, golden.x);
    expect_sum(g.weights[0].ih, golden.ih);
    expect_sum(g.weights[0].hh, golden.hh);
    expect_sum(g.weights[0].bias, golden.bias);
    expect_sum(g.h0, golden.h0);
    expect_sum(g.c0, golden.c0);
    expect_sum(g.weights[0].hr, golden.hr);
  }
}

TEST(RecurrentReference, KnownStatesAndRails) {
  const Golden hard = golden_cases().front();
  const Outputs out = forward(hard.problem, GoldenInputs(hard.problem).inputs);
  EXPECT_EQ(out.on_rail, 5);
  EXPECT_NEAR(out.h_n[0], .1394961176, kSumDigits);
  EXPECT_NEAR(out.h_n[1], -.0736167643, kSumDigits);
  EXPECT_NEAR(out.c_n[0], .3632128034, kSumDigits);
  EXPECT_NEAR(out.c_n[1], -.1768502536, kSumDigits);
}

TEST(RecurrentReference, ReversedIsTheReversedSequence) {
  // The reverse direction of a stack of one layer, from its share of the bidirectional layer's loss.
  Lstm p = golden_cases().front().problem;
  p.lengths = {4, 2};
  GoldenInputs given(p);
  Lstm both = p;
  both.bidirectional = true;
  Inputs inputs = given.inputs;
  inputs.weights.push_back(inputs.weights[0]);
  append(inputs.h0, given.inputs.h0);
  append(inputs.c0, given.inputs.c0);
  const int half = p.steps * p.batch * p.hidden;
  const auto behind = [](std::vector<double> zeros_first, const std::vector<double>& v) {
    append(zeros_first, v);
    return zeros_first;
  };
  Outputs incoming;
  incoming.h_all = behind(std::vector<double>(half), given.incoming.y);
  incoming.h_n = behind(std::vector<double>(given.incoming.h_n.size()), given.incoming.h_n);
  incoming.c_n = behind(std::vector<double>(given.incoming.c_n.size()), given.incoming.c_n);
  EXPECT_NEAR(loss_of(forward(both, inputs), incoming), .424459466685, kLossDigits);
  const Gradients g = backward(both, inputs, incoming);
  EXPECT_NEAR(sum_of_magnitudes(g.x), 2.4117932913, kSumDigits);
  EXPECT_NEAR(sum_of_magnitudes(g.weights[1].hh), .5660614884, kSumDigits);
  EXPECT_NEAR(sum_of_magnitudes(g.c0), .4456193956, kSumDigits);
}

// Everything at once, on random numbers: the gradient by every input against differences.
TEST(RecurrentReference, GradientsAreDifferences) {
  std::mt19937 random(3);
  std::normal_distribution<double> normal(0, .5);
  for (const int variant : {0, 1, 2, 3}) {
    SCOPED_TRACE(variant);
    Lstm p;
    p.steps = 5, p.batch = 3, p.input = 2, p.hidden = 5, p.layers = 2, p.bidirectional = variant != 1;
    p.hard = variant == 1, p.projection = variant == 2 ? 3 : 0, p.layer_norm = variant >= 2;
    p.lengths = {5, 0, 3};
    p.resets.assign(15, 0), p.resets[6] = p.resets[8] = p.resets[0] = 1;
    p.training = true, p.seed = 77 + variant;
    p.dropout = .3, p.weight_dropout = .25, p.zoneout_hidden = .3, p.zoneout_cell = .2;
    const int P = p.output();
    const auto draw = [&](int count, double plus = 0) {
      std::vector<double> v(count);
      for (double& a : v) a = normal(random) + plus;
      return v;
    };
    Inputs inputs;
    inputs.x = draw(15 * 2);
    for (int n = 0; n < p.cells(); ++n) {
      reference::Weights w;
      w.ih = draw(20 * p.input_of(n / p.directions())), w.hh = draw(20 * P), w.bias = draw(20);
      if (p.projection > 0) w.hr = draw(P * 5);
      if (p.layer_norm)
        w.ln_ih = draw(20, 1), w.ln_hh = draw(20, 1), w.ln_cell = draw(5, 1), w.ln_cell_bias = draw(5);
      inputs.weights.push_back(w);
    }
    inputs.h0 = draw(p.cells() * 3 * P), inputs.c0 = draw(p.cells() * 15);
    Outputs incoming;
    incoming.y = draw(15 * P * p.directions());
    incoming.h_n = draw(p.cells() * 3 * P), incoming.c_n = draw(p.cells() * 15);
    incoming.h_all = draw(p.cells() * 15 * P), incoming.c_all = draw(p.cells() * 75);
    // Beyond a length the outputs are 0 whatever the inputs: these incoming gradients change nothing.
    const Gradients g = backward(p, inputs, incoming);
    const auto check = [&](std::vector<double>& v, const std::vector<double>& gradient,
                           const std::string& name) {
      ASSERT_EQ(v.size(), gradient.size()) << name;
      for (std::size_t n = 0; n < v.size(); ++n) {
        constexpr double kStep = 1e-6;
        const double before = v[n];
        v[n] = before + kStep;
        const double above = loss_of(forward(p, inputs), incoming);
        v[n] = before - kStep;
        const double below = loss_of(forward(p, inputs), incoming);
        v[n] = before;
        ASSERT_NEAR((above - below) / (2 * kStep), gradient[n], 2e-7 * (1 + std::abs(gradient[n])))
            << name << " " << n;
      }
    };
    check(inputs.x, g.x, "x");
    check(inputs.h0, g.h0, "h0");
    check(inputs.c0, g.c0, "c0");
    for (int n = 0; n < p.cells(); ++n) {
      reference::Weights& w = inputs.weights[n];
      const reference::Weights& dw = g.weights[n];
      check(w.ih, dw.ih, "ih");
      check(w.hh, dw.hh, "hh");
      check(w.bias, dw.bias, "bias");
      check(w.hr, dw.hr, "hr");
      check(w.ln_ih, dw.ln_ih, "ln_ih");
      check(w.ln_hh, dw.ln_hh, "ln_hh");
      check(w.ln_cell, dw.ln_cell, "ln_cell");
      check(w.ln_cell_bias, dw.ln_cell_bias, "ln_cell_bias");
    }
  }
}

}  // namespace
}  // namespace warpalign::test
