#include "ctc/reference.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

namespace warpalign::detail::ctc::reference {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

bool is_bad(double v) { return std::isnan(v) || v == kInf; }

double log_add(double a, double b) {
  const double largest = std::max(a, b);
  return largest == -kInf ? -kInf : largest + std::log(std::exp(a - largest) + std::exp(b - largest));
}

// The log-probabilities of a frame; all -inf if its logits are all -inf.
std::vector<double> log_softmax(const double* row, const Ctc& p) {
  std::vector<double> lp(row, row + p.classes);
  if (p.log_probs) return lp;
  double lse = -kInf;
  for (const double v : lp) lse = log_add(lse, v);
  for (double& v : lp) v = lse == -kInf ? -kInf : v - lse;
  return lp;
}

// The log of the sum of p[t,c] over c != blank.
double log_of_others(const std::vector<double>& lp, int blank) {
  double sum = -kInf;
  for (int c = 0; c < static_cast<int>(lp.size()); ++c) {
    if (c != blank) sum = log_add(sum, lp[c]);
  }
  return sum;
}

// Whether a logit that is read is NaN or +inf: any logit of a frame that is normalised, otherwise the logits
// of the states.
bool has_bad_logit(const Ctc& p, const std::vector<double>& logits) {
  if (!p.log_probs) return std::any_of(logits.begin(), logits.end(), is_bad);
  for (int t = 0; t < p.frames; ++t) {
    const double* const row = logits.data() + static_cast<std::ptrdiff_t>(t) * p.classes;
    for (int s = 0; s < p.states(); ++s) {
      const int z = p.label_of(s);
      if (z != p.star && is_bad(row[z])) return true;
      for (int c = 0; z == p.star && c < p.classes; ++c) {
        if (c != p.blank && is_bad(row[c])) return true;
      }
    }
  }
  return false;
}

// Log-sums of the weights of all paths from state s at frame t to the end, without frame t's own weight.
std::vector<double> beta_of(const Ctc& p, const std::vector<double>& w) {
  const int states = p.states();
  std::vector<double> beta(w.size(), -kInf);
  for (int t = p.frames - 1; t >= 0; --t) {
    for (int s = 0; s < states; ++s) {
      double& b = beta[static_cast<std::size_t>(t) * states + s];
      if (t == p.frames - 1) {
        b = s >= states - 2 ? 0 : -kInf;
        continue;
      }
      const auto after = [&](int to) {
        const std::size_t at = static_cast<std::size_t>(t + 1) * states + to;
        return beta[at] + w[at];
      };
      b = after(s);
      if (s + 1 < states) b = log_add(b, after(s + 1));
      if (s + 2 < states && p.skips_to(s + 2)) b = log_add(b, after(s + 2));
    }
  }
  return beta;
}

std::vector<double> alpha_of(const Ctc& p, const std::vector<double>& w) {
  const int states = p.states();
  std::vector<double> alpha(w.size(), -kInf);
  for (int t = 0; t < p.frames; ++t) {
    for (int s = 0; s < states; ++s) {
      double before = -kInf;
      if (t == 0) {
        before = s <= 1 ? 0 : -kInf;
      } else {
        const double* const last = alpha.data() + static_cast<std::ptrdiff_t>(t - 1) * states;
        before = last[s];
        if (s >= 1) before = log_add(before, last[s - 1]);
        if (p.skips_to(s)) before = log_add(before, last[s - 2]);
      }
      alpha[static_cast<std::size_t>(t) * states + s] = before + w[static_cast<std::size_t>(t) * states + s];
    }
  }
  return alpha;
}

// One frame's gradient from its posteriors.
void add_gradient(const Ctc& p, const double* row, const double* posteriors, double* gradient) {
  const std::vector<double> lp = log_softmax(row, p);
  const double others = p.star >= 0 ? log_of_others(lp, p.blank) : -kInf;
  for (int c = 0; c < p.classes; ++c) gradient[c] = p.log_probs ? 0 : std::exp(lp[c]);
  for (int s = 0; s < p.states(); ++s) {
    const int z = p.label_of(s);
    if (z != p.star) {
      gradient[z] -= posteriors[s];
      continue;
    }
    for (int c = 0; c < p.classes && posteriors[s] > 0; ++c) {
      if (c != p.blank) gradient[c] -= posteriors[s] * std::exp(lp[c] - others);
    }
  }
}

}  // namespace

std::vector<double> state_weights(const Ctc& p, const std::vector<double>& logits, bool star_is_sum) {
  if (has_bad_logit(p, logits)) return {};
  std::vector<double> w(static_cast<std::size_t>(p.frames) * p.states());
  for (int t = 0; t < p.frames; ++t) {
    const std::vector<double> lp = log_softmax(logits.data() + static_cast<std::ptrdiff_t>(t) * p.classes, p);
    std::vector<double> weighted = lp;
    double best = -kInf;
    for (int c = 0; c < p.classes; ++c) {
      if (!p.prior.empty()) weighted[c] -= p.prior[c];
      if (c != p.blank) best = std::max(best, weighted[c]);
    }
    for (int s = 0; s < p.states(); ++s) {
      const int z = p.label_of(s);
      const double star = star_is_sum ? log_of_others(lp, p.blank) : best;
      w[static_cast<std::size_t>(t) * p.states() + s] = z == p.star ? star : weighted[z];
    }
  }
  return w;
}

