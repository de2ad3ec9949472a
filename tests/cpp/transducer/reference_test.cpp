// The float64 reference of the transducer against known results, all paths, and differences.
#include "transducer/reference.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <utility>
#include <vector>

#include "golden.h"

namespace warpalign::test {
namespace {

using reference::Transducer;
using reference::TransducerResult;

constexpr double kInf = std::numeric_limits<double>::infinity();

TransducerResult solved(const TransducerCase& c) {
  return reference::transducer(c.problem, c.logits(), c.duration_logits());
}

// Both gradients, in the case's own columns.
std::vector<double> gradient_rows(const TransducerCase& c, const TransducerResult& result) {
  const int v = c.problem.labels, d = c.width() - v;
  std::vector<double> rows;
  for (int node = 0; node < c.problem.frames * c.problem.states(); ++node) {
    for (int k = 0; k < v; ++k) rows.push_back(result.grad_logits[node * v + k]);
    for (int k = 0; k < d; ++k) rows.push_back(result.grad_durations[node * d + k]);
  }
  return rows;
}

TEST(TransducerReference, KnownResults) {
  for (const Golden& golden : golden_results()) {
    SCOPED_TRACE(golden.input.name);
    const TransducerResult result = solved(golden.input);
    EXPECT_NEAR(result.loss, golden.loss, golden.tolerance);
    const std::vector<double> rows = gradient_rows(golden.input, result);
    double sum = 0;
    for (const double g : rows) sum += std::abs(g);
    if (golden.sum_of_gradient >= 0) {
      EXPECT_NEAR(sum, golden.sum_of_gradient, 1e-10);
    }
    for (const auto& [node, expected] : golden.rows) {
      for (int k = 0; k < static_cast<int>(expected.size()); ++k) {
        EXPECT_NEAR(rows[node * expected.size() + k], expected[k], 6e-9) << "node " << node << ", " << k;
      }
    }
  }
}

// Sums exp(weight) over all paths by walking each one: the arcs are spelled out once more here.
class PathSum {
 public:
  PathSum(const Transducer& p, const TransducerCase& c) : p_(p), rows_(c.rows), width_(c.width()) {}

  double total() {
    if (p_.frames > 0) walk(0, 0, 0);
    return total_;
  }

 private:
  double score(int t, int u, int begin, int end, int k) const {
    const double* const row = rows_.data() + (t * p_.states() + u) * width_;
    if (p_.log_probs) return row[k];
    double sum = 0;
    for (int j = begin; j < end; ++j) sum += std::exp(row[j]);
    return row[k] == -kInf ? -kInf : row[k] - std::log(sum);
  }
  double label_score(int t, int u, int k) const { return score(t, u, 0, p_.labels, k); }
  double duration_score(int t, int u, int d) const { return score(t, u, p_.labels, width_, p_.labels + d); }

  void blank(int t, int u, int m, double scored, double weight) {
    const bool starred = p_.star >= 0 && u > 0 && p_.targets[u - 1] == p_.star;
    const double next = weight + (starred ? std::log(p_.star_penalty) : scored);
    const bool complete = u == static_cast<int>(p_.targets.size());
    if (t + m < p_.frames) {
      walk(t + m, u, next);
    } else if (t + m == p_.frames && complete) {
      total_ += std::exp(next);
    }
  }
  void label(int t, int u, int m, double scored, double weight) {
    if (t + m >= p_.frames) return;
    const double delta = 0.5 * (p_.frames - 1) - t;
    const int y = p_.targets[u];
    const double own = p_.star >= 0 && y == p_.star ? 0 : scored + (y == p_.eos ? p_.eos_penalty * delta : 0);
    walk(t + m, u + 1, weight + own + p_.delay * delta);
  }
  void walk(int t, int u, double weight) {
    const int n = static_cast<int>(p_.durations.size());
    const bool timed = p_.tdt && !p_.without_durations;
    const double sigma = p_.without_durations ? 0 : p_.sigma;
    if (timed) {
      for (int d = 0; d < n; ++d) {
        const double scored = duration_score(t, u, d) - sigma;
        if (p_.durations[d] > 0) blank(t, u, p_.durations[d], scored + label_score(t, u, p_.blank), weight);
        if (u < static_cast<int>(p_.targets.size())) {
          label(t, u, p_.durations[d], scored + label_score(t, u, p_.targets[u]), weight);
        }
      }
      return;
    }
    blank(t, u, 1, label_score(t, u, p_.blank) - sigma, weight);
    for (int i = 0; !p_.tdt && i < n; ++i) {
      blank(t, u, p_.durations[i], label_score(t, u, p_.big_blank_columns[i]) - sigma, weight);
    }
    if (u < static_cast<int>(p_.targets.size())) {
      const bool inside = p_.targets[u] < p_.labels;
      label(t, u, 0, (inside ? label_score(t, u, p_.targets[u]) : 0) - sigma, weight);
    }
  }

