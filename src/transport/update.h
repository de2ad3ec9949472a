// The update of a potential, and a side's part of the objective's dual, for all paths.
//
// Potentials are in bits: w = f log2(e) / epsilon. Equations: warpalign/sinkhorn.h.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/anywhere.h"
#include "core/constants.h"

namespace warpalign::detail::transport {

// log2(2^a + 2^b), of any magnitude. -infinity stands for 0.
[[nodiscard]] WARPALIGN_ANYWHERE inline double sum_in_bits(double a, double b) {
  const double top = std::max(a, b);
  if (std::isinf(top)) return top > 0 ? top : a + b;  // NaN stays NaN
  return top + std::log2(std::exp2(a - top) + std::exp2(b - top));
}

// The largest relative difference of the sums of weights in balanced transport. It covers the rounding of
// float32 weights, and of their sum in any order, up to some millions of points: n weights of 1 / n differ
// from 1 by at most 2^-24, normalised ones by about sqrt(n) 2^-24.
constexpr double kSumTolerance = 1e-4;

// false with NaN.
[[nodiscard]] WARPALIGN_ANYWHERE inline bool sums_agree(double a, double b) {
  return std::abs(a - b) <= kSumTolerance * std::max(a, b);
}

// A mass that equals a sum of weights may exceed it by a few units in the last place.
template <class Real>
constexpr double sum_slack() {
  return 64 * static_cast<double>(std::numeric_limits<Real>::epsilon());
}

// The error of a result that contains the number v: infinite or NaN if v is.
[[nodiscard]] WARPALIGN_ANYWHERE inline double error_beside(double v, double error) {
  return std::isfinite(v) ? error : std::abs(v);
}

// The constraint or penalty on a side's marginal.
struct Marginal {
  bool partial = false;  // the sums are at most the weights
  double strength = std::numeric_limits<double>::infinity();

  // The new w. free: log2(weight / sum) without the potential itself in the sum.
  [[nodiscard]] WARPALIGN_ANYWHERE double updated(double free, double epsilon) const {
    if (partial) return std::min(0.0, free);
    if (std::isinf(strength)) return free;
    return strength == 0 ? 0.0 : strength / (strength + epsilon) * free;
  }

  // The change of w by a further update, in bits. sum: that of the plan, over the point's weight in the
  // reference; target: log2(weight / that weight). A point with an infinite potential has no sum. A sum of 0
  // has underflowed: on a relaxed side that may be correct, on a hard one the potential is far from its
  // solution.
  [[nodiscard]] WARPALIGN_ANYWHERE double move_left(double w, double target, double sum,
                                                    double epsilon) const {
    if (std::isinf(w)) return 0.0;
    if (sum == 0) return is_hard() ? std::numeric_limits<double>::infinity() : 0.0;
    return std::abs(updated(w + target - std::log2(sum), epsilon) - w);
  }

  [[nodiscard]] WARPALIGN_ANYWHERE bool is_hard() const { return !partial && std::isinf(strength); }

  // Whether the potential depends on the sum. If not, a sum that underflows does no harm.
  [[nodiscard]] WARPALIGN_ANYWHERE bool follows_sums() const { return !partial && strength > 0; }

  // d dual / d weight at potential f, without the part of the reference measure.
  [[nodiscard]] WARPALIGN_ANYWHERE double slope(double f) const {
    if (partial || std::isinf(strength)) return f;
    return strength == 0 ? 0.0 : strength * -std::expm1(-f / strength);
  }
  // The side's part of the dual.
  [[nodiscard]] WARPALIGN_ANYWHERE double conjugate(double f, double weight) const {
    return weight == 0 ? 0.0 : slope(f) * weight;
  }
};

}  // namespace warpalign::detail::transport
