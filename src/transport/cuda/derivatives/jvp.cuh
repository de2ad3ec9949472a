// sinkhorn_jvp() on one problem of the batch, by a team of blocks. In order: the derivative of the plan's
// sums at fixed potentials, the derivative of the potentials (a linear system), and the derivatives of all
// outputs. The equations are those of the CPU path (cpu_linear.h).
//
//   df[i] / tau + dlambda + sum_j p[i,j] dg[j] = H[i]        rows whose potential depends on their sum;
//   columns alike sum r df + sum c dg + mass dlambda = epsilon H_mass      partial transport
//
// Rows are eliminated; the remaining system is solved by conjugate gradients. A product is a pass over the
// rows and one over the columns, both of which compute the costs again. All threads of the team read the same
// joined numbers, and take the same decisions.
#pragma once

#include "transport/cuda/derivatives/tangent_tiles.cuh"
#include "transport/cuda/solve/solver.cuh"

namespace warpalign::detail::transport {

// kCount sums that the team joins.
template <int kCount>
struct JoinedSums {
  double of[kCount] = {};

  __device__ __forceinline__ void join(const JoinedSums& other) {
#pragma unroll
    for (int k = 0; k < kCount; ++k) of[k] += other.of[k];
  }
};

template <class Real>
class Jvp {
 public:
  using Tiles = TangentTiles<Real>;

  __device__ __forceinline__ Jvp(const SolveParams<Real>& p, Team& team, int b)
      : p_(p), team_(team), s_(p, team, b), rows_(s_.rows), columns_(s_.columns) {}

  __device__ __forceinline__ void run() {
    bind();
    const TangentTotals still = moved_sums(nullptr);
    const double value = set_system(still);
    const Outcome outcome = solve();
    finish();
    if (is_open()) centre();
    team_.barrier();
    write(value, outcome);
  }

 private:
  using Array = TangentArray;

  // The problem's element of an array; 0 if the array is null.
  [[nodiscard]] __device__ __forceinline__ double number(const Real* of) const {
    return of ? static_cast<double>(of[rows_.b]) : 0.0;
  }
  [[nodiscard]] __device__ __forceinline__ double force(const Side<Real>& side, int i) const {
    const Real* const forces = tiles().tangents(side).forces;
    return forces ? static_cast<double>(forces[side.row_of_batch() + i]) : 0.0;
  }
  [[nodiscard]] __device__ __forceinline__ const Tiles& tiles() const { return s_.costs(); }
  [[nodiscard]] __device__ __forceinline__ double& at(const Side<Real>& side, Array which, int i) const {
    return tiles().array(side, which)[i];
  }

  // Loads the potentials of the solution, without lambda, and sets all tangents to 0.
  __device__ __forceinline__ void bind() {
    static_cast<void>(s_.set_up());
    const double bits = kLog2E<double> / s_.epsilon;
    s_.lambda = bits * number(p_.tangents.shift);
    for_points(rows_, team_, [&](int i) {
      if (!isinf(rows_.current()[i])) rows_.current()[i] -= s_.lambda;
      settle(rows_.current()[i]);
      at(rows_, Array::kPotential, i) = 0;
    });
    for_points(columns_, team_, [&](int j) {
      settle(columns_.current()[j]);
      at(columns_, Array::kPotential, j) = 0;
    });
    rows_.top = static_cast<float>(rows_.top + abs(s_.lambda)) * 1.000001f;
    numbers_ = {0, number(p_.tangents.epsilon), number(p_.tangents.log_scale)};
    team_.barrier();
    pass_ = s_.pass_at_current();
  }

  // Sets a potential that is 0 within tolerance to 0: symmetric updates of partial transport halve the
  // distance to 0 and never reach it.
  __device__ __forceinline__ void settle(double& w) const {
    if (is_partial() && abs(w) <= p_.tolerance * kLog2E<double>) w = 0;
  }

