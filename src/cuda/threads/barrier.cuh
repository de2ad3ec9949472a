// Barriers in shared memory, for warps of one block that wait for each other (mbarrier from sm_80 on).
//
// A barrier has phases, counted from 0. Phase f ends with the last of its arrivals. Memory written before an
// arrival is seen after the wait for its phase.
#pragma once

#include <cstdint>

#include "cuda/threads/warp.cuh"

namespace warpalign::cuda {

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800

using Barrier = std::uint64_t;

__device__ __forceinline__ unsigned shared_address(const void* p) {
  return static_cast<unsigned>(__cvta_generic_to_shared(p));
}

// The count is a constant of the instruction: with one that differs between the lanes, barriers came out
// damaged (nvcc 13.0, sm_90).
template <int kArrivals>
__device__ __forceinline__ void barrier_init(Barrier* b) {
  asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(shared_address(b)), "n"(kArrivals) : "memory");
}

// Back to phase 0. Nobody waits.
template <int kArrivals>
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

template <int kArrivals>
__device__ __forceinline__ void barrier_init(Barrier* b) {
  *const_cast<volatile int*>(&b->arrived) = 0;
  *const_cast<volatile int*>(&b->arrivals) = kArrivals;
}
template <int kArrivals>
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

// The whole warp waits until phase f has ended. Phase f + 1 must not be able to end before this returns.
__device__ __forceinline__ void barrier_wait(Barrier* b, int phase) {
  while (!barrier_test(b, phase & 1)) {
  }
  __syncwarp();
}

}  // namespace warpalign::cuda
