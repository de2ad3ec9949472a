#include "cuda/launch.cuh"
#include "soft_dtw/cuda/longest_first.h"
#include "soft_dtw/cuda/params.cuh"

namespace warpalign::detail::soft_dtw {
namespace {

constexpr int kBuckets = 1024;  // and threads

// Counting sort by one block.
__global__ void longest_first_kernel(const std::int32_t* x_lengths, const std::int32_t* y_lengths, int batch,
                                     int n, int m, int* order, int* counter) {
  __shared__ int counts[kBuckets];
  const auto bucket_of = [&](int b) {
    const float rows = static_cast<float>(true_length(x_lengths, b, n)) / n;
    const float columns = static_cast<float>(true_length(y_lengths, b, m)) / m;
    return kBuckets - 1 - min(static_cast<int>(rows * columns * kBuckets), kBuckets - 1);
  };
  const int t = threadIdx.x;
  counts[t] = 0;
  if (t == 0) *counter = 0;
  __syncthreads();
  for (int b = t; b < batch; b += kBuckets) atomicAdd(&counts[bucket_of(b)], 1);
  __syncthreads();
  // From counts to where each bucket begins.
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

Status find_longest_first(const SoftDtwProblem& p, int* order, int* counter, cudaStream_t stream) {
  return cuda::launch(longest_first_kernel, 1, kBuckets, 0, stream, p.x_lengths, p.y_lengths, p.batch, p.n,
                      p.m, order, counter);
}

}  // namespace warpalign::detail::soft_dtw
