// The band of a pruned transducer loss: the states of each frame that its joint network runs on, from the
// posteriors of a loss without that network.
//
// With g[t,u,0] and g[t,u,1], minus the posteriors of the blank and of the label out of node (t, u), frame t
// of an utterance prefers the s states from
//
//   c[t] = argmax over 0 <= k <= U + 1 - s of sum_{k <= u < k + s} -g[t,u,0] + g[t,k-1,1]   (g[t,-1,1] = 0)
//
// the first of equal ones; from its last frame on, c[t] = max(U_b + 1 - s, 0). So that paths can follow, the
// band rises by at most s - 1 states from a frame to the next, and never falls:
//
//   m[t] = min over t' >= t of c[t'],   first[t] = (s-1) t - max(min over t' >= t of (s-1) t' - m[t'], 0)
//
// Source: Kuang et al., "Pruned RNN-T for fast, memory-efficient ASR training", arXiv 2206.13236, section 3.
#pragma once

#include <cstddef>
#include <cstdint>

#include "warpalign/execution.h"
#include "warpalign/status.h"

namespace warpalign {

// Pointers live on the execution's device, aligned to the size of their elements.
struct TransducerBandProblem {
  std::int32_t batch = 0;   // B >= 0
  std::int32_t frames = 0;  // T >= 0
  std::int32_t states = 1;  // U + 1 >= 1; B T (U+1) < 2^31
  // (B, T, U+1, 2), contiguous. A frame with a NaN has any states. Padded frames are not read; padded states
  // are 0.
  const float* gradients = nullptr;
  // (B,): T_b and U_b. Null: all have T frames, or U labels. Values beyond 0 to T, or U, count as the
  // nearest.
  const std::int32_t* logit_lengths = nullptr;
  const std::int32_t* target_lengths = nullptr;
  std::int32_t band_states = 1;   // s, 1 to U + 1
  std::int32_t* first = nullptr;  // the result: (B, T)
};

std::size_t transducer_band_workspace_bytes(const TransducerBandProblem& problem, const Execution& execution);

// Computes the first state of each frame. On CUDA it enqueues launches that depend on sizes alone: a graph
// can capture them.
Status transducer_band(const TransducerBandProblem& problem, Workspace workspace, const Execution& execution);

}  // namespace warpalign
