// A node's arcs and their weights, for all paths, on the host and in CUDA kernels. Only this file depends on
// the family (RNN-T, multi-blank, TDT) and on penalties. Every node has the same slots: blanks first (slot 0
// is RNN-T's blank, big blanks follow in the problem's order; TDT: one for each duration > 0), then labels
// (RNN-T: one; TDT: one for each duration). Equations: warpalign/transducer.h.
#pragma once

#include <cstdint>

#include "core/anywhere.h"
#include "warpalign/transducer.h"

namespace warpalign::detail::transducer {

inline constexpr std::int32_t kMostArcs = 2 * kTransducerDurations;

// The first label of utterance b in padded targets.
WARPALIGN_ANYWHERE inline std::int64_t first_target(const TransducerLattice& lattice, std::int64_t b) {
  return b * (lattice.target_stride < 0 ? lattice.states - 1 : lattice.target_stride);
}

// The slots of every node.
struct ArcTable {
  std::int32_t blanks = 0;  // slots 0 .. blanks - 1
  std::int32_t labels = 0;  // slots blanks .. blanks + labels - 1
  std::int32_t longest = 0;
  std::int32_t frames[kMostArcs] = {};    // frames that the slot's arc consumes
  std::int32_t duration[kMostArcs] = {};  // its column in the duration logits; -1: none
  std::int32_t column[kMostArcs] = {};  // its column in the logits; -1 for labels, whose column is the label

  [[nodiscard]] WARPALIGN_ANYWHERE std::int32_t arcs() const { return blanks + labels; }
  [[nodiscard]] WARPALIGN_ANYWHERE bool is_label(std::int32_t slot) const { return slot >= blanks; }

