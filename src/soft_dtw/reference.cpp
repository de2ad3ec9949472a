#include "soft_dtw/reference.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace warpalign::reference {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

std::size_t at(int i, int j, int columns) { return static_cast<std::size_t>(i) * columns + j; }

// -gamma log(sum exp(-v / gamma)) with the minimum taken out, so that nothing underflows.
double softmin(double a, double b, double c, double gamma) {
  const double low = std::min({a, b, c});
  if (std::isinf(low)) return kInf;
  return low - gamma * std::log(std::exp((low - a) / gamma) + std::exp((low - b) / gamma) +
                                std::exp((low - c) / gamma));
}

bool any_nan(const std::vector<double>& values) {
  return std::any_of(values.begin(), values.end(), [](double v) { return std::isnan(v); });
}

}  // namespace

Result soft_dtw_from_cost(const std::vector<double>& cost, int n, int m, double gamma) {
  if (any_nan(cost)) {
    const double nan = std::numeric_limits<double>::quiet_NaN();
    return {nan, std::vector<double>(cost.size(), nan), {}, {}};
  }
  // r(i, j) is R[i-1, j-1]: row 0 and column 0 are the border.
  const int columns = m + 1;
  std::vector<double> r(at(n + 1, 0, columns), kInf);
  r[0] = 0.0;
  for (int i = 1; i <= n; ++i) {
    for (int j = 1; j <= m; ++j) {
      r[at(i, j, columns)] =
          cost[at(i - 1, j - 1, m)] +
          softmin(r[at(i - 1, j, columns)], r[at(i, j - 1, columns)], r[at(i - 1, j - 1, columns)], gamma);
    }
  }
  Result result{r[at(n, m, columns)], std::vector<double>(cost.size(), 0.0), {}, {}};
  if (std::isinf(result.value)) return result;

  // E[i,j] = sum over successors s of (i,j) of E[s] * exp(-(R[i,j] + C[s] - R[s]) / gamma), E[n-1,m-1] = 1.
  std::vector<double>& e = result.alignment;
  for (int i = n - 1; i >= 0; --i) {
    for (int j = m - 1; j >= 0; --j) {
      double sum = (i == n - 1 && j == m - 1) ? 1.0 : 0.0;
      const double here = r[at(i + 1, j + 1, columns)];
      for (const auto& [di, dj] : {std::pair{1, 0}, std::pair{0, 1}, std::pair{1, 1}}) {
        const int si = i + di;
        const int sj = j + dj;
        if (si >= n || sj >= m) continue;
        const double there = r[at(si + 1, sj + 1, columns)];
        if (std::isinf(here) || std::isinf(there)) continue;
        sum += e[at(si, sj, m)] * std::exp((there - cost[at(si, sj, m)] - here) / gamma);
      }
      e[at(i, j, m)] = sum;
    }
  }
  return result;
}

Result soft_dtw(const std::vector<double>& x, const std::vector<double>& y, int n, int m, int dim,
                double gamma) {
  std::vector<double> cost(at(n, 0, m), 0.0);
  for (int i = 0; i < n; ++i) {
    for (int j = 0; j < m; ++j) {
      for (int d = 0; d < dim; ++d) {
        const double difference = x[at(i, d, dim)] - y[at(j, d, dim)];
        cost[at(i, j, m)] += difference * difference;
      }
    }
  }
  Result result = soft_dtw_from_cost(cost, n, m, gamma);
  result.grad_x.assign(x.size(), 0.0);
  result.grad_y.assign(y.size(), 0.0);
  for (int i = 0; i < n; ++i) {
    for (int j = 0; j < m; ++j) {
      const double weight = result.alignment[at(i, j, m)];
      if (weight == 0.0) continue;  // an infinite difference off every path must not become 0 * inf
      for (int d = 0; d < dim; ++d) {
        const double g = 2.0 * weight * (x[at(i, d, dim)] - y[at(j, d, dim)]);
        result.grad_x[at(i, d, dim)] += g;
        result.grad_y[at(j, d, dim)] -= g;
      }
    }
  }
  return result;
}

double dtw(const std::vector<double>& cost, int n, int m) {
  std::vector<double> row(m, kInf);
  for (int i = 0; i < n; ++i) {
    double diagonal = i == 0 ? 0.0 : kInf;
    double left = kInf;
    for (int j = 0; j < m; ++j) {
      const double up = i == 0 ? kInf : row[j];
      left = cost[at(i, j, m)] + std::min({up, left, diagonal});
      diagonal = up;
      row[j] = left;
    }
  }
  return row[m - 1];
}

}  // namespace warpalign::reference
