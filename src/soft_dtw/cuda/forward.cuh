// The forward sweep of one strip: Z[i,j] = 2^-c[i,j] (Z[i-1,j] + Z[i,j-1] + Z[i-1,j-1]), 0 <= i < n, 0 <= j <
// m, Z[-1,-1] = 1.
//
// Rows outside [0, n) are computed too: before row 0 everything is out of reach and stays so, and what lies
// behind row n - 1 reaches nothing, so that no step needs a branch. Where the launch sweeps back too, every
// strip's last column and the lanes' states at the start of every segment are kept in scratch.
#pragma once

#include "soft_dtw/cuda/meeting.cuh"

namespace warpalign::detail::soft_dtw {

// Of a subsequence, when the strip is over: its part of the last row, whose Z each lane has of its column.
template <class Wave>
__device__ void note_ends(const Wave& w, typename Wave::State end) {
  const int column = w.strip * 32 + w.lane;
  const double log2_z = column < w.pair.m ? Wave::Cell::log2_of(end) : -CUDART_INF;
  if (w.params.end_values) {
    const bool reachable = log2_z > -1e298;
    if (column < w.pair.m) {
      store_result(w.end_values() + column,
                   reachable ? (0.0 - log2_z) * w.params.half / w.pair.scale : CUDART_INF);
    }
    for (int j = w.pair.m + column; j < w.params.m; j += w.strips * 32)
      store_result(w.end_values() + j, CUDART_INF);
  }
  const double top = cuda::reduce_max(log2_z);
  const int best = __ffs(__ballot_sync(cuda::kFullWarp, log2_z == top)) - 1;
  const double sum = cuda::reduce_sum(top > -CUDART_INF ? exp2(log2_z - top) : 0.0);
  if (w.lane == 0) {
    const bool one_counts = Wave::Cell::kHard || !(sum > 0);
    w.part(w.strip) = {one_counts ? top : top + log2(sum), w.strip * 32 + best};
  }
}

template <Sweeps kSweeps, class Wave>
__device__ void forward_strip(const Wave& w, typename Wave::Source& source) {
  using Cell = typename Wave::Cell;
  using State = typename Wave::State;
  constexpr int W = Wave::W;
  constexpr int kSegment = Wave::Source::kSegment;
  const bool keeps = sweeps_back<kSweeps>(w.params);
  const bool left_is_local = w.has_left() && !w.left_is_remote();
  const bool left_is_remote = w.has_left() && w.left_is_remote();
  const bool right_is_local = w.has_right() && !w.right_is_remote();
  const bool stores_column = w.has_right() && (keeps || w.right_is_remote());
  const auto left_group = [&](int group) { return w.border_group(w.strip - 1, group, keeps); };

  // Z[n-1, m-1]: the lane, its column, and the group in which it is made.
  const int last_column = w.pair.m - 1 - w.strip * 32 * W;
  const int result_lane = last_column / W;
  const int result_step = w.pair.n - 1 + result_lane + w.shift;
  const int result_group = w.has_right() || w.meets ? -1 : result_step / kGroup;

  Lane<Cell, W> z;
  z.clear();
  const Start start = start_of(w);
  if (!w.has_left() && !w.from_back && w.lane == 0) z.corner = Cell::one();
  GroupWeights<Cell, W> none;
  StepOptions<Cell> options = w.step_options();
  // With options, of row n - 1: a band may not come by it.
  [[maybe_unused]] State end = Cell::dead();
  if (Wave::kOptions && W > 1 && !w.has_right() && w.lane == result_lane) w.record->last = end;
  cuda::RemoteReader<Wave::kStateUnits> remote;
  if (left_is_remote && w.from_left.first < w.from_left.end) {
    remote.ask(left_group(w.from_left.first), w.lane);
  }
  const State* border = w.dead_border();
  source.begin_forward();
  if constexpr (Wave::kMeets) {
    if (keeps && w.meets && !w.from_back) source.clear_gradients();
  }
  for (int group = w.own.first; group < w.own.end; ++group) {
    const int past_first = group - w.own.first;
    if (past_first % kSegment == 0) {
      if (keeps) w.store(w.kept(past_first / kSegment), z);
      source.begin_forward_segment(past_first / kSegment);
    }
    source.begin_forward_group(group);

    const bool receives = w.from_left.hold(group);
    const int received = group - w.from_left.first;
    if (receives && left_is_local) {
      w.channel_of(-1).receive(received);
      border = w.template slot_of<State>(-1, received);
    } else if (receives) {
      remote.receive(w.template inbox<State>(), w.lane);
      remote.ask(left_group(min(group + 1, w.from_left.end - 1)), w.lane);
      border = w.template inbox<State>();
    } else if (Wave::kOptions &&
               w.has_left()) {  // else it stays: it is behind row n - 1, and reaches nothing
      border = w.dead_border();
    }
    const bool sends = w.to_right.hold(group);
    State out[kGroup];
    const bool has_result = group == result_group;
    const bool is_mine = has_result && w.lane == result_lane;
    if (Wave::kAll && w.params.subsequence) options.start = w.lane + w.shift - group * kGroup;
    if ((W > 1 && has_result) || (Wave::kMeets && group == start.group)) {
      run_group<false, Wave::kMeets>(w.lane, source, options, start, border, z, out, none,
                                     [&](int q, int k, const State& here) {
                                       if (is_mine && q == result_step % kGroup && k == last_column % W)
                                         w.record->last = here;
                                     });
    } else {
      run_group<false, false>(w.lane, source, options, start, border, z, out, none, [](int, int, State) {});
    }
    if constexpr (Wave::kOptions && W == 1) {
      if (has_result || (Wave::kAll && w.params.subsequence)) {
#pragma unroll
        for (int q = 0; q < kGroup; ++q) {
          const State here = out[q];  // first of all: else out lies in memory
          if (group * kGroup + q == w.pair.n - 1 + w.lane + w.shift) end = here;
        }
      }
    } else if (W == 1 && is_mine) {  // out is all that there is; nobody else needs the slot
      State* const slot = w.template slot_of<State>(0, 0);
#pragma unroll
      for (int q = 0; q < kGroup; ++q) slot[q] = out[q];
      w.record->last = slot[result_step % kGroup];
    }

    source.end_forward_group(group);
    if (receives && left_is_local && w.lane == 0) w.channel_of(-1).release(received);
    if (sends) {
      const int index = group - w.to_right.first;
      if (right_is_local) w.own_channel().reserve(index);
      State* const slot = w.template slot_of<State>(0, index);
      if (w.lane == 31) {
#pragma unroll
        for (int q = 0; q < kGroup; ++q) slot[q] = out[q];
        if (right_is_local) w.own_channel().publish(index);
      }
      if (stores_column) {
        __syncwarp();
        State* const column = w.border_group(w.strip, group - lag(w.strip), keeps);
        cuda::send_words<Wave::kStateUnits>(column, slot, w.lane);
        __syncwarp();
      }
    }
  }
  if (Wave::kOptions && W == 1 && !w.has_right() && w.lane == result_lane) w.record->last = end;
  if (!w.from_back) w.note_range(source.range_bits());
  if constexpr (Wave::kMeets) {
    if (w.meets) w.store(w.last_states(w.true_strip(), w.from_back, w.lane), z);
  }
  if (Wave::kAll && w.params.subsequence) note_ends(w, end);
}

}  // namespace warpalign::detail::soft_dtw
