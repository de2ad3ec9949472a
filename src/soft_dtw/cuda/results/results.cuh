// The results of a pair after its sweeps: the value and its certification, the gradient with respect to
// gamma, and the zeros after the true lengths.
#pragma once

#include <math_constants.h>

#include "core/constants.h"
#include "soft_dtw/cuda/sweep/wave.cuh"

namespace warpalign::detail::soft_dtw {

template <class Wave>
__device__ __forceinline__ typename Wave::Output output_of(const Wave& w, void* at) {
  return Storage<typename Wave::In>::output(at, w.params.is_float64);
}
// The pair's part of grad_x (n, D) and of end_values (m,).
template <class Wave>
__device__ __forceinline__ typename Wave::Output true_grad_x(const Wave& w) {
  const auto& p = w.params;
  return output_of(w, p.grad_x) + gradient_steps(p.x_offsets, w.pair.index, p.n, w.pair.n).first * p.dim;
}
template <class Wave>
__device__ __forceinline__ typename Wave::Output end_values(const Wave& w) {
  return output_of(w, w.params.end_values) + static_cast<std::int64_t>(w.pair.index) * w.params.m;
}

template <class Wave>
__device__ void clear_record(const Wave& w) {
  *w.record = {Wave::Cell::dead(), {-1, -1}, -1, -1, -1, -1, 0.0};
}

template <class Wave>
__device__ void note_range(const Wave& w, int2 bits) {
  atomicMax(&w.record->range_bits[0], bits.x);
  atomicMax(&w.record->range_bits[1], bits.y);
}

// After the forward sweep of a subsequence's strip: writes the strip's Part, and the values of paths that end
// in its columns. last: Z of the last row in this lane's column.
template <class Wave>
__device__ void note_ends(const Wave& w, typename Wave::State last) {
  const int column = w.strip * 32 + w.lane;
  const double log2_z = column < w.pair.m ? Wave::Cell::log2_of(last) : -CUDART_INF;
  if (w.params.end_values) {
    const bool reachable = log2_z > -1e298;
    if (column < w.pair.m) {
      store_result(end_values(w) + column,
                   reachable ? (0.0 - log2_z) * w.params.half / w.pair.scale : CUDART_INF);
    }
    for (int j = w.pair.m + column; j < w.params.m; j += w.strips * 32)
      store_result(end_values(w) + j, CUDART_INF);
  }
  const double top = cuda::reduce_max(log2_z);
  const int best = __ffs(__ballot_sync(cuda::kFullWarp, log2_z == top)) - 1;
  const double sum = cuda::reduce_sum(top > -CUDART_INF ? exp2(log2_z - top) : 0.0);
  if (w.lane == 0) {
    const bool one_counts = Wave::Cell::kHard || !(sum > 0);
    w.part(w.strip) = {one_counts ? top : top + log2(sum), w.strip * 32 + best};
  }
}

// log2 of the sum of Z over a subsequence's last row, from its strips' parts. Also written to the record.
template <class Wave>
__device__ double join_ends(const Wave& w) {
  double top = -CUDART_INF;
  int best = 0;
  for (int k = 0; k < w.strips; ++k) {
    const double one = *const_cast<const volatile double*>(&w.part(k).sum);
    if (one > top) {
      top = one;
      best = *const_cast<const volatile int*>(&w.part(k).best);
    }
  }
  double sum = 0;
  for (int k = 0; k < w.strips && top > -CUDART_INF; ++k)
    sum += exp2(*const_cast<const volatile double*>(&w.part(k).sum) - top);
  w.record->best = best;
  w.record->sum = Wave::Cell::kHard || !(sum > 0) ? top : top + log2(sum);
  return w.record->sum;
}

// Whether Cell32's value is accurate.
//
// With |c| < 2^22 costs are rounded to integers exactly. Exponents saturate at -2^30. That has no effect if
// |R| < 2^29 in all cells, or if costs are never negative and the last exponent is far from saturation. If a
// band leaves no path to the last cell, the pair is not certified, and Cell64 decides.
template <class Wave>
__device__ bool is_certain(const Wave& w, double log2_z, int2 range_bits) {
  constexpr double kMostCost = 4194304.0;  // 2^22
  constexpr double kSafe = 1 << 29;
  const Params& p = w.params;
  double largest = Wave::Source::largest_cost(p, range_bits, w.pair.scale);
  if constexpr (Wave::kOptions) {
    const double penalty = p.step_penalty * (w.pair.scale / p.half);
    if (!(penalty < kMostCost) || !(log2_z > -kSafe)) return false;
    largest += penalty;
  }
  if (!(largest < kMostCost) || !(w.pair.scale > 0)) return false;
  if ((static_cast<double>(w.pair.n) + w.pair.m) * largest < kSafe) return true;
  const bool only_sum_counts = !Wave::kAll || !p.end_values;
  return !p.cost && only_sum_counts && log2_z > -kSafe;
}

// Writes the pair's value. Called by one thread, after the pair's forward sweep. Returns whether the reverse
// sweep may run. A pair that Cell32 does not certify is only marked.
template <class Wave>
__device__ __forceinline__ int finish_value(const Wave& w) {
  using Cell = typename Wave::Cell;
  const Params& p = w.params;
  const auto* r = const_cast<const volatile typename Wave::Record*>(w.record);
  typename Wave::State last;
  for (int k = 0; k < static_cast<int>(sizeof(last) / 8); ++k) {
    reinterpret_cast<cuda::Word*>(&last)[k] =
        cuda::load_relaxed(reinterpret_cast<const cuda::Word*>(&w.record->last) + k);
  }
  int2 bits{r->range_bits[0], r->range_bits[1]};
  double log2_z = Cell::log2_of(last);
  if (Wave::kAll && p.subsequence) log2_z = join_ends(w);
  double value = (0.0 - log2_z) * p.half / w.pair.scale;  // not -0 of log2_z = 0
  if constexpr (Cell::kDual) value = -last.tangent * p.half / w.pair.scale;
  bool usable;
  if constexpr (Cell::kCertifies) {
    usable = is_certain(w, log2_z, bits);
    p.uncertified[w.pair.index] = !usable;
    if (!usable) return false;
  } else {
    const bool has_scale = w.pair.scale > 0 && w.pair.scale < CUDART_INF;
    if (!has_scale) w.record->range_bits[0] = bits.x = 1;  // as if there were a NaN
    const bool reachable = log2_z > -1e298;
    usable = bits.x <= 0 && reachable;
    if (!reachable) value = Cell::kDual ? 0.0 : CUDART_INF;
    if (bits.x > 0) value = CUDART_NAN;
  }
  store_result(output_of(w, p.value) + w.pair.index, value);
  if (Wave::kAll && !usable && p.end_values) {
    for (int j = 0; j < w.pair.m; ++j) store_result(end_values(w) + j, value);
  }
  return usable;
}

// Writes the derivative with respect to gamma, -ln 2 times the entropy of all transitions. Called by one
// thread, after the pair's reverse sweep.
template <class Wave>
__device__ __forceinline__ void finish_grad_gamma(const Wave& w) {
  double bits = 0;
  for (int k = 0; k < w.strips; ++k) bits += *const_cast<const volatile double*>(&w.part(k).sum);
  store_result(output_of(w, w.params.grad_gamma) + w.pair.index, bits * -kLn2<double>);
}

// Writes zeros to the rows and columns after the true lengths, and `inside` everywhere else unless the
// gradient is usable.
template <class Wave>
__device__ __forceinline__ void fill(const Wave& w, typename Wave::Output out, int rows, int columns,
                                     int true_rows, int true_columns, bool usable, float inside) {
  if (!out || (usable && rows == true_rows && columns == true_columns)) return;
  const std::size_t size = static_cast<std::size_t>(rows) * columns;
  const int warps = w.params.layout.warps;
  const int threads = warps * Wave::Source::kRoles * 32;
  for (std::size_t k = (w.role * warps + w.warp) * 32 + w.lane; k < size; k += threads) {
    const bool is_inside =
        static_cast<int>(k / columns) < true_rows && static_cast<int>(k % columns) < true_columns;
    if (!is_inside || !usable) store_result(out + k, is_inside ? inside : 0.0f);
  }
}

// Writes zeros to all gradients after the true lengths. If there is no gradient, writes NaN in its place, or
// 0 if no path is finite.
template <class Wave>
__device__ void fill_outside(const Wave& w, bool usable) {
  const Params& p = w.params;
  const auto& pair = w.pair;
  const bool has_nan = const_cast<const volatile typename Wave::Record*>(w.record)->range_bits[0] > 0;
  const float inside = has_nan && !Wave::Cell::kCertifies ? CUDART_NAN_F : 0.0f;
  fill(w, pair.grad_x, p.x_offsets ? pair.n : p.n, p.dim, pair.n, p.dim, usable, inside);
  fill(w, pair.grad_y, p.y_offsets ? pair.m : p.m, p.dim, pair.m, p.dim, usable, inside);
  fill(w, pair.alignment, p.n, p.m, pair.n, pair.m, usable, inside);
  if constexpr (Wave::kAll)
    fill(w, behind(output_of(w, p.grad_gamma), pair.index), 1, 1, 1, 1, usable, inside);
}

}  // namespace warpalign::detail::soft_dtw
