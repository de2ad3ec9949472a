// The reverse sweep of one strip: E[n-1,m-1] = 1,
//   E[i,j] = p_up[i+1,j] E[i+1,j] + p_left[i,j+1] E[i,j+1] + p_diagonal[i+1,j+1] E[i+1,j+1],
// where p[i,j] are the shares of Z[i-1,j], Z[i,j-1], Z[i-1,j-1] in their sum. Shares are in [0, 1], so that
// nothing overflows for any gamma.
//
// Strips go from the right-most to the left-most. Segments go from the last to the first, and so do their
// groups. The weights of a group are recomputed (recompute.cuh), and the group is swept backwards.
#pragma once

#include "soft_dtw/cuda/sweep/hand_over.cuh"
#include "soft_dtw/cuda/sweep/recompute.cuh"

namespace warpalign::detail::soft_dtw {

// E in flight in a lane. up: from row i + 1 to row i, for each column. diagonal: from row i + 1 to row i of
// the previous column. sideways: to the previous lane, for the row that it computes next, with the source's
// partial sums of that row over the columns on the right.
template <class Wave>
struct Flow {
  typename Wave::Real up[Wave::W] = {};
  typename Wave::Real diagonal[Wave::W] = {};
  typename Wave::Real sideways[Wave::kFlow] = {};
  typename Wave::Real last;  // E of the last cell
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
    if (k == inject_column) flow.up[k] = injected;  // no other E has arrived yet
    const Real e = flow.up[k] + incoming;
    if (Wave::kAll) flow.last = e;
    // Only `incoming` depends on the previous column: one multiply-add per column on the critical path.
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

// The probability that a subsequence's path ends in a cell of the last row. end: Z of the cell.
template <class Wave>
__device__ __forceinline__ typename Wave::Real end_share(const Wave& w, typename Wave::State end) {
  using Real = typename Wave::Real;
  if constexpr (Wave::Cell::kHard) return w.record->best == w.strip * 32 + w.lane ? Real(1) : Real(0);
  return static_cast<Real>(exp2(Wave::Cell::log2_of(end) - w.record->sum));
}

// The E that a lane starts with at the meeting of two sweeps: the probabilities of the lane's steps across.
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

// The place at which E enters a strip's sweep, if not from the right: E[n-1, m-1] = 1, or, for a subsequence,
// every column of the last row.
struct Entry {
  int step;    // of this lane; -1: none
  int column;  // of the lane
};
template <class Wave>
__device__ __forceinline__ Entry entry_of(const Wave& w) {
  const int last_column = w.pair.m - 1 - w.strip * 32 * Wave::W;
  const bool is_mine = !w.has_right() && !w.meets && last_column / Wave::W == w.lane;
  const bool in_all_columns = Wave::kAll && w.params.subsequence && w.strip * 32 + w.lane < w.pair.m;
  return {is_mine || in_all_columns ? w.pair.n - 1 + w.lane + w.shift : -1, last_column % Wave::W};
}

// The E that enters in this group: 1, or, for a subsequence, the probability that a path ends in this lane's
// column.
template <class Wave>
__device__ __forceinline__ typename Wave::Real entering(const Wave& w, int group, const Entry& entry,
                                                        const typename Wave::State (&states)[kGroup]) {
  using Real = typename Wave::Real;
  if (!Wave::kAll || !w.params.subsequence) return Real(1);
  if (group * kGroup > entry.step || entry.step >= (group + 1) * kGroup) return Real(1);
  typename Wave::State end = Wave::Cell::dead();
#pragma unroll
  for (int q = 0; q < kGroup; ++q) {
    const typename Wave::State last = states[q];  // read first, so that states stay in registers
    if (group * kGroup + q == entry.step) end = last;
  }
  return end_share(w, end);
}

// A group's steps, from the last to the first. out: FlowToLeft::reserve(). note(q): called after each step.
template <class Wave, class Note>
__device__ __forceinline__ void sweep_group(const Wave& w, typename Wave::Source& source, int group,
                                            Flow<Wave>& flow,
                                            const typename Wave::Real (&from_right)[kGroup][Wave::kFlow],
                                            const GroupWeights<typename Wave::Cell, Wave::W>& weights,
                                            const Entry& entry, typename Wave::Real entering,
                                            typename Wave::Real* out, const Note& note) {
#pragma unroll
  for (int q = kGroup - 1; q >= 0; --q) {
    const bool enters = group * kGroup + q == entry.step;
    sweep_step(w, source, q, flow, from_right[q], weights[q], enters ? entry.column : -1, entering);
    note(q);
    if (out) {
#pragma unroll
      for (int f = 0; f < Wave::kFlow; ++f) out[q * Wave::kFlow + f] = flow.sideways[f];
    }
  }
}

template <class Wave>
__device__ void reverse_strip(const Wave& w, typename Wave::Source& source) {
  using Cell = typename Wave::Cell;
  using Real = typename Wave::Real;
  constexpr int W = Wave::W;
  const Entry entry = entry_of(w);
  [[maybe_unused]] double entropy = 0;
  source.begin_reverse();
  FlowFromRight<Wave> right(w);
  FlowToLeft<Wave> left(w);
  Flow<Wave> flow;
  if constexpr (Wave::kMeets) {
    if (w.meets) flow = flow_across(w);
  }
  Recomputation<Wave> recomputed(w, source);
  GroupWeights<Cell, W> weights;
  const int segments = Recomputation<Wave>::segments(w);
  for (int s = segments - 1; s >= 0; --s) {
    const int first = Recomputation<Wave>::first_group(w, s);
    if constexpr (!Wave::Source::kTakesWeights) {
      source.begin_reverse_segment(s, s == segments - 1);
      recomputed.begin(s);
    } else {
      source.begin_taking(recomputed, segments - 1 - s, s);
    }
    for (int i = Recomputation<Wave>::groups(w, s) - 1; i >= 0; --i) {
      const int group = first + i;
      if constexpr (!Wave::Source::kTakesWeights) {
        recomputed.weigh(i, weights);
      } else {
        source.take_weights(segments - 1 - s, i, group, weights);
      }
      Real from_right[kGroup][Wave::kFlow];
      right.receive(group, from_right);
      Real* const out = left.reserve(group);
      const Real e = entering(w, group, entry, recomputed.out);
      const auto sweep = [&](const auto& note) {
        sweep_group(w, source, group, flow, from_right, weights, entry, e, out, note);
      };
      if constexpr (Wave::kAll && !Cell::kDual) {
        if (w.params.grad_gamma) {  // a separate copy, which takes no registers from the others
          Real sum = 0;
          sweep([&](int q) { sum += flow.last * entropy_of(weights[q][0]); });
          entropy += static_cast<double>(sum);
        } else {
          sweep([](int) {});
        }
      } else {
        sweep([](int) {});
      }
      source.end_reverse_group(group);
      right.release(group);
      left.send(group, source);
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
