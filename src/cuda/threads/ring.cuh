// Synchronisation of two warps of a block that exchange data through a ring of places in shared memory.
#pragma once

#include "cuda/threads/barrier.cuh"

namespace warpalign::cuda {

// The barriers of a bounded queue; the caller owns the data. Both sides count items from 0; item n is in
// place n % kDepth. The producer's warp calls reserve(n), writes item n, and kArrivals of its threads
// publish(n). The consumer's warp calls receive(n), reads, and kArrivals of its threads release(n). At most
// kDepth items are in the queue. Waits end, because all warps of a block are resident.
//
// Functions that end in _at are for callers that choose the place themselves. use: the number of earlier
// items in this place.
template <int kDepth, int kArrivals>
struct Ring {
  static_assert(2 * kDepth <= kWarpSize);
  Barrier barriers[2 * kDepth];  // "is full" of every place, then "is empty"

  // One warp calls init() once, and reset() before items are counted from 0 again. No thread may be waiting.
  __device__ __forceinline__ void init(int lane) {
    if (lane < 2 * kDepth) barrier_init<kArrivals>(barriers + lane);
  }
  __device__ __forceinline__ void reset(int lane) {
    if (lane < 2 * kDepth) barrier_reset<kArrivals>(barriers + lane);
  }

  __device__ __forceinline__ void reserve(int n) { reserve_at(n % kDepth, n / kDepth); }
  __device__ __forceinline__ void publish(int n) { publish_at(n % kDepth); }
  __device__ __forceinline__ void receive(int n) { receive_at(n % kDepth, n / kDepth); }
  __device__ __forceinline__ void release(int n) { release_at(n % kDepth); }

  __device__ __forceinline__ void reserve_at(int place, int use) {
    if (use > 0) barrier_wait(barriers + kDepth + place, use - 1);
  }
  __device__ __forceinline__ void publish_at(int place) { barrier_arrive(barriers + place); }
  __device__ __forceinline__ void receive_at(int place, int use) { barrier_wait(barriers + place, use); }
  __device__ __forceinline__ void release_at(int place) { barrier_arrive(barriers + kDepth + place); }
};

}  // namespace warpalign::cuda
