// One pair of the CPU paths: its place in the workspace, its inputs bound to that place, and the workers that
// take one pair after the other. cpu.cpp and cpu_jvp.cpp share it.
#pragma once

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>

#include "core/arena.h"
#include "soft_dtw/band.h"
#include "soft_dtw/cpu_kernel.h"
#include "soft_dtw/cpu_pack.h"
#include "soft_dtw/problem.h"

namespace warpalign::detail {

inline constexpr double kLog2E = 1.4426950408889634074;
inline constexpr std::size_t kWorkerAlignment = 256;  // no two workers share a cache line, nor its neighbour

// Of the best instruction set that this machine has.
const CpuKernels& selected_cpu_kernels();

// Vectors overrun by less than one vector; the costs of many features by two, and some anti-diagonals.
inline std::int64_t padded(std::int64_t count) { return (count + 4 * kCpuPad - 1) / kCpuPad * kCpuPad; }
static_assert(kCpuCostDiagonals <= kCpuPad);
inline int tiles(int length) { return (length + kCpuTile - 1) / kCpuTile; }

inline bool is_cosine(const SoftDtwProblem& p) { return !p.cost.data && p.cost_kind == CostKind::kCosine; }

// Features that a packed step can have: the cosine may add two (add_own_direction()).
inline int most_features(const SoftDtwProblem& p) { return is_cosine(p) ? p.dim + 2 : p.dim; }

// One pair's memory, for the longest pair of the batch; `gradient`: with what a way back needs, `of_series`:
// and with gradients of x and y.
template <class Real, class Exponent>
CpuPair<Real, Exponent> lay_out(Arena& arena, const SoftDtwProblem& p, bool gradient, bool of_series) {
  CpuPair<Real, Exponent> pair;
  pair.want_gradient = gradient;
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
  if (of_series) {
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

inline Norms lay_out_norms(Arena& arena, const SoftDtwProblem& p) {
  if (!is_cosine(p)) return {};
  return {arena.take<double>(padded(p.n)), arena.take<double>(padded(p.m))};
}

inline std::size_t rounded_to_worker(std::size_t bytes) {
  return (bytes + kWorkerAlignment - 1) / kWorkerAlignment * kWorkerAlignment;
}

inline int worker_count(const SoftDtwProblem& p, const Execution& execution) {
  if (!execution.parallel_for.run) return 1;
  return std::clamp(execution.parallel_for.threads, 1, std::max(p.batch, 1));
}

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

// The band of an n x m pair by anti-diagonals: rows i with begin(i) <= s - i < end(i). i + begin(i) and
// i + end(i) grow with i, so that both ends move in one direction.
inline void lay_out_band(const Band& band, int n, int m, CpuRows* rows) {
  int low = 0;   // first row with i + end(i) > s
  int high = 0;  // first row with i + begin(i) > s
  for (int s = 0; s < n + m - 1; ++s) {
    while (low < n && low + band_columns(band, low, n, m).end <= s) ++low;
    while (high < n && high + band_columns(band, high, n, m).begin <= s) ++high;
    rows[s] = {low, high - 1};
  }
}

inline void lay_out_strips(const Band& band, int n, int m, int tile, bool gradient, CpuColumns* strips) {
  for (int row0 = 0; row0 < n; row0 += tile) {
    const int begin = band_columns(band, row0, n, m).begin;
    const int end = band_columns(band, std::min(row0 + tile, n) - 1, n, m).end;
    *strips++ = {gradient ? begin / tile * tile : begin, end};
  }
}

inline CpuMetric metric_of(CostKind kind) {
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
inline bool bind_penalty(double penalty, CpuPair32& pair) {
  if (!(penalty < 0x1p22)) return false;
  pair.penalized = penalty > 0;
  pair.penalty_exponent = static_cast<std::int32_t>(std::nearbyint(penalty));
  pair.penalty_mantissa = static_cast<float>(std::exp2(pair.penalty_exponent - penalty));
  return true;
}
inline bool bind_penalty(double penalty, CpuPair64& pair) {
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

// Calls solve(job, memory) for every pair, with a worker's own memory.
template <class Solve>
void for_each_pair(const SoftDtwProblem& p, const SoftDtwOutputs& out, std::size_t bytes_per_worker,
                   Workspace workspace, const Execution& execution, Solve solve) {
  struct Batch {
    const SoftDtwProblem& p;
    const SoftDtwOutputs& out;
    const CpuKernels& kernels;
    std::byte* memory;
    std::size_t bytes_per_worker;
    Solve solve;
    std::atomic<int> next{0};
  };
  Batch all{p, out, selected_cpu_kernels(), static_cast<std::byte*>(workspace.data), bytes_per_worker, solve};
  const auto work = [](void* state, int worker) {
    Batch& batch = *static_cast<Batch*>(state);
    void* const memory = batch.memory + static_cast<std::size_t>(worker) * batch.bytes_per_worker;
    const SoftDtwProblem& problem = batch.p;
    for (int b = batch.next++; b < problem.batch; b = batch.next++) {
      const Job job{problem,
                    batch.out,
                    batch.kernels,
                    b,
                    problem.x_lengths ? problem.x_lengths[b] : problem.n,
                    problem.y_lengths ? problem.y_lengths[b] : problem.m,
                    gamma_of(problem, b)};
      batch.solve(job, memory);
    }
  };
  const int workers = worker_count(p, execution);
  if (workers == 1) {
    work(&all, 0);
  } else {
    execution.parallel_for.run(execution.parallel_for.context, workers, work, &all);
  }
}

}  // namespace warpalign::detail
