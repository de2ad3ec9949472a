// The plan, and its derivative along tangents of the inputs and of the potentials: one pass over the costs
// for the rows, one for the columns with the sides exchanged.
//
//   P = ra rb e,  e = exp(t),  t = (f + g + lambda - C) / epsilon
//   dt = (df + dg + dlambda - dC) / epsilon - t depsilon / epsilon
//   ratio[i] = sum_j rb e, the row's sum without its own reference weight ra, which may be 0
//
// A dot or `moved` marks a derivative.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "transport/cpu_problem.h"

namespace warpalign::detail::transport {

// One side's tangents, and the derivatives of its sums. Arrays have padded(count) elements.
template <class Real>
struct SideTangent {
  double* potential = nullptr;  // tangent of f or g, in units of the cost, without that of lambda
  double* weight = nullptr;     // tangent of a or b
  double* ratio = nullptr;      // sum of the row without its own weight
  double* ratio_moved = nullptr;
  Real* points = nullptr;  // (dim, padded), as CpuSide::points; for the cosine, tangents of the unit vectors;
                           // null: points do not move
  Real* lengths = nullptr;  // for the cosine, tangents of the vectors' lengths
};

// The scratch memory of one worker, besides CpuScratch.
template <class Real>
struct TangentScratch {
  Real* cost;     // padded: derivatives of costs
  Real* plan;     // padded
  Real* point;    // (dim)
  double* moved;  // (dim)
};

// Sums over the whole plan; costs are scaled.
struct TangentTotals {
  double mass = 0;
  double mass_moved = 0;
  double linear = 0;
  double linear_moved = 0;
  double kl_moved = 0;  // without the sum of the reference
};

template <class Real>
struct CpuTangents {
  CpuProblem<Real>& problem;
  TangentScratch<Real>* scratch = nullptr;
  SideTangent<Real> rows{};
  SideTangent<Real> columns{};
  const Real* cost = nullptr;  // tangent of problem b's given costs
  std::int64_t cost_row_stride = 0;
  std::int64_t cost_column_stride = 0;
  double lambda = 0;  // tangent of lambda, in units of the cost
  double epsilon = 0;
  double log_scale = 0;

  // The outputs of a pass over the rows. Each may be null.
  struct Wanted {
    Real* grad_points = nullptr;  // (rows, dim)
    Real* grad_cost = nullptr;    // (rows, stride)
    std::int64_t grad_cost_stride = 0;
  };

  [[nodiscard]] bool product() const { return problem.p.reference == TransportReference::kProduct; }

  void exchange_sides(bool needs_costs = true) {
    problem.exchange_sides(needs_costs);
    std::swap(rows, columns);
    std::swap(cost_row_stride, cost_column_stride);
  }

  // Fills rows.ratio and rows.ratio_moved.
  TangentTotals run(const Wanted& wanted) {
    auto& s = problem.solver;
    s.split_potentials();
    s.team->run(s.blocks(), [&](int block, int worker) {
      double* const result = problem.block_results + kSums * block;
      std::fill_n(result, kSums, 0.0);
      s.for_rows(block, [&](int i) { one_row(i, s.scratch[worker], scratch[worker], wanted, result); });
    });
    double sums[kSums] = {};
    for (int block = 0; block < s.blocks(); ++block) {
      for (int k = 0; k < kSums; ++k) sums[k] += problem.block_results[kSums * block + k];
    }
    return {sums[0], sums[1], s.cost_scale * sums[2], s.cost_scale * (sums[3] + log_scale * sums[2]),
            sums[4]};
  }

 private:
  static constexpr int kSums = 5;

