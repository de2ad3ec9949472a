// The CPU path's driver: workspace, threads, which cell a pair needs, and outputs. The sweeps themselves are
// in cpu_kernel.inl, one copy per instruction set.
#include <algorithm>
#include <atomic>
#include <cfloat>
#include <cmath>
#include <limits>
#include <type_traits>

#include "core/arena.h"
#include "cpu/isa.h"
#include "soft_dtw/band.h"
#include "soft_dtw/cpu_kernel.h"
#include "soft_dtw/cpu_pack.h"
#include "soft_dtw/problem.h"

namespace warpalign::detail {
namespace {

constexpr double kLog2E = 1.4426950408889634074;
constexpr std::size_t kWorkerAlignment = 256;  // no two workers share a cache line, nor its neighbour

const CpuKernels& selected_kernels() {
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

CpuOutcome forward(const CpuKernels& kernels, const CpuPair32& pair, bool) { return kernels.forward32(pair); }
CpuOutcome forward(const CpuKernels& kernels, const CpuPair64& pair, bool hard) {
  return hard ? kernels.forward_hard(pair) : kernels.forward64(pair);
}
void reverse(const CpuKernels& kernels, const CpuPair32& pair, bool) { kernels.reverse32(pair); }
void reverse(const CpuKernels& kernels, const CpuPair64& pair, bool hard) {
  hard ? kernels.reverse_hard(pair) : kernels.reverse64(pair);
}

// Vectors overrun by less than one vector; the costs of many features by two, and some anti-diagonals.
std::int64_t padded(std::int64_t count) { return (count + 4 * kCpuPad - 1) / kCpuPad * kCpuPad; }
static_assert(kCpuCostDiagonals <= kCpuPad);
int tiles(int length) { return (length + kCpuTile - 1) / kCpuTile; }

bool is_cosine(const SoftDtwProblem& p) { return !p.cost.data && p.cost_kind == CostKind::kCosine; }

// Features that a packed step can have: the cosine may add two (add_own_direction()).
int most_features(const SoftDtwProblem& p) { return is_cosine(p) ? p.dim + 2 : p.dim; }

// One pair's memory, for the longest pair of the batch.
template <class Real, class Exponent>
CpuPair<Real, Exponent> lay_out(Arena& arena, const SoftDtwProblem& p, const SoftDtwOutputs& out) {
  CpuPair<Real, Exponent> pair;
  const bool gradient = out.wants_gradient();
  const std::size_t h = std::min(p.n, kCpuOneTile);
  const std::size_t w = std::min(p.m, kCpuOneTile);
  const std::size_t slots = h + 2 * kCpuPad;
  const std::size_t border = static_cast<std::size_t>(p.m) + 1;
  const std::size_t rows = gradient ? tiles(p.n) + 1 : 1;
  const std::size_t columns = gradient ? tiles(p.m) : 0;
  const std::size_t x_elements = p.cost.data ? 0 : padded(p.n) * most_features(p);
  const std::size_t y_elements = p.cost.data ? 0 : padded(p.m) * most_features(p);
  pair.x = arena.take<Real>(x_elements);
  pair.y = arena.take<Real>(y_elements + kCpuPad);
  if (pair.y) pair.y += kCpuPad;
  if (p.x_mask || p.y_mask) {
    pair.x_weight = arena.take<Real>(padded(p.n));
    pair.y_weight = arena.take<Real>(padded(p.m) + kCpuPad);
    if (pair.y_weight) pair.y_weight += kCpuPad;
  }
  pair.strips = arena.take<CpuColumns>(tiles(p.n));
  if (p.band.kind != BandKind::kNone) {
    pair.band = arena.take<CpuRows>(static_cast<std::size_t>(p.n) + p.m - 1);
  }
  pair.row_mantissa = arena.take<Real>(rows * border);
  pair.row_exponent = arena.take<Exponent>(rows * border);
  pair.diagonal_mantissa = arena.take<Real>(3 * slots);
  pair.diagonal_exponent = arena.take<Exponent>(3 * slots);
  pair.diagonal_cost = arena.take<Real>(kCpuCostDiagonals * slots);
  if (!gradient) return pair;
  if (p.subsequence) pair.inflow = arena.take<Real>(p.m);
  if (out.grad_x || out.grad_y) {
    pair.grad_x = arena.take<Real>(x_elements);
    pair.grad_y = arena.take<Real>(y_elements);
  }
  pair.column_mantissa = arena.take<Real>(columns * p.n);
  pair.column_exponent = arena.take<Exponent>(columns * p.n);
  pair.flow_below = arena.take<Real>(2 * border);
  pair.flow_right = arena.take<Real>(2 * h);
  pair.diagonal_flow = arena.take<Real>(4 * slots);
  pair.weight_up = arena.take<Real>(h * w + (h + w) * kCpuPad);
  pair.weight_left = arena.take<Real>(h * w + (h + w) * kCpuPad);
  return pair;
}

// Each step's length, of cosine series in their packed order.
struct Norms {
  double* x = nullptr;
  double* y = nullptr;
};

Norms lay_out_norms(Arena& arena, const SoftDtwProblem& p) {
  if (!is_cosine(p)) return {};
  return {arena.take<double>(padded(p.n)), arena.take<double>(padded(p.m))};
}

// A float32 pair may turn out to need the float64 cell, in the same memory.
std::size_t worker_bytes(const SoftDtwProblem& p, const SoftDtwOutputs& out) {
  Arena single;
  Arena full;
  if (p.dtype == DType::kFloat32) lay_out<float, std::int32_t>(single, p, out);
  lay_out<double, double>(full, p, out);
  lay_out_norms(single, p);
  lay_out_norms(full, p);
  const std::size_t bytes = std::max(single.used(), full.used());
  return (bytes + kWorkerAlignment - 1) / kWorkerAlignment * kWorkerAlignment;
}

int worker_count(const SoftDtwProblem& p, const Execution& execution) {
  if (!execution.parallel_for.run) return 1;
  return std::clamp(execution.parallel_for.threads, 1, std::max(p.batch, 1));
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

// The call, and the pair that is worked on.
struct Job {
  const SoftDtwProblem& p;
  const SoftDtwOutputs& out;
  const CpuKernels& kernels;
  int b;
  int n;
  int m;
  double gamma;
};

template <class Storage>
void write_constant(const Job& job, double value, double gradient) {
  const auto g = static_cast<Storage>(gradient);
  if (job.out.grad_gamma) static_cast<Storage*>(job.out.grad_gamma)[job.b] = g;
  static_cast<Storage*>(job.out.value)[job.b] = static_cast<Storage>(value);
  fill_pair(job.out.grad_x, job.b, job.p.n, job.p.dim, job.n, job.p.dim, g);
  fill_pair(job.out.grad_y, job.b, job.p.m, job.p.dim, job.m, job.p.dim, g);
  fill_pair(job.out.alignment, job.b, job.p.n, job.p.m, job.n, job.m, g);
  if (job.out.end_values) {
    Storage* const ends =
        static_cast<Storage*>(job.out.end_values) + static_cast<std::int64_t>(job.b) * job.p.m;
    std::fill_n(ends, job.m, static_cast<Storage>(value));
    std::fill_n(ends + job.m, job.p.m - job.m, static_cast<Storage>(std::numeric_limits<double>::infinity()));
  }
}

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

// The band of an n x m pair by anti-diagonals: rows i with begin(i) <= s - i < end(i). i + begin(i) and
// i + end(i) grow with i, so that both ends move in one direction.
void lay_out_band(const Band& band, int n, int m, CpuRows* rows) {
  int low = 0;   // first row with i + end(i) > s
  int high = 0;  // first row with i + begin(i) > s
  for (int s = 0; s < n + m - 1; ++s) {
    while (low < n && low + band_columns(band, low, n, m).end <= s) ++low;
    while (high < n && high + band_columns(band, high, n, m).begin <= s) ++high;
    rows[s] = {low, high - 1};
  }
}

void lay_out_strips(const Band& band, int n, int m, int tile, bool gradient, CpuColumns* strips) {
  for (int row0 = 0; row0 < n; row0 += tile) {
    const int begin = band_columns(band, row0, n, m).begin;
    const int end = band_columns(band, std::min(row0 + tile, n) - 1, n, m).end;
    *strips++ = {gradient ? begin / tile * tile : begin, end};
  }
}

CpuMetric metric_of(CostKind kind) {
  switch (kind) {
    case CostKind::kEuclidean:
      return CpuMetric::kNorm;
    case CostKind::kL1:
      return CpuMetric::kAbsolute;
    case CostKind::kHuber:
      return CpuMetric::kHuber;
    case CostKind::kSquaredEuclidean:
    case CostKind::kCosine:  // of unit steps
      break;
  }
  return CpuMetric::kSquared;
}

template <class Real, class Exponent>
void bind_masks(const Job& job, CpuPair<Real, Exponent>& pair) {
  const SoftDtwProblem& p = job.p;
  const std::uint8_t* const x = p.x_mask ? p.x_mask + static_cast<std::int64_t>(job.b) * p.n : nullptr;
  const std::uint8_t* const y = p.y_mask ? p.y_mask + static_cast<std::int64_t>(job.b) * p.m : nullptr;
  auto* const x_weight = const_cast<Real*>(pair.x_weight);
  auto* const y_weight = const_cast<Real*>(pair.y_weight);
  pack_weights(x, job.n, false, pair.x_stride, x_weight);
  pack_weights(y, job.m, true, pair.y_stride, y_weight);
  clear_missing(x_weight, pair.x_stride, p.dim, const_cast<Real*>(pair.x));
  clear_missing(y_weight, pair.y_stride, p.dim, const_cast<Real*>(pair.y));
}

template <class Real, class Exponent>
void bind_unit_steps(const Norms& norms, CpuPair<Real, Exponent>& pair) {
  auto* const x = const_cast<Real*>(pair.x);
  auto* const y = const_cast<Real*>(pair.y);
  const bool zero_x = normalize_steps(x, pair.x_stride, pair.dim, norms.x);
  const bool zero_y = normalize_steps(y, pair.y_stride, pair.dim, norms.y);
  if (!zero_x && !zero_y) return;
  add_own_direction(x, pair.x_stride, pair.dim, 0, norms.x);
  add_own_direction(y, pair.y_stride, pair.dim, 1, norms.y);
  pair.dim += 2;
}

// False: its range is too small for the penalty.
bool bind_penalty(double penalty, CpuPair32& pair) {
  if (!(penalty < 0x1p22)) return false;
  pair.penalized = penalty > 0;
  pair.penalty_exponent = static_cast<std::int32_t>(std::nearbyint(penalty));
  pair.penalty_mantissa = static_cast<float>(std::exp2(pair.penalty_exponent - penalty));
  return true;
}
bool bind_penalty(double penalty, CpuPair64& pair) {
  pair.penalized = penalty > 0;
  pair.penalty_exponent = std::min(std::nearbyint(penalty), 1e299);
  pair.penalty_mantissa = penalty < 0x1p52 ? std::exp2(pair.penalty_exponent - penalty) : 1.0;
  return true;
}

// The pair's inputs, in the memory that lay_out() has given.
template <class Storage, class Real, class Exponent>
void bind_pair(const Job& job, const Norms& norms, CpuPair<Real, Exponent>& pair) {
  const SoftDtwProblem& p = job.p;
  pair.n = job.n;
  pair.m = job.m;
  pair.tile = job.n <= kCpuOneTile && job.m <= kCpuOneTile ? kCpuOneTile : kCpuTile;
  pair.float_storage = sizeof(Storage) == sizeof(float);
  pair.want_gradient = job.out.wants_gradient();
  lay_out_strips(p.band, job.n, job.m, pair.tile, pair.want_gradient, const_cast<CpuColumns*>(pair.strips));
  if (pair.band) lay_out_band(p.band, job.n, job.m, const_cast<CpuRows*>(pair.band));
  if (job.out.alignment) {
    if (pair.band) fill_pair<Storage>(job.out.alignment, job.b, p.n, p.m, 0, 0, 0);
    pair.alignment = static_cast<Storage*>(job.out.alignment) + static_cast<std::int64_t>(job.b) * p.n * p.m;
    pair.alignment_stride = p.m;
  }
  if (p.cost.data) {
    pair.cost = element<Storage>(p.cost, job.b);
    pair.cost_stride[0] = p.cost.stride[1];
    pair.cost_stride[1] = p.cost.stride[2];
    return;
  }
  pair.dim = p.dim;
  pair.x_stride = padded(job.n);
  pair.y_stride = padded(job.m);
  pack_series<Storage>(p.x, job.b, job.n, p.dim, false, pair.x_stride, const_cast<Real*>(pair.x));
  pack_series<Storage>(p.y, job.b, job.m, p.dim, true, pair.y_stride, const_cast<Real*>(pair.y));
  if (pair.x_weight) bind_masks(job, pair);
  if (norms.x) bind_unit_steps(norms, pair);
  pair.metric = metric_of(p.cost_kind);
  pair.buffered = pair.dim > kCpuFewFeatures || pair.metric != CpuMetric::kSquared || pair.x_weight;
  if (pair.grad_x) {
    std::fill_n(pair.grad_x, pair.x_stride * pair.dim, Real(0));
    std::fill_n(pair.grad_y, pair.y_stride * pair.dim, Real(0));
  }
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

// What the workers share.
struct Batch {
  const SoftDtwProblem& p;
  const SoftDtwOutputs& out;
  const CpuKernels& kernels;
  std::byte* memory;
  std::size_t bytes_per_worker;
  std::atomic<int> next{0};
};

void work(void* state, int worker) {
  Batch& batch = *static_cast<Batch*>(state);
  void* const memory = batch.memory + static_cast<std::size_t>(worker) * batch.bytes_per_worker;
  const SoftDtwProblem& p = batch.p;
  for (int b = batch.next++; b < p.batch; b = batch.next++) {
    const Job job{p,
                  batch.out,
                  batch.kernels,
                  b,
                  p.x_lengths ? p.x_lengths[b] : p.n,
                  p.y_lengths ? p.y_lengths[b] : p.m,
                  gamma_of(p, b)};
    if (p.dtype == DType::kFloat64) {
      solve<double, double, double>(job, memory);
    } else if (!solve<float, float, std::int32_t>(job, memory)) {
      solve<float, double, double>(job, memory);
    }
  }
}

}  // namespace

std::size_t soft_dtw_cpu_workspace_bytes(const SoftDtwProblem& p, const SoftDtwOutputs& out,
                                         const Execution& execution) {
  return worker_bytes(p, out) * worker_count(p, execution);
}

Status soft_dtw_cpu(const SoftDtwProblem& p, const SoftDtwOutputs& out, Workspace workspace,
                    const Execution& execution) {
  Batch batch{p, out, selected_kernels(), static_cast<std::byte*>(workspace.data), worker_bytes(p, out)};
  const int workers = worker_count(p, execution);
  if (workers == 1) {
    work(&batch, 0);
  } else {
    execution.parallel_for.run(execution.parallel_for.context, workers, &work, &batch);
  }
  return {};
}

}  // namespace warpalign::detail
