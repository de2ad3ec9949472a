#include "transducer/reference.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

namespace warpalign::detail::transducer::reference {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

double log_sum_exp(const std::vector<double>& x) {
  double largest = -kInf;
  for (const double v : x) {
    if (std::isnan(v) || v == kInf) return kNaN;
    largest = std::max(largest, v);
  }
  if (largest == -kInf) return -kInf;
  double sum = 0;
  for (const double v : x) sum += std::exp(v - largest);
  return largest + std::log(sum);
}

// The log-probabilities of a row; all -inf if its logits are all -inf.
std::vector<double> log_softmax(std::vector<double> x, bool is_log_probs) {
  if (is_log_probs) return x;
  const double lse = log_sum_exp(x);
  for (double& v : x) v = lse == -kInf ? -kInf : v - lse;
  return x;
}

std::vector<double> row_of(const std::vector<double>& x, int row, int width) {
  const auto begin = x.begin() + static_cast<std::ptrdiff_t>(row) * width;
  return {begin, begin + width};
}

// The arcs out of (t, u), by the table in the public header.
std::vector<TransducerArc> arcs_of(const Transducer& p, int t, int u, const std::vector<double>& lp,
                                   const std::vector<double>& q) {
  const int last = p.states() - 1;
  const double delta = (p.frames - 1) / 2.0 - t;
  const double sigma = p.without_durations ? 0 : p.sigma;
  std::vector<TransducerArc> arcs;
  if (!p.band.empty() && (u < p.band[t] || u >= p.band[t] + p.band_states)) return arcs;
  const auto add_blank = [&](int m, int column, int duration) {
    if (t + m > p.frames || (t + m == p.frames && u != last)) return;
    if (p.star >= 0 && u > 0 && p.targets[u - 1] == p.star) {
      arcs.push_back({false, m, -1, -1, std::log(p.star_penalty), 0});
    } else {
      arcs.push_back({false, m, column, duration, lp[column] - sigma + (duration < 0 ? 0 : q[duration]), 0});
    }
  };
  const auto add_label = [&](int m, int duration) {
    if (u == last || t + m >= p.frames) return;
    const int y = p.targets[u];
    if (p.star >= 0 && y == p.star) {
      arcs.push_back({true, m, -1, -1, p.delay * delta, 0});
      return;
    }
    const double penalty = p.delay * delta + (p.eos >= 0 && y == p.eos ? p.eos_penalty * delta : 0);
    arcs.push_back({true, m, y, duration, lp[y] - sigma + penalty + (duration < 0 ? 0 : q[duration]), 0});
  };
  const int durations = static_cast<int>(p.durations.size());
  if (p.tdt && !p.without_durations) {
    for (int d = 0; d < durations; ++d) {
      if (p.durations[d] > 0) add_blank(p.durations[d], p.blank, d);
    }
    for (int d = 0; d < durations; ++d) add_label(p.durations[d], d);
  } else {
    add_blank(1, p.blank, -1);
    for (int i = 0; !p.tdt && i < durations; ++i) add_blank(p.durations[i], p.big_blank_columns[i], -1);
    add_label(0, -1);
  }
  return arcs;
}

// exp(a + w + b - z); 0 if one of a, w, b is -inf.
double posterior_of(double a, double w, double b, double z) {
  const double sum = a + w + b;
  return sum == -kInf ? 0 : std::exp(sum - z);
}

}  // namespace

