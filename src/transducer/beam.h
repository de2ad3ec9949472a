// A step of beam search for one utterance, by a crew of threads, for all paths. The equations and rules are
// in warpalign/transducer_decode.h.
//
// A Crew has rank(), size() and sync(); combine(v, op), which reduces a value of every member by a
// commutative op and returns the result to all of them; lse(row, columns), the log-sum-exp of a row; and
// best_labels(decoding, row, added, count, out), the largest row[c] + added[c] of columns that are not
// blanks, in descending order. On a CPU the crew is one thread, on a GPU a block.
#pragma once

#include <cstdint>

#include "core/anywhere.h"
#include "core/prefix.h"
#include "transducer/decode.h"
#include "transducer/walk.h"

namespace warpalign::detail::transducer {

// A possible continuation of a hypothesis.
struct Candidate {
  double log_prob;  // -inf: no candidate
  std::uint64_t hash;
  std::int32_t source;
  std::int32_t token;  // -1: no new label
  std::int32_t duration;
  std::int32_t frame;
  std::int32_t symbols;
  std::int32_t length;
};

// The candidates of a hypothesis: its blanks (the first place is the hypothesis itself if it takes no arc),
// then its best labels, each with all durations.
struct BeamLayout {
  std::int32_t beams;  // 2 K
  std::int32_t keep;   // K
  std::int32_t blanks;
  std::int32_t durations;  // number of durations of a label

  WARPALIGN_ANYWHERE explicit BeamLayout(const TransducerBeamStep& p)
      : beams(p.beams),
        keep(p.beams / 2),
        blanks(p.decoding.tdt ? p.decoding.durations : 1 + p.decoding.durations),
        durations(p.decoding.tdt ? p.decoding.durations : 1) {}
  [[nodiscard]] WARPALIGN_ANYWHERE std::int32_t of_one() const { return blanks + keep * durations; }
  [[nodiscard]] WARPALIGN_ANYWHERE std::int32_t all() const { return beams * of_one(); }
};

// One utterance's memory for a step. Arrays of candidates are indexed by [hypothesis][place].
template <class Real>
struct BeamWork {
  Candidate* candidates;  // (all,)
  double* rank;           // (all,): the key of the choice; -inf: never chosen
  std::int32_t* root;     // (all,): the candidate that it is merged into
  Best<Real>* labels;     // (2 K, K): each hypothesis' best labels, by score + label score
  double* lse;            // (2 K,)
  double* duration_lse;   // (2 K,)
  std::int32_t* chosen;   // (2 K,)

  template <class Arena>
  BeamWork(const BeamLayout& layout, std::size_t utterances, Arena& arena)
      : candidates(arena.template take<Candidate>(utterances * layout.all())),
        rank(arena.template take<double>(utterances * layout.all())),
        root(arena.template take<std::int32_t>(utterances * layout.all())),
        labels(arena.template take<Best<Real>>(utterances * layout.beams * layout.keep)),
        lse(arena.template take<double>(utterances * layout.beams)),
        duration_lse(arena.template take<double>(utterances * layout.beams)),
        chosen(arena.template take<std::int32_t>(utterances * layout.beams)) {}

  // The part of utterance b.
  [[nodiscard]] WARPALIGN_ANYWHERE BeamWork of(const BeamLayout& layout, std::int64_t b) const {
    BeamWork one = *this;
    one.candidates += b * layout.all();
    one.rank += b * layout.all();
    one.root += b * layout.all();
    one.labels += b * layout.beams * layout.keep;
    one.lse += b * layout.beams;
    one.duration_lse += b * layout.beams;
    one.chosen += b * layout.beams;
    return one;
  }
};

// One utterance's step.
template <class Real, class Crew>
class BeamSearchStep {
 public:
  WARPALIGN_HERE BeamSearchStep(const TransducerBeamStep& p, std::int32_t b, std::int32_t length,
                                const BeamWork<Real>& work, const Crew& crew)
      : p_(p),
        layout_(p),
        w_(work),
        crew_(crew),
        b_(b),
        first_(std::int64_t{b} * p.beams),
        columns_(columns_of(p.decoding)),
        length_(length),
        nodes_(p.nodes + std::int64_t{b} * p.capacity),
        used_(p.used[b]),
        earliest_(earliest(p.hypothesis + first_, p.log_prob + first_)) {}

