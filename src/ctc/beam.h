// Prefix beam search, for every path: one utterance's frames, by a crew of threads. The equations and the
// rules are in warpalign/ctc_decode.h.
//
// A Crew, which is one thread on a CPU and a block on a GPU, has: rank(), size() and sync(); lanes(), the
// number of neighbouring threads that share a prefix, and lane(), the index of this one; most(v), the largest
// v of these threads; find(all, count, v), the index of v among those of all[0 .. count - 1] that this lane
// visits, or -1; reset_least(), lower(total) and least(), a lower bound of all totals passed to lower() since
// the reset; append(count, wanted), called by all threads, which reserves an element of an array of *count
// elements; mark(bits, index), which sets a bit; select(candidates, count, keep, chosen), which writes the
// indices of the `keep` best candidates to `chosen`, the best first. `chosen` is -1 before.
//
// The new prefixes that are considered. Prefixes are ordered by total, labels by weight. Without label scores
// the new prefix of place i and the label of rank j is not among the K best if (i + 1) j - 1 >= K: all other
// pairs of (0 .. i) x (0 .. j) are at least as good, either as a new prefix, or as a prefix of the beam whose
// total includes the pair's weight. This does not hold for the last label of a place's prefix, whose weight
// is multiplied by the probability of the paths that end in blank only. Therefore i + 1 pairs are subtracted.
// With label scores every place has an order of its own, and j <= K.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

#include "core/anywhere.h"
#include "core/prefix.h"
#include "warpalign/ctc_decode.h"

namespace warpalign::detail::ctc {

inline constexpr double kNoPrefix = kImpossible;  // the total of a missing prefix
inline constexpr double kNoScore = std::numeric_limits<double>::quiet_NaN();

// The prefix in the next frame if no label is added.
struct Stay {
  double total, blank, label;
  double best_blank, best_label;
  std::int32_t node_blank, node_label;
  std::int32_t made_by;  // the parent of the node to be created for node_label; kNoNode: no node is created
};
constexpr std::int32_t kNoNode = -2;
constexpr std::uint64_t kNoHash = ~std::uint64_t{0};

// A candidate for the beam of the next frame. Its score is stored as an integer of the same order, which is
// fast to compare.
struct Candidate {
  std::int64_t key;
  std::int32_t id;  // the place of a prefix that stays; for a new prefix, see pair_of()

  static WARPALIGN_ANYWHERE Candidate of(double score, std::int32_t id) {
    return {ordered(bits_as<std::int64_t>(score + 0.0)), id};  // -0 becomes 0
  }
  [[nodiscard]] WARPALIGN_ANYWHERE double score() const { return bits_as<double>(ordered(key)); }
  // Branch-free.
  [[nodiscard]] WARPALIGN_ANYWHERE bool is_before(const Candidate& other) const {
    return static_cast<int>(key > other.key) |
           (static_cast<int>(key == other.key) & static_cast<int>(id < other.id));
  }

 private:
  // The bits of negative numbers have the opposite order. The function is its own inverse.
  static WARPALIGN_ANYWHERE std::int64_t ordered(std::int64_t bits) {
    return bits ^ ((bits >> 63) & 0x7fffffffffffffff);
  }
  template <class To, class From>
  static WARPALIGN_ANYWHERE To bits_as(From from) {
    static_assert(sizeof(To) == sizeof(From));
    To to;
    memcpy(&to, &from, sizeof(to));
    return to;
  }
};

// The id of the new prefix of place i and the label of rank j. Ids of new prefixes follow those of prefixes
// that stay.
WARPALIGN_ANYWHERE constexpr std::int32_t pair_of(std::int32_t i, std::int32_t j) {
  return (i + 1) << 16 | j;
}
WARPALIGN_ANYWHERE constexpr bool is_new(std::int32_t id) { return id >= 1 << 16; }
WARPALIGN_ANYWHERE constexpr std::int32_t place_of(std::int32_t id) { return (id >> 16) - 1; }
WARPALIGN_ANYWHERE constexpr std::int32_t rank_of(std::int32_t id) { return id & 0xffff; }

// The sizes of a search. They depend on the beam alone.
struct BeamShape {
  std::int32_t beams;       // K
  std::int32_t labels;      // entries of a list: K + 1
  std::int32_t words;       // words of a prefix's marks
  std::int32_t extensions;  // new prefixes that are considered
  bool own_lists;           // each place has a list, because there are label scores