TransducerResult transducer(const Transducer& p, const std::vector<double>& logits,
                            const std::vector<double>& duration_logits) {
  const int states = p.states(), nodes = p.frames * states;
  const int durations = p.tdt ? static_cast<int>(p.durations.size()) : 0;
  TransducerResult result{kInf, std::vector<double>(static_cast<std::size_t>(nodes) * p.labels),
                          std::vector<double>(static_cast<std::size_t>(nodes) * durations),
                          std::vector<std::vector<TransducerArc>>(nodes)};
  std::vector<std::vector<double>> lp(nodes), q(nodes);
  bool is_nan = false;
  for (int node = 0; node < nodes; ++node) {
    lp[node] = log_softmax(row_of(logits, node, p.labels), p.log_probs);
    if (p.tdt) q[node] = log_softmax(row_of(duration_logits, node, durations), p.log_probs);
    result.arcs[node] = arcs_of(p, node / states, node % states, lp[node], q[node]);
    const auto bad = [](double v) { return std::isnan(v) || v == kInf; };
    for (const auto& arc : result.arcs[node]) is_nan |= bad(arc.weight);
    if (p.log_probs) continue;
    is_nan |= std::any_of(lp[node].begin(), lp[node].end(), bad);
    if (!p.without_durations) is_nan |= std::any_of(q[node].begin(), q[node].end(), bad);
  }

  // alpha[node]: log sum over paths from (0, 0); beta[node]: to the end. Arcs lead to a later frame or to a
  // later state of the same frame: to a higher number.
  const auto next_of = [&](int node, const TransducerArc& arc) {
    return node + arc.frames * states + (arc.is_label ? 1 : 0);
  };
  const auto is_end = [&](int node, const TransducerArc& arc) {
    return node / states + arc.frames == p.frames;  // arcs_of() allows that only from the last state
  };
  std::vector<std::vector<double>> incoming(nodes);
  std::vector<double> alpha(nodes, -kInf), beta(nodes, -kInf), ends;
  for (int node = 0; node < nodes; ++node) {
    alpha[node] = node == 0 ? 0 : log_sum_exp(incoming[node]);
    for (const auto& arc : result.arcs[node]) {
      (is_end(node, arc) ? ends : incoming[next_of(node, arc)]).push_back(alpha[node] + arc.weight);
    }
  }
  for (int node = nodes - 1; node >= 0; --node) {
    std::vector<double> outgoing;
    for (const auto& arc : result.arcs[node]) {
      outgoing.push_back(arc.weight + (is_end(node, arc) ? 0 : beta[next_of(node, arc)]));
    }
    beta[node] = log_sum_exp(outgoing);
  }
  const double log_z = log_sum_exp(ends);

  if (is_nan) {
    result.loss = kNaN;
    std::fill(result.grad_logits.begin(), result.grad_logits.end(), kNaN);
    std::fill(result.grad_durations.begin(), result.grad_durations.end(), kNaN);
    for (auto& arcs : result.arcs) {
      for (auto& arc : arcs) arc.posterior = kNaN;
    }
    return result;
  }
  if (log_z == -kInf) {
    if (p.zero_infinity) result.loss = 0;
    return result;
  }
  result.loss = -log_z;
  for (int node = 0; node < nodes; ++node) {
    double* const gx = result.grad_logits.data() + static_cast<std::size_t>(node) * p.labels;
    double* const gz = result.grad_durations.data() + static_cast<std::size_t>(node) * durations;
    double s = 0;
    for (auto& arc : result.arcs[node]) {
      const double after = is_end(node, arc) ? 0 : beta[next_of(node, arc)];
      arc.posterior = posterior_of(alpha[node], arc.weight, after, log_z);
      if (arc.column < 0) continue;
      const double g = arc.posterior * (arc.is_label ? 1 + p.fastemit : 1);
      s += g;
      gx[arc.column] -= g;
      if (arc.duration >= 0) gz[arc.duration] -= g;
    }
    if (!p.log_probs) {
      for (int k = 0; k < p.labels; ++k) gx[k] += std::exp(lp[node][k]) * s;
      for (int d = 0; d < durations && !p.without_durations; ++d) gz[d] += std::exp(q[node][d]) * s;
    }
    for (int k = 0; k < p.labels && p.clamp > 0; ++k) gx[k] = std::clamp(gx[k], -p.clamp, p.clamp);
  }
  return result;
}

}  // namespace warpalign::detail::transducer::reference
