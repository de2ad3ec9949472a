// Follows the best path's states at the boundaries of pieces, from the last to the first. A thread owns an
// utterance, and makes one dependent load per boundary.
#pragma once

#include "ctc/cuda/align/best.cuh"

namespace warpalign::detail::ctc {

// states[b, i]: the path's state before frame i piece; -1 before the first.
inline constexpr int kChainThreads = 32;
static __global__ void __launch_bounds__(kChainThreads)
    chain_kernel(const __grid_constant__ Batch batch, Checkpoints<BestState> checkpoints, const BestEnd* ends,
                 int pieces, std::int32_t* states) {
  const int b = static_cast<int>(blockIdx.x) * kChainThreads + static_cast<int>(threadIdx.x);
  if (b >= batch.batch || ends[b].outcome != kPaths) return;
  const int frames = true_length(batch.logit_lengths, b, batch.frames);
  std::int32_t* const to = states + static_cast<std::int64_t>(b) * (pieces + 1);
  int boundary = (frames + checkpoints.every - 1) / checkpoints.every;
  int state = ends[b].state, origin = ends[b].origin;
  to[boundary] = state;
  while (--boundary > 0) {
    state = origin;
    to[boundary] = state;
    const Pair<BestState>& pair = checkpoints.at(b, false, boundary)[state / 2];
    origin = state % 2 == 0 ? pair.blank.origin : pair.label.origin;
  }
  to[0] = -1;
}

}  // namespace warpalign::detail::ctc