  WARPALIGN_ANYWHERE void add(std::int32_t arc_frames, std::int32_t arc_duration, std::int32_t arc_column) {
    const std::int32_t slot = arcs();
    frames[slot] = arc_frames;
    duration[slot] = arc_duration;
    column[slot] = arc_column;
    ++(arc_column < 0 ? labels : blanks);
    longest = arc_frames > longest ? arc_frames : longest;
  }
};

// A blank that consumes one frame and a label that consumes none: plain RNN-T, and TDT's utterances without
// durations.
WARPALIGN_ANYWHERE inline ArcTable plain_arc_table(const TransducerLattice& lattice) {
  ArcTable table;
  table.add(1, -1, lattice.blank);
  table.add(0, -1, -1);
  return table;
}

WARPALIGN_ANYWHERE inline ArcTable arc_table(const TransducerLattice& lattice) {
  if (!lattice.tdt && lattice.durations == 0) return plain_arc_table(lattice);
  ArcTable table;
  if (lattice.tdt) {
    for (std::int32_t d = 0; d < lattice.durations; ++d) {
      if (lattice.duration[d] > 0) table.add(lattice.duration[d], d, lattice.blank);
    }
    for (std::int32_t d = 0; d < lattice.durations; ++d) table.add(lattice.duration[d], d, -1);
  } else {
    table.add(1, -1, lattice.blank);
    for (std::int32_t i = 0; i < lattice.durations; ++i)
      table.add(lattice.duration[i], -1, lattice.big_blank_column[i]);
    table.add(0, -1, -1);
  }
  return table;
}

// The number of slots of a node in saved memory: those of the table, but at least 3 with durations, because
// the layout of two slots is reserved for plain RNN-T.
WARPALIGN_ANYWHERE inline std::int32_t slots_of(const TransducerLattice& lattice) {
  const std::int32_t arcs = arc_table(lattice).arcs();
  return lattice.tdt && arcs < 3 ? 3 : arcs;
}

// The constants in the weights of an utterance's arcs.
template <class Real>
struct Penalties {
  Real sigma = 0;
  Real delay = 0;
  Real eos_penalty = 0;
  Real log_star_penalty = 0;
  std::int32_t eos = -1;
  std::int32_t star = -1;
};

// log_star_penalty = log(lattice.star_penalty). An utterance without durations has sigma = 0.
template <class Real>
WARPALIGN_ANYWHERE Penalties<Real> penalties_of(const TransducerLattice& lattice, Real log_star_penalty,
                                                bool without_durations) {
  Penalties<Real> p;
  p.sigma = without_durations ? Real(0) : static_cast<Real>(lattice.sigma);
  p.delay = static_cast<Real>(lattice.delay);
  p.eos_penalty = static_cast<Real>(lattice.eos_penalty);
  p.log_star_penalty = log_star_penalty;
  p.eos = lattice.eos;
  p.star = lattice.star;
  return p;
}

// log weight = constant, plus lp of the arc's column and q of its duration if it is scored. An arc that is
// not scored does not depend on the logits.
template <class Real>
struct ArcTerm {
  Real constant;
  bool scored;
};

// The term of a blank or big blank out of (t, u). label is y_u, and -1 for u = 0.
template <class Real>
WARPALIGN_ANYWHERE ArcTerm<Real> blank_term(const Penalties<Real>& p, std::int32_t label) {
  if (p.star >= 0 && label == p.star) return {p.log_star_penalty, false};
  return {-p.sigma, true};
}

// The term of a label arc out of (t, u), u < U. next_label is y_{u+1}, frames is T_b.
template <class Real>
WARPALIGN_ANYWHERE ArcTerm<Real> label_term(const Penalties<Real>& p, std::int32_t t, std::int32_t frames,
                                            std::int32_t next_label) {
  const Real delta = Real(0.5) * static_cast<Real>(frames - 1 - 2 * static_cast<std::int64_t>(t));
  const bool star = p.star >= 0 && next_label == p.star;
  const bool eos = p.eos >= 0 && next_label == p.eos;
  const Real constant = (star ? Real(0) : -p.sigma) + (p.delay + (eos ? p.eos_penalty : Real(0))) * delta;
  return {constant, !star};
}

// Slots in the order in which the best path prefers arcs of equal weight: blanks before labels, then more
// frames before fewer.
struct ArcOrder {
  std::int32_t slot[kMostArcs] = {};
};
WARPALIGN_ANYWHERE inline ArcOrder preferred_order(const ArcTable& table) {
  ArcOrder order;
  for (std::int32_t next = 0; next < table.arcs(); ++next) {
    std::int32_t at = next;
    while (at > 0 && table.is_label(order.slot[at - 1]) == table.is_label(next) &&
           table.frames[order.slot[at - 1]] < table.frames[next]) {
      order.slot[at] = order.slot[at - 1];
      --at;
    }
    order.slot[at] = next;
  }
  return order;
}

// An arc as a byte, for following a path backward: the frames that it consumes, plus this if it is a label.
inline constexpr std::uint8_t kLabelStep = 128;
static_assert(kTransducerLongestArc < kLabelStep);
WARPALIGN_ANYWHERE inline std::uint8_t step_of(const ArcTable& table, std::int32_t slot) {
  return static_cast<std::uint8_t>(table.frames[slot] + (table.is_label(slot) ? kLabelStep : 0));
}

// The node to which an arc leads.
struct ArcEnd {
  std::int32_t t;
  std::int32_t u;
  bool exists;
  bool is_end;  // it leads to the end of all paths, not to a node
};

// frames is T_b, labels U_b.
WARPALIGN_ANYWHERE inline ArcEnd arc_end(const ArcTable& table, std::int32_t slot, std::int32_t t,
                                         std::int32_t u, std::int32_t frames, std::int32_t labels) {
  const std::int32_t next = t + table.frames[slot];
  if (table.is_label(slot)) return {next, u + 1, u < labels && next < frames, false};
  const bool end = next == frames && u == labels;
  return {next, u, end || next < frames, end};
}

// Whether a label may occur in targets.
WARPALIGN_ANYWHERE inline bool label_is_valid(const TransducerLattice& lattice, std::int32_t vocabulary,
                                              std::int32_t label) {
  if (lattice.star >= 0 && label == lattice.star) return true;
  bool valid = label >= 0 && label < vocabulary && label != lattice.blank;
  for (std::int32_t i = 0; !lattice.tdt && i < lattice.durations; ++i)
    valid &= label != lattice.big_blank_column[i];
  return valid;
}

}  // namespace warpalign::detail::transducer
