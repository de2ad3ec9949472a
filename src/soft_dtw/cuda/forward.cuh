// The forward sweep of one strip: Z[i,j] = 2^-c[i,j] (Z[i-1,j] + Z[i,j-1] + Z[i-1,j-1]), 0 <= i < n, 0 <= j <
// m, Z[-1,-1] = 1.
//
// Rows outside [0, n) are computed too: before row 0 everything is out of reach and stays so, and what lies
// behind row n - 1 reaches nothing, so that no step needs a branch. With kKeep every strip's last column and
// the lanes' states at the start of every segment are kept in scratch.
#pragma once

#include "soft_dtw/cuda/wave.cuh"

namespace warpalign::softdtw {

template <class Wave>
__device__ __forceinline__ void start_lanes(const Wave& w, Lane<typename Wave::Cell, Wave::W>& z) {
  z.clear();
  if (!w.has_left() && w.lane == 0) z.corner = Wave::Cell::one();
}

template <bool kKeep, class Wave>
__device__ void forward_strip(const Wave& w, typename Wave::Source& source) {
  using Cell = typename Wave::Cell;
  using State = typename Wave::State;
  constexpr int W = Wave::W;
  constexpr int kSegment = Wave::Source::kSegment;
  const bool left_is_local = w.has_left() && !w.left_is_remote();
  const bool left_is_remote = w.has_left() && w.left_is_remote();
  const bool right_is_local = w.has_right() && !w.right_is_remote();
  const bool stores_column = w.has_right() && (kKeep || w.right_is_remote());
  const int from_left = w.groups - (w.has_left() ? lag(w.strip - 1) : 0);  // groups that come from there
  const int right_lag = lag(w.strip);
  State* const column = stores_column ? w.border_column(w.strip, kKeep) : nullptr;
  const State* const left_column = left_is_remote ? w.border_column(w.strip - 1, kKeep) : nullptr;

  // Z[n-1, m-1]: the lane, its column, and the group in which it is made.
  const int last_column = w.pair.m - 1 - w.strip * 32 * W;
  const int result_lane = last_column / W;
  const int result_step = w.pair.n - 1 + result_lane + w.shift;
  const int result_group = w.has_right() ? -1 : result_step / kGroup;

  Lane<Cell, W> z;
  start_lanes(w, z);
  GroupWeights<Cell, W> none;
  cuda::RemoteReader<Wave::kStateUnits> remote;
  if (left_is_remote) remote.ask(left_column, w.lane);
  const State* border = nullptr;  // behind row n - 1 it stays: what is made of it reaches nothing
  source.begin_forward();
  const auto cost = [&](int q, int k) { return source.cost(q, k); };
  for (int group = 0; group < w.groups; ++group) {
    if (group % kSegment == 0) {
      if constexpr (kKeep) w.store(w.kept(group / kSegment), z);
      source.begin_forward_segment(group / kSegment);
    }
    source.begin_forward_group(group);

    const bool receives = w.has_left() && group < from_left;
    if (receives && left_is_local) {
      w.channel_of(-1).receive(group);
      border = w.template slot_of<State>(-1, group);
    } else if (receives) {
      remote.receive(w.template inbox<State>(), w.lane);
      remote.ask(left_column + min(group + 1, from_left - 1) * kGroup, w.lane);
      border = w.template inbox<State>();
    }
    const bool sends = w.has_right() && group >= right_lag;
    State out[kGroup];
    const bool has_result = group == result_group;
    const bool is_mine = has_result && w.lane == result_lane;
    if (W > 1 && has_result) {
      run_group<false>(w.lane, cost, source.scale(), border, z, out, none,
                       [&](int q, int k, const State& here) {
                         if (is_mine && q == result_step % kGroup && k == last_column % W)
                           w.record->last = here;
                       });
    } else {
      run_group<false>(w.lane, cost, source.scale(), border, z, out, none, [](int, int, const State&) {});
    }
    if (W == 1 && is_mine) {  // out is all that there is
#pragma unroll
      for (int q = 0; q < kGroup; ++q) {
        if (q == result_step % kGroup) w.record->last = out[q];
      }
    }

    source.end_forward_group(group);
    if (receives && left_is_local && w.lane == 0) w.channel_of(-1).release(group);
    if (sends) {
      const int index = group - right_lag;
      if (right_is_local) w.own_channel().reserve(index);
      State* const slot = w.template slot_of<State>(0, index);
      if (w.lane == 31) {
#pragma unroll
        for (int q = 0; q < kGroup; ++q) slot[q] = out[q];
        if (right_is_local) w.own_channel().publish(index);
      }
      if (stores_column) {
        __syncwarp();
        cuda::send_words<Wave::kStateUnits>(column + index * kGroup, slot, w.lane);
        __syncwarp();
      }
    }
  }
  w.note_range(source.range_bits());
}

}  // namespace warpalign::softdtw
