// Problems of the LSTM that the tests of every path share.
#pragma once

#include <vector>

#include "recurrent/reference.h"

namespace warpalign::test {

namespace reference = detail::recurrent::reference;

inline reference::Lstm plain(int steps, int batch, int input, int hidden) {
  reference::Lstm p;
  p.steps = steps, p.batch = batch, p.input = input, p.hidden = hidden;
  return p;
}

// Every option, alone and together with stacks, directions, lengths, packed rows and resets.
inline std::vector<reference::Lstm> options() {
  std::vector<reference::Lstm> all;
  for (int variant = 0; variant < 64; ++variant) {
    reference::Lstm p = plain(7, 5, 9, 21);
    p.hard = variant % 2 == 1;
    p.layers = variant % 3 + 1;
    p.bidirectional = variant / 2 % 2 == 1;
    p.projection = variant / 4 % 2 == 1 ? 18 : 0;
    p.layer_norm = variant / 8 % 2 == 1;
    if (variant / 16 % 2 == 1) p.lengths = {7, 5, 5, 1, 0};
    if (variant / 32 % 2 == 1) {
      p.resets.assign(35, 0);
      for (int n = 0; n < 35; n += 3) p.resets[n] = 1;
    }
    p.training = variant % 5 != 0;
    p.seed = 0x123456789abcdefu + variant;
    if (variant % 7 != 0) p.dropout = .3, p.weight_dropout = .2, p.zoneout_hidden = .25, p.zoneout_cell = .1;
    all.push_back(p);
  }
  return all;
}

}  // namespace warpalign::test
