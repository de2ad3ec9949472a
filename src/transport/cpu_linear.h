// The linear system of the potentials' derivatives, by conjugate gradients on the columns.
//
// Differentiating ln(target) - ln(row sum) = 0 gives, with p = P / row sum and tau = rho / (rho + epsilon),
//
//   df[i] / tau + dlambda + sum_j p[i,j] dg[j] = H[i]        rows whose potential depends on their sum
//   df[i] = 0                                                other rows; columns alike
//   sum r df + sum c dg + mass dlambda = epsilon H_mass      partial transport
//
// H is epsilon times the derivative of the logarithms with respect to inputs and forces at fixed potentials.
// Rows are eliminated. The remaining matrix is symmetric and positive semidefinite; a product with it is one
// pass over the exponentials, which the first product keeps where there is room, or over the costs.
#pragma once

#include <algorithm>
#include <cmath>

#include "transport/cpu_problem.h"
#include "transport/cpu_tangent.h"

namespace warpalign::detail::transport {

// One side of the system. Arrays have padded(count) elements.
template <class Real>
struct SideOfSystem {
  double* right = nullptr;  // H
  double* sum = nullptr;    // the plan's sum; 0 if the potential is constant
  bool* moves = nullptr;    // whether the potential depends on its sum
  double tau = 1;
};

template <class Real>
struct PotentialSystem {
  CpuProblem<Real>& problem;
  CpuTangents<Real>& tangents;
  SideOfSystem<Real> rows{};
  SideOfSystem<Real> columns{};
  double* x = nullptr;         // (columns + 1): the solution, dg and dlambda
  double* residual = nullptr;  // (columns + 1), as are the following
  double* direction = nullptr;
  double* product = nullptr;
  double* diagonal = nullptr;
  double* row_values = nullptr;  // (rows): results of the last pass
  Real* weighted = nullptr;      // (padded columns)
  bool partial = false;
  double mass_right = 0;  // epsilon H_mass

  struct Outcome {
    int steps;
    double error;
  };

  // Solves the system. On return x has dg, followed by dlambda.
  Outcome solve(int most_steps, double tolerance) {
    const int m = problem.solver.columns.count, size = m + 1;
    for (int j = 0; j < m; ++j) diagonal[j] = columns.sum[j] / columns.tau;
    diagonal[m] = partial ? problem.p.mass : 0.0;
    // The right side: the rows' part of H.
    std::fill_n(direction, size, 0.0);
    pass(true);
    double sum = 0, total = 0;
    for (int j = 0; j < m; ++j) {
      residual[j] = columns.sum[j] * (columns.right[j] - product[j]);
      sum += residual[j];
      total += columns.sum[j];
    }
    residual[m] = partial ? mass_right - sum_of_rows() : 0.0;
    // If both sides are exact, a constant between f and g is in the null space. Its component, which comes
    // from rounding, is removed.
    if (rows.tau == 1 && columns.tau == 1 && !partial && total > 0) {
      for (int j = 0; j < m; ++j) residual[j] -= columns.sum[j] * sum / total;
    }
    std::fill_n(x, size, 0.0);
    double norm = 0;
    for (int j = 0; j < size; ++j) {
      direction[j] = preconditioned(j);
      norm += residual[j] * direction[j];
    }
    const double first = norm;
    int step = 0;
    for (; step < most_steps && norm > tolerance * tolerance * first; ++step) {
      multiply();
      double curvature = 0;
      for (int j = 0; j < size; ++j) curvature += direction[j] * product[j];
      if (!(curvature > 0)) break;
      const double length = norm / curvature;
      double next = 0;
      for (int j = 0; j < size; ++j) {
        x[j] += length * direction[j];
        residual[j] -= length * product[j];
        next += residual[j] * preconditioned(j);
      }
      for (int j = 0; j < size; ++j) direction[j] = preconditioned(j) + next / norm * direction[j];
      norm = next;
    }
    return {step, first > 0 ? std::sqrt(norm / first) : (first == 0 ? 0.0 : first)};
  }

  // Computes the derivatives of all potentials from the solution, also those of points without weight.
  void finish() {
    const int n = problem.solver.rows.count, m = problem.solver.columns.count;
    std::copy_n(x, m + 1, direction);
    pass(true);
    for (int i = 0; i < n; ++i) tangents.rows.potential[i] = row_values[i];
    for (int j = 0; j < m; ++j) {
      const bool without_weight = columns.moves[j] && columns.sum[j] == 0;
      tangents.columns.potential[j] =
          without_weight ? columns.tau * (columns.right[j] - x[m] - product[j]) : x[j];
    }
    tangents.lambda = x[m];
  }

 private:
  double preconditioned(int j) const { return diagonal[j] > 0 ? residual[j] / diagonal[j] : 0.0; }

  // product = matrix times direction.
  void multiply() {
    const int m = problem.solver.columns.count;
    pass(false);
    double lambda_part = 0;
    for (int j = 0; j < m; ++j) {
      lambda_part += columns.sum[j] * direction[j];
      product[j] =
          diagonal[j] * direction[j] + columns.sum[j] * (product[j] + (partial ? direction[m] : 0.0));
    }
    product[m] = partial ? diagonal[m] * direction[m] + lambda_part + sum_of_rows() : 0.0;
  }

  [[nodiscard]] double sum_of_rows() const {
    double sum = 0;
    for (int i = 0; i < problem.solver.rows.count; ++i) sum += rows.sum[i] * row_values[i];
    return sum;
  }

  // row_values[i] = tau (H - dlambda - sum_j p dg), H only if with_right_side, with dg and dlambda in
  // direction; product[j] = sum_i P row_values[i] over the column's sum.
  void pass(bool with_right_side) {
    auto& s = problem.solver;
    const int m = s.columns.count;
    const double lambda = partial ? direction[m] : 0.0;
    std::fill_n(weighted, padded(m), Real(0));
    for (int j = 0; j < m; ++j) {
      weighted[j] = static_cast<Real>(static_cast<double>(s.columns.reference[j]) * direction[j]);
    }
    s.split_potentials();
    s.for_blocks([&](int block, const CpuScratch<Real>& own) {
      s.begin_sums(block);
      s.for_rows(block, [&](int i) {
        const double ratio = tangents.rows.ratio[i];
        row_values[i] = 0;
        if (!rows.moves[i]) return;
        Real* const e = s.kept.e ? s.kept.row(i, m) : own.e;
        if (!s.kept.valid) s.kernels->exponentials(s.row_at(i, own), s.columns.reference, e);
        double weighted_sum = 0;
        s.kernels->gradient({CostKind::kCosine, nullptr, weighted, padded(m), 1, m}, {nullptr, e},
                            &weighted_sum);
        const double right = with_right_side ? rows.right[i] : 0.0;
        row_values[i] = rows.tau * (right - lambda - weighted_sum / ratio);
        s.add_to_sums(block, i, e, static_cast<double>(s.rows.reference[i]) * row_values[i]);
      });
      s.flush_sums(block);
    });
    s.kept.valid = s.kept.e != nullptr;
    for (int j = 0; j < m; ++j) {
      const double ratio = tangents.columns.ratio[j];
      product[j] = ratio > 0 ? s.joined_sum(j) / ratio : 0.0;
    }
  }
};

}  // namespace warpalign::detail::transport
