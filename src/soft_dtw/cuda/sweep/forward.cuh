// The forward sweep of one strip: Z[i,j] = 2^-c[i,j] (Z[i-1,j] + Z[i,j-1] + Z[i-1,j-1]), 0 <= i < n, 0 <= j <
// m, Z[-1,-1] = 1.
//
// Rows outside [0, n) are computed too, so that no step needs a branch: all cells before row 0 are
// unreachable, and no path leads from rows after n - 1 to the result. If the launch has a reverse sweep,
// every strip's last column and the lanes' states at the start of every segment are stored in scratch.
#pragma once

#include "soft_dtw/cuda/results/results.cuh"
#include "soft_dtw/cuda/sweep/hand_over.cuh"
#include "soft_dtw/cuda/sweep/meeting.cuh"

namespace warpalign::detail::soft_dtw {

// The position of Z[n-1, m-1]: the lane and its column, and the step, in a group of the last strip.
struct LastCell {
  int lane;
  int column;
  int step;
  int group;  // -1: not in this strip's sweep
};
template <class Wave>
__device__ __forceinline__ LastCell last_cell_of(const Wave& w) {
  const int column = w.pair.m - 1 - w.strip * 32 * Wave::W;
  const int lane = column / Wave::W;
  const int step = w.pair.n - 1 + lane + w.shift;
  return {lane, column % Wave::W, step, w.has_right() || w.meets ? -1 : step / kGroup};
}

// For one column per lane. out: the group's states. With options the last row's state goes to `end`, because
// with a band the sweep may not visit it; otherwise Z[n-1, m-1] goes to the record.
template <class Wave>
__device__ __forceinline__ void take_last_row(const Wave& w, int group, const LastCell& last,
                                              const typename Wave::State (&out)[kGroup],
                                              typename Wave::State& end) {
  using State = typename Wave::State;
  if constexpr (Wave::kOptions) {
    if (group == last.group || (Wave::kAll && w.params.subsequence)) {
#pragma unroll
      for (int q = 0; q < kGroup; ++q) {
        const State here = out[q];  // read first, so that out stays in registers
        if (group * kGroup + q == w.pair.n - 1 + w.lane + w.shift) end = here;
      }
    }
  } else if (group == last.group && w.lane == last.lane) {
    State* const slot =
        w.template slot_of<State>(0, 0);  // the last strip sends nothing, so its slots are free
#pragma unroll
    for (int q = 0; q < kGroup; ++q) slot[q] = out[q];
    w.record->last = slot[last.step % kGroup];
  }
}

template <Sweeps kSweeps, class Wave>
__device__ void forward_strip(const Wave& w, typename Wave::Source& source) {
  using Cell = typename Wave::Cell;
  using State = typename Wave::State;
  constexpr int W = Wave::W;
  constexpr int kSegment = Wave::Source::kSegment;
  const bool keeps = sweeps_back<kSweeps>(w.params);
  const LastCell last = last_cell_of(w);
  const Start start = start_of(w);
  Lane<Cell, W> z;
  z.clear();
  if (!w.has_left() && !w.from_back && w.lane == 0) z.corner = Cell::one();
  GroupWeights<Cell, W> none;
  StepOptions<Cell> options = w.step_options();
  [[maybe_unused]] State end = Cell::dead();
  if (Wave::kOptions && W > 1 && !w.has_right() && !w.meets && w.lane == last.lane) w.record->last = end;
  BorderFromLeft<Wave> left(w, keeps);
  source.begin_forward();
  if constexpr (Wave::kMeets) {
    if (keeps && w.meets && !w.from_back) source.clear_gradients();
  }
  for (int group = w.own.first; group < w.own.end; ++group) {
    const int past_first = group - w.own.first;
    if (past_first % kSegment == 0) {
      if (keeps) w.store(w.stored_state(past_first / kSegment), z);
      source.begin_forward_segment(past_first / kSegment);
    }
    source.begin_forward_group(group);
    const State* const border = left.receive(group);
    State out[kGroup];
    if (Wave::kAll && w.params.subsequence) options.start = w.lane + w.shift - group * kGroup;
    if ((W > 1 && group == last.group) || (Wave::kMeets && group == start.group)) {
      const bool is_mine = group == last.group && w.lane == last.lane;
      run_group<false, Wave::kMeets>(w.lane, source, options, start, border, z, out, none,
                                     [&](int q, int k, const State& here) {
                                       if (is_mine && q == last.step % kGroup && k == last.column)
                                         w.record->last = here;
                                     });
    } else {
      run_group<false, false>(w.lane, source, options, start, border, z, out, none, [](int, int, State) {});
    }
    if constexpr (W == 1) take_last_row(w, group, last, out, end);
    source.end_forward_group(group);
    left.release(group);
    send_column(w, group, keeps, out);
  }
  if (Wave::kOptions && W == 1 && !w.has_right() && w.lane == last.lane) w.record->last = end;
  if (!w.from_back) note_range(w, source.range_bits());
  if constexpr (Wave::kMeets) {
    if (w.meets) {
      // Where the band ends before the meeting, no lane has a cell in the band there.
      if (Wave::kOptions && w.own.end < end_of_groups(w, w.strip)) z.clear();
      w.store(w.last_states(w.true_strip(), w.from_back, w.lane), z);
    }
  }
  if (Wave::kAll && w.params.subsequence) note_ends(w, end);
}

}  // namespace warpalign::detail::soft_dtw
