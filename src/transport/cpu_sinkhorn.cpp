// The CPU path of sinkhorn(): the course of a solve, and its outputs.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>

#include "transport/cpu_evaluate.h"
#include "transport/cpu_problem.h"
#include "transport/problem.h"

namespace warpalign::detail::transport {
namespace {

struct SolveCall {
  const SinkhornProblem& p;
  const SinkhornOutputs& out;
};

template <class Real>
class Solve {
 public:
  Solve(Arena& arena, const SolveCall& call, int threads)
      : p_(call.p), out_(call.out), problem_(arena, call.p, threads, true), s_(problem_.solver) {}

  void run(int b, const BlockTeam& team) {
    b_ = b;
    problem_.bind(b, team);
    const double epsilon = problem_.epsilon(b);
    s_.plan_sums.wanted = wants_no_more() && !(p_.mass > 0);
    write(iterate(epsilon));
  }

 private:
  // Returns the number of iterations at the final epsilon.
  int iterate(double epsilon) {
    const int symmetric = symmetric_iterations(p_);
    int k = 0;
    if (symmetric > 0) {
      while (s_.epsilon > epsilon) {
        s_.symmetric_step();
        s_.set_epsilon(std::max(epsilon, s_.epsilon * p_.epsilon_factor));
      }
      while (k < symmetric && !s_.is_nan()) {
        s_.symmetric_step();
        ++k;
        if (has_stopped()) return k;
      }
      if (k == p_.max_iterations || s_.is_nan()) return k;
      s_.set_epsilon(s_.epsilon);  // what is known of the next sums is that of symmetric updates
    }
    return alternate(epsilon, k);
  }

  // done: iterations before.
  int alternate(double epsilon, int done) {
    s_.start();
    while (s_.epsilon > epsilon) {
      s_.finish();
      s_.set_epsilon(std::max(epsilon, s_.epsilon * p_.epsilon_factor));
      s_.start();
    }
    int k = done + 1;
    for (; k < p_.max_iterations && !s_.is_nan(); ++k) {
      s_.step();
      if (has_stopped()) {
        ++k;
        break;
      }
    }
    s_.finish();
    return std::min(k, p_.max_iterations);
  }

  [[nodiscard]] bool has_stopped() const { return s_.moved() < p_.tolerance * kLog2E<double>; }

  void write(int iterations) {
    const std::int64_t n = p_.n, m = p_.m, dim = p_.dim;
    Real* const grad_x = place(out_.grad_x, n * dim);
    Real* const grad_y = place(out_.grad_y, m * dim);
    Real* const grad_cost = place(out_.grad_cost, n * m);
    for (auto [output, size] : {std::pair{grad_x, n * dim}, {grad_y, m * dim}, {grad_cost, n * m}}) {
      if (output) std::fill_n(output, size, Real(0));
    }
    CpuEvaluation<Real> evaluation(s_, problem_.block_results);
    PlanTotals totals = s_.plan_sums.known ? PlanTotals{s_.plan_sums.linear, s_.plan_sums.mass, 0}
                                           : evaluation.run(grad_x, grad_cost, m);
    double value = evaluation.value(totals);
    if (s_.is_nan()) value = totals.linear = totals.kl = std::numeric_limits<double>::quiet_NaN();
    set(out_.value, value);
    set(out_.shift, s_.is_nan() ? value : s_.epsilon / kLog2E<double> * s_.lambda);
    set(out_.linear, totals.linear);
    set(out_.grad_epsilon, totals.kl);
    double error = s_.is_nan() ? value : evaluation.error();
    for (const double v : {value, totals.linear, totals.kl}) {
      error = error_beside(static_cast<double>(static_cast<Real>(v)), error);
    }
    set(out_.error, error);
    if (out_.iterations) out_.iterations[b_] = iterations;
    write_side(evaluation, s_.rows, s_.columns, n, out_.f, out_.grad_a, s_.lambda);
    write_side(evaluation, s_.columns, s_.rows, m, out_.g, out_.grad_b, 0);
    if (grad_y) {
      problem_.exchange_sides();
      evaluation.run(grad_y, static_cast<Real*>(nullptr), 0);
      problem_.exchange_sides(false);
    }
    if (s_.is_nan()) write_nan();
  }

