// Barriers in shared memory for some of a block's threads (mbarrier on sm_80 and later).
//
// A barrier has phases, counted from 0. Phase f ends with its kArrivals-th arrival. After the wait for a
// phase, a thread sees what other threads wrote before they arrived.
#pragma once

#include <cstdint>

#include "cuda/threads/warp.cuh"

namespace warpalign::cuda {

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800

using Barrier = std::uint64_t;

__device__ __forceinline__ unsigned shared_address(const void* p) {
  return static_cast<unsigned>(__cvta_generic_to_shared(p));
}

// The count must be an immediate operand: with a register operand that differs between lanes, nvcc 13.0
// initialises barriers wrongly on sm_90.
template <int kArrivals>
__device__ __forceinline__ void barrier_init(Barrier* b) {
  asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(shared_address(b)), "n"(kArrivals) : "memory");
}

// Back to phase 0. No thread may be waiting.
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

#else  // before sm_80: the number of arrivals so far, and the number that ends a phase

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

// The whole warp waits until phase f has ended. Phase f + 1 must not end before this returns: the wait tells
// phases apart by parity alone.
__device__ __forceinline__ void barrier_wait(Barrier* b, int phase) {
  while (!barrier_test(b, phase & 1)) {
  }
  __syncwarp();
}

}  // namespace warpalign::cuda
