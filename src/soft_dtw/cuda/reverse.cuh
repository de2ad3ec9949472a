// The reverse sweep of one strip: E[n-1,m-1] = 1,
//   E[i,j] = p_up[i+1,j] E[i+1,j] + p_left[i,j+1] E[i,j+1] + p_diagonal[i+1,j+1] E[i+1,j+1],
// where p[i,j] are the shares of Z[i-1,j], Z[i,j-1], Z[i-1,j-1] in their sum: in [0, 1], so that nothing
// overflows for any gamma.
//
// Segments go from the last to the first. From a segment's kept state the lanes' states at the start of its
// groups are recomputed into shared memory; then its groups, from the last to the first, with the transition
// weights of their cells in registers, and each is swept backwards. Strips go from the right-most to the
// left-most.
#pragma once

#include "soft_dtw/cuda/forward.cuh"

namespace warpalign::softdtw {

// E on its way through a lane: what row i + 1 sends up to row i of each column, and diagonally to the column
// before; sideways is what goes to the lane before, for the row that it is about to compute, and the source's
// partial sums over the columns on the right, of that row.
template <class Wave>
struct Flow {
  typename Wave::Real up[Wave::W] = {};
  typename Wave::Real diagonal[Wave::W] = {};
  typename Wave::Real sideways[Wave::kFlow] = {};
};

template <class Wave>
__device__ __forceinline__ void sweep_step(const Wave& w, typename Wave::Source& source, int q,
                                           Flow<Wave>& flow, const typename Wave::Real* from_right,
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
    const Weights<Real> p = weights[k];
    if (k == inject_column) flow.up[k] = Real(1);  // nothing else is there yet
    const Real e = flow.up[k] + incoming;
    // Only incoming is new since the step before: one multiply-add from column to column.
    incoming = incoming * p.left + (flow.up[k] * p.left + flow.diagonal[k]);
    flow.up[k] = e * p.up;
    flow.diagonal[k] = e * ((Real(1) - p.up) - p.left);
    source.take(q, k, e, flow.sideways + 1);
  }
  flow.sideways[0] = incoming;
}

template <class Wave>
__device__ void reverse_strip(const Wave& w, typename Wave::Source& source) {
  using Cell = typename Wave::Cell;
  using State = typename Wave::State;
  using Real = typename Wave::Real;
  constexpr int W = Wave::W;
  constexpr int kFlow = Wave::kFlow;
  const bool right_is_local = w.has_right() && !w.right_is_remote();
  const bool right_is_remote = w.has_right() && w.right_is_remote();
  const bool left_is_local = w.has_left() && !w.left_is_remote();
  const bool left_is_remote = w.has_left() && w.left_is_remote();
  const int right_lag = lag(w.strip);
  const int left_lag = w.has_left() ? lag(w.strip - 1) : 0;
  constexpr int kSegment = Wave::Source::kSegment;
  const int last_group = w.groups - 1;
  // Hand-overs are counted from 0 in the order of the sweep.
  const Real* const right_column = right_is_remote ? w.flow_column(w.strip + 1) : nullptr;
  Real* const left_column = left_is_remote ? w.flow_column(w.strip) : nullptr;

  const int last_column = w.pair.m - 1 - w.strip * 32 * W;
  const int inject_step = !w.has_right() && last_column / W == w.lane ? w.pair.n - 1 + w.lane + w.shift : -1;

  source.begin_reverse();
  cuda::RemoteReader<Wave::kFlowUnits> remote;
  if (right_is_remote) remote.ask(right_column, w.lane);
  Flow<Wave> flow;
  GroupWeights<Cell, W> weights;
  const auto cost = [&](int q, int k) { return source.cost(q, k); };
  const auto ignore = [](int, int, const State&) {};
  State none[kGroup];
  const int segments = div_up(w.groups, kSegment);
  for (int s = segments - 1; s >= 0; --s) {
    const int first = s * kSegment;
    const int count = min(kSegment, w.groups - first);
    source.begin_reverse_segment(s, s == segments - 1);
    if (w.has_left()) {
      // The groups that nothing came for are behind row n - 1: any finite values do.
      const auto* from = reinterpret_cast<const cuda::Word*>(w.border_column(w.strip - 1, true));
      auto* to = reinterpret_cast<cuda::Word*>(w.phase_border);
      __syncwarp();
      for (int i = w.lane; i < count * Wave::kStateUnits; i += 32) {
        const int group = min(first + i / Wave::kStateUnits, last_group - left_lag);
        to[i] = cuda::load_relaxed(from + group * Wave::kStateUnits + i % Wave::kStateUnits);
      }
    }
    const State* const border = w.has_left() ? w.phase_border : nullptr;
    Lane<Cell, W> z;
    w.load(w.kept(s), z);
    __syncwarp();
    for (int i = 0; i + 1 < count; ++i) {
      w.store(w.phase_states + i * (W + 1) * 32 + w.lane, z);
      source.begin_reverse_group(first + i);
      run_group<false>(w.lane, cost, source.scale(), border ? border + i * kGroup : nullptr, z, none, weights,
                       ignore);
    }
    for (int i = count - 1; i >= 0; --i) {
      const int group = first + i;
      if (i + 1 < count) w.load(w.phase_states + i * (W + 1) * 32 + w.lane, z);
      source.begin_reverse_group(group);
      run_group<true>(w.lane, cost, source.scale(), border ? border + i * kGroup : nullptr, z, none, weights,
                      ignore);

      const Real* received = nullptr;
      const bool receives = w.has_right() && group >= right_lag;
      if (receives && right_is_local) {
        w.channel_of(1).receive(last_group - group);
        received = w.template slot_of<Real>(1, last_group - group);
      } else if (receives) {
        remote.receive(w.template inbox<Real>(), w.lane);
        remote.ask(right_column + min(last_group - group + 1, last_group - right_lag) * (kGroup * kFlow),
                   w.lane);
        received = w.template inbox<Real>();
      }
      Real from_right[kGroup][kFlow];
#pragma unroll
      for (int q = 0; q < kGroup; ++q) {
#pragma unroll
        for (int f = 0; f < kFlow; ++f)
          from_right[q][f] = receives && w.lane == 31 ? received[q * kFlow + f] : Real(0);
      }
      const int sent = last_group - left_lag - group;  // negative: these rows are behind row n - 1
      if (left_is_local && sent >= 0) w.own_channel().reserve(sent);
      Real* const out = w.template slot_of<Real>(0, max(sent, 0));
#pragma unroll
      for (int q = kGroup - 1; q >= 0; --q) {
        sweep_step(w, source, q, flow, from_right[q], weights[q],
                   group * kGroup + q == inject_step ? last_column % W : -1);
        if (w.lane == 0) {
#pragma unroll
          for (int f = 0; f < kFlow; ++f) out[q * kFlow + f] = flow.sideways[f];
        }
      }
      source.end_reverse_group(group);
      if (receives && right_is_local && w.lane == 31) w.channel_of(1).release(last_group - group);
      if (left_is_local) {
        if (sent >= 0 && w.lane == 0) w.own_channel().publish(sent);
      } else {
        __syncwarp();
        if (!w.has_left()) {
          source.finish_rows(group * kGroup - w.shift, out);
        } else if (sent >= 0) {
          cuda::send_words<Wave::kFlowUnits>(left_column + sent * (kGroup * kFlow), out, w.lane);
        }
        __syncwarp();
      }
    }
  }
  source.end_reverse();
}

}  // namespace warpalign::softdtw