  WARPALIGN_ANYWHERE BeamShape(std::int32_t beams_, bool own_lists_)
      : beams(beams_), labels(beams_ + 1), words((labels + 31) / 32), extensions(0), own_lists(own_lists_) {
    for (std::int32_t i = 0; i < beams; ++i) extensions += own_lists ? labels : labels_of(i);
  }
  // The number of labels of the list that place i considers, if all places share one list.
  [[nodiscard]] WARPALIGN_ANYWHERE std::int32_t labels_of(std::int32_t i) const {
    return beams / (i + 1) + 1;
  }
  [[nodiscard]] WARPALIGN_ANYWHERE std::int32_t candidates() const { return beams + extensions; }
};

// The memory of one utterance.
struct BeamMemory {
  CtcHypothesis* now;     // (K,)
  CtcHypothesis* next;    // (K,)
  Stay* stays;            // (K,)
  std::uint32_t* marks;   // (K, words): labels of the list that lead to prefixes of the beam
  std::uint64_t* hash;    // (K,): hashes of `now`; kNoHash for missing prefixes
  std::int32_t* pairs;    // (extensions,): new prefixes that are considered; null: all
  Candidate* candidates;  // (candidates,)
  std::int32_t* chosen;   // (K,)
  std::int32_t* count;

  template <class Arena>
  WARPALIGN_ANYWHERE BeamMemory(const BeamShape& shape, Arena& arena)
      : now(arena.template take<CtcHypothesis>(shape.beams)),
        next(arena.template take<CtcHypothesis>(shape.beams)),
        stays(arena.template take<Stay>(shape.beams)),
        marks(arena.template take<std::uint32_t>(static_cast<std::size_t>(shape.beams) * shape.words)),
        hash(arena.template take<std::uint64_t>(shape.beams)),
        pairs(shape.own_lists ? nullptr : arena.template take<std::int32_t>(shape.extensions)),
        candidates(arena.template take<Candidate>(shape.candidates())),
        chosen(arena.template take<std::int32_t>(shape.beams)),
        count(arena.template take<std::int32_t>(1)) {}
};

// A frame: the labels of greatest weight lp + added, in descending order; equal ones in order of their
// classes.
struct BeamFrame {
  const double* weight;       // [place * stride + rank]
  const std::int32_t* label;  // the same; -1: there are no more
  std::int32_t stride;        // 0: all places share one list
  double blank;               // lp
};

// The beginning of a stream.
WARPALIGN_ANYWHERE inline CtcHypothesis empty_prefix(std::int32_t place) {
  const double total = place == 0 ? 0 : kNoPrefix;
  return {total, total, kNoPrefix, total, kNoPrefix, 0, 0, -1, -1, -1, 0};
}
// The beam of an utterance with NaN or +inf.
WARPALIGN_ANYWHERE inline CtcHypothesis bad_prefix(std::int32_t place) {
  CtcHypothesis h = empty_prefix(1);
  if (place == 0) h.total = kNoScore;
  return h;
}

// Real: the type of sums of probabilities; logarithms are float64.
template <class Real, class Crew>
class PrefixSearch {
 public:
  // Called by all threads, with `now` initialised. nodes: those of the utterance.
  WARPALIGN_HERE PrefixSearch(const BeamShape& shape, double threshold, CtcNode* nodes,
                              const BeamMemory& memory, const Crew& crew)
      : shape_(shape), m_(memory), nodes_(nodes), threshold_(threshold), crew_(crew) {
    for (std::int32_t i = crew_.rank(); i < shape_.beams; i += crew_.size()) {
      std::int32_t first = 0;
      for (std::int32_t k = 0; k < i; ++k) first += shape_.labels_of(k);
      for (std::int32_t j = 0; m_.pairs && j < shape_.labels_of(i); ++j) m_.pairs[first + j] = pair_of(i, j);
      clear_marks(i);
      set_hash(i, m_.now[i]);
    }
    if (crew_.rank() == 0) crew_.reset_least();
    crew_.sync();
  }

  // Searches frame t of the stream. weight_of(c): lp of class c; gain_of(place, c, lp): lp with the label
  // score. The frame and `now` are visible to all threads; on return the new `now` is.
  template <class WeightOf, class GainOf>
  WARPALIGN_HERE void step(const BeamFrame& frame, std::int32_t t, const WeightOf& weight_of,
                           const GainOf& gain_of) {
    const std::int32_t lane = crew_.lane(), lanes = crew_.lanes();
    const std::int32_t at_once = crew_.size() / lanes;
    for (std::int32_t first = 0; first < shape_.beams; first += at_once) {
      const std::int32_t k = first + crew_.rank() / lanes;
      const bool exists = k < shape_.beams;  // all threads take part in most()
      const std::int32_t last = exists ? m_.now[k].last : -1;
      const double weight = last >= 0 && lane == 0 ? weight_of(last) : 0;
      const std::int32_t parent = crew_.most(exists ? find_parent(k) : -1);
      if (parent >= 0) mark(frame, parent, last);
      if (exists && lane == 0) {
        stay(frame, k, parent, weight, parent < 0 ? kNoPrefix : gain_of(parent, last, weight));
        m_.chosen[k] = -1;
      }
    }
    if (crew_.rank() == 0) *m_.count = shape_.beams;
    crew_.sync();
    extend(frame);
    crew_.sync();
    crew_.select(m_.candidates, *m_.count, shape_.beams, m_.chosen);
    crew_.sync();
    const double best = m_.chosen[0] < 0 ? kNoPrefix : m_.candidates[m_.chosen[0]].score();
    for (std::int32_t n = crew_.rank(); n < shape_.beams; n += crew_.size()) {
      finish(frame, n, t, best - threshold_);
    }
    if (crew_.rank() == 0) crew_.reset_least();
    CtcHypothesis* const before = m_.now;
    m_.now = m_.next;
    m_.next = before;
    crew_.sync();
  }

