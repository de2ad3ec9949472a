// A step of greedy search. A block owns an utterance. Each warp finds the best arc of one frame, then one
// thread walks over these frames.
#pragma once

#include <cmath>
#include <cstdint>

#include "cuda/rows/ragged.h"
#include "cuda/threads/warp.cuh"
#include "transducer/decode.h"
#include "transducer/walk.h"

namespace warpalign::detail::transducer {

constexpr int kGreedyFrames = 16;  // frames of a block at a time, one per warp

// The best column of a row, and the row's log-sum-exp, in all lanes. A lane's columns depend on its number
// alone, so that the order of the sum is fixed.
template <class Real>
__device__ __forceinline__ Best<Real> row_best(const Real* row, int columns, double& lse) {
  const int lane = static_cast<int>(threadIdx.x) % cuda::kWarpSize;
  Best<Real> best;
  for (int c = lane; c < columns; c += cuda::kWarpSize) best.see(row[c], c);
  best = cuda::reduce(best, [](Best<Real> a, const Best<Real>& b) {
    if (b.column >= 0) a.see(b.value, b.column);
    return a;
  });
  const Real shift = best.column < 0 ? Real(0) : best.value;
  Real sum = 0;
  for (int c = lane; c < columns; c += cuda::kWarpSize) sum += std::exp(row[c] - shift);
  lse = static_cast<double>(shift) + std::log(cuda::reduce_sum(sum));
  return best;
}

template <class Real>
__global__ void __launch_bounds__(kGreedyFrames* cuda::kWarpSize)
    greedy_kernel(const TransducerGreedyStep p) {
  __shared__ BestArc arcs[kGreedyFrames];
  __shared__ bool walks;
  const int b = static_cast<int>(blockIdx.x);
  const int warp = static_cast<int>(threadIdx.x) / cuda::kWarpSize;
  const int lane = static_cast<int>(threadIdx.x) % cuda::kWarpSize;
  const std::int64_t columns = columns_of(p.decoding);
  const auto* const scores = static_cast<const Real*>(p.scores) + b * p.window * columns;
  const std::int32_t length = cuda::true_length(p.lengths, b, p.frames, 0);
  TransducerWalk walk = begun(p.walk[b]);
  double log_prob = p.log_prob[b];
  const std::int32_t start = walk.frame;
  const std::int32_t count = start < 0 ? 0 : min(length - start, p.window);
  for (int first = 0; first < count; first += kGreedyFrames) {
    const int f = first + warp;
    if (f < count) {
      const Real* const row = scores + f * columns;
      double lse;
      const Best<Real> best = row_best(row, p.decoding.labels, lse);
      if (lane == 0) arcs[warp] = best_arc(p.decoding, best, lse, row + p.decoding.labels);
    }
    __syncthreads();
    if (threadIdx.x == 0) {
      const int end = min(first + kGreedyFrames, count);
      bool goes_on = true;
      while (goes_on && walk.frame - start < end) {
        goes_on = take(arcs[walk.frame - start - first], p.decoding, walk, log_prob);
      }
      walks = goes_on;
    }
    __syncthreads();
    if (!walks) break;
  }
  if (threadIdx.x == 0) leave(p, b, walk, log_prob);
}

}  // namespace warpalign::detail::transducer