CtcResult ctc(const Ctc& p, const std::vector<double>& logits) {
  const int states = p.states();
  CtcResult result{0, std::vector<double>(logits.size(), 0.0),
                   std::vector<double>(static_cast<std::size_t>(p.frames) * states, 0.0)};
  if (has_bad_logit(p, logits)) {
    result.loss = kNaN;
    std::fill(result.gradient.begin(), result.gradient.end(), kNaN);
    std::fill(result.posteriors.begin(), result.posteriors.end(), kNaN);
    return result;
  }
  const std::vector<double> w = state_weights(p, logits, true);
  double total = p.labels() == 0 ? 0 : -kInf;
  std::vector<double> alpha, beta;
  if (p.frames > 0) {
    alpha = alpha_of(p, w);
    beta = beta_of(p, w);
    total = alpha.back();
    if (states > 1) total = log_add(total, alpha[alpha.size() - 2]);
  }
  result.loss = -total;
  if (total == -kInf) {
    result.loss = p.zero_infinity ? 0 : kInf;
    return result;
  }
  for (std::size_t k = 0; k < result.posteriors.size(); ++k) {
    const double both = alpha[k] + beta[k];
    result.posteriors[k] = both == -kInf ? 0 : std::exp(both - total);
  }
  for (int t = 0; t < p.frames; ++t) {
    add_gradient(p, logits.data() + static_cast<std::ptrdiff_t>(t) * p.classes,
                 result.posteriors.data() + static_cast<std::ptrdiff_t>(t) * states,
                 result.gradient.data() + static_cast<std::ptrdiff_t>(t) * p.classes);
  }
  return result;
}

CtcPath ctc_align(const Ctc& p, const std::vector<double>& logits) {
  const int states = p.states();
  if (has_bad_logit(p, logits)) return {kNaN, {}};
  if (p.frames == 0) return {p.labels() == 0 ? 0 : -kInf, {}};
  const std::vector<double> w = state_weights(p, logits, false);
  std::vector<double> best(w.size(), -kInf);
  std::vector<int> back(w.size(), 0);
  for (int t = 0; t < p.frames; ++t) {
    for (int s = 0; s < states; ++s) {
      const std::size_t at = static_cast<std::size_t>(t) * states + s;
      if (t == 0) {
        best[at] = s <= 1 ? w[at] : -kInf;
        continue;
      }
      const double* const last = best.data() + static_cast<std::ptrdiff_t>(t - 1) * states;
      double value = last[s];
      if (s >= 1 && last[s - 1] > value) {
        value = last[s - 1];
        back[at] = 1;
      }
      if (p.skips_to(s) && last[s - 2] > value) {
        value = last[s - 2];
        back[at] = 2;
      }
      best[at] = value + w[at];
    }
  }
  const double* const end = best.data() + static_cast<std::ptrdiff_t>(p.frames - 1) * states;
  int s = states >= 2 && !(end[states - 1] > end[states - 2]) ? states - 2 : states - 1;
  CtcPath path{end[s], {}};
  if (path.score == -kInf) return path;
  path.states.resize(p.frames);
  for (int t = p.frames - 1; t >= 0; --t) {
    path.states[t] = s;
    s -= back[static_cast<std::size_t>(t) * states + s];
  }
  return path;
}

MonotonicPath monotonic_alignment(int positions, int frames, const std::vector<double>& scores) {
  MonotonicPath path{-kInf, std::vector<int>(positions, 0)};
  if (std::any_of(scores.begin(), scores.end(), is_bad)) return {kNaN, path.durations};
  if (positions == 0 && frames == 0) return {0, path.durations};
  if (positions == 0 || frames == 0) return path;
  std::vector<double> best(scores.size(), -kInf);  // (T, S)
  const auto at = [&](int t, int s) -> double& { return best[static_cast<std::size_t>(t) * positions + s]; };
  for (int t = 0; t < frames; ++t) {
    for (int s = 0; s < positions && s <= t; ++s) {
      double before = t == 0 ? 0 : -kInf;
      if (t > 0) before = s > 0 ? std::max(at(t - 1, s), at(t - 1, s - 1)) : at(t - 1, s);
      at(t, s) = before + scores[static_cast<std::size_t>(s) * frames + t];
    }
  }
  path.score = at(frames - 1, positions - 1);
  if (path.score == -kInf) return path;
  int s = positions - 1;
  for (int t = frames - 1; t >= 0; --t) {
    ++path.durations[s];
    if (t > 0 && s > 0 && (s == t || at(t - 1, s) < at(t - 1, s - 1))) --s;
  }
  return path;
}

}  // namespace warpalign::detail::ctc::reference
