// The offset of each utterance's labels in flat targets: a prefix sum of the true label counts, by one block.
#pragma once

#include "ctc/cuda/call/batch.cuh"

namespace warpalign::detail::ctc {

inline constexpr int kOffsetThreads = 256;

static __global__ void __launch_bounds__(kOffsetThreads)
    offsets_kernel(const __grid_constant__ Batch batch, std::int64_t* offsets) {
  __shared__ std::int64_t sums[kOffsetThreads];
  const int thread = static_cast<int>(threadIdx.x);
  const int each = (batch.batch + kOffsetThreads - 1) / kOffsetThreads;
  const int first = min(thread * each, batch.batch), last = min(first + each, batch.batch);
  std::int64_t own = 0;
  for (int b = first; b < last; ++b) own += true_length(batch.target_lengths, b, batch.extent);
  sums[thread] = own;
  __syncthreads();
  for (int reach = 1; reach < kOffsetThreads; reach *= 2) {
    const std::int64_t before = thread >= reach ? sums[thread - reach] : 0;
    __syncthreads();
    sums[thread] += before;
    __syncthreads();
  }
  std::int64_t offset = sums[thread] - own;
  for (int b = first; b < last; ++b) {
    offsets[b] = offset;
    offset += true_length(batch.target_lengths, b, batch.extent);
  }
  if (thread == kOffsetThreads - 1) offsets[batch.batch] = sums[thread];
}

}  // namespace warpalign::detail::ctc
