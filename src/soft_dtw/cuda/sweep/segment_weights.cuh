// Transition weights of a segment's cells in shared memory. They are made from the first group to the last
// and taken from the last to the first. One of a cell's two weights lies here, the other where the cell's
// cost was.
#pragma once

#include "cuda/threads/ring.cuh"
#include "soft_dtw/cuda/call/layout.h"
#include "soft_dtw/cuda/sweep/cell.cuh"

namespace warpalign::detail::soft_dtw {

// Who makes the weights, and when.
enum class Weighing : unsigned char {
  kByGroup,    // the wave, one group at a time, in registers: nothing lies here
  kBySegment,  // the wave, a whole segment before it sweeps the segment
  kAhead,      // another warp, ahead of the wave
};

template <class Real, int kGroups, Weighing>
struct SegmentWeights {
  __device__ void init(int) const {}
  __device__ void reset(int) const {}
};

// The wave puts and takes; every lane has its own places.
template <class Real, int kGroups>
struct SegmentWeights<Real, kGroups, Weighing::kBySegment> {
  using Group = Weights<Real>[kGroup][1];
  Real left[kGroups][kGroup][32];

  __device__ void init(int) const {}
  __device__ void reset(int) const {}
  // at: the costs of this lane.
  __device__ __forceinline__ void put(int, int i, int, int lane, Real* at, const Group& weights) {
#pragma unroll
    for (int q = 0; q < kGroup; ++q) {
      at[q] = weights[q][0].up;
      left[i][q][lane] = weights[q][0].left;
    }
  }
  __device__ __forceinline__ void take(int, int i, int, int lane, const Real* at, Group& weights) const {
#pragma unroll
    for (int q = 0; q < kGroup; ++q) weights[q][0] = {at[q], left[i][q][lane]};
  }
};

// One warp puts, the wave takes. Every other segment lies here the other way round: a group's place is the
// one that the wave has just emptied of the segment before. So one segment's memory keeps both warps at work.
template <class Real, int kGroups>
struct SegmentWeights<Real, kGroups, Weighing::kAhead> {
  using Group = Weights<Real>[kGroup][1];
  Real left[kGroups][kGroup][32];
  cuda::Ring<kGroups, cuda::kWarpSize> ring;

  // The wave's warp calls both, as for the channels.
  __device__ void init(int lane) { ring.init(lane); }
  __device__ void reset(int lane) { ring.reset(lane); }

  // Group i of the segment that comes as number `order`. The first segment to come has first_count groups.
  // at: this lane's costs of the group, which become the weights `up`.
  __device__ __forceinline__ void put(int order, int i, int first_count, int lane, Real* at,
                                      const Group& weights) {
    const Place place(order, i, first_count);
    ring.reserve_at(place.slot, place.uses);
#pragma unroll
    for (int q = 0; q < kGroup; ++q) {
      at[q] = weights[q][0].up;
      left[place.slot][q][lane] = weights[q][0].left;
    }
    ring.publish_at(place.slot);
  }
  __device__ __forceinline__ void take(int order, int i, int first_count, int lane, const Real* at,
                                       Group& weights) {
    const Place place(order, i, first_count);
    ring.receive_at(place.slot, place.uses);
#pragma unroll
    for (int q = 0; q < kGroup; ++q) weights[q][0] = {at[q], left[place.slot][q][lane]};
    ring.release_at(place.slot);
  }

 private:
  struct Place {
    int slot;
    int uses;  // how many groups had the slot before
    __device__ __forceinline__ Place(int order, int i, int first_count)
        : slot(order % 2 == 0 ? i : kGroups - 1 - i), uses(order - (slot >= first_count)) {}
  };
};

}  // namespace warpalign::detail::soft_dtw
