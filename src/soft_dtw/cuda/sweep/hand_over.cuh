// The exchange of edge columns between the warps of neighbouring strips: Z goes to the right in the forward
// sweep, E to the left in the reverse sweep. A neighbour in the same panel is a warp of the same block and is
// reached through a channel; one in another panel is reached through global memory.
#pragma once

#include "soft_dtw/cuda/sweep/wave.cuh"

namespace warpalign::detail::soft_dtw {

// Forward: Z of the column on the left of the strip, a group of steps at a time.
template <class Wave>
class BorderFromLeft {
  using State = typename Wave::State;

 public:
  // all_kept: Wave::border_group().
  __device__ __forceinline__ BorderFromLeft(const Wave& w, bool all_kept)
      : w_(w), all_kept_(all_kept), is_local_(w.has_left() && !w.left_is_remote()) {
    if (w.has_left() && w.left_is_remote() && w.from_left.first < w.from_left.end) ask(w.from_left.first);
    border_ = w.dead_border();
  }

  // The border for a group's steps. Groups come in ascending order.
  [[nodiscard]] __device__ __forceinline__ const State* receive(int group) {
    const bool receives = w_.from_left.hold(group);
    const int arrival = group - w_.from_left.first;
    if (receives && is_local_) {
      w_.channel_of(-1).receive(arrival);
      border_ = w_.template slot_of<State>(-1, arrival);
    } else if (receives) {
      remote_.receive(w_.template inbox<State>(), w_.lane);
      ask(min(group + 1, w_.from_left.end - 1));
      border_ = w_.template inbox<State>();
    } else if (Wave::kOptions && w_.has_left()) {
      border_ = w_.dead_border();
    }  // else the last border stays: its rows are after n - 1, and do not affect the result
    return border_;
  }
  // Called after the group's steps.
  __device__ __forceinline__ void release(int group) const {
    if (w_.from_left.hold(group) && is_local_ && w_.lane == 0)
      w_.channel_of(-1).release(group - w_.from_left.first);
  }

 private:
  __device__ __forceinline__ void ask(int group) {
    remote_.ask(w_.border_group(w_.strip - 1, group, all_kept_), w_.lane);
  }

  const Wave& w_;
  const bool all_kept_;
  const bool is_local_;
  const State* border_;
  cuda::RemoteReader<Wave::kStateUnits> remote_;
};

// Forward: sends the strip's last column to the right, and to scratch if another block or the reverse sweep
// reads it. out: the states of the group's steps, of which those of lane 31 are sent.
template <class Wave>
__device__ __forceinline__ void send_column(const Wave& w, int group, bool all_kept,
                                            const typename Wave::State (&out)[kGroup]) {
  using State = typename Wave::State;
  if (!w.to_right.hold(group)) return;
  const bool is_local = !w.right_is_remote();  // and there is a neighbour
  const int index = group - w.to_right.first;
  if (is_local) w.own_channel().reserve(index);
  State* const slot = w.template slot_of<State>(0, index);
  if (w.lane == 31) {
#pragma unroll
    for (int q = 0; q < kGroup; ++q) slot[q] = out[q];
    if (is_local) w.own_channel().publish(index);
  }
  if (all_kept || !is_local) {
    __syncwarp();
    State* const column = w.border_group(w.strip, group - lag(w.strip), all_kept);
    cuda::send_words<Wave::kStateUnits>(column, slot, w.lane);
    __syncwarp();
  }
}

// Reverse: E, and the source's partial sums, from the strip on the right. Hand-overs are counted from 0 in
// the order of the sweep.
template <class Wave>
class FlowFromRight {
  using Real = typename Wave::Real;

 public:
  __device__ __forceinline__ explicit FlowFromRight(const Wave& w)
      : w_(w),
        is_local_(w.has_right() && !w.right_is_remote()),
        column_(w.has_right() && w.right_is_remote() ? w.flow_column(w.strip + 1) : nullptr) {
    if (column_ && w.to_right.first < w.to_right.end) remote_.ask(column_, w.lane);
  }

  // The flow into a group's steps, in lane 31; zeros in the other lanes. Groups come in descending order.
  __device__ __forceinline__ void receive(int group, Real (&flow)[kGroup][Wave::kFlow]) {
    const Real* received = nullptr;
    const bool receives = w_.to_right.hold(group);
    const int arrival = w_.to_right.end - 1 - group;
    if (receives && is_local_) {
      w_.channel_of(1).receive(arrival);
      received = w_.template slot_of<Real>(1, arrival);
    } else if (receives) {
      remote_.receive(w_.template inbox<Real>(), w_.lane);
      const int next = min(arrival + 1, w_.to_right.end - 1 - w_.to_right.first);
      remote_.ask(column_ + next * (kGroup * Wave::kFlow), w_.lane);
      received = w_.template inbox<Real>();
    }
#pragma unroll
    for (int q = 0; q < kGroup; ++q) {
#pragma unroll
      for (int f = 0; f < Wave::kFlow; ++f)
        flow[q][f] = receives && w_.lane == 31 ? received[q * Wave::kFlow + f] : Real(0);
    }
  }
  // Called after the group's steps.
  __device__ __forceinline__ void release(int group) const {
    if (w_.to_right.hold(group) && is_local_ && w_.lane == 31)
      w_.channel_of(1).release(w_.to_right.end - 1 - group);
  }

 private:
  const Wave& w_;
  const bool is_local_;
  const Real* const column_;
  cuda::RemoteReader<Wave::kFlowUnits> remote_;
};

// Reverse: the same to the strip on the left; from the left-most strip, complete rows to the source.
template <class Wave>
class FlowToLeft {
  using Real = typename Wave::Real;

 public:
  __device__ __forceinline__ explicit FlowToLeft(const Wave& w)
      : w_(w),
        is_local_(w.has_left() && !w.left_is_remote()),
        column_(w.has_left() && w.left_is_remote() ? w.flow_column(w.strip) : nullptr) {}

  // The memory to which this lane writes the flow out of a group's steps, [kGroup][kFlow]; null if it sends
  // nothing.
  [[nodiscard]] __device__ __forceinline__ Real* reserve(int group) {
    const int index = w_.from_left.end - 1 - group;
    const bool sends = w_.from_left.hold(group);
    if (is_local_ && sends) w_.own_channel().reserve(index);
    out_ = w_.template slot_of<Real>(0, max(index, 0));
    return w_.lane == 0 && (sends || !w_.has_left()) ? out_ : nullptr;
  }
  __device__ __forceinline__ void send(int group, const typename Wave::Source& source) const {
    const int index = w_.from_left.end - 1 - group;
    const bool sends = w_.from_left.hold(group);
    if (is_local_) {
      if (sends && w_.lane == 0) w_.own_channel().publish(index);
      return;
    }
    __syncwarp();
    if (!w_.has_left()) {
      source.finish_rows(group * kGroup - w_.shift, out_);
    } else if (sends) {
      cuda::send_words<Wave::kFlowUnits>(column_ + index * (kGroup * Wave::kFlow), out_, w_.lane);
    }
    __syncwarp();
  }

 private:
  const Wave& w_;
  const bool is_local_;
  Real* const column_;
  Real* out_;
};

}  // namespace warpalign::detail::soft_dtw
