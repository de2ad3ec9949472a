// Float64 scalar transducer losses of a joint network, straight from the equations of
// warpalign/transducer_joint.h: what tests compare with. The code makes all logits and is not part of the
// library.
#pragma once

#include <cstdint>
#include <vector>

#include "transducer/reference.h"

namespace warpalign::detail::transducer::reference {

// What all utterances share. Durations' rows stand behind the labels'.
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

// encoder (T, H), predictor (U + 1, H), row-major. number: the utterance's in the batch, which dropout's
// masks depend on. Shares Philox alone with the library.
JointResult transducer_joint(const Transducer& problem, const JointNetwork& network,
                             const std::vector<double>& encoder, const std::vector<double>& predictor,
                             int number = 0);

}  // namespace warpalign::detail::transducer::reference