  // Computes ratios and their derivatives, and returns the plan's totals.
  __device__ __attribute__((noinline)) TangentTotals moved_sums(Real* grad_cost) {
    TangentTotals mine;
    for (const bool of_rows : {true, false}) {
      tiles().sum_tangents(pass_, of_rows, numbers_, of_rows ? grad_cost : nullptr, mine);
    }
    const TangentTotals all = team_.joined(mine);
    for (const Side<Real>* const side : {&rows_, &columns_}) {
      for_points(*side, team_, [&](int i) {
        at(*side, Array::kRatio, i) = tiles().sum(*side, 0, i);
        at(*side, Array::kRatioMoved, i) = tiles().sum(*side, 1, i);
      });
    }
    return all;
  }

  // Whether a constant can be moved between f and g: in balanced transport.
  [[nodiscard]] __device__ __forceinline__ bool is_open() const {
    return !(p_.mass > 0) && isinf(rows_.marginal.strength) && isinf(columns_.marginal.strength);
  }
  [[nodiscard]] __device__ __forceinline__ bool is_partial() const { return p_.mass > 0; }
  [[nodiscard]] __device__ __forceinline__ double tau(const Side<Real>& side) const {
    const Marginal& m = side.marginal;
    return m.partial || isinf(m.strength) ? 1.0 : m.strength / (m.strength + s_.epsilon);
  }
  // Whether a potential depends on its sum.
  [[nodiscard]] __device__ __forceinline__ bool moves(const Side<Real>& side, int i) const {
    const double w = side.current()[i];
    if (isinf(w) || isnan(w) || !(at(side, Array::kRatio, i) > 0)) return false;
    return side.marginal.partial ? w < 0 : side.marginal.strength > 0;
  }
  // The plan's sum; 0 if the potential is constant.
  [[nodiscard]] __device__ __forceinline__ double sum_of(const Side<Real>& side, int i) const {
    return moves(side, i) ? side.reference(side.weight(i)) * at(side, Array::kRatio, i) : 0.0;
  }
  [[nodiscard]] __device__ __forceinline__ double diagonal(int j) const {
    const double sum = sum_of(columns_, j);
    return sum > 0 ? sum / tau(columns_) : 0.0;
  }
  [[nodiscard]] __device__ __forceinline__ double preconditioned(int j) const {
    const double d = diagonal(j);
    return d > 0 ? at(columns_, Array::kResidual, j) / d : 0.0;
  }

  // Sets the right sides. Returns the derivative of the dual at fixed potentials.
  __device__ __attribute__((noinline)) double set_system(const TangentTotals& still) {
    const double bits = s_.epsilon / kLog2E<double>;
    // 0, 1: derivatives of the reference's weights; 2: the value; 3, 4: forces; 5, 6: numbers of points with
    // weight.
    JoinedSums<7> mine;
    for (const int k : {0, 1}) {
      const Side<Real>& side = k == 0 ? rows_ : columns_;
      for_points(side, team_, [&](int i) {
        const double w = side.current()[i], moved = tiles().weight_moved(side, i);
        if (side.product) mine.of[k] += moved;
        mine.of[3 + k] += force(side, i);
        mine.of[5 + k] += side.weight(i) > 0;
        if (isinf(w) || isnan(w)) return;
        mine.of[2] += side.marginal.slope(bits * w) * moved;
        mine.of[2] += bits * (w + (k == 0 ? s_.lambda : 0.0)) * force(side, i);
      });
    }
    const JoinedSums<7> all = team_.joined(mine);
    with_weight_[0] = max(all.of[5], 1.0);
    with_weight_[1] = max(all.of[6], 1.0);
    reference_moved_[0] = all.of[0];
    reference_moved_[1] = all.of[1];
    mass_right_ = s_.epsilon * (all.of[3] - still.mass_moved);
    // The difference of the forces' sums is removed from both sides evenly, because the open constant makes
    // the system singular.
    const double apart = is_open() ? (all.of[3] - all.of[4]) / 2 : 0.0;
    set_side(rows_, apart / with_weight_[0]);
    set_side(columns_, -apart / with_weight_[1]);
    const double reference_moved = all.of[0] * columns_.total + rows_.total * all.of[1];
    return all.of[2] + numbers_.epsilon * (rows_.total * columns_.total - still.mass) +
           s_.epsilon * (reference_moved - still.mass_moved);
  }
  __device__ __forceinline__ void set_side(const Side<Real>& side, double less) const {
    for_points(side, team_, [&](int i) {
      const double ratio = at(side, Array::kRatio, i), weight = side.weight(i), sum = sum_of(side, i);
      double right = ratio > 0 ? -at(side, Array::kRatioMoved, i) / ratio : 0.0;
      if (!side.product && weight > 0) right += tiles().weight_moved(side, i) / weight;
      if (sum > 0) right += (force(side, i) - (weight > 0 ? less : 0.0)) / sum;
      at(side, Array::kRight, i) = s_.epsilon * right;
    });
  }

