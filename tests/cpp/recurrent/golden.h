// Small problems with known losses and gradients, found in float64 by complex steps.
#pragma once

#include <string>
#include <vector>

#include "recurrent/reference.h"

namespace warpalign::test {

namespace reference = detail::recurrent::reference;

// flat[n] = (((n + off) 7919 mod 101) / 50 - 1) scale.
inline std::vector<double> pattern(int count, int off, double scale = 1, double plus = 0) {
  std::vector<double> values(count);
  for (int n = 0; n < count; ++n) values[n] = ((n + off) * 7919LL % 101 / 50.0 - 1) * scale + plus;
  return values;
}

inline void append(std::vector<double>& to, const std::vector<double>& more) {
  to.insert(to.end(), more.begin(), more.end());
}

struct Golden {
  std::string name;
  reference::Lstm problem;
  double loss;
  // Sums of the absolute gradients by x, W, R, b, h0, c0 and W_hr; below 0: not known.
  double x = -1, ih = -1, hh = -1, bias = -1, h0 = -1, c0 = -1, hr = -1;
};

// What the known problems are computed from, and the derivatives of their loss by y, h_n and c_n.
struct GoldenInputs {
  reference::Inputs inputs;
  reference::Outputs incoming;

  explicit GoldenInputs(const reference::Lstm& p) {
    const int B = p.batch, H = p.hidden, P = p.output(), D = p.directions();
    inputs.x = pattern(p.steps * B * p.input, 1, 1.3);
    incoming.y = pattern(p.steps * B * P * D, 31);
    for (int n = 0; n < p.cells(); ++n) {
      reference::Weights w;
      w.ih = pattern(4 * H * p.input_of(n / D), 5 + n, 1.1);
      w.hh = pattern(4 * H * P, 11 + n, .9);
      w.bias = pattern(4 * H, 17 + n, .4);
      if (p.projection > 0) w.hr = pattern(P * H, 61, .8);
      if (p.layer_norm) {
        w.ln_ih = pattern(4 * H, 43, .3, 1), w.ln_hh = pattern(4 * H, 47, .3, 1);
        w.ln_cell = pattern(H, 53, .3, 1), w.ln_cell_bias = pattern(H, 59, .2);
      }
      inputs.weights.push_back(w);
      append(inputs.h0, pattern(B * P, 23 + n, .5));
      append(inputs.c0, pattern(B * H, 29 + n, .7));
      append(incoming.h_n, pattern(B * P, 37 + n));
      append(incoming.c_n, pattern(B * H, 41 + n));
    }
  }
};

inline std::vector<Golden> golden_cases() {
  reference::Lstm soft;
  soft.steps = 4, soft.batch = 2, soft.input = 3, soft.hidden = 2;
  reference::Lstm hard = soft;
  hard.hard = true;
  const auto with = [](reference::Lstm p, auto change) {
    change(p);
    return p;
  };
  const auto lengths = [&](reference::Lstm p) {
    p.lengths = {4, 2};
    return p;
  };
  const auto stack = [&](reference::Lstm p) {
    p.layers = 2, p.bidirectional = true;
    return p;
  };
  const auto projected = [&](reference::Lstm p) {
    p.projection = 1;
    return p;
  };
  return {
      {"hard", hard, -.193945242261, 3.5681963017, 2.2174465410, .3854841134, 1.0501833012, .3465500595,
       .4318154338},
      {"soft", soft, -.021751927674, 3.7258005652, 3.0206762154, .3527460631, 1.0434807012, .2960872027,
       .4320462937},
      {"slope_sixth", with(hard, [](auto& p) { p.slope = 1.0 / 6; }), -.159782788682, 3.7680683025, -1,
       .3940162315, -1, -1, .4344569080},
      {"slope_fifth", with(hard, [](auto& p) { p.slope = .2; }), -.128730338950, 3.9580238836, -1,
       .4085919771, -1, -1, .4401771822},
      {"lengths", lengths(hard), .206420581611, 3.0158903932, -1, .3577842961, -1, -1, .5643677850},
      {"resets", with(hard, [](auto& p) { p.resets = {1, 0, 0, 0, 0, 1, 0, 0}; }), -.123186052034,
       3.9002724972, -1, .3829709708, -1, -1, .3431188290},
      {"zoneout", with(soft, [](auto& p) { p.zoneout_hidden = .25, p.zoneout_cell = .1; }), .110840954080,
       2.7539732092, -1, .2127829265, -1, -1, .2163721638},
      {"layer_norm", with(soft, [](auto& p) { p.layer_norm = true; }), .000162508804, 3.0599988197, -1,
       2.8289013296, -1, -1, .0705724527},
      {"projection_soft", projected(soft), -.029005093273, -1, -1, -1, -1, -1, -1, .5446893974},
      {"projection_hard", projected(hard), -.063660787811, -1, -1, -1, -1, -1, -1, .7238817055},
      {"stack_hard", stack(hard), .959751013232},
      {"stack_hard_lengths", stack(lengths(hard)), 1.267015501637},
      {"stack_soft", stack(soft), .759660680239},
      {"stack_soft_lengths", stack(lengths(soft)), .975189865509},
  };
}

}  // namespace warpalign::test
