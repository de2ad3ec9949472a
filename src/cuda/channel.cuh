// A bounded queue between two warps of one block, in shared memory: groups of values, handed over in order.
//
// Both ends count groups from 0. The producer does reserve(g), writes group g, publish(g); the consumer does
// receive(g), reads, release(g). At most kChannelGroups groups are under way. Waiting cannot hang: both warps
// are resident.
#pragma once

#include <cstdint>

#include "cuda/warp.cuh"

namespace warpalign::cuda {

// Barrier of so many arrivals: phase f ends with the last arrival of its own. Memory written before an
// arrival is seen after the wait.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800

using Barrier = std::uint64_t;

__device__ __forceinline__ unsigned shared_address(const void* p) {
  return static_cast<unsigned>(__cvta_generic_to_shared(p));
}

// The count is a constant of the instruction: with one that differs between the lanes, barriers came out
// damaged (nvcc 13.0, sm_90).
template <int kArrivals = 1>
__device__ __forceinline__ void barrier_init(Barrier* b) {
  asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(shared_address(b)), "n"(kArrivals) : "memory");
}

template <int kArrivals = 1>
__device__ __forceinline__ void barrier_reset(Barrier* b) {
  asm volatile("mbarrier.inval.shared.b64 [%0];" ::"r"(shared_address(b)) : "memory");
  barrier_init<kArrivals>(b);
}

__device__ __forceinline__ void barrier_arrive(Barrier* b) {
  asm volatile("{ .reg .b64 state; mbarrier.arrive.shared.b64 state, [%0]; }" ::"r"(shared_address(b))
               : "memory");
}

__device__ __forceinline__ bool barrier_test(Barrier* b, unsigned parity) {
  unsigned done;
#if __CUDA_ARCH__ >= 900  // waits in hardware for a while
  asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
               : "=r"(done)
               : "r"(shared_address(b)), "r"(parity)
               : "memory");
#else
  asm volatile("{ .reg .pred p; mbarrier.test_wait.parity.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
               : "=r"(done)
               : "r"(shared_address(b)), "r"(parity)
               : "memory");
#endif
  return done;
}

#else  // before sm_80: arrivals so far, and how many end a phase

struct __align__(8) Barrier {
  int arrived;
  int arrivals;
};

template <int kArrivals = 1>
__device__ __forceinline__ void barrier_init(Barrier* b) {
  *const_cast<volatile int*>(&b->arrived) = 0;
  *const_cast<volatile int*>(&b->arrivals) = kArrivals;
}
template <int kArrivals = 1>
__device__ __forceinline__ void barrier_reset(Barrier* b) {
  barrier_init<kArrivals>(b);
}
__device__ __forceinline__ void barrier_arrive(Barrier* b) {
  __threadfence_block();
  atomicAdd(&b->arrived, 1);
}
__device__ __forceinline__ bool barrier_test(Barrier* b, unsigned parity) {
  const int ended = *const_cast<volatile int*>(&b->arrived) / *const_cast<volatile int*>(&b->arrivals);
  const bool done = (ended & 1) != static_cast<int>(parity);
  __threadfence_block();
  return done;
}

#endif

// The whole warp waits until phase f has ended; f + 1 must not be able to end before.
__device__ __forceinline__ void barrier_wait(Barrier* b, int phase) {
  while (!barrier_test(b, phase & 1)) {
  }
  __syncwarp();
}

constexpr int kChannelGroups = 8;

class Channel {
 public:
  static constexpr int kBarriers = 2 * kChannelGroups;

  __device__ explicit Channel(Barrier* barriers) : full_(barriers), empty_(barriers + kChannelGroups) {}

  __device__ __forceinline__ void reserve(int g) const {
    if (g >= kChannelGroups) barrier_wait(empty_ + g % kChannelGroups, g / kChannelGroups - 1);
  }
  __device__ __forceinline__ void publish(int g) const {
    barrier_arrive(full_ + g % kChannelGroups);
  }  // one lane
  __device__ __forceinline__ void receive(int g) const {
    barrier_wait(full_ + g % kChannelGroups, g / kChannelGroups);
  }
  __device__ __forceinline__ void release(int g) const {
    barrier_arrive(empty_ + g % kChannelGroups);
  }  // one lane

 private:
  Barrier* full_;
  Barrier* empty_;
};

}  // namespace warpalign::cuda
