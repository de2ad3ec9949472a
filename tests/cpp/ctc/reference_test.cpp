// The float64 references of CTC and monotonic alignment against known results, all paths, and differences.
#include "ctc/reference.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <limits>
#include <random>
#include <vector>

namespace warpalign::test {
namespace {

namespace reference = detail::ctc::reference;
using reference::Ctc;

constexpr double kInf = std::numeric_limits<double>::infinity();

std::vector<double> random_logits(const Ctc& p, unsigned seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<double> normal(0.0, 2.0);
  std::vector<double> x(static_cast<std::size_t>(p.frames) * p.classes);
  for (double& v : x) v = normal(generator);
  return x;
}

// Calls visit(path) for every path: what a path is, is spelled out once more here.
void for_every_path(const Ctc& p, const std::function<void(const std::vector<int>&)>& visit) {
  std::vector<int> extended = {p.blank};
  for (const int y : p.targets) {
    extended.push_back(y);
    extended.push_back(p.blank);
  }
  const int states = static_cast<int>(extended.size());
  std::vector<int> path;
  const std::function<void()> walk = [&] {
    const int t = static_cast<int>(path.size());
    if (t == p.frames) {
      if (path.back() >= states - 2) visit(path);
      return;
    }
    for (int s = 0; s < states; ++s) {
      const bool begins = t == 0 && s < 2;
      const int from = t == 0 ? -9 : path.back();
      const bool skips = s == from + 2 && extended[s] != p.blank && extended[s] != extended[from];
      if (!begins && !(t > 0 && (s == from || s == from + 1 || skips))) continue;
      path.push_back(s);
      walk();
      path.pop_back();
    }
  };
  if (p.frames > 0) walk();
}

// Weight of class c at frame t by the header's equations, in the plainest way.
double weight(const Ctc& p, const std::vector<double>& x, int t, int c, bool star_is_sum) {
  const double* const row = x.data() + static_cast<std::ptrdiff_t>(t) * p.classes;
  double all = 0, others = 0, best = -kInf;
  const auto prior = [&](int k) { return p.prior.empty() ? 0 : p.prior[k]; };
  for (int k = 0; k < p.classes; ++k) all += std::exp(row[k]);
  const double lse = p.log_probs ? 0 : std::log(all);
  for (int k = 0; k < p.classes; ++k) {
    if (k == p.blank) continue;
    others += std::exp(row[k] - lse);
    best = std::max(best, row[k] - lse - prior(k));
  }
  if (c == p.star) return star_is_sum ? std::log(others) : best;
  return row[c] - lse - prior(c);
}

double path_weight(const Ctc& p, const std::vector<double>& x, const std::vector<int>& path,
                   bool star_is_sum) {
  double sum = 0;
  for (int t = 0; t < p.frames; ++t) sum += weight(p, x, t, p.label_of(path[t]), star_is_sum);
  return sum;
}

std::vector<Ctc> cases() {
  std::vector<Ctc> all;
  for (const std::vector<int>& targets : std::vector<std::vector<int>>{
           {}, {1}, {1, 2}, {2, 2}, {1, 2, 1}, {3, 3, 1}, {2, 2, 2}, {1, 3, 3, 2}}) {
    for (int frames = 0; frames <= 6; ++frames) {
      for (const bool log_probs : {false, true}) {
        all.push_back({frames, 4, targets, 0, -1, {}, log_probs, false});
      }
      all.push_back({frames, 4, targets, 0, -1, {-0.5, 0.25, 1.0, -2.0}, false, false});
      all.push_back({frames, 4, targets, 0, 2, {}, false, false});
      all.push_back({frames, 4, targets, 0, 2, {-0.5, 0.25, 1.0, -2.0}, true, false});
    }
  }
  for (int frames = 1; frames <= 5; ++frames) all.push_back({frames, 3, {0, 7, 1}, 2, 7, {}, false, false});
  return all;
}

TEST(CtcReference, SumsAllPaths) {
  for (const Ctc& p : cases()) {
    const std::vector<double> x = random_logits(p, 1 + p.frames);
    double total = p.frames == 0 && p.targets.empty() ? 1 : 0;
    std::vector<double> states(static_cast<std::size_t>(p.frames) * p.states());
    for_every_path(p, [&](const std::vector<int>& path) {
      const double share = std::exp(path_weight(p, x, path, true));
      total += share;
      for (int t = 0; t < p.frames; ++t) states[static_cast<std::size_t>(t) * p.states() + path[t]] += share;
    });
    const reference::CtcResult result = reference::ctc(p, x);
    if (total == 0) {
      EXPECT_EQ(result.loss, kInf);
      for (const double g : result.gradient) EXPECT_EQ(g, 0.0);
      continue;
    }
    EXPECT_NEAR(result.loss, -std::log(total), 1e-11);
    for (std::size_t k = 0; k < states.size(); ++k) {
      EXPECT_NEAR(result.posteriors[k], states[k] / total, 1e-12);
    }
  }
}

TEST(CtcReference, GradientIsTheDifference) {
  constexpr double kStep = 1e-6;
  for (const Ctc& p : cases()) {
    std::vector<double> x = random_logits(p, 77 + p.frames);
    const reference::CtcResult result = reference::ctc(p, x);
    for (std::size_t k = 0; k < x.size() && result.loss < kInf; ++k) {
      const double at = x[k];
      x[k] = at + kStep;
      const double above = reference::ctc(p, x).loss;
      x[k] = at - kStep;
      const double below = reference::ctc(p, x).loss;
      x[k] = at;
      // Rounding of the two losses, 1e-14, over the step, and the third derivative.
      EXPECT_NEAR(result.gradient[k], (above - below) / (2 * kStep), 2e-8);
    }
  }
}

TEST(CtcReference, BestOfAllPaths) {
  for (const Ctc& p : cases()) {
    const std::vector<double> x = random_logits(p, 5 + p.frames);
    double best = p.frames == 0 && p.targets.empty() ? 0 : -kInf;
    std::vector<int> chosen;
    for_every_path(p, [&](const std::vector<int>& path) {
      const double weight = path_weight(p, x, path, false);
      if (weight <= best) return;
      best = weight;
      chosen = path;
    });
    const reference::CtcPath found = reference::ctc_align(p, x);
    if (best == -kInf) {
      EXPECT_EQ(found.score, -kInf);
      continue;
    }
    EXPECT_NEAR(found.score, best, 1e-12);
    // A star has the weight of a neighbouring label where that is the best one: several paths are best.
    if (p.star < 0) {
      EXPECT_EQ(found.states, chosen);
    } else if (p.frames > 0) {
      EXPECT_NEAR(path_weight(p, x, found.states, false), best, 1e-12);
    }
  }
}

// One label that all frames emit alike: the number of paths of 4 frames with one label is 10.
TEST(CtcReference, CountsPaths) {
  const Ctc p{4, 2, {1}, 0, -1, {}, true, false};
  EXPECT_NEAR(reference::ctc(p, std::vector<double>(8, 0.0)).loss, -std::log(10.0), 1e-14);
  const Ctc repeated{4, 2, {1, 1}, 0, -1, {}, true, false};
  EXPECT_NEAR(reference::ctc(repeated, std::vector<double>(8, 0.0)).loss, -std::log(5.0), 1e-14);
}

TEST(CtcReference, EndsOfNumbers) {
  const Ctc p{3, 3, {1}, 0, -1, {}, false, false};
  std::vector<double> x(9, 0.0);
  x[4] = -kInf;
  const reference::CtcResult blocked = reference::ctc(p, x);
  EXPECT_TRUE(std::isfinite(blocked.loss));
  for (const double g : blocked.gradient) EXPECT_TRUE(std::isfinite(g));
  EXPECT_EQ(blocked.gradient[4], 0.0);
  for (int c = 3; c < 6; ++c) x[c] = -kInf;
  const reference::CtcResult impossible = reference::ctc(p, x);
  EXPECT_EQ(impossible.loss, kInf);
  for (const double g : impossible.gradient) EXPECT_EQ(g, 0.0);
  Ctc zero = p;
  zero.zero_infinity = true;
  EXPECT_EQ(reference::ctc(zero, x).loss, 0.0);
  x[8] = std::numeric_limits<double>::quiet_NaN();
  EXPECT_TRUE(std::isnan(reference::ctc(p, x).loss));
  EXPECT_TRUE(std::isnan(reference::ctc_align(p, x).score));
}

TEST(MonotonicReference, BestOfAllPaths) {
  std::mt19937 generator(3);
  std::normal_distribution<double> normal;
  for (int positions = 0; positions <= 5; ++positions) {
    for (int frames = 0; frames <= 6; ++frames) {
      std::vector<double> x(static_cast<std::size_t>(positions) * frames);
      for (double& v : x) v = normal(generator);
      double best = positions == 0 && frames == 0 ? 0 : -kInf;
      std::vector<int> chosen(positions, 0), durations(positions, 0);
      const std::function<void(int, int, double)> give = [&](int s, int t, double sum) {
        if (s == positions) {
          if (t == frames && positions > 0 && sum > best) {
            best = sum;
            chosen = durations;
          }
          return;
        }
        for (int count = 1; t + count <= frames; ++count) {
          sum += x[static_cast<std::size_t>(s) * frames + t + count - 1];
          durations[s] = count;
          give(s + 1, t + count, sum);
        }
      };
      give(0, 0, 0.0);
      const reference::MonotonicPath found = reference::monotonic_alignment(positions, frames, x);
      EXPECT_EQ(found.durations, chosen);
      if (best == -kInf) {
        EXPECT_EQ(found.score, -kInf);
      } else {
        EXPECT_NEAR(found.score, best, 1e-12);
      }
    }
  }
}

// Equal scores: back from the end, the same position as long as that is possible.
TEST(MonotonicReference, TiesStay) {
  const reference::MonotonicPath path = reference::monotonic_alignment(3, 6, std::vector<double>(18, 0.0));
  EXPECT_EQ(path.durations, (std::vector<int>{1, 1, 4}));
}

}  // namespace
}  // namespace warpalign::test
