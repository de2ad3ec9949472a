#include "transducer/reference_align.h"

#include <cmath>
#include <limits>
#include <utility>

namespace warpalign::detail::transducer::reference {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

// The last arc of the best path to a node.
struct Step {
  double score = -kInf;
  int from = -1;
  const TransducerArc* arc = nullptr;

  // Ties: blanks before labels, more frames before fewer.
  [[nodiscard]] bool is_better_than(const Step& other) const {
    if (score != other.score) return score > other.score;
    if (!arc || !other.arc) return false;
    return std::pair(!arc->is_label, arc->frames) > std::pair(!other.arc->is_label, other.arc->frames);
  }
};

}  // namespace

BestPath best_path(const Transducer& p, const TransducerResult& result) {
  const int states = p.states(), nodes = p.frames * states;
  BestPath best{-kInf, std::vector<int>(states - 1, -1), std::vector<int>(states - 1, -1),
                std::vector<int>(p.frames, -1)};
  if (std::isnan(result.loss)) {
    best.score = std::numeric_limits<double>::quiet_NaN();
    return best;
  }
  std::vector<Step> into(nodes + 1);  // the last one is the end
  for (int node = 0; node < nodes; ++node) {
    const double score = node == 0 ? 0 : into[node].score;
    for (const TransducerArc& arc : result.arcs[node]) {
      const bool ends = node / states + arc.frames == p.frames;
      const int next = ends ? nodes : node + arc.frames * states + (arc.is_label ? 1 : 0);
      const Step step{score + arc.weight, node, &arc};
      if (step.score > -kInf && step.is_better_than(into[next])) into[next] = step;
    }
  }
  best.score = into[nodes].score;
  for (const Step* step = &into[nodes]; step->arc; step = &into[step->from]) {
    const int t = step->from / states, u = step->from % states;
    if (step->arc->is_label) {
      best.frames[u] = t;
      best.durations[u] = step->arc->frames;
    } else {
      best.blanks[t] = step->arc->frames;
    }
    if (step->from == 0) break;
  }
  return best;
}

}  // namespace warpalign::detail::transducer::reference
