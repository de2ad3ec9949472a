// Float64 scalar CTC, a direct implementation of the equations in warpalign/ctc.h, and monotonic alignment
// search. Tests compare with it. It allocates, is not part of the library and shares no code with it.
#pragma once

#include <vector>

namespace warpalign::detail::ctc::reference {

// One utterance. Its vectors are initialised here for g++, which otherwise asks every initialiser list for
// them. NOLINTBEGIN(readability-redundant-member-init)
struct Ctc {
  int frames = 0;   // T
  int classes = 1;  // C
  std::vector<int> targets = {};
  int blank = 0;
  int star = -1;
  std::vector<double> prior = {};  // empty: 0
  bool log_probs = false;
  bool zero_infinity = false;

  [[nodiscard]] int labels() const { return static_cast<int>(targets.size()); }
  [[nodiscard]] int states() const { return 2 * labels() + 1; }
  // z, the class of a state.
  [[nodiscard]] int label_of(int state) const { return state % 2 == 0 ? blank : targets[state / 2]; }
  // Whether a path may go directly from state - 2 to state.
  [[nodiscard]] bool skips_to(int state) const {
    return state % 2 == 1 && state >= 3 && label_of(state) != label_of(state - 2);
  }
};
// NOLINTEND(readability-redundant-member-init)

struct CtcResult {
  double loss;
  std::vector<double> gradient;    // (T, C)
  std::vector<double> posteriors;  // (T, S); 0 without a path, NaN with a NaN among the logits
};

// logits (T, C), row-major.
CtcResult ctc(const Ctc& problem, const std::vector<double>& logits);

struct CtcPath {
  double score;             // -inf: no path, NaN: a NaN among the logits
  std::vector<int> states;  // (T,); empty without a path
};

// The best path; among equal ones, that which the header defines.
CtcPath ctc_align(const Ctc& problem, const std::vector<double>& logits);

// w[t, z_s] of every state, (T, S); star by log sum exp, or by the largest for alignments. Empty: a NaN or
// +inf among the logits.
std::vector<double> state_weights(const Ctc& problem, const std::vector<double>& logits, bool star_is_sum);

struct MonotonicPath {
  double score;
  std::vector<int> durations;  // (S,); 0 without a path
};

// scores (S, T), row-major.
MonotonicPath monotonic_alignment(int positions, int frames, const std::vector<double>& scores);

}  // namespace warpalign::detail::ctc::reference
