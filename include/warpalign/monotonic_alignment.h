// Monotonic alignment search (MAS): the best way to give every position of a text at least one frame, in
// order.
//
// Item b has S text positions, T frames and scores x[s,t], 0 <= s < S, 0 <= t < T. A path has one position
// per frame: s(0) = 0, s(T-1) = S-1, and s(t+1) is s(t) or s(t) + 1.
//
//   score = max over paths of sum over t of x[s(t), t]
//
// Among paths of equal score the choice is made from the end: back from a frame, the same position is taken
// rather than the one before. Sums of a path's scores are float64, in the order of the frames.
//
// Source: Kim, Kim, Kong, Yoon, "Glow-TTS", NeurIPS 2020, section 3.2 and algorithm 1.
#pragma once

#include <cstddef>
#include <cstdint>

#include "warpalign/dtype.h"
#include "warpalign/execution.h"
#include "warpalign/integers.h"
#include "warpalign/status.h"
#include "warpalign/tensor.h"

namespace warpalign {

struct MonotonicAlignmentProblem {
  DType dtype = DType::kFloat32;  // of scores; half types are read as they are
  std::int32_t batch = 0;         // B >= 0
  std::int32_t positions = 0;     // S >= 0: no item has more
  std::int32_t frames = 0;        // T >= 0: no item has more
  StridedTensorOf<3> scores;      // (B, S, T), any strides >= 0. Padding is never read
  // (B,): S_b and T_b. data null: all have S positions, or T frames. Host execution returns an error unless
  // 0 <= S_b <= S and 0 <= T_b <= T. CUDA execution clamps them.
  Integers text_lengths;
  Integers frame_lengths;
};

// The outputs, contiguous; each may be null. None may overlap anything else. Every element is written. No
// path (S_b > T_b, or S_b = 0 < T_b, or all sums -inf): durations and path 0, score -inf. NaN or +inf at a
// true position and frame: durations and path 0, score NaN. S_b = T_b = 0: score 0.
struct MonotonicAlignment {
  void* score = nullptr;              // (B,): float64 for float64 scores, else float32
  std::int32_t* durations = nullptr;  // (B, S): how many frames each position has
  std::uint8_t* path = nullptr;       // (B, S, T): 1 where s = s(t), else 0
};

std::size_t monotonic_alignment_workspace_bytes(const MonotonicAlignmentProblem& problem,
                                                const MonotonicAlignment& alignment,
                                                const Execution& execution);

// Host execution: results are there on return. CUDA execution: work is enqueued on execution.stream and
// nothing is allocated or waited for. On any status but ok nothing has been written.
Status monotonic_alignment(const MonotonicAlignmentProblem& problem, const MonotonicAlignment& alignment,
                           Workspace workspace, const Execution& execution);

}  // namespace warpalign
