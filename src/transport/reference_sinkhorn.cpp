#include "transport/reference_sinkhorn.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace warpalign::detail::transport::reference {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

// ln sum exp; -inf if all elements are -inf.
double log_sum_exp(const std::vector<double>& v) {
  const double top = *std::max_element(v.begin(), v.end());
  if (top == -kInf) return -kInf;
  double sum = 0;
  for (const double x : v) sum += std::exp(x - top);
  return top + std::log(sum);
}

// The problem, and the state of its iterations: w = f / epsilon, z = g / epsilon.
struct Solver {
  const std::vector<double>& cost;
  const std::vector<double>& a;
  const std::vector<double>& b;
  const SinkhornOptions& options;
  std::size_t n = a.size();
  std::size_t m = b.size();
  double epsilon = options.epsilon;
  std::vector<double> w = std::vector<double>(n, 0.0);
  std::vector<double> z = std::vector<double>(m, 0.0);
  double lambda = 0;  // over epsilon

  [[nodiscard]] bool product() const { return options.reference == TransportReference::kProduct; }
  [[nodiscard]] double reference_a(std::size_t i) const { return product() ? a[i] : 1.0; }
  [[nodiscard]] double reference_b(std::size_t j) const { return product() ? b[j] : 1.0; }

  // ln(P / R).
  [[nodiscard]] double logit(std::size_t i, std::size_t j) const {
    return cost[i * m + j] == kInf ? -kInf : w[i] + z[j] + lambda - cost[i * m + j] / epsilon;
  }

  // The update of the public header. free: ln(weight / sum) without the potential itself, which is w + delta.
  [[nodiscard]] double updated(double free, double rho) const {
    if (options.mass > 0) return std::min(0.0, free);
    if (rho == kInf) return free;
    return rho / (rho + epsilon) * free;
  }

  [[nodiscard]] std::vector<double> new_w() const {
    std::vector<double> result(n);
    for (std::size_t i = 0; i < n; ++i) {
      std::vector<double> terms(m);
      for (std::size_t j = 0; j < m; ++j) terms[j] = std::log(reference_b(j)) + logit(i, j) - w[i];
      result[i] = updated(std::log(product() ? 1.0 : a[i]) - log_sum_exp(terms), options.rho_a);
    }
    return result;
  }
  [[nodiscard]] std::vector<double> new_z() const {
    std::vector<double> result(m);
    for (std::size_t j = 0; j < m; ++j) {
      std::vector<double> terms(n);
      for (std::size_t i = 0; i < n; ++i) terms[i] = std::log(reference_a(i)) + logit(i, j) - z[j];
      result[j] = updated(std::log(product() ? 1.0 : b[j]) - log_sum_exp(terms), options.rho_b);
    }
    return result;
  }

  [[nodiscard]] double plan(std::size_t i, std::size_t j) const {
    const double t = logit(i, j);
    return t == -kInf ? 0.0 : reference_a(i) * reference_b(j) * std::exp(t);
  }
  void move_mass() {
    if (!(options.mass > 0)) return;
    double sum = 0;
    for (std::size_t i = 0; i < n; ++i)
      for (std::size_t j = 0; j < m; ++j) sum += plan(i, j);
    lambda += std::log(options.mass / sum);
  }

  // is_symmetric: both sides from the old potentials, each averaged with its old value.
  void iterate(bool is_symmetric) {
    if (is_symmetric) {
      const std::vector<double> to_w = new_w();
      const std::vector<double> to_z = new_z();
      for (std::size_t i = 0; i < n; ++i) w[i] = (w[i] + to_w[i]) / 2;
      for (std::size_t j = 0; j < m; ++j) z[j] = (z[j] + to_z[j]) / 2;
      return move_mass();
    }
    z = new_z();
    move_mass();
    w = new_w();
    move_mass();
  }

  void set_epsilon(double to) {
    for (double& v : w) v *= epsilon / to;
    for (double& v : z) v *= epsilon / to;
    lambda *= epsilon / to;
    epsilon = to;
  }
};

