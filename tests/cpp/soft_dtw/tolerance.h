// The tolerance rule of the whole suite, in one place (docs/numerics.md).
//
// float32: the error against float64 is at most twice that of the naive float32 formula (naive_soft_dtw
// below), plus a floor, because the naive formula is sometimes right by luck. float64: the reference is the
// naive float64 formula: only the floor counts.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "batch.h"

namespace warpalign::test::soft_dtw {

struct Tolerance {
  double value;     // relative
  double gradient;  // relative L2, of both gradients and the alignment
};

// The relative part of the floor. Every tolerance of expect_close() is one of these; "seen" is the
// largest error beyond twice the naive formula's in any test, on the CPU or on the emulated GPU.

// The rule of docs/numerics.md. Seen in float32: value 1.2e-7, gradient 5.5e-6 (2.7e-5 for gamma <= 0.05),
// both on CUDA, where the naive formula is not asked; in float64: 6e-15, 1.3e-12.
template <typename T>
Tolerance floor_at(double gamma) {
  if constexpr (sizeof(T) == 8) return {1e-13, gamma <= 0.05 ? 1e-8 : 1e-9};
  return {5e-7, gamma <= 0.05 ? 1e-4 : 1e-5};
}

// Problems with options that the naive formula does not have: rounding one float32 cost moves the shares of
// nearly tied paths, and no naive error beside it excuses that (docs/numerics.md). Seen: value 1.4e-7,
// gradient 2.3e-5.
template <typename T>
Tolerance floor_without_naive() {
  if constexpr (sizeof(T) == 8) return {1e-13, 1e-9};
  return {1e-6, 5e-5};
}

// Missing steps cost 0 against everything: E is spread over whole blocks of tied cells, and the rounding of
// their shares adds up. Seen: gradient 1.1e-4.
constexpr Tolerance kFloorOfManyTies{1e-6, 3e-4};

// Where E must be 1 in float32: every row and column on the way has rounded it, up to 1024 times 2^-24 = 6e-5
// at worst and a tenth of that as a random walk.
constexpr double kUnitTolerance = 1e-5;

// Each of the path's at most n + m cells rounds log(Z) once: so much is owed even where the value is near 0.
template <typename T>
double value_floor(double gamma, int n, int m) {
  return gamma * (n + m) * (sizeof(T) == 4 ? 1.2e-7 : 2.2e-16);
}

struct Errors {
  double value = 0;  // absolute
  double grad_x = 0;
  double grad_y = 0;
  double alignment = 0;
};

// Soft-DTW as one would first write it: R, E and the gradients accumulated in float.
struct NaiveResult {
  float value;
  std::vector<float> alignment, grad_x, grad_y;
};

inline std::vector<float> naive_cost(const std::vector<double>& x, const std::vector<double>& y, int n, int m,
                                     int dim) {
  std::vector<float> cost(static_cast<std::size_t>(n) * m, 0.0f);
  for (int i = 0; i < n; ++i) {
    for (int j = 0; j < m; ++j) {
      for (int d = 0; d < dim; ++d) {
        const float difference = static_cast<float>(x[i * dim + d]) - static_cast<float>(y[j * dim + d]);
        cost[i * m + j] += difference * difference;
      }
    }
  }
  return cost;
}

inline NaiveResult naive_soft_dtw(const std::vector<float>& cost, int n, int m, float gamma) {
  constexpr float kFloatInf = std::numeric_limits<float>::infinity();
  const std::size_t width = m + 1;
  std::vector<float> r((n + 1) * width, kFloatInf), e((n + 1) * width, 0.0f);
  r[0] = 0.0f;
  for (int i = 1; i <= n; ++i) {
    for (int j = 1; j <= m; ++j) {
      const float up = r[(i - 1) * width + j], left = r[i * width + j - 1],
                  diagonal = r[(i - 1) * width + j - 1];
      const float low = std::min({up, left, diagonal});
      const float sum =
          std::exp((low - up) / gamma) + std::exp((low - left) / gamma) + std::exp((low - diagonal) / gamma);
      r[i * width + j] =
          cost[(i - 1) * m + j - 1] + (std::isinf(low) ? kFloatInf : low - gamma * std::log(sum));
    }
  }
  NaiveResult result{r[n * width + m], std::vector<float>(cost.size(), 0.0f), {}, {}};
  if (!std::isfinite(result.value)) return result;
  for (int i = n; i >= 1; --i) {
    for (int j = m; j >= 1; --j) {
      // Algorithm 2 of the paper: a = exp((R[i+1,j] - R[i,j] - C[i+1,j]) / gamma), and so on.
      float sum = i == n && j == m ? 1.0f : 0.0f;
      const auto add = [&](int k, int l) {
        if (k > n || l > m || e[k * width + l] == 0.0f) return;
        sum += e[k * width + l] *
               std::exp((r[k * width + l] - r[i * width + j] - cost[(k - 1) * m + l - 1]) / gamma);
      };
      add(i + 1, j);
      add(i, j + 1);
      add(i + 1, j + 1);
      e[i * width + j] = sum;
      result.alignment[(i - 1) * m + j - 1] = sum;
    }
  }
  return result;
}

// Errors of the naive formula for pair b.
template <typename T>
Errors naive_errors(const Batch<T>& batch, int b, const reference::Result& expected) {
  if constexpr (sizeof(T) == 8) return {};
  // naive_soft_dtw() has no options but a band.
  const reference::Options& o = batch.options;
  if (o.step_penalty > 0 || o.subsequence || o.cost_kind != CostKind::kSquaredEuclidean || batch.gamma == 0)
    return {};
  if (!batch.x_mask.empty() || !batch.y_mask.empty() || !batch.gammas.empty()) return {};
  const int n = batch.n(b), m = batch.m(b), dim = batch.shape.dim;
  std::vector<double> x, y;
  std::vector<float> cost;
  if (dim > 0) {
    x = batch.x.wide(b, n, dim);
    y = batch.y.wide(b, m, dim);
    cost = naive_cost(x, y, n, m, dim);
  } else {
    const std::vector<double> wide = batch.cost.wide(b, n, m);
    cost.assign(wide.begin(), wide.end());
  }
  for (int i = 0; i < n; ++i) {
    for (int j = 0; j < m; ++j) {
      if (!reference::in_band(batch.options.band, i, j, n, m))
        cost[i * m + j] = std::numeric_limits<float>::infinity();
    }
  }
  NaiveResult naive = naive_soft_dtw(cost, n, m, static_cast<float>(batch.gamma));
  naive.grad_x.assign(x.size(), 0.0f);
  naive.grad_y.assign(y.size(), 0.0f);
  for (int i = 0; i < n; ++i) {
    for (int j = 0; j < m && dim > 0; ++j) {
      const float weight = 2.0f * naive.alignment[i * m + j];
      if (weight == 0.0f) continue;
      for (int d = 0; d < dim; ++d) {
        const float g = weight * (static_cast<float>(x[i * dim + d]) - static_cast<float>(y[j * dim + d]));
        naive.grad_x[i * dim + d] += g;
        naive.grad_y[j * dim + d] -= g;
      }
    }
  }
  // A naive formula that gives NaN or infinity excuses nothing. In gradients it excuses an error of 1e-4 at
  // most.
  const auto finite = [](double v) { return std::isfinite(v) ? v : 0.0; };
  const auto capped = [](double v) { return std::isfinite(v) ? std::min(v, 1e-4) : 0.0; };
  Errors errors{.value = finite(std::abs(naive.value - expected.value)),
                .alignment = capped(error(naive.alignment.data(), expected.alignment, n, m, n, m))};
  if (dim > 0) {
    errors.grad_x = capped(error(naive.grad_x.data(), expected.grad_x, n, dim, n, dim));
    errors.grad_y = capped(error(naive.grad_y.data(), expected.grad_y, m, dim, m, dim));
  }
  return errors;
}

// Holds pair b of a result to the rule. naive: errors of the naive formula.
template <typename T>
void expect_pair_close(const Batch<T>& batch, int b, const Outputs<T>& got, const reference::Result& expected,
                       const Errors& naive, Tolerance floor) {
  const int n = batch.shape.n, m = batch.shape.m, dim = batch.shape.dim;
  if (std::isfinite(expected.value)) {
    EXPECT_LE(std::abs(got.value[b] - expected.value),
              2 * naive.value + floor.value * std::abs(expected.value) +
                  value_floor<T>(batch.gamma, batch.n(b), batch.m(b)));
  } else {
    EXPECT_EQ(got.value[b], static_cast<T>(expected.value));
  }
  const auto pair = [b](const std::vector<T>& all, int rows, int columns) {
    return all.data() + static_cast<std::size_t>(b) * rows * columns;
  };
  if (!got.grad_x.empty()) {
    EXPECT_LE(error(pair(got.grad_x, n, dim), expected.grad_x, batch.n(b), dim, n, dim),
              2 * naive.grad_x + floor.gradient);
  }
  if (!got.grad_y.empty()) {
    EXPECT_LE(error(pair(got.grad_y, m, dim), expected.grad_y, batch.m(b), dim, m, dim),
              2 * naive.grad_y + floor.gradient);
  }
  if (!got.alignment.empty()) {
    EXPECT_LE(error(pair(got.alignment, n, m), expected.alignment, batch.n(b), batch.m(b), n, m),
              2 * naive.alignment + floor.gradient);
  }
  if (!got.grad_gamma.empty()) {
    const double gamma = batch.gammas.empty() ? batch.gamma : batch.gammas[b];
    // The entropy is up to log(3) per step, and every share is rounded. The reference subtracts values of
    // the size of value / gamma.
    EXPECT_NEAR(got.grad_gamma[b], expected.grad_gamma,
                floor.gradient * std::abs(expected.grad_gamma) +
                    (batch.n(b) + batch.m(b)) * (sizeof(T) == 4 ? 1e-6 : 1e-12) +
                    (gamma > 0 ? 1e-14 * std::abs(expected.value) / gamma : 0));
  }
}

// Holds every pair of a result to the rule, with the relative part of the floor given. Without allow_naive
// the floor holds the whole error.
template <typename T>
void expect_close(const Batch<T>& batch, const Outputs<T>& got, Tolerance floor, bool allow_naive = true) {
  const auto [pairs, n, m, dim] = batch.shape;
  for (int b = 0; b < pairs; ++b) {
    SCOPED_TRACE(::testing::Message()
                 << "pair " << b << " of B=" << pairs << " N=" << batch.n(b) << "/" << n
                 << " M=" << batch.m(b) << "/" << m << " D=" << dim << " gamma=" << batch.gamma);
    const reference::Result expected = batch.expected(b);
    const Errors naive = allow_naive ? naive_errors(batch, b, expected) : Errors{};
    expect_pair_close(batch, b, got, expected, naive, floor);
  }
}

template <typename T>
void expect_close(const Batch<T>& batch, const Outputs<T>& got) {
  expect_close(batch, got, floor_at<T>(batch.gamma));
}

}  // namespace warpalign::test::soft_dtw
