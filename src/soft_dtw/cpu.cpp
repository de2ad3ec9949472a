// The CPU path's driver: the choice of a pair's number format, and the outputs. The sweeps themselves are in
// cpu_kernel.inl, one copy per instruction set.
#include <bit>
#include <cfloat>
#include <cmath>
#include <cstring>
#include <limits>
#include <numbers>

#include "core/ways.h"
#include "cpu/describe.h"
#include "cpu/team.h"
#include "soft_dtw/cpu_pair.h"
#include "soft_dtw/tuning.h"

namespace warpalign::detail::soft_dtw {

namespace {

CpuSweepKernel<CpuPair32> forward_kernel(const CpuKernels& kernels, const CpuPair32&, bool) {
  return kernels.forward32;
}
CpuSweepKernel<CpuPair64> forward_kernel(const CpuKernels& kernels, const CpuPair64&, bool hard) {
  return hard ? kernels.forward_hard : kernels.forward64;
}
CpuSweepKernel<CpuPair32> reverse_kernel(const CpuKernels& kernels, const CpuPair32&, bool) {
  return kernels.reverse32;
}
CpuSweepKernel<CpuPair64> reverse_kernel(const CpuKernels& kernels, const CpuPair64&, bool hard) {
  return hard ? kernels.reverse_hard : kernels.reverse64;
}

Extent extent_of(const SoftDtwOutputs& out, const cpu::Team& team) {
  return {out.wants_gradient(), out.grad_x || out.grad_y, out.grad_gamma != nullptr, team.workers_per_item};
}

bool has_several_tiles(const SoftDtwProblem& p) { return p.n > kCpuOneTile || p.m > kCpuOneTile; }

bool is_worth_help(const SoftDtwProblem& p, const Execution& execution) {
  if (const int way = named_way(execution, cpu::kThreadWays); way >= 0) {
    return cpu::ThreadWay(way) == cpu::ThreadWay::kWithinItems;
  }
  // A small pair is done before another worker could begin to help. With many pairs per thread it matters
  // little that some threads end earlier than others.
  const CpuTuning tuning = cpu_tuning(cpu::selected_isa());
  return has_several_tiles(p) && static_cast<std::int64_t>(p.n) * p.m >= tuning.help_cells &&
         p.batch < std::int64_t{tuning.help_pairs} * cpu::Team::threads_of(execution);
}

cpu::Team team_of(const SoftDtwProblem& p, const SoftDtwOutputs& out, const Execution& execution) {
  const bool worth_help = is_worth_help(p, execution);
  cpu::Team team = cpu::Team::of(p.batch, execution, worth_help ? tiles(p.n) : 1);

  // Memory for both cells: a float32 pair that is not certified is computed again with the float64 cell.
  const Extent extent = extent_of(out, team);
  Arena memory[2];
  Arena scratch[2];
  if (p.dtype == DType::kFloat32) {
    auto pair = lay_out<float, std::int32_t>(memory[0], p, extent);
    lay_out_scratch(scratch[0], p, extent, pair);
  }
  auto pair = lay_out<double, double>(memory[1], p, extent);
  lay_out_scratch(scratch[1], p, extent, pair);
  for (Arena& arena : memory) lay_out_norms(arena, p);
  team.item_bytes = cpu::rounded_to_worker(std::max(memory[0].used(), memory[1].used()));
  team.scratch_bytes = cpu::rounded_to_worker(std::max(scratch[0].used(), scratch[1].used()));
  return team;
}

void describe(const SoftDtwProblem& p, const cpu::Team& team, const Execution& execution, PlanLog& log) {
  log.begin("soft_dtw", cpu::name_of_threads(execution));
  log.line("sizes", std::to_string(p.batch) + " pairs of " + std::to_string(p.n) + " x " +
                        std::to_string(p.m) + " steps, " + std::to_string(tiles(p.n)) + " x " +
                        std::to_string(tiles(p.m)) + " tiles each");
  const char* why = "pairs are too many, or too small, for several threads to share one";
  if (team.shares_work()) why = "pairs are large, and few for the threads";
  cpu::describe_team(team, execution, why, log);
}

// One sweep over a pair, for its worker and its helpers.
template <class Real, class Exponent>
struct PairSweep : cpu::SharedWork {
  const SoftDtwProblem& p;
  const Extent extent;
  const CpuPair<Real, Exponent>& pair;
  const CpuSweepKernel<CpuPair<Real, Exponent>> kernel;
  CpuSweep sweep;

