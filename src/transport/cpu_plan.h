// The rows of a plan on a CPU, from its potentials.
#pragma once

#include "transport/cpu_problem.h"
#include "transport/problem.h"

namespace warpalign::detail::transport {

template <class Real>
struct CpuPlan {
  CpuProblem<Real> problem;
  CpuSolver<Real>& s = problem.solver;

  CpuPlan(Arena& arena, const SinkhornProblem& p, int threads) : problem(arena, p, threads) {}

  // Loads problem b; transposed: with the columns as rows.
  void bind(int b, const BlockTeam& team, bool transposed = false) {
    problem.bind(b, team);
    if (transposed) problem.exchange_sides();
    s.split_potentials();
  }

  // Calls body(i, scratch, row, sum) for every row i. scratch.e has P[i,j] without the row's own weight in R,
  // and sum is its sum.
  template <class Body>
  void for_rows(const Body& body) const {
    s.team->run(s.blocks(), [&](int block, int worker) {
      s.for_rows(block, [&](int i) {
        const CpuScratch<Real>& own = s.scratch[worker];
        const LogitRow<Real> row = s.row_at(i, own);
        const double sum = s.kernels->exponentials(row, s.columns.reference, own.e);
        s.kernels->plan(row, s.columns.reference, Real(1), own.e);
        body(i, worker, row, sum);
      });
    });
  }

  // The row's own weight in R.
  [[nodiscard]] double weight(int i) const { return static_cast<double>(s.rows.reference[i]); }

  // Transposes points (rows, columns) to (columns, padded rows).
  static void pack(const StridedTensor& from, int b, int rows, int columns, Real* to) {
    const Real* const data = static_cast<const Real*>(from.data) + b * from.stride[0];
    const std::ptrdiff_t stride = padded(rows);
    for (int k = 0; k < columns; ++k) {
      for (int i = 0; i < rows; ++i) to[k * stride + i] = data[i * from.stride[1] + k * from.stride[2]];
      std::fill(to + k * stride + rows, to + (k + 1) * stride, Real(0));
    }
  }
};

}  // namespace warpalign::detail::transport
