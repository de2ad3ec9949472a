// Which labels of an utterance are equal: of each one the first, and the next one. A warp owns a label, and
// compares it with 32 others at a time.
#pragma once

#include "ctc/cuda/call/batch.cuh"
#include "cuda/threads/warp.cuh"

namespace warpalign::detail::ctc {

inline constexpr int kEqualThreads = 128;

struct EqualParams {
  Batch batch;
  std::int64_t stride;  // from utterance to utterance, of both
  // first[b, k]: the index of the first label that equals label k; itself if there is none before. -1: there
  // is no label k, or it is invalid.
  std::int32_t* first;
  std::int32_t* next;  // null, or next[b, k]: the index of the next label that equals label k; -1: none
};

inline constexpr int kEqualWarps = kEqualThreads / cuda::kWarpSize;  // labels of a block

// The first of labels `begin` and later that is `label`, in every lane; -1 if there is none.
__device__ __forceinline__ int find_label(const Batch& batch, const Utterance& utterance, int label,
                                          int begin) {
  const int lane = static_cast<int>(threadIdx.x) % cuda::kWarpSize;
  for (; begin < utterance.labels; begin += cuda::kWarpSize) {
    const int k = begin + lane;
    const unsigned equal =
        __ballot_sync(cuda::kFullWarp, k < utterance.labels && utterance.label(batch, k) == label);
    if (equal != 0) return begin + __ffs(static_cast<int>(equal)) - 1;
  }
  return -1;
}

// Some blocks own an utterance. Both are written for all k below `stride`.
static __global__ void __launch_bounds__(kEqualThreads)
    equal_labels_kernel(const __grid_constant__ EqualParams p) {
  const std::int64_t blocks = (p.stride + kEqualWarps - 1) / kEqualWarps;
  const int b = static_cast<int>(blockIdx.x / blocks);
  const int k = static_cast<int>((blockIdx.x - b * blocks) * kEqualWarps + threadIdx.x / cuda::kWarpSize);
  if (k >= p.stride) return;
  const Utterance utterance = utterance_at(p.batch, b);
  const int label = utterance.label(p.batch, k);
  const int first = label >= 0 ? find_label(p.batch, utterance, label, 0) : -1;
  const int next = label >= 0 && p.next ? find_label(p.batch, utterance, label, k + 1) : -1;
  if (threadIdx.x % cuda::kWarpSize != 0) return;
  p.first[b * p.stride + k] = first;
  if (p.next) p.next[b * p.stride + k] = next;
}

}  // namespace warpalign::detail::ctc
