// Bulk copies from global to shared memory whose arrival a barrier counts (sm_90 and later; on other devices
// the functions trap). One thread copies a whole run of bytes, without registers.
//
// A barrier has phases, counted from 0. Phase f ends when kArrivals threads have arrived and all bytes that
// they announced have been copied. After the wait for a phase a thread sees the copied bytes, and what other
// threads wrote before they arrived.
#pragma once

#include <cstdint>

namespace warpalign::cuda {

using TransferBarrier = std::uint64_t;

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900

__device__ __forceinline__ unsigned transfer_address(const void* shared) {
  return static_cast<unsigned>(__cvta_generic_to_shared(shared));
}

// One thread calls this, then transfer_fence(), then all threads of the block __syncthreads().
template <int kArrivals>
__device__ __forceinline__ void transfer_init(TransferBarrier* b) {
  asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(transfer_address(b)), "n"(kArrivals) : "memory");
}
// Makes initialised barriers visible to the copying unit. Called once, after the last transfer_init().
__device__ __forceinline__ void transfer_fence() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
// One thread calls this after the last phase, also of a Mailbox (cluster.cuh). The barrier's memory is free
// for other uses then.
__device__ __forceinline__ void transfer_end(TransferBarrier* b) {
  asm volatile("mbarrier.inval.shared.b64 [%0];" ::"r"(transfer_address(b)) : "memory");
}
__device__ __forceinline__ void transfer_arrive(TransferBarrier* b) {
  asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(transfer_address(b)) : "memory");
}
// Arrives, and announces `bytes` bytes of copies that the phase waits for.
__device__ __forceinline__ void transfer_expect(TransferBarrier* b, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(transfer_address(b)), "r"(bytes)
               : "memory");
}
// Waits until the phase of this parity has ended: the barrier's current phase or the one before.
__device__ __forceinline__ void transfer_wait(TransferBarrier* b, int parity) {
  unsigned done = 0;
  while (!done) {
    asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                 : "=r"(done)
                 : "r"(transfer_address(b)), "r"(parity)
                 : "memory");
  }
}
// Copies `bytes` bytes. Both addresses and the number are multiples of 16.
__device__ __forceinline__ void copy_bulk(void* shared, const void* global, int bytes, TransferBarrier* b) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
          transfer_address(shared)),
      "l"(global), "r"(bytes), "r"(transfer_address(b))
      : "memory");
}
// Fetches `bytes` bytes into the second-level cache. Address and number are multiples of 16.
__device__ __forceinline__ void prefetch_bulk(const void* global, int bytes) {
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(global), "r"(bytes) : "memory");
}
// Orders this thread's earlier writes before later bulk copies that read, or overwrite, the same memory.
__device__ __forceinline__ void fence_bulk() { asm volatile("fence.proxy.async;" ::: "memory"); }
// The same for shared memory alone. fence_bulk() takes about 3000 cycles, because it also orders global
// memory for the whole GPU (MEMBAR.ALL.GPU in the machine code).
__device__ __forceinline__ void fence_bulk_shared() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

#else

template <int kArrivals>
__device__ __forceinline__ void transfer_init(TransferBarrier*) {
  __trap();
}
__device__ __forceinline__ void transfer_fence() { __trap(); }
__device__ __forceinline__ void transfer_end(TransferBarrier*) { __trap(); }
__device__ __forceinline__ void transfer_arrive(TransferBarrier*) { __trap(); }
__device__ __forceinline__ void transfer_expect(TransferBarrier*, int) { __trap(); }
__device__ __forceinline__ void transfer_wait(TransferBarrier*, int) { __trap(); }
__device__ __forceinline__ void copy_bulk(void*, const void*, int, TransferBarrier*) { __trap(); }
__device__ __forceinline__ void prefetch_bulk(const void*, int) { __trap(); }
__device__ __forceinline__ void fence_bulk() { __trap(); }
__device__ __forceinline__ void fence_bulk_shared() { __trap(); }

#endif

}  // namespace warpalign::cuda
