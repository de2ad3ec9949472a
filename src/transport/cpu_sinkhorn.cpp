// The CPU path of sinkhorn(): memory, packing, the course of a solve, outputs.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "core/arena.h"
#include "cpu/dispatch.h"
#include "transport/cpu_evaluate.h"
#include "transport/cpu_solver.h"
#include "transport/problem.h"

namespace warpalign::detail::transport {
namespace {

const CpuKernels& selected_kernels() {
  return cpu::with_selected_isa([](auto isa) -> const CpuKernels& { return kernels_for(isa); });
}

// With so many elements a problem is worth several threads.
constexpr std::int64_t kElementsWorthThreads = 1 << 16;

// How threads are shared out: over problems, or over the rows of one problem after the other.
struct Division {
  int problems;  // at once
  int threads;   // of each

  Division(const SinkhornProblem& p, const Execution& execution) {
    const int threads_given = execution.parallel_for.run ? std::max(execution.parallel_for.threads, 1) : 1;
    const bool large = static_cast<std::int64_t>(p.n) * p.m >= kElementsWorthThreads;
    const bool inside = large && p.batch < 4 * threads_given;
    problems = inside ? 1 : std::clamp(p.batch, 1, threads_given);
    threads = inside ? std::min(threads_given, kMostBlocks) : 1;
  }
};

// The memory of one problem that is worked on.
template <class Real>
struct Memory {
  CpuSolver<Real> solver;
  double* block_results;

  Memory(Arena& arena, const SinkhornProblem& p, int threads) {
    lay_out(arena, p, p.n, solver.rows);
    lay_out(arena, p, p.m, solver.columns);
    const int longest = padded(std::max(p.n, p.m));
    solver.block_sums = arena.take<Real>(static_cast<std::size_t>(kMostBlocks) * longest);
    solver.block_totals = arena.take<double>(static_cast<std::size_t>(kMostBlocks) * longest);
    block_results = arena.take<double>(3 * kMostBlocks);
    solver.scratch = arena.take<CpuScratch<Real>>(threads);
    for (int k = 0; k < threads; ++k) {
      CpuScratch<Real> own{arena.take<Real>(longest), arena.take<Real>(longest), arena.take<Real>(p.dim),
                           arena.take<double>(p.dim)};
      if (solver.scratch) solver.scratch[k] = own;
    }
  }

 private:
  static void lay_out(Arena& arena, const SinkhornProblem& p, int length, CpuSide<Real>& side) {
    const std::size_t count = padded(length);
    for (double** array : {&side.w, &side.old, &side.free, &side.spare, &side.weight, &side.target}) {
      *array = arena.take<double>(count);
    }
    for (Real** array : {&side.reference, &side.hi, &side.lo}) *array = arena.take<Real>(count);
    if (p.cost.data) return;
    side.points = arena.take<Real>(count * p.dim);
    if (p.cost_kind == CostKind::kCosine) side.lengths = arena.take<Real>(count);
  }
};

// One call on one problem of the batch. Storage: the element type of inputs and outputs.
template <class Real>
class Solve {
 public:
  Solve(const SinkhornProblem& p, const SinkhornOutputs& out, int b, Arena& arena, const BlockTeam& team,
        int threads)
      : p_(p), out_(out), b_(b), memory_(arena, p, threads), s_(memory_.solver) {
    s_.team = &team;
    s_.kernels = &kernels_of<Real>(selected_kernels());
    s_.cost_scale = p.cost_scale;
    s_.mass = p.mass;
    s_.costs.kind = p.cost_kind;
    s_.costs.dim = p.cost.data ? 0 : p.dim;
    if (p.cost.data) {
      s_.costs.matrix = static_cast<const Real*>(p.cost.data) + b * p.cost.stride[0];
      s_.costs.row_stride = p.cost.stride[1];
      s_.costs.column_stride = p.cost.stride[2];
    }
    bind(s_.rows, p.a, p.x, p.n, p.f0);
    bind(s_.columns, p.b, p.y, p.m, p.g0);
  }