  // Computes the rows' values tau (H - lambda - sum_j p dg), H only if with_right_side, with dg in the
  // columns' values, and partial sums of P values by column. Returns the sum over rows of their sum times
  // their value.
  __device__ __attribute__((noinline)) double pass(bool with_right_side, double lambda) {
    team_.barrier();
    tiles().sum_weighted(pass_, true, tiles().array(columns_, Array::kValues));
    team_.barrier();
    JoinedSums<1> mine;
    const double tau_of_rows = tau(rows_);
    for_points(rows_, team_, [&](int i) {
      double value = 0;
      if (moves(rows_, i)) {
        const double right = with_right_side ? at(rows_, Array::kRight, i) : 0.0;
        value = tau_of_rows * (right - lambda - tiles().sum(rows_, 0, i) / at(rows_, Array::kRatio, i));
      }
      at(rows_, Array::kValues, i) = value;
      mine.of[0] += sum_of(rows_, i) * value;
    });
    const double sum = team_.joined(mine).of[0];
    tiles().sum_weighted(pass_, false, tiles().array(rows_, Array::kValues));
    team_.barrier();
    return sum;
  }
  // The result of a pass for a column, over the column's sum.
  [[nodiscard]] __device__ __forceinline__ double pass_result(int j) const {
    const double ratio = at(columns_, Array::kRatio, j);
    return ratio > 0 ? tiles().sum(columns_, 0, j) / ratio : 0.0;
  }

