// Layer norm of padded rows: (v - mean) / sqrt(var + eps), and its derivative. Padding stays as it is.
#pragma once

#include <algorithm>
#include <cmath>

#include "recurrent/cpu_rows.h"

namespace warpalign::detail::recurrent {

// Which entries of a row count: `units` of each panel row, in 4 gates or in 1.
struct NormShape {
  Index hidden;
  bool gated;

  [[nodiscard]] double count() const { return static_cast<double>(gated ? 4 * hidden : hidden); }
  template <class Body>
  void for_entries(const Body& body) const {
    if (!gated) {
      for (Index k = 0; k < hidden; ++k) body(k);
      return;
    }
    for (Index unit = 0; unit < hidden; unit += kUnits) {
      const Index units = std::min<Index>(kUnits, hidden - unit);
      for (Index gate = 0; gate < 4; ++gate) {
        const Index column = gate_column(gate, unit);
        for (Index k = 0; k < units; ++k) body(column + k);
      }
    }
  }
};

// row is normalised; returns the factor.
template <class Real>
Real normalise(NormShape shape, double eps, Real* row) {
  double mean = 0, variance = 0;
  shape.for_entries([&](Index k) { mean += row[k]; });
  mean /= shape.count();
  shape.for_entries([&](Index k) { variance += (row[k] - mean) * (row[k] - mean); });
  const double factor = 1 / std::sqrt(variance / shape.count() + eps);
  shape.for_entries([&](Index k) { row[k] = static_cast<Real>((row[k] - mean) * factor); });
  return static_cast<Real>(factor);
}

// dv = factor (dn - mean(dn) - n mean(dn n)) with dn = gamma dout. n is the normalised row. dv may be dout.
template <class Real>
void normalise_backward(NormShape shape, const Real* n, Real factor, const Real* gamma, const Real* dout,
                        Real* dv) {
  double mean = 0, along = 0;
  shape.for_entries([&](Index k) {
    const double dn = static_cast<double>(gamma[k]) * dout[k];
    mean += dn, along += dn * n[k];
  });
  mean /= shape.count(), along /= shape.count();
  shape.for_entries([&](Index k) {
    dv[k] = static_cast<Real>(factor * (static_cast<double>(gamma[k]) * dout[k] - mean - n[k] * along));
  });
}

}  // namespace warpalign::detail::recurrent
