// What every entry point of the CPU path does with a batch: threads shared out, memory laid out, a problem of
// the batch brought into it.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>

#include "core/arena.h"
#include "core/ways.h"
#include "cpu/describe.h"
#include "cpu/dispatch.h"
#include "transport/cpu_solver.h"
#include "transport/tuning.h"
#include "warpalign/sinkhorn.h"

namespace warpalign::detail::transport {

inline const CpuKernels& selected_kernels() {
  return cpu::with_selected_isa([](auto isa) -> const CpuKernels& { return kernels_for(isa); });
}

// A solve of larger exponentials keeps none (CpuKept), and one of larger exponentials and costs stores no
// costs.
constexpr std::int64_t kMostKeptBytes = std::int64_t{1} << 28;

constexpr std::int64_t bytes_of(DType dtype) { return dtype == DType::kFloat64 ? 8 : 4; }

// Bytes of exponentials or costs (rows, padded columns).
inline std::int64_t bytes_of_pairs(DType dtype, std::int64_t rows, int columns) {
  return bytes_of(dtype) * rows * padded(columns);
}

// Bytes of stored costs of points, with either side as rows; 0: a solve stores none.
inline std::int64_t bytes_of_costs(const SinkhornProblem& p) {
  if (p.cost.data || p.dim < cpu_tuning(cpu::selected_isa()).stored_features) return 0;
  const std::int64_t bytes = std::max(bytes_of_pairs(p.dtype, p.n, p.m), bytes_of_pairs(p.dtype, p.m, p.n));
  return 2 * bytes <= kMostKeptBytes ? bytes : 0;
}

// How threads are shared out: over problems, or over the rows of one problem after the other.
struct Division {
  int problems;  // at once
  int threads;   // of each
  bool within;   // threads share each problem

  Division(const SinkhornProblem& p, const Execution& execution) {
    const int threads_given = execution.parallel_for.run ? std::max(execution.parallel_for.threads, 1) : 1;
    const std::int64_t elements = static_cast<std::int64_t>(p.n) * p.m;
    const bool large = elements >= cpu_tuning(cpu::selected_isa()).thread_elements;
    // What problems keep at once stays below kMostKeptBytes.
    const std::int64_t kept = bytes_of_pairs(p.dtype, p.n, p.m) + bytes_of_costs(p);
    const bool heavy = kept > kMostKeptBytes / threads_given;
    bool inside = (large && p.batch < 4 * threads_given) || heavy;
    if (const int way = named_way(execution, cpu::kThreadWays); way >= 0) {
      inside = cpu::ThreadWay(way) == cpu::ThreadWay::kWithinItems;
    }
    problems = inside ? 1 : std::clamp(p.batch, 1, threads_given);
    threads = inside ? std::min(threads_given, kMostBlocks) : 1;
    within = inside;
  }

  void describe(const char* name, const SinkhornProblem& p, const Execution& execution, std::size_t bytes,
                PlanLog& log) const {
    const cpu::ThreadWay way = within ? cpu::ThreadWay::kWithinItems : cpu::ThreadWay::kAcrossBatch;
    const char* why = "problems are small, or many for the threads";
    if (within) why = "problems are large, and few for the threads or for the memory";
    log.begin(name, cpu::name_of_threads(execution));
    log.way(cpu::kThreadWays[static_cast<int>(way)], names_way(execution) ? "named by Execution::way" : why);
    log.line("sizes", std::to_string(p.batch) + " problems of " + std::to_string(p.n) + " x " +
                          std::to_string(p.m) + (p.cost.data ? " costs" : " points"));
    log.line("workers",
             std::to_string(problems) + " problems at a time, " + std::to_string(threads) + " threads each");
    log.memory("problems at work", problems * bytes);
  }
};

// Row b of an array (B, length); null stays null.
template <class Real>
const Real* row_of(const void* data, std::int64_t length, int b) {
  return data ? static_cast<const Real*>(data) + b * length : nullptr;
}
template <class Real>
Real* row_of(void* data, std::int64_t length, int b) {
  return data ? static_cast<Real*>(data) + b * length : nullptr;
}

// The memory of one problem that is worked on, and what of the problem is in it.
template <class Real>
struct CpuProblem {
  using Side = CpuSide<Real>;

  const SinkhornProblem& p;
  const int threads;
  CpuSolver<Real> solver;
  double* block_results;

