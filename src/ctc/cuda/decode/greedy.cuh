// Greedy search from the frames' best labels. A block owns an utterance, a thread a frame.
#pragma once

#include "ctc/cuda/decode/frames.cuh"

namespace warpalign::detail::ctc {

inline constexpr int kGreedyThreads = 256;

struct GreedyParams {
  int frames, blank;  // T; the class of blank
  Integers logit_lengths;
  // As in TopParams, with one list of one label.
  const double* weight;
  const std::int32_t* label;
  const FrameEnds* ends;
  CtcGreedy out;
};

class GreedyBlock {
 public:
  __device__ __forceinline__ GreedyBlock(const GreedyParams& p, int b)
      : p_(p),
        b_(b),
        first_(static_cast<std::int64_t>(b) * p.frames),
        frames_(true_length(p.logit_lengths, b, p.frames)),
        before_(p.out.before ? p.out.before[b] : CtcWalk{0, -1, 0}) {}

  __device__ __forceinline__ void run() const {
    constexpr int kWarps = kGreedyThreads / cuda::kWarpSize;
    __shared__ int counts[kWarps];
    __shared__ double sums[kWarps];
    const int thread = static_cast<int>(threadIdx.x);
    const int warp = thread / cuda::kWarpSize, lane = thread % cuda::kWarpSize;
    double score = 0;
    bool bad = false;
    int count = 0;
    for (int begin = 0; begin < frames_; begin += kGreedyThreads) {
      const int t = begin + thread;
      const bool exists = t < frames_;
      const int c = exists ? class_of(t) : p_.blank;
      const bool is_new = c != p_.blank && c != (t > 0 ? class_of(t - 1) : before_.last_class);
      if (exists) {
        bad |= isnan(p_.ends[first_ + t].lse);
        score += c == p_.blank ? p_.ends[first_ + t].blank : p_.weight[first_ + t];
      }
      const unsigned all = __ballot_sync(cuda::kFullWarp, is_new);
      if (lane == 0) counts[warp] = __popc(all);
      __syncthreads();
      int place = count + __popc(all & ((1u << lane) - 1));
      for (int w = 0; w < kWarps; ++w) {
        if (w < warp) place += counts[w];
        count += counts[w];
      }
      if (is_new) {
        p_.out.tokens[first_ + place] = c;
        p_.out.token_frames[first_ + place] = before_.frames + t;
      }
      __syncthreads();
    }
    bad = __syncthreads_or(bad);
    score = cuda::reduce_sum(score);
    if (lane == 0) sums[warp] = score;
    __syncthreads();
    double total = before_.score;
    for (const double sum : sums) total += sum;
    if (bad) total = CUDART_NAN;
    if (isnan(total)) count = 0;
    for (int k = count + thread; k < p_.frames; k += kGreedyThreads) {
      p_.out.tokens[first_ + k] = p_.out.token_frames[first_ + k] = -1;
    }
    if (thread != 0) return;
    p_.out.lengths[b_] = count;
    p_.out.after[b_] = {total, frames_ > 0 ? class_of(frames_ - 1) : before_.last_class,
                        before_.frames + frames_};
  }

 private:
  // The best class of a frame; among equal ones the lowest.
  [[nodiscard]] __device__ __forceinline__ int class_of(int t) const {
    const int label = p_.label[first_ + t];
    if (label < 0) return p_.blank;
    const double weight = p_.weight[first_ + t], blank = p_.ends[first_ + t].blank;
    return blank > weight || (blank == weight && p_.blank < label) ? p_.blank : label;
  }

  const GreedyParams& p_;
  const int b_;
  const std::int64_t first_;
  const int frames_;
  const CtcWalk before_;
};

static __global__ void __launch_bounds__(kGreedyThreads)
    greedy_kernel(const __grid_constant__ GreedyParams p) {
  GreedyBlock(p, static_cast<int>(blockIdx.x)).run();
}

}  // namespace warpalign::detail::ctc