  void one_row(int i, const CpuScratch<Real>& own, const TangentScratch<Real>& moved, const Wanted& wanted,
               double* result) {
    auto& s = problem.solver;
    const LogitRow<Real> row = s.row_at(i, own);
    const int m = row.m;
    rows.ratio[i] = s.kernels->exponentials(row, s.columns.reference, own.e);
    const bool costs_move = find_cost_tangents(i, row.cost, own, moved);
    const double scale = s.cost_scale / s.epsilon, rate = epsilon / s.epsilon;
    const double move = (rows.potential[i] + lambda) / s.epsilon;
    const double ra = static_cast<double>(s.rows.reference[i]);
    const double ra_moved = product() ? rows.weight[i] : 0.0;
    const double w = (s.rows.w[i] + s.lambda) / kLog2E<double>;
    double ratio_moved = 0;
    for (int j = 0; j < m; ++j) {
      const double e = static_cast<double>(own.e[j]);
      if (e == 0) {
        own.e[j] = moved.plan[j] = 0;
        continue;
      }
      const double c = static_cast<double>(row.cost[j]);
      const double c_moved = costs_move ? static_cast<double>(moved.cost[j]) : 0.0;
      const double t = w + s.columns.w[j] / kLog2E<double> - scale * c;
      const double t_moved =
          move + columns.potential[j] / s.epsilon - scale * (c_moved + log_scale * c) - rate * t;
      const double rb = static_cast<double>(s.columns.reference[j]);
      const double share = e * (rb * t_moved + (product() ? columns.weight[j] : 0.0));
      const double p = ra * rb * e;
      const double p_moved = ra * share + ra_moved * rb * e;
      ratio_moved += share;
      result[0] += p;
      result[1] += p_moved;
      result[2] += p * c;
      result[3] += p_moved * c + p * c_moved;
      result[4] += p_moved * t + p * t_moved;
      own.e[j] = static_cast<Real>(p);
      moved.plan[j] = static_cast<Real>(p_moved);
    }
    rows.ratio_moved[i] = ratio_moved;
    std::fill_n(own.e + m, padded(m) - m, Real(0));
    std::fill_n(moved.plan + m, padded(m) - m, Real(0));
    if (wanted.grad_cost) {
      Real* const to = wanted.grad_cost + i * wanted.grad_cost_stride;
      for (int j = 0; j < m; ++j) {
        const double all = static_cast<double>(moved.plan[j]) + log_scale * static_cast<double>(own.e[j]);
        to[j] = static_cast<Real>(s.cost_scale * all);
      }
    }
    if (wanted.grad_points) {
      write_gradient(i, row.cost, own, moved,
                     wanted.grad_points + static_cast<std::int64_t>(i) * s.costs.dim);
    }
  }

  // Computes moved.cost. Returns false if it is 0.
  bool find_cost_tangents(int i, const Real* costs, const CpuScratch<Real>& own,
                          const TangentScratch<Real>& moved) const {
    const auto& s = problem.solver;
    if (rows.points) {
      s.kernels->cost_tangents(s.points_at(i, own), tangents_at(i, moved), costs, moved.cost);
      return true;
    }
    if (!cost) return false;
    for (int j = 0; j < s.columns.count; ++j) {
      moved.cost[j] = cost[i * cost_row_stride + j * cost_column_stride];
    }
    return true;
  }

  PointTangents<Real> tangents_at(int i, const TangentScratch<Real>& moved) const {
    const auto& s = problem.solver;
    for (int d = 0; d < s.costs.dim; ++d) {
      moved.point[d] = rows.points[static_cast<std::ptrdiff_t>(d) * padded(s.rows.count) + i];
    }
    return {moved.point, columns.points};
  }

  // The gradient is linear in the plan. Where points do not move, its derivative is that of the moved plan.
  void write_gradient(int i, const Real* costs, const CpuScratch<Real>& own,
                      const TangentScratch<Real>& moved, Real* to) const {
    const auto& s = problem.solver;
    const int dim = s.costs.dim;
    const PointRow<Real> points = s.points_at(i, own);
    double* const gradient = own.gradient;
    if (!rows.points) {
      const Real scale = static_cast<Real>(log_scale);
      for (int j = 0; j < points.m; ++j) own.e[j] = moved.plan[j] + scale * own.e[j];
      s.kernels->gradient(points, {costs, own.e}, gradient);
      through_length(s.costs, s.rows, i, own);
      for (int d = 0; d < dim; ++d) to[d] = static_cast<Real>(s.cost_scale * gradient[d]);
      return;
    }
    s.kernels->gradient(points, {costs, own.e}, gradient);
    s.kernels->gradient_tangent(points, tangents_at(i, moved), costs, moved.cost, own.e, moved.plan,
                                moved.moved);
    if (s.costs.kind == CostKind::kCosine) through_unit_length(i, own, moved);
    for (int d = 0; d < dim; ++d) {
      to[d] = static_cast<Real>(s.cost_scale * (moved.moved[d] + log_scale * gradient[d]));
    }
  }

  // For the cosine, with G = sum P v: the gradient with respect to x = |x| u is (<G, u> u - G) / |x|.
  void through_unit_length(int i, const CpuScratch<Real>& own, const TangentScratch<Real>& moved) const {
    const auto& s = problem.solver;
    const int dim = s.costs.dim;
    const double length = static_cast<double>(s.rows.lengths[i]);
    const double length_moved = static_cast<double>(rows.lengths[i]);
    double along = 0, along_moved = 0;
    for (int d = 0; d < dim; ++d) {
      const double u = static_cast<double>(own.point[d]), u_moved = static_cast<double>(moved.point[d]);
      along += own.gradient[d] * u;
      along_moved += moved.moved[d] * u + own.gradient[d] * u_moved;
    }
    for (int d = 0; d < dim; ++d) {
      const double u = static_cast<double>(own.point[d]), u_moved = static_cast<double>(moved.point[d]);
      const double tangent = along * u - own.gradient[d];
      const double tangent_moved = along_moved * u + along * u_moved - moved.moved[d];
      own.gradient[d] = length > 0 ? tangent / length : 0.0;
      moved.moved[d] = length > 0 ? (tangent_moved - tangent / length * length_moved) / length : 0.0;
    }
  }
};

}  // namespace warpalign::detail::transport