  struct Outcome {
    int steps;
    double error;
  };
  // Solves the system. On return dg is in kSolution and dlambda in lambda_.
  __device__ __attribute__((noinline)) Outcome solve() {
    const bool partial = is_partial();
    const double lambda_diagonal = partial ? p_.mass : 0.0;
    const auto lambda_preconditioned = [&](double residual) {
      return lambda_diagonal > 0 ? residual / lambda_diagonal : 0.0;
    };
    // The right side: the rows' part of H.
    for_points(columns_, team_, [&](int j) {
      at(columns_, Array::kValues, j) = 0;
      at(columns_, Array::kSolution, j) = 0;
    });
    const double of_rows = pass(true, 0);
    JoinedSums<2> sums;
    for_points(columns_, team_, [&](int j) {
      const double sum = sum_of(columns_, j);
      const double residual = sum * (at(columns_, Array::kRight, j) - pass_result(j));
      at(columns_, Array::kResidual, j) = residual;
      sums.of[0] += residual;
      sums.of[1] += sum;
    });
    sums = team_.joined(sums);
    // If both sides are exact, a constant between f and g is in the null space. Its component, which comes
    // from rounding, is removed.
    const bool exact = tau(rows_) == 1 && tau(columns_) == 1 && !partial && sums.of[1] > 0;
    const double constant = exact ? sums.of[0] / sums.of[1] : 0.0;
    lambda_ = 0;
    double residual = partial ? mass_right_ - of_rows : 0.0;
    double direction = lambda_preconditioned(residual);
    JoinedSums<1> mine;
    for_points(columns_, team_, [&](int j) {
      at(columns_, Array::kResidual, j) -= sum_of(columns_, j) * constant;
      const double to = preconditioned(j);
      at(columns_, Array::kValues, j) = to;
      mine.of[0] += at(columns_, Array::kResidual, j) * to;
    });
    const double first = team_.joined(mine).of[0] + residual * direction;
    constexpr double kTolerance = sizeof(Real) == sizeof(double) ? 1e-12 : 1e-6;
    double norm = first;
    int step = 0;
    for (; step < p_.max_iterations && norm > kTolerance * kTolerance * first; ++step) {
      const double sum = pass(false, direction);
      JoinedSums<2> of_product;  // curvature, and lambda's element of the product
      for_points(columns_, team_, [&](int j) {
        const double v = at(columns_, Array::kValues, j), weight = sum_of(columns_, j);
        const double product = diagonal(j) * v + weight * (pass_result(j) + direction);
        at(columns_, Array::kProduct, j) = product;
        of_product.of[0] += v * product;
        of_product.of[1] += weight * v;
      });
      of_product = team_.joined(of_product);
      const double product = partial ? lambda_diagonal * direction + of_product.of[1] + sum : 0.0;
      const double curvature = of_product.of[0] + direction * product;
      if (!(curvature > 0)) break;
      const double length = norm / curvature;
      lambda_ += length * direction;
      residual -= length * product;
      JoinedSums<1> of_residual;
      for_points(columns_, team_, [&](int j) {
        at(columns_, Array::kSolution, j) += length * at(columns_, Array::kValues, j);
        at(columns_, Array::kResidual, j) -= length * at(columns_, Array::kProduct, j);
        of_residual.of[0] += at(columns_, Array::kResidual, j) * preconditioned(j);
      });
      const double next = team_.joined(of_residual).of[0] + residual * lambda_preconditioned(residual);
      const double ratio = next / norm;
      direction = lambda_preconditioned(residual) + ratio * direction;
      for_points(columns_, team_, [&](int j) {
        at(columns_, Array::kValues, j) = preconditioned(j) + ratio * at(columns_, Array::kValues, j);
      });
      norm = next;
    }
    return {step, first > 0 ? sqrt(norm / first) : (first == 0 ? 0.0 : first)};
  }

  // Computes the derivatives of all potentials from the solution, also those of points without weight.
  __device__ __attribute__((noinline)) void finish() {
    for_points(columns_, team_,
               [&](int j) { at(columns_, Array::kValues, j) = at(columns_, Array::kSolution, j); });
    static_cast<void>(pass(true, lambda_));
    for_points(rows_, team_, [&](int i) { at(rows_, Array::kPotential, i) = at(rows_, Array::kValues, i); });
    for_points(columns_, team_, [&](int j) {
      double to = at(columns_, Array::kSolution, j);
      if (moves(columns_, j) && sum_of(columns_, j) == 0) {
        to = tau(columns_) * (at(columns_, Array::kRight, j) - lambda_ - pass_result(j));
      }
      at(columns_, Array::kPotential, j) = to;
    });
    numbers_.lambda = lambda_;
  }

  // Moves the open constant so that the means of both potentials over points with weight are equal.
  __device__ __attribute__((noinline)) void centre() {
    JoinedSums<2> mine;
    for (const int k : {0, 1}) {
      const Side<Real>& side = k == 0 ? rows_ : columns_;
      for_points(side, team_, [&](int i) {
        if (side.weight(i) > 0) mine.of[k] += at(side, Array::kPotential, i);
      });
    }
    const JoinedSums<2> all = team_.joined(mine);
    const double apart = (all.of[0] / with_weight_[0] - all.of[1] / with_weight_[1]) / 2;
    for_points(rows_, team_, [&](int i) { at(rows_, Array::kPotential, i) -= apart; });
    for_points(columns_, team_, [&](int j) { at(columns_, Array::kPotential, j) += apart; });
  }

