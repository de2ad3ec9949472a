#include "transport/reference_normalize.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

namespace warpalign::detail::transport::reference {
namespace {

// The elements of line `line`: a row's, or a column's.
struct Lines {
  int count, length;
  int line_step, element_step;

  Lines(int n, int m, bool rows)
      : count(rows ? n : m), length(rows ? m : n), line_step(rows ? m : 1), element_step(rows ? 1 : m) {}
  [[nodiscard]] std::size_t at(int line, int k) const {
    return static_cast<std::size_t>(line) * line_step + static_cast<std::size_t>(k) * element_step;
  }
};

// log P of every line minus the logarithm of its sum.
void normalize(std::vector<double>& log_plan, const Lines& lines) {
  for (int line = 0; line < lines.count; ++line) {
    double top = -std::numeric_limits<double>::infinity(), sum = 0;
    for (int k = 0; k < lines.length; ++k) top = std::max(top, log_plan[lines.at(line, k)]);
    if (std::isinf(top) && top < 0) continue;
    for (int k = 0; k < lines.length; ++k) sum += std::exp(log_plan[lines.at(line, k)] - top);
    for (int k = 0; k < lines.length; ++k) log_plan[lines.at(line, k)] -= top + std::log(sum);
  }
}

// The gradient with respect to log P before a normalisation, from that after it, and log P after it.
void pull_back(std::vector<double>& gradient, const std::vector<double>& log_plan, const Lines& lines) {
  for (int line = 0; line < lines.count; ++line) {
    double sum = 0;
    for (int k = 0; k < lines.length; ++k) sum += gradient[lines.at(line, k)];
    for (int k = 0; k < lines.length; ++k) {
      gradient[lines.at(line, k)] -= std::exp(log_plan[lines.at(line, k)]) * sum;
    }
  }
}

}  // namespace

NormalizeAnswer sinkhorn_normalize(const std::vector<double>& logits, const std::vector<double>& grad_plan,
                                   int n, int m, int iterations, NormalizeOrder order) {
  const bool rows_first = order == NormalizeOrder::kRowsFirst;
  const Lines lines[2] = {Lines(n, m, rows_first), Lines(n, m, !rows_first)};
  std::vector<std::vector<double>> stages;
  std::vector<double> log_plan = logits;
  for (int step = 0; step < 2 * iterations; ++step) {
    normalize(log_plan, lines[step % 2]);
    stages.push_back(log_plan);
  }
  NormalizeAnswer answer{std::vector<double>(logits.size()), grad_plan};
  for (std::size_t k = 0; k < logits.size(); ++k) {
    answer.plan[k] = std::exp(log_plan[k]);
    answer.grad_logits[k] *= answer.plan[k];
  }
  for (int step = 2 * iterations - 1; step >= 0; --step) {
    pull_back(answer.grad_logits, stages[step], lines[step % 2]);
  }
  return answer;
}

}  // namespace warpalign::detail::transport::reference