  void run() {
    const double epsilon =
        p_.epsilons ? static_cast<double>(static_cast<const Real*>(p_.epsilons)[b_]) : p_.epsilon;
    s_.epsilon = std::max(epsilon, p_.epsilon_start);
    for (CpuSide<Real>* side : {&s_.rows, &s_.columns}) {
      for (int i = 0; i < side->count; ++i) side->w[i] *= kLog2E<double> / s_.epsilon;
    }
    const int iterations =
        p_.updates == SinkhornUpdates::kSymmetric ? run_symmetric(epsilon) : run_alternating(epsilon);
    write(iterations);
  }

 private:
  int run_alternating(double epsilon) {
    s_.start();
    while (s_.epsilon > epsilon) {
      s_.finish();
      s_.set_epsilon(std::max(epsilon, s_.epsilon * p_.epsilon_factor));
      s_.start();
    }
    int k = 1;
    for (; k < p_.max_iterations && !s_.is_nan(); ++k) {
      s_.step();
      if (s_.moved() < p_.tolerance * kLog2E<double>) {
        ++k;
        break;
      }
    }
    s_.finish();
    return std::min(k, p_.max_iterations);
  }

  int run_symmetric(double epsilon) {
    while (s_.epsilon > epsilon) {
      s_.symmetric_step();
      s_.set_epsilon(std::max(epsilon, s_.epsilon * p_.epsilon_factor));
    }
    int k = 0;
    while (k < p_.max_iterations && !s_.is_nan()) {
      s_.symmetric_step();
      ++k;
      if (s_.moved() < p_.tolerance * kLog2E<double>) break;
    }
    return k;
  }

  void bind(CpuSide<Real>& side, const TransportSide& of, const StridedTensor& points, int length,
            const void* start) {
    side.count = of.lengths ? of.lengths[b_] : length;
    side.marginal = {p_.mass > 0, of.strength};
    const bool product = p_.reference == TransportReference::kProduct;
    const Real* const weights = of.weights ? static_cast<const Real*>(of.weights) + row_of(length) : nullptr;
    const Real* const from = start ? static_cast<const Real*>(start) + row_of(length) : nullptr;
    for (Real* array : {side.reference, side.hi, side.lo}) std::fill_n(array, padded(length), Real(0));
    for (int i = 0; i < side.count; ++i) {
      side.weight[i] = weights ? static_cast<double>(weights[i]) : 1.0 / side.count;
      side.reference[i] = product ? static_cast<Real>(side.weight[i]) : Real(1);
      side.target[i] = product ? 0.0 : std::log2(side.weight[i]);
      side.w[i] = from ? static_cast<double>(from[i]) : 0.0;  // in units of the cost until run()
    }
    if (side.points) pack(side, points);
  }

  void pack(CpuSide<Real>& side, const StridedTensor& from) {
    const Real* const points = static_cast<const Real*>(from.data) + b_ * from.stride[0];
    const std::ptrdiff_t stride = padded(side.count);
    for (int i = 0; i < side.count; ++i) {
      double square = 0;
      for (int d = 0; d < p_.dim; ++d) {
        const Real value = points[i * from.stride[1] + d * from.stride[2]];
        side.points[d * stride + i] = value;
        square += static_cast<double>(value) * static_cast<double>(value);
      }
      if (!side.lengths) continue;
      const double length = std::sqrt(square);
      side.lengths[i] = static_cast<Real>(length);
      for (int d = 0; d < p_.dim && length > 0; ++d) {
        side.points[d * stride + i] =
            static_cast<Real>(static_cast<double>(side.points[d * stride + i]) / length);
      }
    }
    for (int d = 0; d < p_.dim; ++d) {
      std::fill(side.points + d * stride + side.count, side.points + (d + 1) * stride, Real(0));
    }
  }

  [[nodiscard]] std::int64_t row_of(std::int64_t length) const { return b_ * length; }

  // Row b of an output whose rows have `length` elements; null: not wanted.
  [[nodiscard]] Real* place(void* output, std::int64_t length) const {
    return output ? static_cast<Real*>(output) + b_ * length : nullptr;
  }

