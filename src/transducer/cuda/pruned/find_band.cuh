// The band of a pruned loss (warpalign/transducer_band.h).
//
// A warp takes a frame at a time, and finds the states that it prefers. The last block of an utterance to end
// makes the band of them: each of its threads owns neighbouring frames, and minima over later frames are
// those of its own and of the threads after it.
#pragma once

#include <climits>
#include <cstdint>

#include "cuda/rows/ragged.h"
#include "cuda/threads/warp.cuh"
#include "warpalign/transducer_band.h"

namespace warpalign::detail::transducer {

constexpr int kFindThreads = 256;
constexpr int kFindWarps = kFindThreads / cuda::kWarpSize;

class BandFinder {
 public:
  __device__ __forceinline__ BandFinder(const TransducerBandProblem& p, int b)
      : p_(p),
        frames_(cuda::true_length(p.logit_lengths, b, p.frames, 0)),
        last_(max(cuda::true_length(p.target_lengths, b, p.states - 1, 0) + 1 - p.band_states, 0)),
        steepest_(p.band_states - 1),
        gradients_(p.gradients + static_cast<std::int64_t>(b) * p.frames * p.states * 2),
        first_(p.first + static_cast<std::int64_t>(b) * p.frames) {}

  // Writes the states that frame t prefers. Called by a warp.
  __device__ __forceinline__ void prefer(int t, int lane) const {
    int best = last_;
    if (t < frames_ - 1) {
      const float* const g = gradients_ + static_cast<std::int64_t>(t) * p_.states * 2;
      Choice choice{0, INT_MAX};
      for (int k = lane; k + p_.band_states <= p_.states; k += cuda::kWarpSize) {
        float sum = 0;
        for (int u = k; u < k + p_.band_states; ++u) sum -= g[2 * u];
        if (k > 0) sum += g[2 * k - 1];
        choice = better(choice, {sum, k});
      }
      best = cuda::reduce(choice, better).first;
    }
    if (lane == 0) first_[t] = min(best, p_.states - p_.band_states);
  }

  // Makes the band of the preferred states. Called by a block. least: kFindThreads numbers in shared memory.
  __device__ __forceinline__ void rise(int* least) const {
    const int thread = static_cast<int>(threadIdx.x), share = (p_.frames + kFindThreads - 1) / kFindThreads;
    const int begin = min(thread * share, p_.frames), end = min(begin + share, p_.frames);
    int own = INT_MAX;
    for (int t = begin; t < end; ++t) own = min(own, __ldcg(first_ + t));
    const int later = of_later(least, own);
    int state = later;
    own = INT_MAX;
    for (int t = end - 1; t >= begin; --t) {
      state = min(state, __ldcg(first_ + t));
      own = min(own, steepest_ * t - state);
    }
    int above = of_later(least, own);
    state = later;
    for (int t = end - 1; t >= begin; --t) {
      state = min(state, __ldcg(first_ + t));
      above = min(above, steepest_ * t - state);
      first_[t] = steepest_ * t - max(above, 0);
    }
  }

 private:
  struct Choice {
    float sum;
    int first;  // INT_MAX: none
  };
  // The larger sum, of equal ones the first.
  static __device__ __forceinline__ Choice better(const Choice& a, const Choice& b) {
    if (b.first == INT_MAX) return a;
    if (a.first == INT_MAX) return b;
    if (b.sum > a.sum || (b.sum == a.sum && b.first < a.first)) return b;
    return a;
  }
  // The minimum of the later threads' numbers.
  static __device__ __forceinline__ int of_later(int* least, int own) {
    const int thread = static_cast<int>(threadIdx.x);
    __syncthreads();
    least[thread] = own;
    for (int reach = 1; reach < kFindThreads; reach *= 2) {
      __syncthreads();
      const int other = thread + reach < kFindThreads ? least[thread + reach] : INT_MAX;
      __syncthreads();
      least[thread] = min(least[thread], other);
    }
    __syncthreads();
    return thread + 1 < kFindThreads ? least[thread + 1] : INT_MAX;
  }

  const TransducerBandProblem& p_;
  const int frames_;    // T_b
  const int last_;      // the first state of the last frames
  const int steepest_;  // s - 1
  const float* const gradients_;
  std::int32_t* const first_;
};

// Block b per_utterance + n owns every per_utterance-th group of kFindWarps frames of utterance b. ended: of
// each utterance the number of blocks that have ended, 0 at first.
static __global__ void __launch_bounds__(kFindThreads)
    find_band_kernel(const __grid_constant__ TransducerBandProblem p, int per_utterance, int* ended) {
  __shared__ int least[kFindThreads];
  __shared__ bool is_last;
  const int b = static_cast<int>(blockIdx.x) / per_utterance,
            part = static_cast<int>(blockIdx.x) % per_utterance;
  const int lane = static_cast<int>(threadIdx.x) % cuda::kWarpSize;
  const BandFinder finder(p, b);
  int t = part * kFindWarps + static_cast<int>(threadIdx.x) / cuda::kWarpSize;
  for (; t < p.frames; t += per_utterance * kFindWarps) finder.prefer(t, lane);
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) is_last = atomicAdd(ended + b, 1) == per_utterance - 1;
  __syncthreads();
  if (!is_last) return;
  __threadfence();
  finder.rise(least);
}

}  // namespace warpalign::detail::transducer