  // keeps: whether the solver may keep exponentials and store costs. Whether it keeps exponentials depends on
  // the problem's true size, and neither on its padding nor on threads; whether costs are stored changes no
  // bits. So the bits do not depend on padding and threads either.
  CpuProblem(Arena& arena, const SinkhornProblem& problem, int threads_of_it, bool keeps = false)
      : p(problem), threads(threads_of_it) {
    const bool iterates = p.max_iterations >= cpu_tuning(cpu::selected_isa()).kept_iterations;
    if (keeps && iterates) {
      lay_out_kept(arena);
      if (const std::int64_t bytes = bytes_of_costs(p)) {
        stored_ = arena.take<Real>(static_cast<std::size_t>(bytes) / sizeof(Real));
      }
    }
    lay_out(arena, p.n, solver.rows);
    lay_out(arena, p.m, solver.columns);
    const int longest = padded(std::max(p.n, p.m));
    solver.sums.partial = arena.take<Real>(static_cast<std::size_t>(kMostBlocks) * longest);
    solver.sums.totals = arena.take<double>(static_cast<std::size_t>(kMostBlocks) * longest);
    block_results = arena.take<double>(kBlockResults * kMostBlocks);
    solver.scratch = arena.take<CpuScratch<Real>>(threads);
    for (int k = 0; k < threads; ++k) {
      CpuScratch<Real> own{arena.take<Real>(std::size_t{kCpuRows} * longest),
                           arena.take<Real>(std::size_t{kCpuRows} * longest),
                           arena.take<Real>(std::size_t{kCpuRows} * p.dim),
                           arena.take<double>(std::size_t{kCpuRows} * p.dim), longest};
      if (solver.scratch) solver.scratch[k] = own;
    }
  }

  // Problem b. Potentials start at f0 and g0, in bits of the largest epsilon.
  void bind(int b, const BlockTeam& team) {
    solver.team = &team;
    solver.kernels = &kernels_of<Real>(selected_kernels());
    solver.cost_scale = p.cost_scale;
    solver.mass = p.mass;
    solver.costs = {};
    solver.costs.kind = p.cost_kind;
    solver.costs.dim = p.cost.data ? 0 : p.dim;
    if (p.cost.data) {
      if (p.half_cost) {
        solver.costs.halves = static_cast<const std::uint16_t*>(p.cost.data) + b * p.cost.stride[0];
      } else {
        solver.costs.matrix = static_cast<const Real*>(p.cost.data) + b * p.cost.stride[0];
      }
      solver.costs.row_stride = p.cost.stride[1];
      solver.costs.column_stride = p.cost.stride[2];
    }
    solver.epsilon = std::max(epsilon(b), p.epsilon_start);
    solver.lambda = 0;
    solver.certified = false;
    solver.plan_sums = {};
    bind(solver.rows, p.a, p.x, p.n, p.f0, b);
    bind(solver.columns, p.b, p.y, p.m, p.g0, b);
    solver.all_weigh = weighs(solver.rows) && weighs(solver.columns);
    if (stored_) solver.store_costs(stored_);
    solver.kept = bytes_of_pairs(p.dtype, solver.rows.count, solver.columns.count) <= kMostKeptBytes
                      ? kept_
                      : CpuKept<Real>{};
  }

  [[nodiscard]] double epsilon(int b) const {
    return p.epsilons ? static_cast<double>(static_cast<const Real*>(p.epsilons)[b]) : p.epsilon;
  }

  // Rows become columns and columns rows. needs_costs: whether a pass over them follows.
  void exchange_sides(bool needs_costs = true) {
    std::swap(solver.rows, solver.columns);
    std::swap(solver.costs.row_stride, solver.costs.column_stride);
    if (stored_ && needs_costs) solver.store_costs(stored_);
  }

 private:
  static constexpr int kBlockResults = 8;  // numbers of one block

  static bool weighs(const Side& side) {
    return std::find(side.reference, side.reference + side.count, Real(0)) == side.reference + side.count;
  }

  void lay_out_kept(Arena& arena) {
    // True lengths may be small where the padded ones are not.
    const std::int64_t needed = bytes_of_pairs(p.dtype, p.n, p.m), bytes = std::min(needed, kMostKeptBytes);
    if (bytes < needed && !p.a.lengths && !p.b.lengths) return;
    kept_.e = arena.take<Real>(static_cast<std::size_t>(bytes) / sizeof(Real));
    kept_.factors = arena.take<Real>(padded(p.m));
    kept_.rows_at = arena.take<double>(padded(p.n));
    kept_.columns_at = arena.take<double>(padded(p.m));
  }

