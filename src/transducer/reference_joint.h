// Float64 scalar transducer losses of a joint network, a direct implementation of the equations in
// warpalign/transducer_joint.h. Tests compare with it. It computes all logits, and is not part of the
// library.
#pragma once

#include <cstdint>
#include <vector>

#include "transducer/reference.h"

namespace warpalign::detail::transducer::reference {

// The parameters that all utterances share. The rows of durations follow those of labels.
struct JointNetwork {
  int hidden = 1;  // H
  bool tanh = false;
  std::vector<double> weight;  // (V + D, H)
  std::vector<double> bias;    // (V + D,)
  double dropout = 0;
  std::uint64_t seed = 0;
};

struct JointResult {
  double loss;
  std::vector<double> grad_encoder;    // (T, H)
  std::vector<double> grad_predictor;  // (U + 1, H)
  std::vector<double> grad_weight;     // (V + D, H)
  std::vector<double> grad_bias;       // (V + D,)
};

// encoder (T, H), predictor (U + 1, H), row-major. number: the utterance's index in the batch, on which
// dropout masks depend. Shares only Philox with the library.
JointResult transducer_joint(const Transducer& problem, const JointNetwork& network,
                             const std::vector<double>& encoder, const std::vector<double>& predictor,
                             int number = 0);

}  // namespace warpalign::detail::transducer::reference
