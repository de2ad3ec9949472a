#include "soft_dtw/reference.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace warpalign::detail::soft_dtw::reference {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

std::size_t at(int i, int j, int columns) { return static_cast<std::size_t>(i) * columns + j; }

// Shares of the three predecessors (up, left, diagonal) in softmin_gamma, and softmin itself: with the
// minimum subtracted, nothing overflows, and the largest term is 1.
struct Softmin {
  double value;
  double share[3];
};

Softmin softmin(double up, double left, double diagonal, double gamma) {
  const double low = std::min({up, left, diagonal});
  if (std::isinf(low)) return {kInf, {0.0, 0.0, 0.0}};
  if (gamma == 0) {
    if (diagonal == low) return {low, {0.0, 0.0, 1.0}};
    return up == low ? Softmin{low, {1.0, 0.0, 0.0}} : Softmin{low, {0.0, 1.0, 0.0}};
  }
  const double terms[3] = {std::exp((low - up) / gamma), std::exp((low - left) / gamma),
                           std::exp((low - diagonal) / gamma)};
  const double sum = terms[0] + terms[1] + terms[2];
  return {low - gamma * std::log(sum), {terms[0] / sum, terms[1] / sum, terms[2] / sum}};
}

bool any_nan(const std::vector<double>& values) {
  return std::any_of(values.begin(), values.end(), [](double v) { return std::isnan(v); });
}

double dot(const double* x, const double* y, int dim) {
  double sum = 0;
  for (int d = 0; d < dim; ++d) sum += x[d] * y[d];
  return sum;
}

double norm(const double* x, int dim) { return std::sqrt(dot(x, x, dim)); }

double step_cost(CostKind kind, const double* x, const double* y, int dim) {
  if (kind == CostKind::kCosine) {
    const double norms = norm(x, dim) * norm(y, dim);
    return norms == 0 ? 1.0 : 1.0 - dot(x, y, dim) / norms;
  }
  double sum = 0;
  for (int d = 0; d < dim; ++d) {
    const double t = std::abs(x[d] - y[d]);
    if (kind == CostKind::kL1) sum += t;
    if (kind == CostKind::kSquaredEuclidean || kind == CostKind::kEuclidean) sum += t * t;
    if (kind == CostKind::kHuber) sum += t <= 1 ? t * t / 2 : t - 0.5;
  }
  return kind == CostKind::kEuclidean ? std::sqrt(sum) : sum;
}

// d step_cost / d x[d].
double step_slope(CostKind kind, const double* x, const double* y, int dim, int d) {
  const double t = x[d] - y[d];
  switch (kind) {
    case CostKind::kSquaredEuclidean:
      return 2 * t;
    case CostKind::kEuclidean: {
      const double c = step_cost(kind, x, y, dim);
      return c == 0 ? 0.0 : t / c;
    }
    case CostKind::kL1:
      return t > 0 ? 1.0 : (t < 0 ? -1.0 : 0.0);
    case CostKind::kCosine: {
      const double nx = norm(x, dim);
      const double ny = norm(y, dim);
      return nx * ny == 0 ? 0.0 : (dot(x, y, dim) / (nx * ny) * x[d] / nx - y[d] / ny) / nx;
    }
    case CostKind::kHuber:
      return std::clamp(t, -1.0, 1.0);
  }
  return 0;
}

}  // namespace

bool in_band(const Band& band, int i, int j, int n, int m) {
  const double radius = band.radius;
  switch (band.kind) {
    case BandKind::kNone:
      return true;
    case BandKind::kSakoeChiba:
      return m >= n ? i - radius <= j && j <= i + (m - n) + radius
                    : j - radius <= i && i <= j + (n - m) + radius;
    case BandKind::kAbsolute:
      return std::abs(i - j) <= radius;
    case BandKind::kSlanted:
      return std::abs(static_cast<double>(i) * (m - 1) - static_cast<double>(j) * (n - 1)) <=
             radius * (std::max(n, m) - 1);
    case BandKind::kItakura: {
      // The bounds on i of tslearn's itakura_mask, rounded to two decimals as there.
      const auto rounded = [](double v) { return std::nearbyint(v * 100.0) / 100.0; };
      const double steep = band.max_slope * n / m;
      const double flat = 1.0 / band.max_slope * n / m;
      return i >= rounded(flat * j) && i >= rounded((n - 1) - steep * (m - 1) + steep * j) &&
             i <= rounded(steep * j) && i <= rounded((n - 1) - flat * (m - 1) + flat * j);
    }
  }
  return false;
}