  void lay_out(Arena& arena, int length, Side& side) {
    const std::size_t count = padded(length);
    for (double** array : {&side.w, &side.old, &side.free, &side.spare, &side.weight, &side.target}) {
      *array = arena.take<double>(count);
    }
    for (Real** array : {&side.reference, &side.hi, &side.lo}) *array = arena.take<Real>(count);
    if (p.cost.data) return;
    side.points = arena.take<Real>(count * p.dim);
    if (p.cost_kind == CostKind::kCosine) side.lengths = arena.take<Real>(count);
  }

  void bind(Side& side, const TransportSide& of, const StridedTensor& points, int length, const void* start,
            int b) {
    side.count = of.lengths ? of.lengths[b] : length;
    side.marginal = {p.mass > 0, of.strength};
    const bool product = p.reference == TransportReference::kProduct;
    const Real* const weights = row_of<Real>(of.weights, length, b);
    const Real* const from = row_of<Real>(start, length, b);
    const double bits = kLog2E<double> / solver.epsilon;
    for (Real* array : {side.reference, side.hi, side.lo}) std::fill_n(array, padded(length), Real(0));
    for (int i = 0; i < side.count; ++i) {
      side.weight[i] = weights ? static_cast<double>(weights[i]) : 1.0 / side.count;
      side.reference[i] = product ? static_cast<Real>(side.weight[i]) : Real(1);
      side.target[i] = product ? 0.0 : std::log2(side.weight[i]);
      side.w[i] = from ? bits * static_cast<double>(from[i]) : 0.0;
    }
    if (side.points) pack(side, points, b);
  }

  void pack(Side& side, const StridedTensor& from, int b) {
    const Real* const points = static_cast<const Real*>(from.data) + b * from.stride[0];
    const std::ptrdiff_t stride = padded(side.count);
    for (int i = 0; i < side.count; ++i) {
      double square = 0;
      for (int d = 0; d < p.dim; ++d) {
        const Real value = points[i * from.stride[1] + d * from.stride[2]];
        side.points[d * stride + i] = value;
        square += static_cast<double>(value) * static_cast<double>(value);
      }
      if (!side.lengths) continue;
      const double length = std::sqrt(square);
      side.lengths[i] = static_cast<Real>(length);
      for (int d = 0; d < p.dim && length > 0; ++d) {
        side.points[d * stride + i] =
            static_cast<Real>(static_cast<double>(side.points[d * stride + i]) / length);
      }
    }
    for (int d = 0; d < p.dim; ++d) {
      std::fill(side.points + d * stride + side.count, side.points + (d + 1) * stride, Real(0));
    }
  }

  CpuKept<Real> kept_;
  Real* stored_ = nullptr;  // costs of points; (rows, padded columns), with either side as rows
};

// Job<Real>(arena, call, threads) lays out its memory and writes nothing; run(b, team) then does problem b.
// `call` has the problem as its member p.
template <template <class> class Job, class Call>
std::size_t workspace_bytes_of(const Call& call, const Execution& execution) {
  const Division division(call.p, execution);
  Arena arena;
  if (call.p.dtype == DType::kFloat64) {
    const Job<double> job(arena, call, division.threads);
  } else {
    const Job<float> job(arena, call, division.threads);
  }
  return division.problems * arena.used();
}

// name: of the public function, for descriptions.
template <template <class> class Job, class Call>
void run_batch(const char* name, const Call& call, Workspace workspace, const Execution& execution) {
  const Division division(call.p, execution);
  const std::size_t bytes = workspace_bytes_of<Job>(call, execution) / division.problems;
  if (PlanLog* const log = PlanLog::current()) {
    division.describe(name, call.p, execution, bytes, *log);
    return;
  }
  const BlockTeam inside(execution.parallel_for, division.threads);
  const BlockTeam outside(execution.parallel_for, division.problems);
  outside.run(call.p.batch, [&](int b, int worker) {
    Arena arena(static_cast<std::byte*>(workspace.data) + worker * bytes);
    if (call.p.dtype == DType::kFloat64) {
      Job<double>(arena, call, division.threads).run(b, inside);
    } else {
      Job<float>(arena, call, division.threads).run(b, inside);
    }
  });
}

}  // namespace warpalign::detail::transport
