#include "ctc/reference_decode.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <map>
#include <utility>

namespace warpalign::detail::ctc::reference {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

double log_add(double a, double b) {
  const double high = std::max(a, b), low = std::min(a, b);
  return low == -kInfinity ? high : high + std::log1p(std::exp(low - high));
}

// Computes a frame's log-probabilities. Returns false if there is a NaN or +inf among its logits.
bool normalize(const Ctc& problem, const double* x, std::vector<double>& lp) {
  lp.assign(x, x + problem.classes);
  double top = -kInfinity, sum = 0;
  for (const double v : lp) {
    if (!(v < kInfinity)) return false;
    top = std::max(top, v);
  }
  if (problem.log_probs || top == -kInfinity) return true;
  for (const double v : lp) sum += std::exp(v - top);
  for (double& v : lp) v -= top + std::log(sum);
  return true;
}

// The log-probability of a path, with the frame of each of its labels.
struct Best {
  double score = -kInfinity;
  std::vector<int> frames;
};

struct Entry {
  double blank = -kInfinity, label = -kInfinity;
  Best best_blank = {}, best_label = {};
  // The order among equal totals: prefixes of the previous beam first, by place; then new ones, by the place
  // of their parent, and by the weight and the class of their last label.
  bool is_new = true;
  std::size_t place = 0;
  double weight = 0;
  int last = -1;

  [[nodiscard]] double total() const { return log_add(blank, label); }
};

bool is_before(const Entry& a, const Entry& b) {
  if (a.total() != b.total()) return a.total() > b.total();
  if (a.is_new != b.is_new) return b.is_new;
  if (a.place != b.place) return a.place < b.place;
  if (a.weight != b.weight) return a.weight > b.weight;
  return a.last < b.last;
}

using Prefix = std::pair<std::vector<int>, Entry>;
using Table = std::map<std::vector<int>, Entry>;

// The paths that stay at the prefix.
void stay(const Prefix& prefix, const std::vector<double>& lp, int blank, Table& next) {
  const Entry& from = prefix.second;
  Entry& to = next[prefix.first];
  to.blank = from.total() + lp[blank];
  const bool by_label = from.best_label.score > from.best_blank.score;
  to.best_blank = by_label ? from.best_label : from.best_blank;
  to.best_blank.score += lp[blank];
  if (prefix.first.empty()) return;
  to.label = log_add(to.label, from.label + lp[prefix.first.back()]);
  Best best = from.best_label;
  best.score += lp[prefix.first.back()];
  if (best.score >= to.best_label.score) to.best_label = best;
}

// The paths that add label c in frame t.
void extend(const Prefix& prefix, int c, double weight, int t, Table& next) {
  const Entry& from = prefix.second;
  const bool repeats = !prefix.first.empty() && prefix.first.back() == c;
  std::vector<int> labels = prefix.first;
  labels.push_back(c);
  Entry& to = next[labels];
  to.label = log_add(to.label, (repeats ? from.blank : from.total()) + weight);
  to.weight = weight;
  to.last = c;
  Best best = !repeats && from.best_label.score > from.best_blank.score ? from.best_label : from.best_blank;
  best.score += weight;
  best.frames.push_back(t);
  if (best.score > to.best_label.score) to.best_label = best;
}

}  // namespace

std::vector<CtcPrefix> ctc_beam(const Ctc& problem, const std::vector<double>& logits, int beams,
                                double threshold, const LabelScores& added) {
  std::vector<Prefix> all = {{{}, {0, -kInfinity, {0, {}}, {}, false, 0, 0, -1}}};
  std::vector<double> lp;
  for (int t = 0; t < problem.frames; ++t) {
    if (!normalize(problem, &logits[static_cast<std::size_t>(t) * problem.classes], lp))
      return {{{}, kNaN, {}}};
    Table next;
    for (std::size_t place = 0; place < all.size(); ++place) {
      const Prefix& prefix = all[place];
      for (int c = 0; c < problem.classes; ++c) {
        if (c == problem.blank) continue;
        const double weight = lp[c] + (added ? added(prefix.first, c) : 0);
        extend(prefix, c, weight, t, next);
        std::vector<int> labels = prefix.first;
        labels.push_back(c);
        next[labels].place = place;
      }
    }
    for (const Prefix& prefix : all) stay(prefix, lp, problem.blank, next);
    for (std::size_t place = 0; place < all.size(); ++place) {
      next[all[place].first].is_new = false;
      next[all[place].first].place = place;
    }
    all.assign(next.begin(), next.end());
    std::erase_if(all, [](const Prefix& p) { return !(p.second.total() > -kInfinity); });
    std::sort(all.begin(), all.end(),
              [](const Prefix& a, const Prefix& b) { return is_before(a.second, b.second); });
    if (beams > 0 && all.size() > static_cast<std::size_t>(beams)) all.resize(beams);
    const double lowest = all.empty() ? 0 : all.front().second.total() - threshold;
    std::erase_if(all, [&](const Prefix& p) { return p.second.total() < lowest; });
  }
  std::vector<CtcPrefix> found;
  for (const auto& [labels, entry] : all) {
    const bool by_label = entry.best_label.score > entry.best_blank.score;
    found.push_back({labels, entry.total(), (by_label ? entry.best_label : entry.best_blank).frames});
  }
  return found;
}

CtcPrefix ctc_greedy(const Ctc& problem, const std::vector<double>& logits) {
  CtcPrefix found = {{}, 0, {}};
  std::vector<double> lp;
  int before = -1;
  for (int t = 0; t < problem.frames; ++t) {
    if (!normalize(problem, &logits[static_cast<std::size_t>(t) * problem.classes], lp))
      return {{}, kNaN, {}};
    int best = problem.blank;
    double weight = -kInfinity;
    for (int c = 0; c < problem.classes; ++c) {
      if (lp[c] > weight) {
        weight = lp[c];
        best = c;
      }
    }
    found.score += weight;
    if (best != problem.blank && best != before) {
      found.labels.push_back(best);
      found.frames.push_back(t);
    }
    before = best;
  }
  return found;
}

}  // namespace warpalign::detail::ctc::reference
