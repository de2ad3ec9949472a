// Thread block clusters: the blocks that LaunchConfig::cluster places together, and their shared memory.
// sm_90 and later; a launch with a cluster fails on other devices.
//
// A message is 16 bytes that a thread writes into the shared memory of any block of the cluster, its own too.
// Messages need a cluster of at least two blocks: without one, an H200 reports an illegal instruction.
//
// A Mailbox counts the bytes that arrive. It has phases, counted from 0. A phase ends when one thread has
// announced its bytes and all of them have arrived. No message of the next phase may arrive before this one
// has ended.
//
// A block's shared memory exists only while the block runs. Blocks that access each other's call
// cluster_sync() before the first access, so that all have begun, and after the last one, so that none has
// ended.
#pragma once

#include <cstdint>

#include "cuda/threads/warp.cuh"

namespace warpalign::cuda {

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900

// This block's place in its cluster, from 0.
__device__ __forceinline__ int cluster_rank() {
  int rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

// Waits for all threads of the cluster. Afterwards each of them sees what the others wrote before.
__device__ __forceinline__ void cluster_sync() {
  __syncwarp();  // the instructions are for whole warps
  asm volatile(
      "barrier.cluster.arrive.aligned;\n"
      "barrier.cluster.wait.aligned;" ::
          : "memory");
}

// The address, in the block of this rank, that corresponds to `shared` in this block's shared memory.
template <class T>
__device__ __forceinline__ T* in_block(T* shared, int rank) {
  T* there;
  asm("mapa.u64 %0, %1, %2;" : "=l"(there) : "l"(shared), "r"(rank));
  return there;
}

using Mailbox = std::uint64_t;
// An address in the shared memory of any block of the cluster, in bytes.
using ClusterAddress = unsigned;

// The same as an address of the cluster's shared memory.
__device__ __forceinline__ ClusterAddress cluster_address(const void* shared, int rank) {
  ClusterAddress there;
  asm("mapa.shared::cluster.u32 %0, %1, %2;"
      : "=r"(there)
      : "r"(static_cast<unsigned>(__cvta_generic_to_shared(shared))), "r"(rank));
  return there;
}

// One thread calls it, followed by cluster_sync(); messages may be sent after that.
__device__ __forceinline__ void mailbox_init(Mailbox* box) {
  asm volatile(
      "mbarrier.init.shared.b64 [%0], 1;\n"
      "fence.mbarrier_init.release.cluster;" ::"r"(static_cast<unsigned>(__cvta_generic_to_shared(box)))
      : "memory");
}
// One thread announces the number of bytes of a phase, once in each phase.
__device__ __forceinline__ void mailbox_expect(Mailbox* box, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(
                   static_cast<unsigned>(__cvta_generic_to_shared(box))),
               "r"(bytes)
               : "memory");
}
// The whole warp waits until phase `phase` has ended, and then sees its messages. The scope of the wait is
// the block, because messages are in this block's shared memory: the scope of the cluster would also
// invalidate the first-level cache (CCTL.IVALL in the machine code).
__device__ __forceinline__ void mailbox_wait(Mailbox* box, int phase) {
  unsigned done = 0;
  while (!done) {
    asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                 : "=r"(done)
                 : "r"(static_cast<unsigned>(__cvta_generic_to_shared(box))), "r"(phase & 1)
                 : "memory");
  }
  __syncwarp();
}
// Sends a message to `to`. `box`, in the same block as `to`, counts its bytes. `to` is aligned to 16 bytes,
// `box` to 8.
__device__ __forceinline__ void send_message(ClusterAddress to, const std::uint32_t (&words)[4],
                                             ClusterAddress box) {
  asm volatile(
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(to),
      "r"(words[0]), "r"(words[1]), "r"(words[2]), "r"(words[3]), "r"(box)
      : "memory");
}

#else

__device__ __forceinline__ int cluster_rank() { return 0; }
__device__ __forceinline__ void cluster_sync() { __trap(); }
template <class T>
__device__ __forceinline__ T* in_block(T* shared, int) {
  __trap();
  return shared;
}
using Mailbox = std::uint64_t;
using ClusterAddress = unsigned;
__device__ __forceinline__ ClusterAddress cluster_address(const void*, int) { return 0; }
__device__ __forceinline__ void mailbox_init(Mailbox*) { __trap(); }
__device__ __forceinline__ void mailbox_expect(Mailbox*, int) { __trap(); }
__device__ __forceinline__ void mailbox_wait(Mailbox*, int) { __trap(); }
__device__ __forceinline__ void send_message(ClusterAddress, const std::uint32_t (&)[4], ClusterAddress) {
  __trap();
}

#endif

}  // namespace warpalign::cuda
