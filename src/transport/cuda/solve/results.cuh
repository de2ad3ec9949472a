// The results of one problem: one more pass over the costs, at the potentials of the solution.
#pragma once

#include "transport/cuda/solve/solver.cuh"

namespace warpalign::detail::transport {

// Sums over both sides and the plan.
struct Objective {
  double linear = 0;  // <C, P>, C not scaled
  double logits = 0;  // sum P t
  double mass = 0;    // sum P
  double value = 0;   // the sides' part of the dual
  double error = 0;   // the largest change of a potential by a further update, in bits

  __device__ __forceinline__ void join(const Objective& other) {
    linear += other.linear;
    logits += other.logits;
    mass += other.mass;
    value += other.value;
    error = larger(error, other.error);
  }
};

template <class Costs>
class Results {
 public:
  using Real = typename Costs::Real;

  __device__ __forceinline__ Results(const SolveParams<Real>& p, Team& team, Solver<Costs>& solver)
      : p_(p), team_(team), s_(solver), is_nan_(solver.is_nan()) {}

  __device__ __forceinline__ void write() const {
    Pass pass = s_.pass_at_current();
    pass.rows = pass.columns = true;
    pass.is_nan = is_nan_;
    PlanSums sums;
    s_.costs().template run<PassKind::kEvaluate>(pass, sums);
    s_.costs().write_gradients(pass);
    team_.barrier();
    Objective mine;
    mine.linear = sums.linear;
    mine.logits = sums.logits;
    write_side(s_.rows, s_.columns, true, mine);
    write_side(s_.columns, s_.rows, false, mine);
    const Objective all = team_.joined(mine);
    if (team_.rank > 0 || threadIdx.x > 0) return;
    const double totals = s_.rows.total * s_.columns.total;
    double value = s_.epsilon * (totals - all.mass) + all.value;
    if (p_.mass > 0) value += s_.epsilon / kLog2E<double> * s_.lambda * p_.mass;
    set(p_.shift, s_.epsilon / kLog2E<double> * s_.lambda);
    set(p_.value, value);
    const double linear = p_.cost_scale * all.linear;
    const double kl = all.logits / kLog2E<double> - all.mass + totals;
    set(p_.linear, linear);
    set(p_.grad_epsilon, kl);
    double error = all.error / kLog2E<double>;
    for (const double v : {value, linear, kl}) {
      error = error_beside(static_cast<double>(static_cast<Real>(v)), error);
    }
    set(p_.error, error);
    if (p_.iterations) p_.iterations[s_.rows.b] = min(s_.iterations, p_.max_iterations);
  }

 private:
  [[nodiscard]] __device__ __forceinline__ Real result(double v) const {
    return static_cast<Real>(is_nan_ ? CUDART_NAN : v);
  }
  __device__ __forceinline__ void set(Real* output, double v) const {
    if (output) output[s_.rows.b] = result(v);
  }

  __device__ __forceinline__ void write_side(const Side<Real>& side, const Side<Real>& other, bool adds_mass,
                                             Objective& mine) const {
    const double bits = s_.epsilon / kLog2E<double>;
    Real* const potential = side.p.potential ? side.p.potential + side.row_of_batch() : nullptr;
    Real* const gradient = side.p.grad_weights ? side.p.grad_weights + side.row_of_batch() : nullptr;
    // sum: that of the plan's row (or column) over its weight in the reference.
    for_totals<false>(side, team_, [&](int i, double sum) {
      const double w = side.current()[i], weight = side.weight(i);
      if (adds_mass) mine.mass += side.reference(weight) * sum;
      mine.value += side.marginal.conjugate(bits * w, weight);
      mine.error = larger(mine.error, side.marginal.move_left(w, side.target(weight), sum, s_.epsilon));
      if (potential) potential[i] = result(bits * (w + (side.p.has_lambda ? s_.lambda : 0.0)));
      if (gradient) {
        const double slope = side.marginal.slope(bits * w);
        gradient[i] = result(side.product ? slope - s_.epsilon * (sum - other.total) : slope);
      }
    });
    for_padding(side, team_, [&](int i) {
      if (potential) potential[i] = 0;
      if (gradient) gradient[i] = 0;
    });
  }

  const SolveParams<Real>& p_;
  Team& team_;
  Solver<Costs>& s_;
  const bool is_nan_;
};

// Solves the problems of the batch. A team takes one after the other.
template <class Costs>
__global__ void __launch_bounds__(Costs::kMostThreads, Costs::kBlocks)
    sinkhorn_kernel(const __grid_constant__ SolveParams<typename Costs::Real> p) {
  const int blocks = p.layout.team_blocks;
  const int index = static_cast<int>(blockIdx.x) / blocks;
  Team team(index, static_cast<int>(blockIdx.x) % blocks, blocks, p.arrivals + index,
            p.records + static_cast<std::size_t>(index) * 2 * blocks * kRecordBytes);
  for (int b = index; b < p.batch; b += p.layout.teams) {
    Solver<Costs> solver(p, team, b);
    solver.run();
    Results<Costs>(p, team, solver).write();
    team.barrier();  // the next problem's potentials and sums overwrite this one's
  }
}

}  // namespace warpalign::detail::transport
