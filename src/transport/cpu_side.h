// The parts of a problem on a CPU: its sides, its costs, its memory.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "transport/cpu_kernel.h"
#include "transport/update.h"

namespace warpalign::detail::transport {

constexpr int padded(int count) { return (count + 2 * kCpuPad - 1) / kCpuPad * kCpuPad; }

// One of the two sets, rows or columns. Arrays have padded(count) elements; those of Real are 0 after count.
template <class Real>
struct CpuSide {
  int count = 0;              // true length
  double* w = nullptr;        // the potential, in bits; inf if all costs of the point are inf
  double* old = nullptr;      // the potential before the step
  double* free = nullptr;     // of the last pass (free_of())
  double* spare = nullptr;    // for columns with symmetric updates
  double* weight = nullptr;   // a or b
  double* target = nullptr;   // log2(weight / reference weight)
  Real* reference = nullptr;  // the weights of R
  Real* hi = nullptr;         // the potential as a pair
  Real* lo = nullptr;
  Real* points = nullptr;   // (dim, padded): the points, transposed; null: costs are given
  Real* lengths = nullptr;  // for the cosine: the points' lengths, by which they have been divided
  Marginal marginal;

  // `free` of point i, whose sum is 2^log2_sum at the potential `at`: inf if all costs are inf; -inf for a
  // weight of 0 whose reference is 1 (kCounting).
  [[nodiscard]] double free_of(int i, double at, double log2_sum) const {
    constexpr double kInf = std::numeric_limits<double>::infinity();
    if (target[i] == -kInf) return -kInf;
    if (at == kInf || log2_sum == -kInf) return kInf;
    return at + target[i] - log2_sum;
  }
  // The largest distance of a sum from its weight, among points whose potential depends on it, in bits.
  [[nodiscard]] double gap() const {
    double largest = 0;
    for (int i = 0; marginal.follows_sums() && i < count; ++i) {
      if (std::isfinite(w[i])) largest = std::max(largest, std::abs(free[i] - w[i]));
    }
    return largest;
  }
};

// The costs of a problem: rows of a matrix, the caller's or one of stored costs of points, or computed from
// points.
template <class Real>
struct CpuCosts {
  const Real* matrix = nullptr;           // null: in halves, or from points
  const std::uint16_t* halves = nullptr;  // the matrix in binary16
  std::int64_t row_stride = 0;
  std::int64_t column_stride = 0;
  CostKind kind = CostKind::kSquaredEuclidean;
  int dim = 0;

  [[nodiscard]] bool is_made() const { return !matrix && !halves; }  // from points
  // The first `count` costs of row i of the matrix; copied to `copy` (padded) if they are binary16 or not
  // contiguous.
  const Real* row(int i, int count, const CpuKernelsOf<Real>& kernels, Real* copy) const {
    if (halves) return widened_row(halves + i * row_stride, count, kernels, copy);
    const Real* const from = matrix + i * row_stride;
    if (column_stride == 1) return from;
    for (int j = 0; j < count; ++j) copy[j] = from[j * column_stride];
    return copy;
  }

 private:
  const Real* widened_row(const std::uint16_t* from, int count, const CpuKernelsOf<Real>& kernels,
                          Real* copy) const {
    if (column_stride == 1) {
      kernels.widen(from, count, copy);
    } else {
      for (int j = 0; j < count; ++j) kernels.widen(from + j * column_stride, 1, copy + j);
    }
    return copy;
  }
};

// The scratch memory of one worker.
template <class Real>
struct CpuScratch {
  Real* cost;             // (kCpuRows, stride)
  Real* e;                // (kCpuRows, stride)
  Real* point;            // (kCpuRows, dim)
  double* gradient;       // (kCpuRows, dim)
  std::ptrdiff_t stride;  // padded

