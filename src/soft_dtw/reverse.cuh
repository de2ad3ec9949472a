// The reverse sweep: E[n-1,m-1] = 1,
//   E[i,j] = p_up[i+1,j] E[i+1,j] + p_left[i,j+1] E[i,j+1] + p_diagonal[i+1,j+1] E[i+1,j+1],
// where p[i,j] are the shares of Z[i-1,j], Z[i,j-1], Z[i-1,j-1] in their sum: in [0, 1], so that nothing
// overflows for any gamma. Phases go from the last to the first; each is recomputed from its kept state with
// its weights in registers, and swept. Strips go from the right-most to the left-most, pipelined as in the
// forward sweep.
//
// Groups are counted in the order of the sweep: group j holds rows (groups - 1 - j) * kGroup + [0, kGroup).
#pragma once

#include "soft_dtw/wavefront.cuh"

namespace warpalign::softdtw {

// E on its way through a lane: what row i + 1 sends up to row i of each column, and diagonally to the column
// before; sideways is what goes to the lane before, for the row that it is about to compute; carried are the
// source's partial sums over the columns on the right, of that row.
template <class Wave>
struct Flow {
  typename Wave::Real up[Wave::W] = {};
  typename Wave::Real diagonal[Wave::W] = {};
  typename Wave::Real sideways[Wave::kFlow] = {};
};

// Weights of one phase's cells.
template <class Wave>
__device__ __forceinline__ void recompute(const Wave& w, typename Wave::Source& source, int strip, int phase,
                                          Weights<typename Wave::Real> (&weights)[kPhase][Wave::W]) {
  using State = typename Wave::State;
  constexpr int W = Wave::W;
  const State* kept = w.state_at(strip, phase);
  State above[W];
#pragma unroll
  for (int k = 0; k < W; ++k) above[k] = kept[k * 32];
  State diagonal = kept[W * 32];
#pragma unroll
  for (int offset = 0; offset < kPhase; offset += kGroup) {
    const int s0 = phase * kPhase + offset;
    State border[kGroup];
#pragma unroll
    for (int q = 0; q < kGroup; ++q) {
      border[q] = Wave::Cell::dead();
      if (strip > 0 && w.lane == 0) border[q] = w.border_column(strip - 1, true)[min(s0 + q, w.pair.n - 1)];
    }
    source.begin_group(s0);
#pragma unroll
    for (int q = 0; q < kGroup; ++q) {
      w.template step<true>([&](int k) { return source.cost(q, k); }, border[q], above, diagonal,
                            weights[offset + q]);
    }
  }
}

template <class Wave>
__device__ __forceinline__ void sweep_step(const Wave& w, typename Wave::Source& source, int q,
                                           Flow<Wave>& flow,
                                           const typename Wave::Real (&from_right)[Wave::kFlow],
                                           const Weights<typename Wave::Real> (&weights)[Wave::W],
                                           int inject_column) {
  using Real = typename Wave::Real;
#pragma unroll
  for (int f = 0; f < Wave::kFlow; ++f) {
    const Real incoming = __shfl_down_sync(cuda::kFullWarp, flow.sideways[f], 1);
    flow.sideways[f] = w.lane == 31 ? from_right[f] : incoming;
  }
  Real incoming = flow.sideways[0];
#pragma unroll
  for (int k = Wave::W - 1; k >= 0; --k) {
    Real e = flow.up[k] + incoming;
    if (k == inject_column) e += Real(1);
    const Real e_up = e * weights[k].up;
    const Real rest = e - e_up;
    const Real e_left = min(e * weights[k].left, rest);
    flow.up[k] = e_up;
    incoming = e_left + flow.diagonal[k];
    flow.diagonal[k] = rest - e_left;
    source.take(q, k, e, flow.sideways + 1);
  }
  flow.sideways[0] = incoming;
}

template <class Wave>
__device__ __forceinline__ void publish_flow(const Wave& w, bool wraps, int group) {
  if (wraps) {
    cuda::publish_count(&w.wrap->reverse, group + 1);
  } else {
    w.channel(w.warp).publish(group);
  }
}

template <class Wave>
__device__ __forceinline__ void await_flow(const Wave& w, bool wraps, int group) {
  if (wraps) {
    cuda::await_count(&w.wrap->reverse, group + 1);
  } else {
    w.channel(w.warp - 1).receive(group);
  }
}

// Flow into the strip's last column, for lane 31, which at this group needs rows row + [0, kGroup): the last
// row is the first of group + kLag - 1, those before it are the others of group + kLag.
template <class Wave>
__device__ __forceinline__ void receive_flow(const Wave& w, bool wraps, int base, int group, int row,
                                             typename Wave::Real (&from_right)[kGroup][Wave::kFlow]) {
  constexpr int kFlow = Wave::kFlow;
  const int newest = group + kLag;
  for (int g = 0; group == 0 && g < kLag; ++g) await_flow(w, wraps, base + g);
  if (newest < w.groups) await_flow(w, wraps, base + newest);
  if (w.lane != 31) return;
  const auto* first = wraps ? w.flow_column + (row - 1) * kFlow : w.flow_queue(w.warp - 1, base + newest);
  const auto* last =
      wraps ? w.flow_column + (row + kGroup - 1) * kFlow : w.flow_queue(w.warp - 1, base + newest - 1);
#pragma unroll
  for (int f = 0; f < kFlow; ++f) {
#pragma unroll
    for (int q = 0; q + 1 < kGroup; ++q) {
      from_right[q][f] = row >= 0 ? first[(q + 1) * kFlow + f] : 0;
    }
    from_right[kGroup - 1][f] = row + kGroup - 1 >= 0 ? last[f] : 0;
  }
  if (wraps) return;
  const cuda::Channel from = w.channel(w.warp - 1);
  for (int g = 0; group == 0 && g < kLag - 1; ++g) from.release(base + g);
  if (newest <= w.groups) from.release(base + newest - 1);
}

template <class Wave>
__device__ __forceinline__ void send_flow(const Wave& w, bool wraps, int base, int group, int s0,
                                          const typename Wave::Real (&out)[kGroup][Wave::kFlow]) {
  constexpr int kFlow = Wave::kFlow;
  if (!wraps) w.channel(w.warp).reserve(base + group);
  if (w.lane != 0) return;
  auto* to = wraps ? w.flow_column + s0 * kFlow : w.flow_queue(w.warp, base + group);
#pragma unroll
  for (int q = 0; q < kGroup; ++q) {
#pragma unroll
    for (int f = 0; f < kFlow; ++f) to[q * kFlow + f] = out[q][f];
  }
  publish_flow(w, wraps, base + group);
}

template <class Wave>
__device__ void reverse_strip(const Wave& w, typename Wave::Source& source, int strip, int base,
                              int groups_per_strip) {
  using Real = typename Wave::Real;
  constexpr int W = Wave::W;
  const bool has_left = strip > 0;
  const bool has_right = strip + 1 < w.strips;
  const bool right_wraps = has_right && w.warp == 0;
  const bool left_wraps = has_left && w.warp + 1 == w.warps;
  const int right_base = right_wraps ? base - groups_per_strip : base;

  const int last_column = w.pair.m - 1 - strip * 32 * W;
  const int inject_step = !has_right && last_column / W == w.lane ? w.pair.n - 1 + w.lane : -1;

  source.begin_reverse(w.pair, strip * 32 * W, w.phases);
  Flow<Wave> flow;
  Real from_right[kGroup][Wave::kFlow] = {};
  for (int phase = w.phases - 1; phase >= 0; --phase) {
    const int start = phase * kPhase;
    source.begin_reverse_phase(start);
    Weights<Real> weights[kPhase][W];
    recompute(w, source, strip, phase, weights);
#pragma unroll
    for (int offset = kPhase - kGroup; offset >= 0; offset -= kGroup) {
      const int s0 = start + offset;
      const int group = w.groups - 1 - s0 / kGroup;
      if (has_right) receive_flow(w, right_wraps, right_base, group, s0 - 31, from_right);
      source.begin_group(s0);
      Real out[kGroup][Wave::kFlow];
#pragma unroll
      for (int q = kGroup - 1; q >= 0; --q) {
        sweep_step(w, source, q, flow, from_right[q], weights[offset + q],
                   s0 + q == inject_step ? last_column % W : -1);
#pragma unroll
        for (int f = 0; f < Wave::kFlow; ++f) out[q][f] = flow.sideways[f];
      }
      if (has_left) {
        send_flow(w, left_wraps, base, group, s0, out);
      } else if (w.lane == 0) {
        source.finish_rows(s0, out);
      }
    }
    // Tiles are added to grad_x strip by strip from the right, so that the sum has the same bits every time.
    // What the strip on the right has sent so far shows that it is done with this tile, but for the last one.
    if (phase == 0 && has_right) {
      await_flow(w, right_wraps, right_base + w.groups);
      if (!right_wraps && w.lane == 31) w.channel(w.warp - 1).release(right_base + w.groups);
    }
    source.end_reverse_phase(start, !has_right);
  }
  source.end_reverse();
  if (!has_left) return;
  if (!left_wraps) w.channel(w.warp).reserve(base + w.groups);
  if (w.lane == 0) publish_flow(w, left_wraps, base + w.groups);
}

template <class Wave>
__device__ void reverse_sweep(const Wave& w, typename Wave::Source& source) {
  const int groups = w.groups + 1;  // the last one says that the strip is done with grad_x
  for (int order = w.warp, base = 0; order < w.strips; order += w.warps, base += groups) {
    reverse_strip(w, source, w.strips - 1 - order, base, groups);
  }
}

}  // namespace warpalign::softdtw
