// What the CPU path's solver and its kernels (cpu_kernel.inl, one copy per instruction set) share. Plain data
// only: no inline function here may be compiled under two sets of flags.
//
// A logit is t[j] = w + z[j] - k c[j], in bits. Each potential is a pair, hi + lo: the hi parts lie on a
// common grid, so that w_hi + z_hi is exact, and one fused multiply-add with the cost then rounds a number of
// the logit's own size.
#pragma once

#include <cstddef>

#include "cpu/isa.h"
#include "warpalign/cost_kind.h"

namespace warpalign::detail::transport {

// Largest vector in elements: every array that vectors run over, but for the caller's costs, has so many to
// spare.
constexpr int kCpuPad = 16;

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

// Points: x is one point, y_t (dim, stride) the other set with its points side by side.
template <class Real>
struct PointRow {
  CostKind kind;
  const Real* x;    // (dim)
  const Real* y_t;  // (dim, stride)
  std::ptrdiff_t stride;
  int dim;
  int m;
};

// A row's points and how they move: x_t one point's tangent, y_t the others', laid out as the points are.
template <class Real>
struct PointTangents {
  const Real* x;    // (dim)
  const Real* y_t;  // (dim, stride)
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
  // The sum of weight[j] e[j] cost[j], where e[j] is not 0. e and weight are padded.
  double (*weighted_cost)(const Real* e, const Real* weight, const Real* cost, int m);
  // sums[j] += factor e[j].
  void (*accumulate)(const Real* e, Real factor, int m, Real* sums);
  // e[j] becomes the plan's P[j] = factor weight[j] e[j].
  RowTotals (*plan)(const LogitRow<Real>& row, const Real* weight, Real factor, Real* e);
  // to[j] = halves[j], numbers of binary16, for j < m.
  void (*widen)(const std::uint16_t* halves, int m, Real* to);
  // cost[j] between x and y[j], padded.
  void (*costs)(const PointRow<Real>& row, Real* cost);
  // gradient[d] = sum P[j] d c[j] / d x[d]; of the cosine, whose points have unit length, sum P[j] y[j][d].
  void (*gradient)(const PointRow<Real>& row, const Real* cost, const Real* plan, double* gradient);
  // to[j] = sum over d of x[d] y[j][d], padded.
  void (*products)(const PointRow<Real>& row, Real* to);
  // to[j] = the derivative of cost[j] along the tangents, padded.
  void (*cost_tangents)(const PointRow<Real>& row, const PointTangents<Real>& along, const Real* cost,
                        Real* to);
  // The derivative of gradient() along the tangents of points, costs and plan.
  void (*gradient_tangent)(const PointRow<Real>& row, const PointTangents<Real>& along, const Real* cost,
                           const Real* cost_tangent, const Real* plan, const Real* plan_tangent,
                           double* gradient);
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