  // With costs and exponentials of row k in the place of row 0.
  [[nodiscard]] CpuScratch of_row(int k) const {
    return {cost + k * stride, e + k * stride, point, gradient, stride};
  }
};

// own.gradient is sum P times the kernel's gradient by point i of `rows`, which own.point holds. The
// cosine's is d (1 - <u, v>) / dx = (<u, v> u - v) / |x|.
template <class Real>
void through_length(const CpuCosts<Real>& costs, const CpuSide<Real>& rows, int i,
                    const CpuScratch<Real>& own) {
  if (costs.kind != CostKind::kCosine) return;
  double along = 0;
  for (int d = 0; d < costs.dim; ++d) along += own.gradient[d] * static_cast<double>(own.point[d]);
  const double length = static_cast<double>(rows.lengths[i]);
  for (int d = 0; d < costs.dim; ++d) {
    const double tangent = along * static_cast<double>(own.point[d]) - own.gradient[d];
    own.gradient[d] = length > 0 ? tangent / length : 0.0;
  }
}

// Updates `moved`, the largest change of a potential; NaN if there is a NaN.
inline void note_move(double next, double old, double& moved) {
  if (next == old || std::isnan(moved)) return;  // also where both are infinite
  const double distance = std::abs(next - old);
  moved = distance > moved || std::isnan(distance) ? distance : moved;
}

// Splits a potential into a pair whose hi part is on a grid.
template <class Real>
void split_potential(double v, double grid, Real& hi, Real& lo) {
  if (v == std::numeric_limits<double>::infinity()) v = 0;  // all of its costs are inf
  hi = static_cast<Real>(std::isfinite(v) ? std::round(v / grid) * grid : v);
  lo = std::isfinite(v) ? static_cast<Real>(v - static_cast<double>(hi)) : Real(0);
}

// The grid of the hi parts of a problem's potentials.
struct PotentialGrid {
  double unit;  // hi parts are multiples of it
  double most;  // and at most this
};

// Splits the potentials of both sides into pairs; lambda is added to the rows. The grid of the hi parts is so
// coarse that the sum of two is exact, even if they are `room` times as large.
template <class Real>
PotentialGrid split_all_potentials(CpuSide<Real>& rows, CpuSide<Real>& columns, double lambda, double room) {
  const auto finite = [](double v) { return std::isfinite(v) ? v : 0.0; };
  double largest = 1;
  for (int i = 0; i < rows.count; ++i) largest = std::max(largest, finite(std::abs(rows.w[i] + lambda)));
  for (int j = 0; j < columns.count; ++j) largest = std::max(largest, finite(std::abs(columns.w[j])));
  const double most = std::exp2(std::ceil(std::log2(room * largest)));
  const double unit = 2 * most * std::exp2(-std::numeric_limits<Real>::digits);
  for (int i = 0; i < rows.count; ++i) split_potential(rows.w[i] + lambda, unit, rows.hi[i], rows.lo[i]);
  for (int j = 0; j < columns.count; ++j) split_potential(columns.w[j], unit, columns.hi[j], columns.lo[j]);
  return {unit, most};
}

// Exponentials that are stored for later passes (absorbed potentials: Schmitzer, "Stabilized sparse scaling
// algorithms for entropy regularized transport problems", SIAM J. Sci. Comput. 2019): e[i, j] = 2^t[i, j] at
// the potentials below. While potentials stay near those, a pass multiplies rows and columns by the
// exponentials of their changes.
template <class Real>
struct CpuKept {
  Real* e = nullptr;          // (rows, padded columns); null: none are stored
  Real* factors = nullptr;    // (padded columns): 2^(the column's change), times the reference
  double* rows_at = nullptr;  // with lambda
  double* columns_at = nullptr;
  bool valid = false;

  [[nodiscard]] Real* row(int i, int column_count) const {
    return e + static_cast<std::ptrdiff_t>(i) * padded(column_count);
  }
  // Called before they are computed at these potentials.
  void remember(const CpuSide<Real>& rows, const CpuSide<Real>& columns, double lambda) const {
    for (int i = 0; i < rows.count; ++i) rows_at[i] = rows.w[i] + lambda;
    std::copy_n(columns.w, columns.count, columns_at);
  }
  // The largest change of a logit since then, in bits.
  [[nodiscard]] double change(const CpuSide<Real>& rows, const CpuSide<Real>& columns, double lambda) const {
    double of_rows = 0, of_columns = 0;
    for (int i = 0; i < rows.count; ++i) note_move(rows.w[i] + lambda, rows_at[i], of_rows);
    for (int j = 0; j < columns.count; ++j) note_move(columns.w[j], columns_at[j], of_columns);
    return of_rows + of_columns;
  }
  void find_factors(const CpuSide<Real>& columns) const {
    std::fill_n(factors, padded(columns.count), Real(0));
    for (int j = 0; j < columns.count; ++j) {
      const double change = columns.w[j] == columns_at[j] ? 0.0 : columns.w[j] - columns_at[j];
      factors[j] = static_cast<Real>(static_cast<double>(columns.reference[j]) * std::exp2(change));
    }
  }
};

}  // namespace warpalign::detail::transport