  [[nodiscard]] WARPALIGN_HERE const CtcHypothesis* now() const { return m_.now; }
  // The place in the previous beam from which the prefix of place n comes, and the label that was added, or
  // -1.
  WARPALIGN_HERE void move_of(std::int32_t n, std::int32_t& source, std::int32_t& label) const {
    source = n;
    label = -1;
    if (!(m_.now[n].total > kNoPrefix)) return;
    const std::int32_t id = m_.candidates[m_.chosen[n]].id;
    source = is_new(id) ? place_of(id) : id;
    if (is_new(id)) label = m_.now[n].last;
  }

 private:
  [[nodiscard]] WARPALIGN_HERE std::uint32_t* marks_of(std::int32_t i) const {
    return m_.marks + static_cast<std::ptrdiff_t>(i) * shape_.words;
  }
  WARPALIGN_HERE void clear_marks(std::int32_t i) const {
    for (std::int32_t w = 0; w < shape_.words; ++w) marks_of(i)[w] = 0;
  }

  // The place of k's prefix without its last label, if it is among those that this lane visits; else -1.
  [[nodiscard]] WARPALIGN_HERE std::int32_t find_parent(std::int32_t k) const {
    const std::uint64_t hash = m_.now[k].parent_hash;
    const std::int32_t found = crew_.find(m_.hash, shape_.beams, hash);
    return found >= 0 && m_.now[found].length == m_.now[k].length - 1 ? found : -1;
  }

  // Marks the label in the list of `parent`, if it is there: the prefix that it would give is in the beam
  // already.
  WARPALIGN_HERE void mark(const BeamFrame& frame, std::int32_t parent, std::int32_t label) const {
    const std::int32_t* const labels = frame.label + static_cast<std::ptrdiff_t>(parent) * frame.stride;
    const std::int32_t found = crew_.find(labels, shape_.labels, label);
    if (found >= 0) crew_.mark(marks_of(parent), found);
  }

  // weight: that of the last label in this frame; gain: that of adding it to `parent`; kNoPrefix without a
  // parent.
  WARPALIGN_HERE void stay(const BeamFrame& frame, std::int32_t k, std::int32_t parent, double weight,
                           double gain) const {
    const CtcHypothesis& h = m_.now[k];
    Stay s{};
    s.blank = h.total + frame.blank;
    s.label = h.label + weight;
    const bool by_label = h.best_label > h.best_blank;
    s.best_blank = (by_label ? h.best_label : h.best_blank) + frame.blank;
    s.node_blank = by_label ? h.node_label : h.node_blank;
    s.best_label = h.best_label + weight;
    s.node_label = h.node_label;
    s.made_by = kNoNode;
    double extended_label = kNoPrefix;
    if (gain > kNoPrefix) {  // not NaN, nor without a parent
      const CtcHypothesis& from = m_.now[parent];
      extended_label = sum_before(from, h.last) + gain;
      const bool is_repeat = from.last == h.last;
      const bool before_is_label = !is_repeat && from.best_label > from.best_blank;
      const double best = (before_is_label ? from.best_label : from.best_blank) + gain;
      if (best > s.best_label) {
        s.best_label = best;
        s.made_by = before_is_label ? from.node_label : from.node_blank;
      }
    }
    s.total = log_add<Real>(s.blank, s.label, extended_label);
    s.label = log_add<Real>(s.label, extended_label);
    crew_.lower(s.total);
    m_.stays[k] = s;
    m_.candidates[k] = Candidate::of(s.total, k);
  }
  // The sum of the paths of a prefix to which label c can be added: with a repeated label only those that end
  // in blank.
  [[nodiscard]] WARPALIGN_HERE static double sum_before(const CtcHypothesis& h, std::int32_t c) {
    return c == h.last ? h.blank : h.total;
  }

