#include "cuda/launch/launch.cuh"
#include "cuda/rows/ragged.h"

namespace warpalign::cuda {
namespace {

constexpr int kBuckets = 1024;  // also the number of threads

// A counting sort by one block.
__global__ void longest_first_kernel(const RaggedAxis rows, const RaggedAxis columns, int batch, int* order,
                                     int* counter) {
  __shared__ int counts[kBuckets];
  const auto bucket_of = [&](int b) {
    const auto share_of = [b](const RaggedAxis& axis) {
      return static_cast<float>(true_length(axis.lengths, b, axis.most)) / max(axis.most, 1);
    };
    return kBuckets - 1 - min(static_cast<int>(share_of(rows) * share_of(columns) * kBuckets), kBuckets - 1);
  };
  const int t = threadIdx.x;
  counts[t] = 0;
  if (t == 0) *counter = 0;
  __syncthreads();
  for (int b = t; b < batch; b += kBuckets) atomicAdd(&counts[bucket_of(b)], 1);
  __syncthreads();
  // An exclusive prefix sum: from counts to the first place of each bucket.
  const int own = counts[t];
  for (int reach = 1; reach < kBuckets; reach *= 2) {
    const int before = t >= reach ? counts[t - reach] : 0;
    __syncthreads();
    counts[t] += before;
    __syncthreads();
  }
  const int begin = counts[t] - own;
  __syncthreads();
  counts[t] = begin;
  __syncthreads();
  for (int b = t; b < batch; b += kBuckets) order[atomicAdd(&counts[bucket_of(b)], 1)] = b;
}

}  // namespace

Status find_longest_first(RaggedAxis rows, RaggedAxis columns, int batch, int* order, int* counter,
                          cudaStream_t stream) {
  return launch(longest_first_kernel, {1, kBuckets, 0, stream}, rows, columns, batch, order, counter);
}

}  // namespace warpalign::cuda