  __device__ __forceinline__ void write(double value, const Outcome& outcome) {
    const TangentTotals totals = moved_sums(p_.plan);
    for (const bool of_rows : {true, false}) {
      const Side<Real>& side = of_rows ? rows_ : columns_;
      if (side.p.grad_points) tiles().write_gradient_tangent(pass_, of_rows, numbers_, side.p.grad_points);
    }
    write_side(rows_, numbers_.lambda, columns_.total, reference_moved_[1]);
    write_side(columns_, 0, rows_.total, reference_moved_[0]);
    if (team_.rank > 0 || threadIdx.x > 0) return;
    const double reference_moved = reference_moved_[0] * columns_.total + rows_.total * reference_moved_[1];
    set(p_.value, value);
    set(p_.linear, totals.linear_moved);
    set(p_.grad_epsilon, totals.kl_moved - totals.mass_moved + reference_moved);
    set(p_.error, outcome.error);
    if (p_.iterations) p_.iterations[rows_.b] = outcome.steps;
  }
  __device__ __forceinline__ void set(Real* output, double v) const {
    if (output) output[rows_.b] = static_cast<Real>(v);
  }
  // other: the sum of the other side's reference weights.
  __device__ __forceinline__ void write_side(const Side<Real>& side, double lambda, double other,
                                             double other_moved) const {
    Real* const potential = side.p.potential ? side.p.potential + side.row_of_batch() : nullptr;
    Real* const gradient = side.p.grad_weights ? side.p.grad_weights + side.row_of_batch() : nullptr;
    for_points(side, team_, [&](int i) {
      const double w = side.current()[i], moved = at(side, Array::kPotential, i);
      const bool exists = !isinf(w);
      if (potential) potential[i] = exists ? static_cast<Real>(moved + lambda) : Real(0);
      if (!gradient) return;
      double by_weight = exists ? bend(side, w) * moved : 0.0;
      if (exists && side.product) {
        by_weight -= numbers_.epsilon * (at(side, Array::kRatio, i) - other);
        by_weight -= s_.epsilon * (at(side, Array::kRatioMoved, i) - other_moved);
      }
      gradient[i] = static_cast<Real>(by_weight);
    });
    for_padding(side, team_, [&](int i) {
      if (potential) potential[i] = 0;
      if (gradient) gradient[i] = 0;
    });
  }
  // d slope / d potential, of Marginal::slope.
  [[nodiscard]] __device__ __forceinline__ double bend(const Side<Real>& side, double w) const {
    const Marginal& m = side.marginal;
    if (m.partial || isinf(m.strength)) return 1.0;
    return m.strength == 0 ? 0.0 : exp(-s_.epsilon / kLog2E<double> * w / m.strength);
  }

  const SolveParams<Real>& p_;
  Team& team_;
  Solver<Tiles> s_;
  Side<Real>& rows_;
  Side<Real>& columns_;
  Pass pass_{};
  TangentNumbers numbers_{};
  double with_weight_[2] = {};
  double reference_moved_[2] = {};  // derivatives of the sums of the reference's weights
  double mass_right_ = 0;
  double lambda_ = 0;
};

// Differentiates the problems of the batch: a team takes one after the other.
template <class Costs>
__global__ void __launch_bounds__(Costs::kMostThreads, Costs::kBlocks)
    jvp_kernel(const __grid_constant__ SolveParams<typename Costs::Real> p) {
  const int blocks = p.layout.team_blocks;
  const int index = static_cast<int>(blockIdx.x) / blocks;
  Team team(index, static_cast<int>(blockIdx.x) % blocks, blocks, p.arrivals + index,
            p.records + static_cast<std::size_t>(index) * 2 * blocks * kRecordBytes);
  for (int b = index; b < p.batch; b += p.layout.teams) {
    Jvp<typename Costs::Real>(p, team, b).run();
    team.barrier();  // the next problem's arrays overwrite this one's
  }
}

}  // namespace warpalign::detail::transport
