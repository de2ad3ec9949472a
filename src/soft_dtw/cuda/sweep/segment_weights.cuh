// Transition weights of a segment's cells in shared memory. They are made from the first group to the last
// and read from the last to the first. One of a cell's two weights is here, the other overwrites the cell's
// cost.
#pragma once

#include "cuda/threads/ring.cuh"
#include "soft_dtw/cuda/call/layout.h"
#include "soft_dtw/cuda/sweep/cell.cuh"

namespace warpalign::detail::soft_dtw {

// The warp that makes the weights, and its schedule.
enum class Weighing : unsigned char {
  kByGroup,    // the wave, one group at a time, in registers; no shared memory
  kBySegment,  // the wave, a whole segment before it sweeps the segment
  kAhead,      // another warp, ahead of the wave
};

template <class Real, int kGroups, Weighing>
struct SegmentWeights {
  __device__ void init(int) const {}
  __device__ void reset(int) const {}
};

// The wave makes and reads the weights; every lane accesses only its own elements.
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

// A weigher makes the weights, the wave reads them. Every other segment is stored in reverse order: a group's
// place is the one from which the wave has just read a group of the previous segment. So memory for one
// segment keeps both warps at work.
template <class Real, int kGroups>
struct SegmentWeights<Real, kGroups, Weighing::kAhead> {
  using Group = Weights<Real>[kGroup][1];
  Real left[kGroups][kGroup][32];
  cuda::Ring<kGroups, cuda::kWarpSize> ring;

  // Both are called by the wave's warp, as for the channels.
  __device__ void init(int lane) { ring.init(lane); }
  __device__ void reset(int lane) { ring.reset(lane); }

  // Stores group i of segment number `order`, counted in the order of the reverse sweep. Segment 0 has
  // first_count groups. at: this lane's costs of the group, which the weights `up` overwrite.
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
    int uses;  // number of earlier groups in this slot
    __device__ __forceinline__ Place(int order, int i, int first_count)
        : slot(order % 2 == 0 ? i : kGroups - 1 - i), uses(order - (slot >= first_count)) {}
  };
};

}  // namespace warpalign::detail::soft_dtw
