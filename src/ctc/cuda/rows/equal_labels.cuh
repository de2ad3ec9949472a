// Which labels of an utterance are equal: of each one the first, and the next one. A thread owns a label.
#pragma once

#include "ctc/cuda/call/batch.cuh"

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

// Some blocks own an utterance. Both are written for all k below `stride`.
static __global__ void __launch_bounds__(kEqualThreads)
    equal_labels_kernel(const __grid_constant__ EqualParams p) {
  const std::int64_t place = static_cast<std::int64_t>(blockIdx.x) * kEqualThreads + threadIdx.x;
  const auto blocks = static_cast<std::int64_t>((p.stride + kEqualThreads - 1) / kEqualThreads);
  const int b = static_cast<int>(blockIdx.x / blocks);
  const int k = static_cast<int>(place - b * blocks * kEqualThreads);
  if (k >= p.stride) return;
  const Utterance utterance = utterance_at(p.batch, b);
  const int label = utterance.label(p.batch, k);
  int first = -1, next = -1;
  if (label >= 0) {
    first = 0;
    while (utterance.label(p.batch, first) != label) ++first;
    if (p.next) {
      next = k + 1;
      while (next < utterance.labels && utterance.label(p.batch, next) != label) ++next;
      if (next == utterance.labels) next = -1;
    }
  }
  p.first[b * p.stride + k] = first;
  if (p.next) p.next[b * p.stride + k] = next;
}

}  // namespace warpalign::detail::ctc