  void write(int iterations) {
    const std::int64_t n = p_.n, m = p_.m, dim = p_.dim;
    Real* const grad_x = place(out_.grad_x, n * dim);
    Real* const grad_y = place(out_.grad_y, m * dim);
    Real* const grad_cost = place(out_.grad_cost, n * m);
    for (auto [output, size] : {std::pair{grad_x, n * dim}, {grad_y, m * dim}, {grad_cost, n * m}}) {
      if (output) std::fill_n(output, size, Real(0));
    }
    CpuEvaluation<Real> evaluation(s_, memory_.block_results);
    PlanTotals totals = evaluation.run(grad_x, grad_cost, m);
    double value = evaluation.value(totals);
    if (s_.is_nan()) value = totals.linear = totals.kl = std::numeric_limits<double>::quiet_NaN();
    set(out_.value, value);
    set(out_.shift, s_.is_nan() ? value : s_.epsilon / kLog2E<double> * s_.lambda);
    set(out_.linear, totals.linear);
    set(out_.grad_epsilon, totals.kl);
    set(out_.error, s_.is_nan() ? value : evaluation.error());
    if (out_.iterations) out_.iterations[b_] = iterations;
    write_side(evaluation, s_.rows, s_.columns, n, out_.f, out_.grad_a, s_.lambda);
    write_side(evaluation, s_.columns, s_.rows, m, out_.g, out_.grad_b, 0);
    if (grad_y) {
      std::swap(s_.rows, s_.columns);
      evaluation.run(grad_y, static_cast<Real*>(nullptr), 0);
      std::swap(s_.rows, s_.columns);
    }
    if (s_.is_nan()) write_nan();
  }

  // One NaN among the costs has not come to every output of a solve that it ended early.
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
    Real* const to = place(potential, length);
    Real* const grad = place(gradient, length);
    for (std::int64_t i = 0; i < length; ++i) {
      const bool exists = i < side.count;
      const int at = static_cast<int>(i);
      if (to)
        to[i] = exists ? static_cast<Real>(s_.epsilon / kLog2E<double> * (side.w[at] + lambda)) : Real(0);
      if (grad)
        grad[i] = exists ? static_cast<Real>(evaluation.weight_gradient(side, other, product, at)) : Real(0);
    }
  }

  void set(void* output, double v) const {
    if (output) static_cast<Real*>(output)[b_] = static_cast<Real>(v);
  }

  const SinkhornProblem& p_;
  const SinkhornOutputs& out_;
  const std::int64_t b_;
  Memory<Real> memory_;
  CpuSolver<Real>& s_;
};

template <class Real>
std::size_t bytes_of_one(const SinkhornProblem& p, int threads) {
  Arena arena;
  const Memory<Real> memory(arena, p, threads);
  return arena.used();
}

template <class Real>
void run_all(const SinkhornProblem& p, const SinkhornOutputs& out, Workspace workspace,
             const Execution& execution) {
  const Division division(p, execution);
  const std::size_t bytes = bytes_of_one<Real>(p, division.threads);
  const BlockTeam inside(execution.parallel_for, division.threads);
  const BlockTeam outside(execution.parallel_for, division.problems);
  outside.run(p.batch, [&](int b, int worker) {
    Arena arena(static_cast<std::byte*>(workspace.data) + worker * bytes);
    Solve<Real>(p, out, b, arena, inside, division.threads).run();
  });
}

}  // namespace

std::size_t sinkhorn_cpu_workspace_bytes(const SinkhornProblem& p, const SinkhornOutputs&,
                                         const Execution& execution) {
  const Division division(p, execution);
  return division.problems * (p.dtype == DType::kFloat64 ? bytes_of_one<double>(p, division.threads)
                                                         : bytes_of_one<float>(p, division.threads));
}

Status sinkhorn_cpu(const SinkhornProblem& p, const SinkhornOutputs& out, Workspace workspace,
                    const Execution& execution) {
  if (p.dtype == DType::kFloat64) {
    run_all<double>(p, out, workspace, execution);
  } else {
    run_all<float>(p, out, workspace, execution);
  }
  return {};
}

}  // namespace warpalign::detail::transport
