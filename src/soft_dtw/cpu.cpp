// The CPU path's driver: which cell a pair needs, and outputs. The sweeps themselves are in cpu_kernel.inl,
// one copy per instruction set.
#include <cfloat>
#include <cmath>
#include <limits>

#include "cpu/isa.h"
#include "soft_dtw/cpu_pair.h"

namespace warpalign::detail {

const CpuKernels& selected_cpu_kernels() {
#if WARPALIGN_X86_KERNELS
  switch (cpu::selected_isa()) {
    case cpu::Isa::kAvx512:
      return cpu_kernels_avx512();
    case cpu::Isa::kAvx2:
      return cpu_kernels_avx2();
    case cpu::Isa::kBaseline:
      break;
  }
#endif
  return cpu_kernels_baseline();
}

namespace {

CpuOutcome forward(const CpuKernels& kernels, const CpuPair32& pair, bool) { return kernels.forward32(pair); }
CpuOutcome forward(const CpuKernels& kernels, const CpuPair64& pair, bool hard) {
  return hard ? kernels.forward_hard(pair) : kernels.forward64(pair);
}
void reverse(const CpuKernels& kernels, const CpuPair32& pair, bool) { kernels.reverse32(pair); }
void reverse(const CpuKernels& kernels, const CpuPair64& pair, bool hard) {
  hard ? kernels.reverse_hard(pair) : kernels.reverse64(pair);
}

template <class Real, class Exponent>
CpuPair<Real, Exponent> lay_out(Arena& arena, const SoftDtwProblem& p, const SoftDtwOutputs& out) {
  return lay_out<Real, Exponent>(arena, p, out.wants_gradient(), out.grad_x || out.grad_y);
}

// A float32 pair may turn out to need the float64 cell, in the same memory.
std::size_t worker_bytes(const SoftDtwProblem& p, const SoftDtwOutputs& out) {
  Arena single;
  Arena full;
  if (p.dtype == DType::kFloat32) lay_out<float, std::int32_t>(single, p, out);
  lay_out<double, double>(full, p, out);
  lay_out_norms(single, p);
  lay_out_norms(full, p);
  return rounded_to_worker(std::max(single.used(), full.used()));
}

// Whether the float32 cell was exact enough: costs round to integers, and no exponent comes near the value
// where they saturate. Series have no negative costs, so that the last exponent is the lowest on its paths.
bool certified(const CpuPair32& pair, const CpuOutcome& outcome) {
  if (!(outcome.largest_cost < 0x1p22)) return false;  // also NaN
  const double largest_step = outcome.largest_cost + pair.penalty_exponent + 1;
  if ((static_cast<double>(pair.n) + pair.m) * largest_step < 0x1p29) return true;
  return pair.dim > 0 && outcome.exponent > -0x1p29;
}
bool certified(const CpuPair64&, const CpuOutcome&) { return true; }

template <class Storage, class Real, class Exponent>
void write_gradients(const Job& job, const CpuPair<Real, Exponent>& pair, const Norms& norms) {
  const bool squared = pair.metric == CpuMetric::kSquared && !norms.x;
  const Real factor = squared ? Real(2) : Real(1);
  if (pair.grad_x && norms.x) {
    denormalize_gradient(pair.x, pair.x_stride, job.n, job.p.dim, norms.x, pair.grad_x);
    denormalize_gradient(pair.y, pair.y_stride, job.m, job.p.dim, norms.y, pair.grad_y);
  }
  if (job.out.grad_gamma) {
    static_cast<Storage*>(job.out.grad_gamma)[job.b] = static_cast<Storage>(-*pair.entropy / kLog2E);
  }
  unpack_gradient<Storage>(pair.grad_x, pair.x_stride, job.n, job.p.dim, false, factor, job.b, job.p.n,
                           job.out.grad_x);
  unpack_gradient<Storage>(pair.grad_y, pair.y_stride, job.m, job.p.dim, true, -factor, job.b, job.p.m,
                           job.out.grad_y);
  zero_padding<Storage>(job.out.alignment, job.b, job.p.n, job.p.m, job.n, job.m);
}

// Of a subsequence: a cell of the first row is entered from above with 2^-penalty and diagonally with 1, and
// both together are to be one start.
template <class Real, class Exponent>
CpuStart<Real, Exponent> start_of(bool hard, double penalty) {
  if (hard) return {0, 0};
  return {static_cast<Real>(2.0 / (1.0 + std::exp2(-penalty))), -1};
}

// The values at every end, and from them all ends' together as an outcome; with gradients each one's share in
// it.
template <class Storage, class Real, class Exponent>
CpuOutcome join_ends(const Job& job, bool hard, double scale, const CpuOutcome& outcome,
                     const CpuPair<Real, Exponent>& pair) {
  const std::int64_t row = pair.want_gradient ? (pair.n + pair.tile - 1) / pair.tile : 0;
  const Real* const mantissa = pair.row_mantissa + row * (pair.m + 1) + 1;
  const Exponent* const exponent = pair.row_exponent + row * (pair.m + 1) + 1;
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
      const double value = j < pair.m ? -log2_z(j) / scale : std::numeric_limits<double>::infinity();
      ends[j] = static_cast<Storage>(value * scale > 1e298 ? std::numeric_limits<double>::infinity() : value);
    }
  }
  if (hard) return {-top, 0, outcome.largest_cost};
  // Where nothing is reached the exponent says so.
  return {sum, top, outcome.largest_cost};
}

