// One pair of the CPU path: its memory in the workspace, and its inputs in that memory. cpu.cpp and
// cpu_jvp.cpp share this.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/arena.h"
#include "cpu/dispatch.h"
#include "soft_dtw/band.h"
#include "soft_dtw/cpu_kernel.h"
#include "soft_dtw/cpu_pack.h"
#include "soft_dtw/problem.h"

namespace warpalign::detail::soft_dtw {

inline const CpuKernels& selected_kernels() {
  return cpu::with_selected_isa([](auto isa) -> const CpuKernels& { return kernels_for(isa); });
}

// One call of the operator, and one pair b of its batch: true lengths n and m, and its gamma.
struct Job {
  const SoftDtwProblem& p;
  const SoftDtwOutputs& out;
  const CpuKernels& kernels;
  int b;
  int n;
  int m;
  double gamma;
};

inline Job job_of(const SoftDtwProblem& p, const SoftDtwOutputs& out, const CpuKernels& kernels, int b) {
  return {p,
          out,
          kernels,
          b,
          p.x_lengths ? p.x_lengths[b] : p.n,
          p.y_lengths ? p.y_lengths[b] : p.m,
          gamma_of(p, b)};
}

// The pair's rows of grad_x, of grad_y, and of the alignment.
inline GradientSteps x_steps_of(const Job& job) {
  return gradient_steps(job.p.x_offsets, job.b, job.p.n, job.n);
}
inline GradientSteps y_steps_of(const Job& job) {
  return gradient_steps(job.p.y_offsets, job.b, job.p.m, job.m);
}
inline GradientSteps alignment_rows_of(const Job& job) {
  return gradient_steps(nullptr, job.b, job.p.n, job.n);
}

// The number of elements to allocate for `count`. Vectors read past the end by less than one vector; the
// costs of many features by two vectors and kCpuCostDiagonals anti-diagonals.
inline std::int64_t padded(std::int64_t count) { return (count + 4 * kCpuPad - 1) / kCpuPad * kCpuPad; }
static_assert(kCpuCostDiagonals <= kCpuPad);
inline int tiles(int length) { return (length + kCpuTile - 1) / kCpuTile; }

// The most features of a packed step: the cosine may add two (add_own_direction()).
inline int most_features(const SoftDtwProblem& p) { return is_cosine(p) ? p.dim + 2 : p.dim; }

// The arrays that are allocated.
struct Extent {
  bool gradient = false;   // the arrays of a reverse sweep
  bool of_series = false;  // with gradient: also the gradients of x and y
  bool entropy = false;
  int workers = 1;  // the most of one pair
};

// One pair's memory, for the longest pair of the batch.
template <class Real, class Exponent>
CpuPair<Real, Exponent> lay_out(Arena& arena, const SoftDtwProblem& p, const Extent& extent) {
  CpuPair<Real, Exponent> pair;
  pair.want_gradient = extent.gradient;
  pair.row_count = extent.gradient ? tiles(p.n) + 1 : extent.workers + 1;
  pair.flow_count = extent.workers + 1;
  const std::size_t border = static_cast<std::size_t>(p.m) + 1;
  const std::size_t columns = tiles(p.m);
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
  pair.reached = arena.take<std::int32_t>(tiles(p.n));
  if (extent.entropy) pair.entropy = arena.take<double>(tiles(p.n));
  if (p.band.kind != BandKind::kNone) {
    pair.band = arena.take<CpuRows>(static_cast<std::size_t>(p.n) + p.m - 1);
  }
  pair.row_mantissa = arena.take<Real>(pair.row_count * border);
  pair.row_exponent = arena.take<Exponent>(pair.row_count * border);
  if (!extent.gradient) return pair;
  if (p.subsequence) pair.inflow = arena.take<Real>(p.m);
  if (extent.of_series) {
    pair.grad_x = arena.take<Real>(x_elements);
    pair.grad_y = arena.take<Real>(y_elements);
  }
  pair.column_mantissa = arena.take<Real>(columns * p.n);
  pair.column_exponent = arena.take<Exponent>(columns * p.n);
  pair.flow_below = arena.take<Real>(pair.flow_count * border);
  return pair;
}

// A worker's scratch memory, for any pair of the batch.
template <class Real, class Exponent>
void lay_out_scratch(Arena& arena, const SoftDtwProblem& p, const Extent& extent,
                     CpuPair<Real, Exponent>& pair) {
  const std::size_t h = std::min(p.n, kCpuOneTile);
  const std::size_t w = std::min(p.m, kCpuOneTile);
  const std::size_t slots = h + 2 * kCpuPad;
  pair.diagonal_mantissa = arena.take<Real>(3 * slots);
  pair.diagonal_exponent = arena.take<Exponent>(3 * slots);
  pair.diagonal_cost = arena.take<Real>(kCpuCostDiagonals * slots);
  if (!extent.gradient) return;
  pair.flow_right = arena.take<Real>(2 * h);
  pair.diagonal_flow = arena.take<Real>(4 * slots);
  pair.weight_up = arena.take<Real>(h * w + (h + w) * kCpuPad);
  pair.weight_left = arena.take<Real>(h * w + (h + w) * kCpuPad);
  // A pair of one tile has no neighbouring tile. That tile may also be larger than kCpuTileStride.
  if (extent.of_series && extent.workers > 1 && pair.tile != kCpuOneTile) {
    const std::size_t elements =
        p.cost.data ? 0 : static_cast<std::size_t>(most_features(p)) * kCpuTileStride;
    pair.tile_grad_x = arena.take<Real>(elements);
    pair.tile_grad_y = arena.take<Real>(elements);
  }
}

template <class Pair>
int strips_of(const Pair& pair) {
  return (pair.n + pair.tile - 1) / pair.tile;
}
// The offset, in row_mantissa and row_exponent, of the border row below the last strip. Its last element is
// the result.
template <class Pair>
std::int64_t last_row(const Pair& pair) {
  return strips_of(pair) % pair.row_count * (pair.m + std::int64_t{1});
}

// The length of each step, in the packed order of the series. Null unless the cost is the cosine.
struct Norms {
  double* x = nullptr;
  double* y = nullptr;
};

inline Norms lay_out_norms(Arena& arena, const SoftDtwProblem& p) {
  if (!is_cosine(p)) return {};
  return {arena.take<double>(padded(p.n)), arena.take<double>(padded(p.m))};
}

template <class Storage>
void write_constant(const Job& job, double value, double gradient) {
  const auto g = static_cast<Storage>(gradient);
  if (job.out.grad_gamma) static_cast<Storage*>(job.out.grad_gamma)[job.b] = g;
  static_cast<Storage*>(job.out.value)[job.b] = static_cast<Storage>(value);
  fill_pair(job.out.grad_x, x_steps_of(job), job.p.dim, job.n, job.p.dim, g);
  fill_pair(job.out.grad_y, y_steps_of(job), job.p.dim, job.m, job.p.dim, g);
  fill_pair(job.out.alignment, alignment_rows_of(job), job.p.m, job.n, job.m, g);
  if (job.out.end_values) {
    Storage* const ends =
        static_cast<Storage*>(job.out.end_values) + static_cast<std::int64_t>(job.b) * job.p.m;
    std::fill_n(ends, job.m, static_cast<Storage>(value));
    std::fill_n(ends + job.m, job.p.m - job.m, static_cast<Storage>(std::numeric_limits<double>::infinity()));
  }
}

// The band of an n x m pair by anti-diagonals s: rows i with begin(i) <= s - i < end(i). Because i + begin(i)
// and i + end(i) grow with i, both ends move in one direction.
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

// Sets the factor of a step that is not diagonal, for a penalty times log2(e) / gamma. Returns false if the
// range of the pair's number format is too small for it.
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

// Sets the pair's sizes and packs its inputs into the memory from lay_out().
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
    if (pair.band) fill_pair<Storage>(job.out.alignment, alignment_rows_of(job), p.m, 0, 0, 0);
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
  pack_series<Storage>(p.x, first_element(p.x_offsets, p.x.stride, job.b), job.n, p.dim, false, pair.x_stride,
                       const_cast<Real*>(pair.x));
  pack_series<Storage>(p.y, first_element(p.y_offsets, p.y.stride, job.b), job.m, p.dim, true, pair.y_stride,
                       const_cast<Real*>(pair.y));
  if (pair.x_weight) bind_masks(job, pair);
  if (norms.x) bind_unit_steps(norms, pair);
  pair.metric = metric_of(p.cost_kind);
  pair.buffered = pair.dim > kCpuFewFeatures || pair.metric != Metric::kSquared || pair.x_weight;
  if (pair.grad_x) {
    std::fill_n(pair.grad_x, pair.x_stride * pair.dim, Real(0));
    std::fill_n(pair.grad_y, pair.y_stride * pair.dim, Real(0));
  }
}

}  // namespace warpalign::detail::soft_dtw
