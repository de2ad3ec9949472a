// The forward sweep: Z[i,j] = 2^-c[i,j] (Z[i-1,j] + Z[i,j-1] + Z[i-1,j-1]), 0 <= i < n, 0 <= j < m, Z[-1,-1]
// = 1.
//
// Rows outside [0, n) are computed too: before row 0 everything is out of reach and stays so, and what lies
// behind row n - 1 reaches nothing, so that no step needs a branch. With kKeep every strip's last column and
// the lanes' states at every phase are kept in scratch.
#pragma once

#include "soft_dtw/wavefront.cuh"

namespace warpalign::softdtw {

template <class Wave>
__device__ __forceinline__ void publish_border(const Wave& w, bool wraps, int group) {
  if (wraps) {
    cuda::publish_count(&w.wrap->forward, group + 1);
  } else {
    w.channel(w.warp).publish(group);
  }
}

// Z of the column left of the strip, for lane 0. base: number of the strip's first group in its channels'
// counting.
template <class Wave>
__device__ __forceinline__ void receive_border(const Wave& w, const typename Wave::State* left_column,
                                               bool wraps, int base, int group,
                                               typename Wave::State (&border)[kGroup]) {
  if (wraps) {
    cuda::await_count(&w.wrap->forward, base - w.groups + group + 1);
  } else {
    w.channel(w.warp - 1).receive(base + group);
  }
  if (w.lane != 0) return;
#pragma unroll
  for (int q = 0; q < kGroup; ++q) {
    border[q] = wraps ? left_column[min(group * kGroup + q, w.pair.n - 1)]
                      : w.border_queue(w.warp - 1, base + group)[q];
  }
  if (!wraps) w.channel(w.warp - 1).release(base + group);
}

// Lane 31's rows group * kGroup - 31 + [0, kGroup) go right: the first ones complete group - kLag, the last
// one opens the group behind it.
template <bool kKeep, class Wave>
__device__ __forceinline__ void send_border(const Wave& w, typename Wave::State* column, bool wraps, int base,
                                            int group, const typename Wave::State (&out)[kGroup]) {
  const int complete = base + group - kLag;
  if (!wraps && group >= kLag - 1) w.channel(w.warp).reserve(complete + 1);
  if (w.lane != 31) return;
  const int row = group * kGroup - 31;
  if (!wraps && group >= kLag) {
#pragma unroll
    for (int q = 0; q + 1 < kGroup; ++q) w.border_queue(w.warp, complete)[q + 1] = out[q];
  }
  if (!wraps && group >= kLag - 1) *w.border_queue(w.warp, complete + 1) = out[kGroup - 1];
  if (kKeep || wraps) {
    const bool inside = row >= 0 && row + kGroup <= w.pair.n;
#pragma unroll
    for (int q = 0; q < kGroup; ++q) {
      if (inside || (row + q >= 0 && row + q < w.pair.n)) column[row + q] = out[q];
    }
  }
  if (group >= kLag) publish_border(w, wraps, complete);
}

// The steps of one group. kCapture: Z[n-1, m-1] is among them, in column k of the lane whose result_step it
// is.
template <bool kCapture, class Wave>
__device__ __forceinline__ void forward_group(const Wave& w, const typename Wave::Source& source, int s0,
                                              const typename Wave::State (&border)[kGroup],
                                              typename Wave::State (&above)[Wave::W],
                                              typename Wave::State& diagonal,
                                              typename Wave::State (&out)[kGroup], int result_step,
                                              int result_column) {
#pragma unroll
  for (int q = 0; q < kGroup; ++q) {
    w.template step<false>([&](int k) { return source.cost(q, k); }, border[q], above, diagonal, nullptr);
    out[q] = above[Wave::W - 1];
    if (kCapture && s0 + q == result_step) {
#pragma unroll
      for (int k = 0; k < Wave::W; ++k) {
        if (k == result_column) w.result->last = above[k];
      }
    }
  }
}

template <bool kKeep, class Wave>
__device__ void forward_strip(const Wave& w, typename Wave::Source& source, int strip, int base) {
  using State = typename Wave::State;
  using Cell = typename Wave::Cell;
  constexpr int W = Wave::W;
  const bool has_left = strip > 0;
  const bool has_right = strip + 1 < w.strips;
  const bool left_wraps = has_left && w.warp == 0;
  const bool right_wraps = has_right && w.warp + 1 == w.warps;

  const int last_column = w.pair.m - 1 - strip * 32 * W;  // within the strip, if it is the last one
  const int last_step = w.pair.n - 1 + last_column / W;   // at which it meets the last row
  const int result_step = last_column / W == w.lane ? last_step : -1;

  State above[W];
#pragma unroll
  for (int k = 0; k < W; ++k) above[k] = Cell::dead();
  State diagonal = strip == 0 && w.lane == 0 ? Cell::one() : Cell::dead();
  State border[kGroup];
#pragma unroll
  for (int q = 0; q < kGroup; ++q) border[q] = Cell::dead();

  source.begin_forward(w.pair, strip * 32 * W);
  for (int group = 0; group < w.groups; ++group) {
    const int s0 = group * kGroup;
    if (s0 % kPhase == 0) {
      source.begin_forward_phase(s0);
      if constexpr (kKeep) {
        State* kept = w.state_at(strip, s0 / kPhase);
#pragma unroll
        for (int k = 0; k < W; ++k) kept[k * 32] = above[k];
        kept[W * 32] = diagonal;
      }
    }
    source.begin_noted_group(s0);
    if (has_left) receive_border(w, w.border_column(strip - 1, kKeep), left_wraps, base, group, border);
    State out[kGroup];
    if (!has_right && last_step / kGroup == group) {
      forward_group<true>(w, source, s0, border, above, diagonal, out, result_step, last_column % W);
    } else {
      forward_group<false>(w, source, s0, border, above, diagonal, out, -1, 0);
    }
    if (has_right) send_border<kKeep>(w, w.border_column(strip, kKeep), right_wraps, base, group, out);
  }
  if (!has_right) return;
  for (int group = base + w.groups - kLag; group < base + w.groups; ++group) {
    if (!right_wraps) w.channel(w.warp).reserve(group + 1);
    if (w.lane == 31) publish_border(w, right_wraps, group);
  }
}

template <bool kKeep, class Wave>
__device__ void forward_sweep(const Wave& w, typename Wave::Source& source) {
  for (int strip = w.warp, base = 0; strip < w.strips; strip += w.warps, base += w.groups) {
    forward_strip<kKeep>(w, source, strip, base);
  }
  const int2 bits = source.range_bits();
  atomicMax(&w.result->range_bits.x, bits.x);
  atomicMax(&w.result->range_bits.y, bits.y);
}

}  // namespace warpalign::softdtw