// A side's part of the dual, for potential f and weight a; slope is its derivative with respect to a.
struct Conjugate {
  double value;
  double slope;
};
Conjugate conjugate(double f, double a, double rho, double mass) {
  if (mass > 0 || rho == kInf) return {a == 0 ? 0 : f * a, f};
  if (rho == 0) return {0, 0};
  const double slope = rho * -std::expm1(-f / rho);
  return {slope * a, slope};
}

}  // namespace

SinkhornAnswer sinkhorn(const std::vector<double>& cost, const std::vector<double>& a,
                        const std::vector<double>& b, const SinkhornOptions& options) {
  Solver s{cost, a, b, options};
  if (options.epsilon_start > options.epsilon) {
    s.epsilon = options.epsilon_start;
    while (s.epsilon > options.epsilon) {
      s.iterate(options.updates != SinkhornUpdates::kAlternating);
      s.set_epsilon(std::max(options.epsilon, s.epsilon * options.epsilon_factor));
    }
  }
  constexpr int kOfMixed = 28;  // symmetric iterations, with a tolerance of 0
  for (int k = 0; k < options.iterations; ++k) {
    s.iterate(options.updates == SinkhornUpdates::kSymmetric ||
              (options.updates == SinkhornUpdates::kMixed && k < kOfMixed));
  }

  SinkhornAnswer answer{};
  const double epsilon = s.epsilon;
  answer.plan.resize(s.n * s.m);
  std::vector<double> row(s.n, 0), column(s.m, 0);
  // Sums of P over the row's own weight, also defined for a weight of 0, because R = a b^T depends on the
  // weight.
  std::vector<double> row_ratio(s.n, 0), column_ratio(s.m, 0);
  double sum_p = 0, sum_r = 0, sum_a = 0, sum_b = 0;
  for (std::size_t i = 0; i < s.n; ++i) {
    for (std::size_t j = 0; j < s.m; ++j) {
      const double p = s.plan(i, j);
      const double r = s.reference_a(i) * s.reference_b(j);
      answer.plan[i * s.m + j] = p;
      row[i] += p;
      column[j] += p;
      row_ratio[i] += s.reference_b(j) * std::exp(s.logit(i, j));
      column_ratio[j] += s.reference_a(i) * std::exp(s.logit(i, j));
      sum_p += p;
      sum_r += r;
      if (p > 0) answer.linear += p * cost[i * s.m + j];
      answer.grad_epsilon += (p > 0 ? p * std::log(p / r) : 0) - p + r;
    }
  }
  for (const double v : a) sum_a += v;
  for (const double v : b) sum_b += v;
  answer.primal = answer.linear + epsilon * answer.grad_epsilon;
  answer.dual = -epsilon * (sum_p - sum_r) + epsilon * s.lambda * options.mass;
  const auto divergence = [](double p, double q) { return (p > 0 ? p * std::log(p / q) : 0) - p + q; };
  const auto side = [&](const std::vector<double>& potential, const std::vector<double>& weight,
                        const std::vector<double>& sums, const std::vector<double>& ratio, double rho,
                        double other, std::vector<double>& grad) {
    for (std::size_t i = 0; i < weight.size(); ++i) {
      const double f = epsilon * potential[i];
      const Conjugate c = conjugate(f, weight[i], rho, options.mass);
      answer.dual += c.value;
      grad.push_back(c.slope - (s.product() ? epsilon * (ratio[i] - other) : 0));
      if (!(options.mass > 0) && rho > 0 && rho < kInf) answer.primal += rho * divergence(sums[i], weight[i]);
    }
  };
  side(s.w, a, row, row_ratio, options.rho_a, sum_b, answer.grad_a);
  side(s.z, b, column, column_ratio, options.rho_b, sum_a, answer.grad_b);
  const std::vector<double> next_w = s.new_w(), next_z = s.new_z();
  for (std::size_t i = 0; i < s.n; ++i) answer.error = std::max(answer.error, std::abs(next_w[i] - s.w[i]));
  for (std::size_t j = 0; j < s.m; ++j) answer.error = std::max(answer.error, std::abs(next_z[j] - s.z[j]));
  for (const double v : s.w) answer.f.push_back(epsilon * (v + s.lambda));
  for (const double v : s.z) answer.g.push_back(epsilon * v);
  return answer;
}

}  // namespace warpalign::detail::transport::reference
