// The reverse sweep of one strip: E[n-1,m-1] = 1,
//   E[i,j] = p_up[i+1,j] E[i+1,j] + p_left[i,j+1] E[i,j+1] + p_diagonal[i+1,j+1] E[i+1,j+1],
// where p[i,j] are the shares of Z[i-1,j], Z[i,j-1], Z[i-1,j-1] in their sum: in [0, 1], so that nothing
// overflows for any gamma.
//
// Segments go from the last to the first, and so do their groups, whose weights are recomputed
// (recompute.cuh) and swept backwards. Strips go from the right-most to the left-most.
#pragma once

#include "soft_dtw/cuda/recompute.cuh"

namespace warpalign::detail::soft_dtw {

// E on its way through a lane: what row i + 1 sends up to row i of each column, and diagonally to the column
// before; sideways is what goes to the lane before, for the row that it is about to compute, and the source's
// partial sums over the columns on the right, of that row.
template <class Wave>
struct Flow {
  typename Wave::Real up[Wave::W] = {};
  typename Wave::Real diagonal[Wave::W] = {};
  typename Wave::Real sideways[Wave::kFlow] = {};
  typename Wave::Real last;  // E of the cell just passed
};

template <class Wave>
__device__ __forceinline__ void sweep_step(const Wave& w, typename Wave::Source& source, int q,
                                           Flow<Wave>& flow, const typename Wave::Real* from_right,
                                           const Weights<typename Wave::Real> (&weights)[Wave::W],
                                           int inject_column, typename Wave::Real injected) {
  using Real = typename Wave::Real;
#pragma unroll
  for (int f = 0; f < Wave::kFlow; ++f) {
    const Real incoming = cuda::shuffle_down(flow.sideways[f]);
    flow.sideways[f] = w.lane == 31 ? from_right[f] : incoming;
  }
  Real incoming = flow.sideways[0];
#pragma unroll
  for (int k = Wave::W - 1; k >= 0; --k) {
    const Weights<Real> p = weights[k];
    if (k == inject_column) flow.up[k] = injected;  // nothing else is there yet
    const Real e = flow.up[k] + incoming;
    if (Wave::kAll) flow.last = e;
    // Only incoming is new since the step before: one multiply-add from column to column.
    incoming = incoming * p.left + (flow.up[k] * p.left + flow.diagonal[k]);
    flow.up[k] = e * p.up;
    flow.diagonal[k] = e * ((Real(1) - p.up) - p.left);
    source.take(q, k, e, flow.sideways + 1);
  }
  flow.sideways[0] = incoming;
}

// -sum p log2 p of a cell's transitions.
template <class Real>
__device__ __forceinline__ Real entropy_of(Weights<Real> p) {
  const auto part = [](Real share) { return share > Real(0) ? share * log2(share) : Real(0); };
  return -(part(p.up) + part(p.left) + part((Real(1) - p.up) - p.left));
}

// Of a subsequence: a cell's share of all that the last row ends with.
template <class Wave>
__device__ __forceinline__ typename Wave::Real end_share(const Wave& w, typename Wave::State end) {
  using Real = typename Wave::Real;
  if constexpr (Wave::Cell::kHard) return w.record->best == w.strip * 32 + w.lane ? Real(1) : Real(0);
  return static_cast<Real>(exp2(Wave::Cell::log2_of(end) - w.record->sum));
}

// What a lane begins with where its sweep is met by the other one: the shares of paths that take its steps
// across.
template <class Wave>
__device__ Flow<Wave> flow_across(const Wave& w) {
  using Cell = typename Wave::Cell;
  using State = typename Wave::State;
  const Crossings<Wave> c = crossings(w, w.true_strip(), w.from_back);
  const State all = Cell::normal(w.record->last);
  const auto share = [&](State part) { return cuda::scaled(part, all.exponent) / all.mantissa; };
  Flow<Wave> flow;
#pragma unroll
  for (int k = 0; k < Wave::W; ++k) {
    flow.up[k] = share(c.up[k]);
    flow.diagonal[k] = share(c.diagonal[k]);
  }
  flow.sideways[0] = share(c.sideways);
  return flow;
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
  // Hand-overs are counted from 0 in the order of the sweep.
  const Real* const right_column = right_is_remote ? w.flow_column(w.strip + 1) : nullptr;
  Real* const left_column = left_is_remote ? w.flow_column(w.strip) : nullptr;

  const int last_column = w.pair.m - 1 - w.strip * 32 * W;
  const bool injects = !w.has_right() && !w.meets && last_column / W == w.lane;
  int inject_step = injects ? w.pair.n - 1 + w.lane + w.shift : -1;
  const bool subsequence = Wave::kAll && w.params.subsequence;
  if (subsequence && w.strip * 32 + w.lane < w.pair.m) inject_step = w.pair.n - 1 + w.lane + w.shift;
  [[maybe_unused]] double entropy = 0;

  source.begin_reverse();
  cuda::RemoteReader<Wave::kFlowUnits> remote;
  if (right_is_remote && w.to_right.first < w.to_right.end) remote.ask(right_column, w.lane);
  Flow<Wave> flow;
  if constexpr (Wave::kMeets) {
    if (w.meets) flow = flow_across(w);
  }
  Recomputation<Wave> recomputed(w, source);
  GroupWeights<Cell, W> weights;
  const int segments = Recomputation<Wave>::segments(w);
  for (int s = segments - 1; s >= 0; --s) {
    const int first = Recomputation<Wave>::first_group(w, s);
    const int count = Recomputation<Wave>::groups(w, s);
    if constexpr (!Wave::Source::kTakesWeights) {
      source.begin_reverse_segment(s, s == segments - 1);
      recomputed.begin(s);
    } else {
      source.begin_taking(recomputed, segments - 1 - s, s);
    }
    for (int i = count - 1; i >= 0; --i) {
      const int group = first + i;
      if constexpr (!Wave::Source::kTakesWeights) {
        recomputed.weigh(i, weights);
      } else {
        source.take_weights(segments - 1 - s, i, group, weights);
      }

      const Real* received = nullptr;
      const bool receives = w.to_right.hold(group);
      const int arrival = w.to_right.end - 1 - group;
      if (receives && right_is_local) {
        w.channel_of(1).receive(arrival);
        received = w.template slot_of<Real>(1, arrival);
      } else if (receives) {
        remote.receive(w.template inbox<Real>(), w.lane);
        const int next = min(arrival + 1, w.to_right.end - 1 - w.to_right.first);
        remote.ask(right_column + next * (kGroup * kFlow), w.lane);
        received = w.template inbox<Real>();
      }
      Real from_right[kGroup][kFlow];
#pragma unroll
      for (int q = 0; q < kGroup; ++q) {
#pragma unroll
        for (int f = 0; f < kFlow; ++f)
          from_right[q][f] = receives && w.lane == 31 ? received[q * kFlow + f] : Real(0);
      }
      const int sent = w.from_left.end - 1 - group;
      const bool sends = w.from_left.hold(group);
      const bool writes = w.lane == 0 && (sends || !w.has_left());
      if (left_is_local && sends) w.own_channel().reserve(sent);
      Real* const out = w.template slot_of<Real>(0, max(sent, 0));
      Real injected = Real(1);
      if (subsequence && group * kGroup <= inject_step && inject_step < (group + 1) * kGroup) {
        State end = Cell::dead();
#pragma unroll
        for (int q = 0; q < kGroup; ++q) {
          const State last = recomputed.out[q];
          if (group * kGroup + q == inject_step) end = last;
        }
        injected = end_share(w, end);
      }
      const auto sweep_back = [&](const auto& note) {
#pragma unroll
        for (int q = kGroup - 1; q >= 0; --q) {
          const bool injects_now = group * kGroup + q == inject_step;
          sweep_step(w, source, q, flow, from_right[q], weights[q], injects_now ? last_column % W : -1,
                     injected);
          note(q);
          if (writes) {
#pragma unroll
            for (int f = 0; f < kFlow; ++f) out[q * kFlow + f] = flow.sideways[f];
          }
        }
      };
      if constexpr (Wave::kAll && !Cell::kDual) {
        if (w.params.grad_gamma) {  // in its own copy, so that others have nothing of it
          Real sum = 0;
          sweep_back([&](int q) { sum += flow.last * entropy_of(weights[q][0]); });
          entropy += static_cast<double>(sum);
        } else {
          sweep_back([](int) {});
        }
      } else {
        sweep_back([](int) {});
      }
      source.end_reverse_group(group);
      if (receives && right_is_local && w.lane == 31) w.channel_of(1).release(arrival);
      if (left_is_local) {
        if (sends && w.lane == 0) w.own_channel().publish(sent);
      } else {
        __syncwarp();
        if (!w.has_left()) {
          source.finish_rows(group * kGroup - w.shift, out);
        } else if (sends) {
          cuda::send_words<Wave::kFlowUnits>(left_column + sent * (kGroup * kFlow), out, w.lane);
        }
        __syncwarp();
      }
    }
  }
  source.end_reverse();
  if constexpr (Wave::kAll) {
    if (!w.params.grad_gamma) return;
    entropy = cuda::reduce_sum(entropy);
    if (w.lane == 0) w.part(w.strip) = {entropy, 0};
  }
}

}  // namespace warpalign::detail::soft_dtw
