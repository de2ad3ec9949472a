// Types shared by the solver of the CPU path and its kernels (cpu_kernel.inl, one copy per instruction set).
// Plain data only: an inline function here would be compiled with several sets of flags, and the linker would
// merge the copies.
//
// A logit is t[j] = w + z[j] - k c[j], in bits. Each potential is a pair, hi + lo. The hi parts are on a
// common grid, so that w_hi + z_hi is exact, and the only rounding, of one fused multiply-add with the cost,
// is relative to the logit itself.
#pragma once

#include <cstddef>

#include "cpu/isa.h"
#include "warpalign/cost_kind.h"

namespace warpalign::detail::transport {

// The number of elements of the largest vector. Arrays that vectors run over, except the caller's costs, have
// this many more elements.
constexpr int kCpuPad = 16;

// The number of points whose costs and gradients are computed together: one load of a feature of y serves
// them all.
constexpr int kCpuRows = 4;

// One row of logits.
template <class Real>
struct LogitRow {
  const Real* cost;  // (m)
  const Real* z_hi;  // (m), padded, finite or -inf
  const Real* z_lo;  // (m), padded
  Real w_hi;
  Real w_lo;
  Real k;  // log2(e) cost_scale / epsilon
  int m;
};

// Sums over one row of the plan P[j] = factor weight[j] 2^t[j].
struct RowTotals {
  double linear;  // sum P c
  double logits;  // sum P t
};

// The points of a row: x is one point, y_t (dim, stride) the other set, transposed.
template <class Real>
struct PointRow {
  CostKind kind;
  const Real* x;    // (dim), or one after the other
  const Real* y_t;  // (dim, stride)
  std::ptrdiff_t stride;
  int dim;
  int m;
};

// Rows of the plan and of their costs, strides apart.
template <class Real>
struct PlanRows {
  const Real* cost;  // read for the Euclidean distance
  const Real* plan;
  int count = 1;
  std::ptrdiff_t cost_stride = 0;
  std::ptrdiff_t plan_stride = 0;
};

// The tangents of a row's points, laid out as the points.
template <class Real>
struct PointTangents {
  const Real* x;    // (dim)
  const Real* y_t;  // (dim, stride)
};

// Matrices of sinkhorn_normalize() in the lanes of vectors: element (i, j) of all of them is a vector. Rows
// are normalised first.
template <class Real>
struct NormalizeLanes {
  int n, m, iterations;
  Real*
      elements;  // (n, m) vectors: logits, then the plan; after a gradient log2 of the first iteration's rows
  Real* gradient;  // (n, m) vectors: of the plan, then of the logits; null: only the plan is computed
  Real* history;   // (2 iterations, max(n, m)) vectors, for a gradient
  Real* sums;      // (2, max(n, m)) vectors of scratch
};

template <class Real>
struct CpuKernelsOf {
  // e[j] = 2^t[j], 0 below 2^-126; returns sum weight[j] e[j]. weight and e are padded.
  double (*exponentials)(const LogitRow<Real>& row, const Real* weight, Real* e);
  // The largest logit; NaN if one is NaN.
  double (*largest)(const LogitRow<Real>& row);
  // largest[j] = max(largest[j], t[j]).
  void (*raise)(const LogitRow<Real>& row, Real* largest);
  // The sum of weight[j] e[j], both padded.
  double (*weighted_sum)(const Real* e, const Real* weight, int m);
  // The sum of weight[j] e[j] cost[j] over j with e[j] != 0. e and weight are padded.
  double (*weighted_cost)(const Real* e, const Real* weight, const Real* cost, int m);
  // sums[j] += factor e[j].
  void (*accumulate)(const Real* e, Real factor, int m, Real* sums);
  // Replaces e[j] by the plan's P[j] = factor weight[j] e[j].
  RowTotals (*plan)(const LogitRow<Real>& row, const Real* weight, Real factor, Real* e);
  // to[j] = halves[j], numbers of binary16, j < m.
  void (*widen)(const std::uint16_t* halves, int m, Real* to);
  // Row i of cost (rows, stride), padded: between x[i] and y[j]. x has at most kCpuRows rows.
  void (*costs)(const PointRow<Real>& points, int rows, Real* cost, std::ptrdiff_t stride);
  // The same, with the largest difference of a feature in the place of the cost; NaN if one is NaN.
  void (*largest_differences)(const PointRow<Real>& points, int rows, Real* to, std::ptrdiff_t stride);
  // Row i of gradient (rows, dim): sum P[i][j] d c[i][j] / d x[i][d]; for the cosine, whose points have unit
  // length, sum P[i][j] y[j][d]. x, cost and plan have at most kCpuRows rows.
  void (*gradient)(const PointRow<Real>& points, const PlanRows<Real>& of, double* gradient);
  // to[j] = sum over d of x[d] y[j][d], padded.
  void (*products)(const PointRow<Real>& row, Real* to);
  // to[j] = the derivative of cost[j] along the tangents, padded.
  void (*cost_tangents)(const PointRow<Real>& row, const PointTangents<Real>& along, const Real* cost,
                        Real* to);
  // The derivative of gradient() along the tangents of points, costs and plan.
  void (*gradient_tangent)(const PointRow<Real>& row, const PointTangents<Real>& along, const Real* cost,
                           const Real* cost_tangent, const Real* plan, const Real* plan_tangent,
                           double* gradient);
  int lanes;  // of a vector
  void (*normalize)(const NormalizeLanes<Real>& matrices);
  void (*normalize_gradient)(const NormalizeLanes<Real>& matrices);
};

struct CpuKernels {
  CpuKernelsOf<float> float32;
  CpuKernelsOf<double> float64;
};

template <class Real>
const CpuKernelsOf<Real>& kernels_of(const CpuKernels& kernels);
template <>
inline const CpuKernelsOf<float>& kernels_of<float>(const CpuKernels& kernels) {
  return kernels.float32;
}
template <>
inline const CpuKernelsOf<double>& kernels_of<double>(const CpuKernels& kernels) {
  return kernels.float64;
}

const CpuKernels& kernels_for(cpu::IsaTag<cpu::Isa::kBaseline>);
const CpuKernels& kernels_for(cpu::IsaTag<cpu::Isa::kAvx2>);
const CpuKernels& kernels_for(cpu::IsaTag<cpu::Isa::kAvx512>);

}  // namespace warpalign::detail::transport
