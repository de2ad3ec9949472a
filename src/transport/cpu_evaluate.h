// The objective and its gradients at the potentials of a CpuSolver: one pass over the costs, and for
// gradients with respect to y a second one with the sides exchanged.
#pragma once

#include "transport/cpu_solver.h"

namespace warpalign::detail::transport {

// Sums over the whole plan.
struct PlanTotals {
  double linear = 0;  // <C, P>, scaled
  double mass = 0;    // sum P
  double kl = 0;      // KL(P | R)
};

template <class Real>
class CpuEvaluation {
 public:
  using Solver = CpuSolver<Real>;

  // block_results: (blocks, 3).
  CpuEvaluation(Solver& solver, double* block_results) : s_(solver), block_results_(block_results) {}

  // The outputs: the rows' gradients, and the plan. Each may be null.
  template <class Out>
  PlanTotals run(Out* grad_points, Out* grad_cost, std::int64_t grad_cost_stride) {
    s_.split_potentials();
    s_.for_blocks([&](int block, const CpuScratch<Real>& own) {
      double* const result = block_results_ + 3 * block;
      std::fill_n(result, 3, 0.0);
      s_.begin_sums(block);
      s_.for_groups(block, [&](int i, int count) {
        const Real* cost[kCpuRows] = {};
        for (int k = 0; k < count; ++k) {
          cost[k] = add_row(block, i + k, own.of_row(k), result);
          if (grad_cost) write_plan(own.of_row(k).e, grad_cost + (i + k) * grad_cost_stride);
        }
        const PlanRows<Real> of{cost[0], own.e, count, count > 1 ? cost[1] - cost[0] : 0, own.stride};
        if (grad_points) {
          write_gradients(i, of, own, grad_points + static_cast<std::int64_t>(i) * s_.costs.dim);
        }
      });
      s_.flush_sums(block);
    });
    PlanTotals totals;
    double logits = 0;
    for (int block = 0; block < s_.blocks(); ++block) {
      totals.linear += s_.cost_scale * block_results_[3 * block];
      totals.mass += block_results_[3 * block + 1];
      logits += block_results_[3 * block + 2];
    }
    for (int j = 0; j < s_.columns.count; ++j) s_.columns.free[j] = s_.joined_sum(j);
    totals.kl = logits / kLog2E<double> - totals.mass + sum_of(s_.rows) * sum_of(s_.columns);
    return totals;
  }

  // The objective, as the value of its dual.
  [[nodiscard]] double value(const PlanTotals& totals) const {
    const double bits = s_.epsilon / kLog2E<double>;
    double value = s_.epsilon * (sum_of(s_.rows) * sum_of(s_.columns) - totals.mass);
    if (s_.mass > 0) value += bits * s_.lambda * s_.mass;
    for (const CpuSide<Real>* side : {&s_.rows, &s_.columns}) {
      for (int i = 0; i < side->count; ++i)
        value += side->marginal.conjugate(bits * side->w[i], side->weight[i]);
    }
    return value;
  }

  // The sum of a side's reference weights.
  static double sum_of(const CpuSide<Real>& side) {
    double sum = 0;
    for (int i = 0; i < side.count; ++i) sum += static_cast<double>(side.reference[i]);
    return sum;
  }

  // After run(): the gradient with respect to weight i of a side. With R = a b^T, the reference depends on it
  // too; other_sum is then the sum of the other side's reference.
  [[nodiscard]] double weight_gradient(const CpuSide<Real>& side, double other_sum, bool product,
                                       int i) const {
    const double slope = side.marginal.slope(s_.epsilon / kLog2E<double> * side.w[i]);
    return product ? slope - s_.epsilon * (side.free[i] - other_sum) : slope;
  }

  // After run(): the largest change of a potential by a further update, over epsilon.
  [[nodiscard]] double error() const {
    double largest = 0;
    for (const CpuSide<Real>* side : {&s_.rows, &s_.columns}) {
      for (int i = 0; i < side->count; ++i) {
        const double move = side->marginal.move_left(side->w[i], side->target[i], side->free[i], s_.epsilon);
        largest = move > largest || std::isnan(move) ? move : largest;
        if (std::isnan(largest)) return largest;
      }
    }
    return largest / kLog2E<double>;
  }

 private:
  template <class Out>
  void write_plan(const Real* plan, Out* to) const {
    for (int j = 0; j < s_.columns.count; ++j)
      to[j] = static_cast<Out>(s_.cost_scale * static_cast<double>(plan[j]));
  }

  // Makes row i of the plan, in own.e, and adds to the sums. Returns its costs.
  const Real* add_row(int block, int i, const CpuScratch<Real>& own, double* result) const {
    const LogitRow<Real> row = s_.row_at(i, own);
    const double sum = s_.kernels->exponentials(row, s_.columns.reference, own.e);
    const double factor = static_cast<double>(s_.rows.reference[i]);
    s_.rows.free[i] = sum;
    s_.add_to_sums(block, i, own.e, factor);
    const RowTotals totals = s_.kernels->plan(row, s_.columns.reference, static_cast<Real>(factor), own.e);
    result[0] += totals.linear;
    result[1] += factor * sum;
    result[2] += totals.logits;
    return row.cost;
  }

  // Writes the gradients of the points from i on, one for each of the given rows of the plan.
  template <class Out>
  void write_gradients(int i, const PlanRows<Real>& of, const CpuScratch<Real>& own, Out* to) const {
    const int dim = s_.costs.dim;
    s_.kernels->gradient(s_.points_at(i, own, of.count), of, own.gradient);
    for (int k = 0; k < of.count; ++k) {
      CpuScratch<Real> row = own;
      row.point += static_cast<std::ptrdiff_t>(k) * dim;
      row.gradient += static_cast<std::ptrdiff_t>(k) * dim;
      through_length(s_.costs, s_.rows, i + k, row);
    }
    for (int k = 0; k < of.count * dim; ++k) to[k] = static_cast<Out>(s_.cost_scale * own.gradient[k]);
  }

  Solver& s_;
  double* const block_results_;
};

}  // namespace warpalign::detail::transport
