// Disjoint sets of nodes that many threads join at the same time, and prefix sums over numbers of nodes.
#pragma once

#include <cstdint>

#include "cuda/threads/warp.cuh"

namespace warpalign::detail::transport {

inline constexpr int kSetThreads = 256;
inline constexpr int kSumThreads = 1024;  // threads of the block that computes prefix sums

// parent[i] <= i, and a set's smallest node is its root. A stale parent is still an ancestor. Paths are
// halved.
__device__ __forceinline__ int root_of(int* parent, int i) {
  int above = __ldcg(parent + i);
  while (above != i) {
    const int next = __ldcg(parent + above);
    if (next != above) __stcg(parent + i, next);
    i = above;
    above = next;
  }
  return i;
}

// Only roots get a new parent, by compare-and-swap, so that no join is lost.
__device__ __forceinline__ void join_sets(int* parent, int i, int j) {
  for (;;) {
    i = root_of(parent, i);
    j = root_of(parent, j);
    if (i == j) return;
    const int low = min(i, j), high = max(i, j);
    if (atomicCAS(parent + high, high, low) == high) return;
  }
}

// Called by one block of kSumThreads. Calls write(i, value(0) + ... + value(i - 1)) for every i <= count. A
// thread owns a run of numbers, and goes through it in order.
template <class Value, class Write>
__device__ __forceinline__ void sum_before(int count, const Value& value, const Write& write) {
  __shared__ std::int64_t sums[kSumThreads / 32];
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32;
  const int first = static_cast<int>(static_cast<std::int64_t>(count) * thread / kSumThreads);
  const int last = static_cast<int>(static_cast<std::int64_t>(count) * (thread + 1) / kSumThreads);
  std::int64_t own = 0;
  for (int i = first; i < last; ++i) own += value(i);
  std::int64_t up_to = own;
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const std::int64_t other = cuda::shuffle_up(up_to, step);
    if (lane >= step) up_to += other;
  }
  if (lane == 31) sums[warp] = up_to;
  __syncthreads();
  std::int64_t at = up_to - own;
  for (int w = 0; w < warp; ++w) at += sums[w];
  for (int i = first; i < last; ++i) {
    const std::int64_t v = value(i);
    write(i, at);
    at += v;
  }
  if (thread == kSumThreads - 1) write(count, at);
}

}  // namespace warpalign::detail::transport
