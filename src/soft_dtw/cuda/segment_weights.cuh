// Weights of the cells of a segment: made from the first group to the last, taken from the last to the first.
// Of a cell's two weights one lies here, the other one where its cost was.
#pragma once

#include "cuda/ring.cuh"
#include "soft_dtw/cuda/cell.cuh"
#include "soft_dtw/cuda/layout.h"

namespace warpalign::detail::soft_dtw {

// Who makes them: the wave, group by group, of which it keeps none; the wave, here; or another warp.
enum class Weighing : unsigned char { kByGroup, kBySegment, kAhead };

template <class Real, int kGroups, Weighing>
struct SegmentWeights {
  __device__ void init(int) const {}
  __device__ void reset(int) const {}
};

// By the wave: every lane its own.
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

// On their way to the wave. A group finds its place where the wave has just taken one of the segment before:
// every other segment lies here the other way round, and one segment's memory is enough for both warps to be
// at work all the time.
template <class Real, int kGroups>
struct SegmentWeights<Real, kGroups, Weighing::kAhead> {
  using Group = Weights<Real>[kGroup][1];
  Real left[kGroups][kGroup][32];
  cuda::Ring<kGroups, cuda::kWarpSize> ring;

  // By one warp, as the channels'.
  __device__ void init(int lane) { ring.init(lane); }
  __device__ void reset(int lane) { ring.reset(lane); }

  // Group i of the segment that comes as number `order`; the first one has first_count groups. at: the costs
  // of this lane.
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
    int uses;  // of the slot, before
    __device__ __forceinline__ Place(int order, int i, int first_count)
        : slot(order % 2 == 0 ? i : kGroups - 1 - i), uses(order - (slot >= first_count)) {}
  };
};

}  // namespace warpalign::detail::soft_dtw