Result soft_dtw_from_cost(const std::vector<double>& cost, int n, int m, double gamma,
                          const Options& options) {
  if (any_nan(cost)) {
    const double nan = std::numeric_limits<double>::quiet_NaN();
    return {nan, std::vector<double>(cost.size(), nan), {}, {}, std::vector<double>(m, nan), nan};
  }
  // r(i, j) is R[i-1, j-1]: row 0 and column 0 are the border.
  const int columns = m + 1;
  std::vector<double> r(at(n + 1, 0, columns), kInf);
  r[0] = 0.0;
  const auto predecessors = [&](int i, int j) {
    // Begins here, or comes from the left.
    if (options.subsequence && i == 1)
      return softmin(kInf, r[at(i, j - 1, columns)] + options.step_penalty, 0, gamma);
    return softmin(r[at(i - 1, j, columns)] + options.step_penalty,
                   r[at(i, j - 1, columns)] + options.step_penalty, r[at(i - 1, j - 1, columns)], gamma);
  };
  for (int i = 1; i <= n; ++i) {
    for (int j = 1; j <= m; ++j) {
      if (!in_band(options.band, i - 1, j - 1, n, m)) continue;
      r[at(i, j, columns)] = cost[at(i - 1, j - 1, m)] + predecessors(i, j).value;
    }
  }
  Result result{r[at(n, m, columns)], std::vector<double>(cost.size(), 0.0), {}, {}};
  std::vector<double> ends(m, 0.0);  // [column]: weight of the path's end in the last row
  ends[m - 1] = 1.0;
  if (options.subsequence) {
    result.end_values.assign(r.end() - m, r.end());
    const auto first = std::min_element(result.end_values.begin(), result.end_values.end());
    double sum = 0;
    for (int j = 0; j < m; ++j) {
      const bool best = first - result.end_values.begin() == j;
      ends[j] = gamma == 0 ? (best ? 1.0 : 0.0) : std::exp((*first - result.end_values[j]) / gamma);
      sum += ends[j];
    }
    result.value = *first - gamma * std::log(sum);
    for (double& end : ends) end /= sum;
  }
  if (std::isinf(result.value)) return result;  // also without any path

  // E of the last row is the weight of its ends in the value; every cell passes its E to its predecessors by
  // their shares.
  std::vector<double> e(r.size(), 0.0);
  for (int j = 1; j <= m; ++j) e[at(n, j, columns)] = ends[j - 1];
  double expected_cost = 0;
  for (int i = n; i >= 1; --i) {
    for (int j = m; j >= 1; --j) {
      const double here = e[at(i, j, columns)];
      const Softmin p = predecessors(i, j);
      e[at(i - 1, j, columns)] += here * p.share[0];
      e[at(i, j - 1, columns)] += here * p.share[1];
      e[at(i - 1, j - 1, columns)] += here * p.share[2];
      result.alignment[at(i - 1, j - 1, m)] = here;
      if (here > 0) expected_cost += here * cost[at(i - 1, j - 1, m)];
      expected_cost += here * (p.share[0] + p.share[1]) * options.step_penalty;
    }
  }
  if (gamma > 0) result.grad_gamma = (result.value - expected_cost) / gamma;
  return result;
}

Result soft_dtw(const std::vector<double>& x, const std::vector<double>& y, int n, int m, int dim,
                double gamma, const Options& options) {
  const auto missing = [](const std::vector<std::uint8_t>& mask, int k) {
    return !mask.empty() && mask[k] != 0;
  };
  // Whether both steps are present.
  const auto counts = [&](int i, int j) {
    return !missing(options.x_mask, i) && !missing(options.y_mask, j);
  };
  std::vector<double> cost(at(n, 0, m), 0.0);
  for (int i = 0; i < n; ++i) {
    for (int j = 0; j < m; ++j) {
      if (counts(i, j))
        cost[at(i, j, m)] = step_cost(options.cost_kind, &x[at(i, 0, dim)], &y[at(j, 0, dim)], dim);
    }
  }
  Result result = soft_dtw_from_cost(cost, n, m, gamma, options);
  result.grad_x.assign(x.size(), 0.0);
  result.grad_y.assign(y.size(), 0.0);
  for (int i = 0; i < n; ++i) {
    for (int j = 0; j < m; ++j) {
      const double weight = result.alignment[at(i, j, m)];
      // An infinite difference off every path must not become 0 * inf.
      if (weight == 0.0 || !counts(i, j)) continue;
      const double* const xs = &x[at(i, 0, dim)];
      const double* const ys = &y[at(j, 0, dim)];
      for (int d = 0; d < dim; ++d) {
        result.grad_x[at(i, d, dim)] += weight * step_slope(options.cost_kind, xs, ys, dim, d);
        result.grad_y[at(j, d, dim)] += weight * step_slope(options.cost_kind, ys, xs, dim, d);
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

}  // namespace warpalign::detail::soft_dtw::reference