// False: the cell's range is too small for this pair, and nothing has been written.
template <class Storage, class Real, class Exponent>
bool solve(const Job& job, void* memory) {
  const bool hard = job.gamma == 0;
  const double scale =
      hard ? 1.0 : static_cast<double>(static_cast<Real>(std::min(kLog2E / job.gamma, DBL_MAX)));
  if (sizeof(Real) == sizeof(float) && (hard || !std::isnormal(static_cast<float>(scale)))) return false;
  Arena arena(memory);
  CpuPair<Real, Exponent> pair = lay_out<Real, Exponent>(arena, job.p, job.out);
  const Norms norms = lay_out_norms(arena, job.p);
  pair.scale = static_cast<Real>(norms.x ? scale / 2 : scale);
  if (!bind_penalty(job.p.step_penalty * scale, pair)) return false;
  if (hard) pair.penalty_mantissa = static_cast<Real>(job.p.step_penalty);
  double entropy = 0;
  if (job.out.grad_gamma) pair.entropy = &entropy;
  bind_pair<Storage>(job, norms, pair);

  const CpuStart<Real, Exponent> start = start_of<Real, Exponent>(hard, job.p.step_penalty * scale);
  if (job.p.subsequence) pair.start = &start;

  CpuOutcome outcome = forward(job.kernels, pair, hard);
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
  const double value = hard ? outcome.mantissa : -log2_z / scale;
  static_cast<Storage*>(job.out.value)[job.b] = static_cast<Storage>(value);
  if (!pair.want_gradient) return true;
  reverse(job.kernels, pair, hard);
  if (hard) entropy = 0;
  write_gradients<Storage>(job, pair, norms);
  return true;
}

}  // namespace

std::size_t soft_dtw_cpu_workspace_bytes(const SoftDtwProblem& p, const SoftDtwOutputs& out,
                                         const Execution& execution) {
  return worker_bytes(p, out) * worker_count(p, execution);
}

Status soft_dtw_cpu(const SoftDtwProblem& p, const SoftDtwOutputs& out, Workspace workspace,
                    const Execution& execution) {
  for_each_pair(p, out, worker_bytes(p, out), workspace, execution, [](const Job& job, void* memory) {
    if (job.p.dtype == DType::kFloat64) {
      solve<double, double, double>(job, memory);
    } else if (!solve<float, float, std::int32_t>(job, memory)) {
      solve<float, double, double>(job, memory);
    }
  });
  return {};
}

}  // namespace warpalign::detail