  // New prefixes that are better than the worst of K that stay.
  WARPALIGN_HERE void extend(const BeamFrame& frame) const {
    const double least = crew_.least();
    for (std::int32_t first = 0; first < shape_.extensions; first += crew_.size()) {
      Candidate c = Candidate::of(kNoPrefix, 0);
      const std::int32_t n = first + crew_.rank();
      if (n < shape_.extensions) c = candidate(frame, n);
      const bool wanted = c.score() > least;
      const std::int32_t place = crew_.append(m_.count, wanted);
      if (wanted) m_.candidates[place] = c;
    }
  }
  [[nodiscard]] WARPALIGN_HERE Candidate candidate(const BeamFrame& frame, std::int32_t n) const {
    const std::int32_t id = m_.pairs ? m_.pairs[n] : pair_of(n / shape_.labels, n % shape_.labels);
    const std::int32_t i = place_of(id), j = rank_of(id);
    const std::ptrdiff_t at = static_cast<std::ptrdiff_t>(i) * frame.stride + j;
    const std::int32_t label = frame.label[at];
    const bool is_known = (marks_of(i)[j / 32] >> (j % 32) & 1u) != 0;
    if (label < 0 || is_known) return Candidate::of(kNoPrefix, 0);
    return Candidate::of(sum_before(m_.now[i], label) + frame.weight[at], id);
  }

  // The prefix that has been chosen for place n.
  WARPALIGN_HERE void finish(const BeamFrame& frame, std::int32_t n, std::int32_t t, double lowest) const {
    clear_marks(n);
    CtcHypothesis to = empty_prefix(1);
    const Candidate c = m_.chosen[n] < 0 ? Candidate::of(kNoPrefix, 0) : m_.candidates[m_.chosen[n]];
    const double score = c.score();
    if (score > kNoPrefix && score >= lowest) become(frame, c, t * shape_.beams + n, to);
    m_.next[n] = to;
    set_hash(n, to);
  }
  WARPALIGN_HERE void set_hash(std::int32_t n, const CtcHypothesis& h) const {
    m_.hash[n] = h.total > kNoPrefix ? h.hash : kNoHash;
  }

  // What a candidate is, with `node` for a label that begins.
  WARPALIGN_HERE void become(const BeamFrame& frame, const Candidate& c, std::int32_t node,
                             CtcHypothesis& to) const {
    if (!is_new(c.id)) {
      const Stay& s = m_.stays[c.id];
      to = m_.now[c.id];
      to.total = s.total;
      to.blank = s.blank;
      to.label = s.label;
      to.best_blank = s.best_blank;
      to.best_label = s.best_label;
      to.node_blank = s.node_blank;
      to.node_label = s.made_by == kNoNode ? s.node_label : node;
      if (s.made_by != kNoNode) nodes_[node] = {s.made_by, to.last};
      return;
    }
    const std::int32_t i = place_of(c.id);
    const std::ptrdiff_t at = static_cast<std::ptrdiff_t>(i) * frame.stride + rank_of(c.id);
    const CtcHypothesis& from = m_.now[i];
    const std::int32_t label = frame.label[at];
    const bool by_label = label != from.last && from.best_label > from.best_blank;
    to.total = to.label = c.score();
    to.best_label = (by_label ? from.best_label : from.best_blank) + frame.weight[at];
    to.hash = extended(from.hash, label);
    to.parent_hash = from.hash;
    to.node_label = node;
    to.last = label;
    to.length = from.length + 1;
    nodes_[node] = {by_label ? from.node_label : from.node_blank, label};
  }

  const BeamShape shape_;
  BeamMemory m_;
  CtcNode* const nodes_;
  const double threshold_;
  const Crew& crew_;
};

// Labels of hypothesis n of n_best, of utterance b, by `lanes` threads, of which this one is `lane`.
WARPALIGN_HERE inline void write_labels(const CtcBeamLabels& p, std::int32_t b, std::int32_t n,
                                        std::int32_t lane, std::int32_t lanes) {
  const CtcHypothesis& h = p.hypotheses[std::int64_t{b} * p.beams + n];
  const std::int64_t place = std::int64_t{b} * p.n_best + n, first = place * p.longest;
  const CtcNode* const nodes = p.nodes + std::int64_t{b} * p.capacity * p.beams;
  const bool exists = h.total > kNoPrefix;
  std::int32_t k = exists ? h.length : 0;
  for (std::int32_t behind = k + lane; behind < p.longest; behind += lanes) {
    p.tokens[first + behind] = p.token_frames[first + behind] = -1;
  }
  if (lane != 0) return;
  p.scores[place] = h.total;
  p.lengths[place] = k;
  std::int32_t node = exists ? (h.best_label > h.best_blank ? h.node_label : h.node_blank) : -1;
  while (node >= 0 && --k >= 0) {
    const CtcNode at = nodes[node];
    if (k < p.longest) {
      p.tokens[first + k] = at.token;
      p.token_frames[first + k] = node / p.beams;
    }
    node = at.parent;
  }
}

}  // namespace warpalign::detail::ctc
