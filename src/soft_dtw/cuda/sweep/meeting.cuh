// The meeting of a pair's two sweeps, one from the first step of both series, one from the last.
//
// Each sweep makes Z of its own cells: the sum over all paths from the sweep's start to the cell. A path
// changes from one sweep's cells to the other's in exactly one step, a step across. So
//   Z[n-1,m-1] = sum over all steps across of (Z of one end) (Z of the other end).
// A summand divided by the sum is the probability that a path takes the step: E of the step's second cell
// times its transition weight. The reverse sweeps start from these probabilities, each on its own cells.
//
// Both sweeps have the same strips and end with whole groups of steps. Lane t ends one row earlier than lane
// t - 1; a strip's last lane and the next strip's first lane end in the same row (layout.h). So a step across
// leads either from a lane's last row to the next row, or to the right, into one of the last two rows of the
// other sweep's lane.
#pragma once

#include "soft_dtw/cuda/sweep/wave.cuh"

namespace warpalign::detail::soft_dtw {

// The cell in which paths begin in the sweep from the back, whose first columns may be after column m - 1.
template <class Wave>
__device__ __forceinline__ Start start_of(const Wave& w) {
  if (!Wave::kMeets || !w.from_back || w.has_left()) return {-1, -1, 0};
  const int column = w.strips * 32 * Wave::W - w.pair.m;
  const int lane = column / Wave::W;
  const int step = lane + w.shift;
  return {step / kGroup, w.lane == lane ? step % kGroup : -1, column % Wave::W};
}

// Products of Z over a lane's steps across, times the penalty of those that are not diagonal. up: from the
// last row of each column straight to the next row. diagonal: to the same cells from the previous column.
// sideways: from the last column of the previous lane, which ends one row later, horizontally and diagonally.
template <class Wave>
struct Crossings {
  using State = typename Wave::State;
  State up[Wave::W];
  State diagonal[Wave::W];
  State sideways;
};

// Normal Z, times the factor of a step that is not diagonal.
template <class Cell>
__device__ __forceinline__ typename Cell::State penalized(typename Cell::State s,
                                                          const typename Cell::Penalty& penalty) {
  return Cell::normal({s.mantissa * penalty.factor, s.exponent - penalty.exponent});
}

template <class Wave>
__device__ Crossings<Wave> crossings(const Wave& w, int true_strip, bool of_back) {
  using Cell = typename Wave::Cell;
  using State = typename Wave::State;
  constexpr int W = Wave::W;
  Lane<Cell, W> own;
  w.load(w.last_states(true_strip, of_back, w.lane), own);
  State other[W];  // Z of the other sweep in the row after this lane's last row
  const State* const other_states = w.last_states(true_strip, !of_back, 31 - w.lane);
#pragma unroll
  for (int k = 0; k < W; ++k) {
    own.above[k] = Cell::normal(own.above[k]);
    other[k] = Cell::normal(other_states[(W - 1 - k) * 32]);
  }
  const State corner = Cell::normal(own.corner);
  const State further = Cell::normal(other_states[W * 32 + (w.lane > 0)]);  // one row after other[0]

  State straight[W];  // `other` with the penalty
#pragma unroll
  for (int k = 0; k < W; ++k) straight[k] = other[k];
  if constexpr (Wave::kOptions) {
    const auto penalty = w.step_options().penalty;
#pragma unroll
    for (int k = 0; k < W; ++k) straight[k] = penalized<Cell>(other[k], penalty);
  }

  Crossings<Wave> c;
#pragma unroll
  for (int k = 0; k < W; ++k) {
    c.up[k] = cuda::product(own.above[k], straight[k]);
    c.diagonal[k] = cuda::product(k > 0 ? own.above[k - 1] : corner, other[k]);
  }
  const State before = cuda::shuffle_up(own.above[W - 1]);
  c.sideways = w.lane > 0 ? cuda::product(before, cuda::sum(straight[0], further)) : Cell::dead();
  return c;
}

constexpr int kMostStrips = 8;  // of a block

// Z[n-1, m-1], after all sweeps. Called by all warps of a block; only the first thread has the result.
template <class Wave>
__device__ typename Wave::State join_sweeps(const Wave& w) {
  using Cell = typename Wave::Cell;
  using State = typename Wave::State;
  __shared__ State sums[kMostStrips];
  State sum = Cell::dead();
  for (int k = w.warp; k < w.strips && w.role == 0; k += w.params.layout.warps) {
    const Crossings<Wave> c = crossings(w, k, false);
    sum = cuda::sum(sum, c.sideways);
#pragma unroll
    for (int i = 0; i < Wave::W; ++i) sum = cuda::sum(sum, cuda::sum(c.up[i], c.diagonal[i]));
  }
  sum = cuda::reduce(sum, [](State a, State b) { return cuda::sum(a, b); });
  if (w.role == 0 && w.lane == 0) sums[w.warp] = Cell::normal(sum);
  __syncthreads();
  if (threadIdx.x != 0) return Cell::dead();
  sum = sums[0];
#pragma unroll 1
  for (int k = 1; k < w.params.layout.warps; ++k) sum = cuda::sum(sum, sums[k]);
  return sum;
}

}  // namespace warpalign::detail::soft_dtw