  WARPALIGN_HERE void run() {
    for (std::int32_t k = 0; k < p_.beams; ++k) {
      if (is_expanded(k)) find_labels(k);
    }
    crew_.sync();
    each(layout_.all(), [this](std::int32_t m) { w_.candidates[m] = candidate(m); });
    each(layout_.all(), [this](std::int32_t m) {
      w_.rank[m] = -kInfinity<double>;
      w_.root[m] = root_of(m);
    });
    each(layout_.all(), [this](std::int32_t m) { merge(m); });
    choose();
    each(p_.beams, [this](std::int32_t k) { finish(k); });
  }

 private:
  // Calls body(0 ... count - 1), shared among the crew, and waits for all.
  template <class Body>
  WARPALIGN_HERE void each(std::int32_t count, const Body& body) const {
    for (std::int32_t k = crew_.rank(); k < count; k += crew_.size()) body(k);
    crew_.sync();
  }

  // The earliest frame with a hypothesis that is before the end; -1: none.
  WARPALIGN_HERE std::int32_t earliest(const TransducerHypothesis* all, const double* log_prob) const {
    std::int32_t frame = -1;
    for (std::int32_t k = 0; k < p_.beams; ++k) {
      if (!(log_prob[k] > -kInfinity<double>) || all[k].frame >= length_) continue;
      if (frame < 0 || all[k].frame < frame) frame = all[k].frame;
    }
    return frame;
  }
  [[nodiscard]] WARPALIGN_HERE bool is_expanded(std::int32_t k) const {
    return p_.log_prob[first_ + k] > -kInfinity<double> && p_.hypothesis[first_ + k].frame == earliest_;
  }
  [[nodiscard]] WARPALIGN_HERE const Real* scores(std::int32_t k) const {
    return static_cast<const Real*>(p_.scores) + (first_ + k) * columns_;
  }
  // The numbers that are added to the label scores of hypothesis k, or null.
  [[nodiscard]] WARPALIGN_HERE const Real* label_scores(std::int32_t k) const {
    if (!p_.label_scores) return nullptr;
    return static_cast<const Real*>(p_.label_scores) + (first_ + k) * p_.decoding.labels;
  }

  // Finds the best labels of hypothesis k, and its log-sum-exps.
  WARPALIGN_HERE void find_labels(std::int32_t k) {
    const Real* const row = scores(k);
    crew_.best_labels(p_.decoding, row, label_scores(k), layout_.keep, w_.labels + k * layout_.keep);
    const double lse = crew_.lse(row, p_.decoding.labels);
    if (crew_.rank() != 0) return;
    w_.lse[k] = lse;
    if (p_.decoding.tdt) w_.duration_lse[k] = duration_lse(p_.decoding, row + p_.decoding.labels);
  }

