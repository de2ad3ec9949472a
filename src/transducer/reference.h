// Float64 scalar transducer losses, a direct implementation of the equations in warpalign/transducer.h. Tests
// compare with it. It allocates, is not part of the library, and shares no code with arcs.h, so that tests
// detect mistakes there.
#pragma once

#include <vector>

namespace warpalign::detail::transducer::reference {

// One utterance. Its vectors are initialised here for g++, which otherwise asks every initialiser list for
// them. NOLINTBEGIN(readability-redundant-member-init)
struct Transducer {
  int frames = 0;  // T
  int labels = 1;  // V
  std::vector<int> targets = {};
  int blank = 0;
  bool tdt = false;
  std::vector<int> durations = {};  // of big blanks, or TDT's
  std::vector<int> big_blank_columns = {};
  bool without_durations = false;
  double sigma = 0, fastemit = 0, delay = 0, eos_penalty = 0, star_penalty = 1, clamp = 0;
  int eos = -1, star = -1;
  bool log_probs = false, zero_infinity = false;
  // Of a pruned joint: frame t's arcs leave states band[t] .. band[t] + band_states - 1 alone. Empty: all
  // states.
  std::vector<int> band = {};
  int band_states = 0;

  [[nodiscard]] int states() const { return static_cast<int>(targets.size()) + 1; }
};
// NOLINTEND(readability-redundant-member-init)

struct TransducerArc {
  bool is_label;
  int frames;    // consumed
  int column;    // of the logits; -1: does not depend on them
  int duration;  // column of the duration logits; -1: none
  double weight;
  double posterior;  // that a path takes the arc; 0 without a path
};

struct TransducerResult {
  double loss;
  std::vector<double> grad_logits;               // (T, U+1, V)
  std::vector<double> grad_durations;            // (T, U+1, D)
  std::vector<std::vector<TransducerArc>> arcs;  // of node t (U+1) + u
};

// logits (T, U+1, V), durations (T, U+1, D), row-major. A NaN or +inf (with log_probs: at an arc's column)
// makes everything NaN.
TransducerResult transducer(const Transducer& problem, const std::vector<double>& logits,
                            const std::vector<double>& duration_logits = {});

}  // namespace warpalign::detail::transducer::reference
