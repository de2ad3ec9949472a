// The one update of a potential, and what a side adds to the objective's dual: every path uses these.
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
  if (std::isinf(top)) return top > 0 ? top : a + b;  // NaN stays
  return top + std::log2(std::exp2(a - top) + std::exp2(b - top));
}

// How a side is tied to its weights.
struct Marginal {
  bool partial = false;  // sums at most the weights
  double strength = std::numeric_limits<double>::infinity();

  // The new w, for an epsilon. free: log2(weight / sum) with the potential itself left out of the sum.
  [[nodiscard]] WARPALIGN_ANYWHERE double updated(double free, double epsilon) const {
    if (partial) return std::min(0.0, free);
    if (std::isinf(strength)) return free;
    return strength == 0 ? 0.0 : strength / (strength + epsilon) * free;
  }

  // Whether sums far from the weights matter: where they do not, a sum may be too small for its number
  // format.
  [[nodiscard]] WARPALIGN_ANYWHERE bool follows_sums() const { return !partial && strength > 0; }

  // d dual / d weight at potential f, without the reference measure's part.
  [[nodiscard]] WARPALIGN_ANYWHERE double slope(double f) const {
    if (partial || std::isinf(strength)) return f;
    return strength == 0 ? 0.0 : strength * -std::expm1(-f / strength);
  }
  // What the side adds to the dual.
  [[nodiscard]] WARPALIGN_ANYWHERE double conjugate(double f, double weight) const {
    return weight == 0 ? 0.0 : slope(f) * weight;
  }
};

}  // namespace warpalign::detail::transport