  [[nodiscard]] WARPALIGN_HERE Candidate candidate(std::int32_t m) const {
    const std::int32_t k = m / layout_.of_one(), place = m % layout_.of_one();
    const TransducerHypothesis h = p_.hypothesis[first_ + k];
    Candidate c{p_.log_prob[first_ + k], p_.hash[first_ + k], k, -1, 0, h.frame, h.symbols, h.length};
    if (!is_expanded(k)) {
      if (place > 0) c.log_prob = -kInfinity<double>;
      return c;
    }
    const bool is_blank = place < layout_.blanks;
    const std::int32_t duration = is_blank ? place : (place - layout_.blanks) % layout_.durations;
    double weight = 0;
    if (p_.decoding.tdt) {
      weight = static_cast<double>(scores(k)[p_.decoding.labels + duration]) - w_.duration_lse[k];
      c.duration = p_.decoding.duration[duration];
    }
    if (is_blank) {
      weight += scores(k)[blank_column(place)] - w_.lse[k];
      if (p_.decoding.tdt && c.duration == 0) weight = -kInfinity<double>;
      c.frame += p_.decoding.tdt ? c.duration : blank_frames(p_.decoding, blank_column(place));
      c.symbols = 0;
    } else {
      const Best<Real> label = w_.labels[k * layout_.keep + (place - layout_.blanks) / layout_.durations];
      if (label.column < 0) {
        weight = -kInfinity<double>;
      } else {
        weight += static_cast<double>(scores(k)[label.column]) - w_.lse[k];
        if (p_.label_scores) weight += label_scores(k)[label.column];
      }
      c.token = label.column;
      c.hash = extended(c.hash, c.token);
      ++c.length;
      after_label(c.duration, p_.decoding.max_symbols, c.frame, c.symbols);
    }
    c.log_prob += weight;
    if (!(c.log_prob > -kInfinity<double>)) c.log_prob = -kInfinity<double>;  // NaN
    return c;
  }
  [[nodiscard]] WARPALIGN_HERE std::int32_t blank_column(std::int32_t place) const {
    return p_.decoding.tdt || place == 0 ? p_.decoding.blank : p_.decoding.big_blank_column[place - 1];
  }

  [[nodiscard]] WARPALIGN_HERE bool lives(std::int32_t m) const {
    return w_.candidates[m].log_prob > -kInfinity<double>;
  }
  // The last label of a candidate, and the node before it.
  WARPALIGN_HERE void last_label(const Candidate& c, std::int32_t& token, std::int32_t& before) const {
    const std::int32_t node = p_.hypothesis[first_ + c.source].node;
    token = c.token >= 0 || node < 0 ? c.token : nodes_[node].token;
    before = c.token >= 0 ? node : node < 0 ? -1 : nodes_[node].parent;
  }
  // Whether two candidates have the same labels and the same frame. Hashes are compared first. Equal hashes
  // may belong to different labels, so the labels themselves decide.
  [[nodiscard]] WARPALIGN_HERE bool are_equal(const Candidate& a, const Candidate& b) const {
    if (a.frame != b.frame || a.length != b.length || a.hash != b.hash) return false;
    std::int32_t x, y, before_x, before_y;
    last_label(a, x, before_x);
    last_label(b, y, before_y);
    while (x == y) {
      if (before_x == before_y) return true;
      if (before_x < 0 || before_y < 0) return false;
      x = nodes_[before_x].token;
      y = nodes_[before_y].token;
      before_x = nodes_[before_x].parent;
      before_y = nodes_[before_y].parent;
    }
    return false;
  }

  // The candidate into which m is merged: a hypothesis that takes no arc, one that takes a blank, or the same
  // label with an earlier duration, if both lead to the same frame. Two hypotheses of the earliest frame
  // never have the same labels, so that no other candidates are equal.
  [[nodiscard]] WARPALIGN_HERE std::int32_t root_of(std::int32_t m) const {
    if (!lives(m)) return m;
    for (const bool waits : {true, false}) {
      for (std::int32_t k = 0; k < p_.beams; ++k) {
        if (is_expanded(k) == waits) continue;
        for (std::int32_t place = 0; place < (waits ? 1 : layout_.blanks); ++place) {
          const std::int32_t other = k * layout_.of_one() + place;
          if (other == m) return m;
          if (lives(other) && are_equal(w_.candidates[m], w_.candidates[other])) return other;
        }
      }
    }
    for (std::int32_t other = first_of_label(m); other < m; ++other) {
      if (lives(other) && w_.candidates[other].frame == w_.candidates[m].frame) return other;
    }
    return m;
  }
  // The candidate of m's label with the first duration.
  [[nodiscard]] WARPALIGN_HERE std::int32_t first_of_label(std::int32_t m) const {
    return m - (m % layout_.of_one() - layout_.blanks) % layout_.durations;
  }