  const Transducer& p_;
  const std::vector<double>& rows_;
  const int width_;
  double total_ = 0;
};

// Every family with every penalty, at the given size.
std::vector<TransducerCase> families(int frames, int labels_u) {
  std::vector<TransducerCase> cases;
  std::mt19937 random(frames * 17 + labels_u);
  std::normal_distribution<double> normal;
  std::vector<Transducer> kinds;
  Transducer plain;
  plain.frames = frames;
  plain.labels = 7;
  plain.blank = 6;
  for (int u = 0; u < labels_u; ++u) plain.targets.push_back((3 * u + 1) % 4);
  kinds.push_back(plain);
  Transducer big = plain;
  big.durations = {2, 3};
  big.big_blank_columns = {5, 4};
  kinds.push_back(big);
  Transducer tdt = plain;
  tdt.tdt = true;
  tdt.durations = {0, 1, 2, 4};
  kinds.push_back(tdt);
  tdt.without_durations = true;
  kinds.push_back(tdt);
  tdt.without_durations = false;
  tdt.durations = {2, 1};
  kinds.push_back(tdt);
  for (const Transducer& kind : kinds) {
    for (int penalty = 0; penalty < 7; ++penalty) {
      Transducer p = kind;
      if (penalty == 1) p.sigma = .07;
      if (penalty == 2) p.delay = .03;
      if (penalty == 3) p.eos = 3, p.eos_penalty = .2;
      if (penalty == 4 && !p.tdt) p.star = 1, p.star_penalty = .5;
      if (penalty == 5) p.log_probs = true;
      if (penalty == 6) {
        p.sigma = .05, p.delay = .01, p.eos = 3, p.eos_penalty = .1;
        if (!p.tdt) p.star = 0, p.star_penalty = 2;
      }
      TransducerCase c{"", p, {}};
      for (int n = 0; n < frames * p.states() * c.width(); ++n)
        c.rows.push_back(normal(random) - p.log_probs);
      cases.push_back(c);
    }
  }
  return cases;
}

TEST(TransducerReference, AllPaths) {
  int with_paths = 0;
  for (int frames = 0; frames <= 5; ++frames) {
    for (int u = 0; u <= 5; ++u) {
      for (const TransducerCase& c : families(frames, u)) {
        const double expected = -std::log(PathSum(c.problem, c).total());
        const double loss = solved(c).loss;
        if (expected == kInf) {
          EXPECT_EQ(loss, kInf);
        } else {
          EXPECT_NEAR(loss, expected, 1e-13 * (1 + std::abs(expected)));
          ++with_paths;
        }
      }
    }
  }
  EXPECT_GT(with_paths, 800);
}

TEST(TransducerReference, GradientsAreDifferences) {
  constexpr double kStep = 1e-5;
  for (const auto& [frames, u] : {std::pair{1, 0}, {3, 2}, {5, 3}, {4, 1}}) {
    for (TransducerCase c : families(frames, u)) {
      const TransducerResult result = solved(c);
      if (result.loss == kInf) continue;
      const std::vector<double> gradient = gradient_rows(c, result);
      for (std::size_t n = 0; n < c.rows.size(); ++n) {
        const double x = c.rows[n];
        c.rows[n] = x + kStep;
        const double above = solved(c).loss;
        c.rows[n] = x - kStep;
        const double below = solved(c).loss;
        c.rows[n] = x;
        // The difference's own error: its third order, kStep^2, and rounding, 1e-15 / kStep.
        EXPECT_NEAR(gradient[n], (above - below) / (2 * kStep), 1e-9) << n;
      }
    }
  }
}

TEST(TransducerReference, FastEmitScalesLabelPosteriors) {
  TransducerCase c = pattern_case("", golden_results().front().input.problem);
  const TransducerResult plain = solved(c);
  c.problem.fastemit = .5;
  const TransducerResult more = solved(c);
  EXPECT_EQ(more.loss, plain.loss);
  for (int node = 0; node < 6; ++node) {
    double label = 0;
    for (const auto& arc : plain.arcs[node]) label += arc.is_label ? arc.posterior : 0;
    const auto x = c.logits();
    double sum = 0;
    for (int k = 0; k < 5; ++k) sum += std::exp(x[node * 5 + k]);
    for (int k = 0; k < 5; ++k) {
      const bool own = node % 3 < 2 && k == c.problem.targets[node % 3];
      const double expected = .5 * label * (std::exp(x[node * 5 + k]) / sum - (own ? 1 : 0));
      EXPECT_NEAR(more.grad_logits[node * 5 + k] - plain.grad_logits[node * 5 + k], expected, 1e-14);
    }
  }
}

TEST(TransducerReference, SpecialValues) {
  const Transducer p = golden_results().front().input.problem;
  TransducerCase c = pattern_case("", p);
  c.rows[0] = -kInf;
  EXPECT_TRUE(std::isfinite(solved(c).loss));
  c.rows[1] = -kInf;  // neither blank nor label leaves (0, 0)
  EXPECT_EQ(solved(c).loss, kInf);
  for (const double g : solved(c).grad_logits) EXPECT_EQ(g, 0);
  c.problem.zero_infinity = true;
  EXPECT_EQ(solved(c).loss, 0);
  for (int k = 0; k < 5; ++k) c.rows[k] = -kInf;
  EXPECT_EQ(solved(c).loss, 0);
  for (const double bad : {kInf, std::numeric_limits<double>::quiet_NaN()}) {
    c.rows[7] = bad;
    EXPECT_TRUE(std::isnan(solved(c).loss));
    for (const double g : solved(c).grad_logits) EXPECT_TRUE(std::isnan(g));
  }
}

}  // namespace
}  // namespace warpalign::test
