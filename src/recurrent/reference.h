// Float64 scalar LSTM, straight from the equations of warpalign/recurrent.h and obviously right: what every
// test compares with. The code allocates; it is not part of the library. It shares Philox alone with the
// paths.
#pragma once

#include <cstdint>
#include <vector>

namespace warpalign::detail::recurrent::reference {

// One layer and direction, row-major. Empty: none. NOLINTBEGIN(readability-redundant-member-init)
struct Weights {
  std::vector<double> ih, hh, bias, hr, ln_ih, ln_hh, ln_cell, ln_cell_bias;
};

struct Lstm {
  int steps = 1, batch = 1, input = 1, hidden = 1;
  int projection = 0;
  int layers = 1;
  bool bidirectional = false;
  bool hard = false;
  double slope = 0.125, offset = 0.5;
  std::vector<int> lengths = {};  // empty: all have T steps
  std::vector<int> resets = {};   // (T, B); empty: none
  bool layer_norm = false;
  double eps = 1e-5;
  double dropout = 0, weight_dropout = 0, zoneout_hidden = 0, zoneout_cell = 0;
  bool training = false;
  std::uint64_t seed = 0;

  [[nodiscard]] int directions() const { return bidirectional ? 2 : 1; }
  [[nodiscard]] int cells() const { return layers * directions(); }
  [[nodiscard]] int output() const { return projection > 0 ? projection : hidden; }
  [[nodiscard]] int input_of(int layer) const { return layer == 0 ? input : output() * directions(); }
};
// NOLINTEND(readability-redundant-member-init)

struct Inputs {
  std::vector<double> x;       // (T, B, I)
  std::vector<double> h0, c0;  // (L D, B, P), (L D, B, H)
  std::vector<Weights> weights;
};

struct Outputs {
  std::vector<double> y, h_n, c_n, h_all, c_all;
  int on_rail = 0;  // hard activations whose derivative is 0
};

// The gradients of a loss whose derivatives with respect to y, h_n, c_n, h_all and c_all are `incoming`; an
// empty vector is 0.
struct Gradients {
  std::vector<double> x, h0, c0;
  std::vector<Weights> weights;
};

Outputs forward(const Lstm& problem, const Inputs& inputs);
Gradients backward(const Lstm& problem, const Inputs& inputs, const Outputs& incoming);

}  // namespace warpalign::detail::recurrent::reference
