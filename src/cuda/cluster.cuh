// Thread block clusters: the blocks that LaunchConfig::cluster places together, and their shared memory.
// sm_90 and later; a launch with a cluster fails on other devices.
//
// A block's shared memory ends with the block: blocks that read each other's call cluster_sync() before the
// first access, so that all have begun, and behind the last one, so that none has ended.
#pragma once

namespace warpalign::cuda {

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900

// This block's place in its cluster, from 0.
__device__ __forceinline__ int cluster_rank() {
  int rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

// Waits for all threads of the cluster. Memory written before is seen behind by all of them.
__device__ __forceinline__ void cluster_sync() {
  asm volatile(
      "barrier.cluster.arrive.aligned;\n"
      "barrier.cluster.wait.aligned;" ::
          : "memory");
}

// Where the block of this rank has what this block has at `shared`, an address in shared memory.
template <class T>
__device__ __forceinline__ T* in_block(T* shared, int rank) {
  T* there;
  asm("mapa.u64 %0, %1, %2;" : "=l"(there) : "l"(shared), "r"(rank));
  return there;
}

#else

__device__ __forceinline__ int cluster_rank() { return 0; }
__device__ __forceinline__ void cluster_sync() { __trap(); }
template <class T>
__device__ __forceinline__ T* in_block(T* shared, int) {
  __trap();
  return shared;
}

#endif

}  // namespace warpalign::cuda
