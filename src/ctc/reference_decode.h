// Float64 prefix search, straight from the equations of warpalign/ctc_decode.h: of all prefixes, or of a
// beam. It keeps whole label sequences in a map; it is not part of the library.
#pragma once

#include <functional>
#include <vector>

#include "ctc/reference.h"

namespace warpalign::detail::ctc::reference {

struct CtcPrefix {
  std::vector<int> labels;
  double score;             // total; NaN: a NaN or +inf among the logits
  std::vector<int> frames;  // the frames at which the best path of the beam begins each label
};

// The score that a language model adds for a label after the labels before it.
using LabelScores = std::function<double(const std::vector<int>& labels, int label)>;

// The prefixes of a beam after all frames, the best first. beams = 0: all prefixes. For an utterance with NaN
// or +inf: one prefix without labels. logits (T, C), row-major. problem.targets is ignored.
std::vector<CtcPrefix> ctc_beam(const Ctc& problem, const std::vector<double>& logits, int beams,
                                double threshold, const LabelScores& added = {});

CtcPrefix ctc_greedy(const Ctc& problem, const std::vector<double>& logits);

}  // namespace warpalign::detail::ctc::reference