  // Whether no outputs but potentials, the value and <C, P> are requested.
  [[nodiscard]] bool wants_no_more() const {
    return !out_.grad_x && !out_.grad_y && !out_.grad_cost && !out_.grad_a && !out_.grad_b &&
           !out_.grad_epsilon && !out_.error;
  }

  // Sets all outputs to NaN: a NaN among the costs ends a solve early, before it reaches every output.
  void write_nan() const {
    const int n = s_.rows.count, m = s_.columns.count, dim = p_.dim;
    const auto fill = [](Real* to, int rows, int columns, std::int64_t stride) {
      for (int i = 0; to && i < rows; ++i) {
        std::fill_n(to + i * stride, columns, std::numeric_limits<Real>::quiet_NaN());
      }
    };
    fill(place(out_.f, p_.n), 1, n, 0);
    fill(place(out_.g, p_.m), 1, m, 0);
    fill(place(out_.grad_a, p_.n), 1, n, 0);
    fill(place(out_.grad_b, p_.m), 1, m, 0);
    fill(place(out_.grad_x, std::int64_t{p_.n} * dim), n, dim, dim);
    fill(place(out_.grad_y, std::int64_t{p_.m} * dim), m, dim, dim);
    fill(place(out_.grad_cost, std::int64_t{p_.n} * p_.m), n, m, p_.m);
  }

  void write_side(const CpuEvaluation<Real>& evaluation, const CpuSide<Real>& side,
                  const CpuSide<Real>& other, std::int64_t length, void* potential, void* gradient,
                  double lambda) const {
    const bool product = p_.reference == TransportReference::kProduct;
    const double other_sum = evaluation.sum_of(other);
    Real* const to = place(potential, length);
    Real* const grad = place(gradient, length);
    for (std::int64_t i = 0; i < length; ++i) {
      const bool exists = i < side.count;
      const int at = static_cast<int>(i);
      if (to)
        to[i] = exists ? static_cast<Real>(s_.epsilon / kLog2E<double> * (side.w[at] + lambda)) : Real(0);
      if (grad)
        grad[i] =
            exists ? static_cast<Real>(evaluation.weight_gradient(side, other_sum, product, at)) : Real(0);
    }
  }

  void set(void* output, double v) const {
    if (output) static_cast<Real*>(output)[b_] = static_cast<Real>(v);
  }

  [[nodiscard]] Real* place(void* output, std::int64_t length) const {
    return row_of<Real>(output, length, b_);
  }

  const SinkhornProblem& p_;
  const SinkhornOutputs& out_;
  CpuProblem<Real> problem_;
  CpuSolver<Real>& s_;
  int b_ = 0;
};

}  // namespace

std::size_t sinkhorn_cpu_workspace_bytes(const SinkhornProblem& p, const SinkhornOutputs& out,
                                         const Execution& execution) {
  return workspace_bytes_of<Solve>(SolveCall{p, out}, execution);
}

Status check_way_cpu(const SinkhornProblem&, const Execution& execution) {
  if (Status s = check_way(execution, cpu::kThreadWays, "sinkhorn() on a CPU"); !s.ok()) return s;
  return check_serves(named_way(execution, cpu::kThreadWays), cpu::kThreadWays, [&](int way) -> const char* {
    const bool shares = cpu::ThreadWay(way) == cpu::ThreadWay::kWithinItems;
    return shares && cpu::Team::threads_of(execution) < 2 ? "it takes two threads or more" : nullptr;
  });
}

Status sinkhorn_cpu(const SinkhornProblem& p, const SinkhornOutputs& out, Workspace workspace,
                    const Execution& execution) {
  run_batch<Solve>("sinkhorn", SolveCall{p, out}, workspace, execution);
  return {};
}

}  // namespace warpalign::detail::transport
