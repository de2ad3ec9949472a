// The step of greedy search from a frame's best arc, for all paths, on the host and in CUDA kernels.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

#include "core/anywhere.h"
#include "warpalign/transducer_decode.h"

namespace warpalign::detail::transducer {

template <class Real>
inline constexpr Real kInfinity = std::numeric_limits<Real>::infinity();

// Columns of a row of scores: labels, then TDT's durations.
WARPALIGN_ANYWHERE inline std::int32_t columns_of(const TransducerDecoding& d) {
  return d.labels + (d.tdt ? d.durations : 0);
}

// The column with the largest number so far, and this number; among equal numbers, the lowest column.
// `column` is negative while there has been no number above -inf.
template <class Real>
struct Best {
  Real value = -kInfinity<Real>;
  std::int32_t column = -1;

  // Ignores NaN. The result does not depend on the order of columns.
  WARPALIGN_ANYWHERE void see(Real other, std::int32_t other_column) {
    if (other > value || (other == value && column >= 0 && other_column < column)) {
      value = other;
      column = other_column;
    }
  }
};

// Frames that the blank or big blank of a column consumes; 0 for a label's column. Not for TDT's blank.
WARPALIGN_ANYWHERE inline std::int32_t blank_frames(const TransducerDecoding& d, std::int32_t column) {
  if (column == d.blank) return 1;
  for (std::int32_t i = 0; !d.tdt && i < d.durations; ++i) {
    if (column == d.big_blank_column[i]) return d.duration[i];
  }
  return 0;
}

// Updates the frame and the number of symbols after a label that consumes `duration` frames.
WARPALIGN_ANYWHERE inline void after_label(std::int32_t duration, std::int32_t max_symbols,
                                           std::int32_t& frame, std::int32_t& symbols) {
  symbols = duration > 0 ? 0 : symbols + 1;
  frame += duration;
  if (symbols < max_symbols) return;
  ++frame;
  symbols = 0;
}

// A frame's best arc.
struct BestArc {
  std::int32_t label;     // -1: a blank
  std::int32_t duration;  // in frames
  double log_prob;
};

// The log-probability of a number of a row. If the row has no number above -inf: -inf, or NaN if lse is NaN.
template <class Real>
WARPALIGN_ANYWHERE double log_prob_of(const Best<Real>& best, double lse) {
  return best.column < 0 && lse == lse ? -kInfinity<double> : static_cast<double>(best.value) - lse;
}

// The log-sum-exp of TDT's duration scores.
template <class Real>
WARPALIGN_ANYWHERE double duration_lse(const TransducerDecoding& d, const Real* scores) {
  Real largest = scores[0];
  for (std::int32_t i = 1; i < d.durations; ++i) largest = scores[i] > largest ? scores[i] : largest;
  const Real shift = largest > -kInfinity<Real> ? largest : Real(0);
  Real sum = 0;
  for (std::int32_t i = 0; i < d.durations; ++i) sum += std::exp(scores[i] - shift);
  return static_cast<double>(shift) + std::log(sum);
}

// The best arc of a row, from its best column, its log-sum-exp, and TDT's duration scores.
template <class Real>
WARPALIGN_ANYWHERE BestArc best_arc(const TransducerDecoding& d, const Best<Real>& best, double lse,
                                    const Real* duration_scores) {
  const std::int32_t column = best.column < 0 ? d.blank : best.column;
  const std::int32_t frames = blank_frames(d, column);
  BestArc arc{frames > 0 ? -1 : column, frames, log_prob_of(best, lse)};
  if (!d.tdt) return arc;
  Best<Real> duration;
  std::int32_t first = -1;
  for (std::int32_t i = 0; i < d.durations; ++i) {
    if (arc.label < 0 && d.duration[i] == 0) continue;
    duration.see(duration_scores[i], i);
    if (first < 0) first = i;
  }
  arc.log_prob += log_prob_of(duration, duration_lse(d, duration_scores));
  arc.duration = d.duration[duration.column < 0 ? first : duration.column];
  return arc;
}

// Takes the arc. Returns whether the walk goes on.
WARPALIGN_ANYWHERE inline bool take(const BestArc& arc, const TransducerDecoding& d, TransducerWalk& walk,
                                    double& log_prob) {
  log_prob += arc.log_prob;
  if (arc.label < 0) {
    walk.frame += arc.duration;
    walk.symbols = 0;
    return true;
  }
  walk.label = arc.label;
  walk.label_frame = walk.frame;
  walk.label_duration = arc.duration;
  after_label(arc.duration, d.max_symbols, walk.frame, walk.symbols);
  return false;
}

// Writes an utterance's state after a step.
WARPALIGN_ANYWHERE inline void leave(const TransducerGreedyStep& p, std::int32_t utterance,
                                     const TransducerWalk& walk, double log_prob) {
  p.next_walk[utterance] = walk;
  p.next_log_prob[utterance] = log_prob;
  if (p.token) p.token[utterance] = walk.label < 0 ? 0 : walk.label;
  if (p.found) p.found[utterance] = walk.label >= 0;
}

// The walk at the beginning of a step, without new labels.
WARPALIGN_ANYWHERE inline TransducerWalk begun(const TransducerWalk& before) {
  return {before.frame, before.symbols, -1, -1, 0};
}

}  // namespace warpalign::detail::transducer