  // Gives the total log-probability of all candidates that are merged into m to the best of them.
  WARPALIGN_HERE void merge(std::int32_t m) {
    if (!lives(m) || w_.root[m] != m) return;
    double total = w_.candidates[m].log_prob;
    std::int32_t best = m;
    const bool is_label = m % layout_.of_one() >= layout_.blanks;
    const std::int32_t first = is_label ? m : 0;
    const std::int32_t last = is_label ? first_of_label(m) + layout_.durations : layout_.all();
    for (std::int32_t other = first; other < last; ++other) {
      if (other == m || w_.root[other] != m || !lives(other)) continue;
      const double log_prob = w_.candidates[other].log_prob;
      if (p_.sum) total = log_add(total, log_prob);
      if (log_prob > w_.candidates[best].log_prob) best = other;
    }
    w_.rank[best] = p_.sum ? total : w_.candidates[best].log_prob;
  }

  // Chooses the K best at later frames, then the K best that stay at this frame and are better than the K-th
  // later one.
  WARPALIGN_HERE void choose() {
    const auto better = [](Best<double> a, const Best<double>& other) {
      if (other.column >= 0) a.see(other.value, other.column);
      return a;
    };
    double least = -kInfinity<double>;
    for (std::int32_t k = 0; k < p_.beams; ++k) {
      const bool stays = k >= layout_.keep;
      Best<double> best;
      for (std::int32_t m = crew_.rank(); m < layout_.all(); m += crew_.size()) {
        if ((w_.candidates[m].frame == earliest_) == stays) best.see(w_.rank[m], m);
      }
      best = crew_.combine(best, better);
      if (stays && !(best.value > least)) best = Best<double>{};
      if (k == layout_.keep - 1 && best.column >= 0) least = best.value;
      if (crew_.rank() == 0) {
        w_.chosen[k] = best.column;
        p_.next_log_prob[first_ + k] = best.value;  // -inf: there is none
        if (best.column >= 0) w_.rank[best.column] = -kInfinity<double>;
      }
      crew_.sync();
    }
  }

  // Writes hypothesis k of the next step.
  WARPALIGN_HERE void finish(std::int32_t k) {
    const std::int64_t at = first_ + k;
    const std::int32_t m = w_.chosen[k];
    p_.label[at] = p_.expand[at] = -1;
    p_.source[at] = k;
    p_.next_hash[at] = 0;
    p_.next_hypothesis[at] = {0, 0, -1, 0};
    if (k == 0) p_.used[b_] = used_ + p_.beams;
    if (m < 0) return;
    const Candidate& c = w_.candidates[m];
    TransducerHypothesis next{c.frame, c.symbols, p_.hypothesis[first_ + c.source].node, c.length};
    if (c.token >= 0 && used_ + p_.beams <= p_.capacity) {
      const std::int32_t before = p_.frames_before ? p_.frames_before[b_] : 0;
      nodes_[used_ + k] = {next.node, c.token, before + p_.hypothesis[first_ + c.source].frame, c.duration};
      next.node = used_ + k;
    }
    p_.next_hypothesis[at] = next;
    p_.next_hash[at] = c.hash;
    p_.source[at] = c.source;
    p_.label[at] = c.token;
    std::int32_t frame = -1;
    for (std::int32_t j = 0; j < p_.beams; ++j) {
      if (w_.chosen[j] < 0) continue;
      const std::int32_t other = w_.candidates[w_.chosen[j]].frame;
      if (other < length_ && (frame < 0 || other < frame)) frame = other;
    }
    if (c.frame == frame) p_.expand[at] = frame;
  }

  const TransducerBeamStep& p_;
  const BeamLayout layout_;
  const BeamWork<Real> w_;
  const Crew& crew_;
  const std::int32_t b_;
  const std::int64_t first_;
  const std::int64_t columns_;
  const std::int32_t length_;
  TransducerNode* const nodes_;
  const std::int32_t used_;
  const std::int32_t earliest_;
};

}  // namespace warpalign::detail::transducer