  static void run_one(cpu::SharedWork& work, void* scratch) {
    auto& self = static_cast<PairSweep&>(work);
    CpuPair<Real, Exponent> pair = self.pair;
    Arena arena(scratch);
    lay_out_scratch(arena, self.p, self.extent, pair);
    self.kernel(pair, self.sweep);
  }
};

// Runs a sweep over all strips of a pair.
template <class Real, class Exponent>
CpuSweep run_sweep(const Job& job, const cpu::ItemMemory& memory, const Extent& extent,
                   const CpuPair<Real, Exponent>& pair, CpuSweepKernel<CpuPair<Real, Exponent>> kernel) {
  const int strips = strips_of(pair);
  std::fill_n(pair.reached, strips, 0);
  PairSweep<Real, Exponent> work{{&PairSweep<Real, Exponent>::run_one}, job.p, extent, pair, kernel, {}};
  if (memory.slot && strips > 1) {
    memory.slot->run_shared(work, memory.scratch);
  } else {
    work.run(work, memory.scratch);
  }
  return work.sweep;
}

template <class Real, class Exponent>
CpuOutcome outcome_of(const CpuPair<Real, Exponent>& pair, const CpuSweep& sweep) {
  const std::int64_t last = last_row(pair) + pair.m;
  return {static_cast<double>(pair.row_mantissa[last]), static_cast<double>(pair.row_exponent[last]),
          std::bit_cast<double>(sweep.largest_cost)};
}

// Whether the float32 cell's result is accurate: costs were rounded to integers exactly, and no exponent came
// near saturation. Costs of series are not negative: the last exponent is the lowest of all.
bool certified(const CpuPair32& pair, const CpuOutcome& outcome) {
  if (!(outcome.largest_cost < 0x1p22)) return false;  // also NaN
  const double largest_step = outcome.largest_cost + pair.penalty_exponent + 1;
  if ((static_cast<double>(pair.n) + pair.m) * largest_step < 0x1p29) return true;
  return pair.dim > 0 && outcome.exponent > -0x1p29;
}
bool certified(const CpuPair64&, const CpuOutcome&) { return true; }

template <class Storage, class Real, class Exponent>
void write_gradients(const Job& job, const CpuPair<Real, Exponent>& pair, const Norms& norms) {
  const bool squared = pair.metric == Metric::kSquared && !norms.x;
  const Real factor = squared ? Real(2) : Real(1);
  if (pair.grad_x && norms.x) {
    denormalize_gradient(pair.x, pair.x_stride, job.n, job.p.dim, norms.x, pair.grad_x);
    denormalize_gradient(pair.y, pair.y_stride, job.m, job.p.dim, norms.y, pair.grad_y);
  }
  if (job.out.grad_gamma) {
    double entropy = 0;
    for (int k = 0; job.gamma > 0 && k < strips_of(pair); ++k) entropy += pair.entropy[k];
    static_cast<Storage*>(job.out.grad_gamma)[job.b] = static_cast<Storage>(-entropy / std::numbers::log2e);
  }
  unpack_gradient<Storage>(pair.grad_x, pair.x_stride, job.n, job.p.dim, false, factor, x_steps_of(job),
                           job.out.grad_x);
  unpack_gradient<Storage>(pair.grad_y, pair.y_stride, job.m, job.p.dim, true, -factor, y_steps_of(job),
                           job.out.grad_y);
  zero_padding<Storage>(job.out.alignment, job.b, job.p.n, job.p.m, job.n, job.m);
}

// The row above the first, for a subsequence. A cell of the first row is entered from above with the factor
// 2^-penalty and diagonally with the factor 1. Both together must make one start: Z (1 + 2^-penalty) = 1.
template <class Real, class Exponent>
CpuStart<Real, Exponent> start_of(bool hard, double penalty) {
  if (hard) return {0, 0};
  return {static_cast<Real>(2.0 / (1.0 + std::exp2(-penalty))), -1};
}

// For a subsequence: writes the value of every end, returns the outcome of all ends together, and with
// gradients puts each end's share into pair.inflow.
template <class Storage, class Real, class Exponent>
CpuOutcome join_ends(const Job& job, bool hard, double scale, const CpuOutcome& outcome,
                     const CpuPair<Real, Exponent>& pair) {
  const Real* const mantissa = pair.row_mantissa + last_row(pair) + 1;
  const Exponent* const exponent = pair.row_exponent + last_row(pair) + 1;
  const auto log2_z = [&](int j) {  // hard: -R
    return hard ? -static_cast<double>(mantissa[j])
                : static_cast<double>(exponent[j]) + std::log2(static_cast<double>(mantissa[j]));
  };
  int best = 0;
  for (int j = 1; j < pair.m; ++j) {
    if (log2_z(j) > log2_z(best)) best = j;
  }
  const double top = log2_z(best);
  const auto share = [&](int j) { return hard ? (j == best ? 1.0 : 0.0) : std::exp2(log2_z(j) - top); };
  double sum = 0;
  for (int j = 0; j < pair.m; ++j) sum += share(j);
  for (int j = 0; pair.inflow && j < pair.m; ++j) {
    const_cast<Real*>(pair.inflow)[j] = static_cast<Real>(share(j) / sum);
  }
  if (job.out.end_values) {
    Storage* const ends =
        static_cast<Storage*>(job.out.end_values) + static_cast<std::int64_t>(job.b) * job.p.m;
    for (int j = 0; j < job.p.m; ++j) {
      const double value = j < pair.m ? (0.0 - log2_z(j)) / scale : std::numeric_limits<double>::infinity();
      ends[j] = static_cast<Storage>(value * scale > 1e298 ? std::numeric_limits<double>::infinity() : value);
    }
  }
  if (hard) return {-top, 0, outcome.largest_cost};
  // If no end is reachable, the exponent is that of a dead cell.
  return {sum, top, outcome.largest_cost};
}

// Computes one pair in Real with Exponent, for inputs and outputs in Storage. False: the range of Real and
// Exponent is too small for this pair, and nothing has been written.
template <class Storage, class Real, class Exponent>
bool solve(const Job& job, const cpu::ItemMemory& memory, const Extent& extent) {
  const bool hard = job.gamma == 0;
  const double scale =
      hard ? 1.0 : static_cast<double>(static_cast<Real>(std::min(std::numbers::log2e / job.gamma, DBL_MAX)));
  if (sizeof(Real) == sizeof(float) && (hard || !std::isnormal(static_cast<float>(scale)))) return false;
  Arena arena(memory.item);
  CpuPair<Real, Exponent> pair = lay_out<Real, Exponent>(arena, job.p, extent);
  const Norms norms = lay_out_norms(arena, job.p);
  pair.scale = static_cast<Real>(norms.x ? scale / 2 : scale);
  if (!bind_penalty(job.p.step_penalty * scale, pair)) return false;
  if (hard) pair.penalty_mantissa = static_cast<Real>(job.p.step_penalty);
  if (pair.entropy) std::fill_n(pair.entropy, tiles(job.n), 0.0);
  bind_pair<Storage>(job, norms, pair);

  const CpuStart<Real, Exponent> start = start_of<Real, Exponent>(hard, job.p.step_penalty * scale);
  if (job.p.subsequence) pair.start = &start;

  CpuOutcome outcome =
      outcome_of(pair, run_sweep(job, memory, extent, pair, forward_kernel(job.kernels, pair, hard)));
  if (!certified(pair, outcome)) return false;
  if (std::isnan(outcome.largest_cost)) {
    const double nan = std::numeric_limits<double>::quiet_NaN();
    write_constant<Storage>(job, nan, nan);
    return true;
  }
  if (job.p.subsequence) outcome = join_ends<Storage>(job, hard, scale, outcome, pair);
  if (hard ? outcome.mantissa > 1e298 : outcome.exponent < -1e298) {  // every path costs inf
    write_constant<Storage>(job, std::numeric_limits<double>::infinity(), 0.0);
    return true;
  }
  const double log2_z = outcome.exponent + std::log2(outcome.mantissa);
  const double value =
      hard ? outcome.mantissa : (0.0 - log2_z) / scale;  // 0.0 - log2_z: no -0 for log2_z = 0
  static_cast<Storage*>(job.out.value)[job.b] = static_cast<Storage>(value);
  if (!pair.want_gradient) return true;
  run_sweep(job, memory, extent, pair, reverse_kernel(job.kernels, pair, hard));
  write_gradients<Storage>(job, pair, norms);
  return true;
}

// Zeros, where packed series may leave out steps.
void clear_steps_of_no_pair(const SoftDtwProblem& p, const SoftDtwOutputs& out) {
  const auto clear = [&](void* gradient, bool of_y) {
    if (gradient) std::memset(gradient, 0, gradient_rows(p, of_y) * p.dim * size_of(p.dtype));
  };
  if (p.x_offsets) clear(out.grad_x, false);
  if (p.y_offsets) clear(out.grad_y, true);
}

}  // namespace

Status check_way_cpu(const SoftDtwProblem& p, bool second_order, const Execution& execution) {
  const Status known = check_way(execution, cpu::kThreadWays, "soft_dtw() on a CPU");
  if (!known.ok() || second_order) return known;  // second derivatives have one way
  return check_serves(named_way(execution, cpu::kThreadWays), cpu::kThreadWays, [&](int way) -> const char* {
    if (cpu::ThreadWay(way) == cpu::ThreadWay::kAcrossBatch) return nullptr;
    if (cpu::Team::threads_of(execution) < 2) return "it takes two threads or more";
    return has_several_tiles(p) ? nullptr : "the series fit into one tile, which is one thread's work";
  });
}

std::size_t workspace_bytes_cpu(const SoftDtwProblem& p, const SoftDtwOutputs& out,
                                const Execution& execution) {
  return team_of(p, out, execution).bytes();
}

Status run_cpu(const SoftDtwProblem& p, const SoftDtwOutputs& out, Workspace workspace,
               const Execution& execution) {
  const cpu::Team team = team_of(p, out, execution);
  if (PlanLog* const log = PlanLog::current()) {
    describe(p, team, execution, *log);
    return {};
  }
  clear_steps_of_no_pair(p, out);
  const Extent extent = extent_of(out, team);
  const CpuKernels& kernels = selected_kernels();
  cpu::run_team(team, workspace, execution, [&](int b, const cpu::ItemMemory& memory) {
    const Job job = job_of(p, out, kernels, b);
    if (p.dtype == DType::kFloat64) {
      solve<double, double, double>(job, memory, extent);
    } else if (!solve<float, float, std::int32_t>(job, memory, extent)) {
      solve<float, double, double>(job, memory, extent);
    }
  });
  return {};
}

}  // namespace warpalign::detail::soft_dtw
