// Paths drawn from the Gibbs distribution of soft-DTW.
//
// A path A from (0, 0) to (n-1, m-1) has the probability
//
//   P(A) = exp((value - cost(A)) / gamma),   cost(A) = sum of C[i,j] over its cells, plus the penalties of
//   its steps,
//
// with `value` and the options of soft_dtw(). The alignment of soft_dtw() is the expectation of the paths'
// cells under P. A path is drawn from its end: cell (i, j) is entered from a predecessor with the probability
//
//   exp((softmin_gamma(...) - R[predecessor] - penalty) / gamma).
//
// Source: Cuturi & Blondel, "Soft-DTW: a differentiable loss function for time-series", ICML 2017, section 2;
// backward sampling as for chains: Mensch & Blondel, "Differentiable dynamic programming for structured
// prediction and attention", ICML 2018.
#pragma once

#include <cstddef>
#include <cstdint>

#include "warpalign/execution.h"
#include "warpalign/soft_dtw.h"
#include "warpalign/status.h"

namespace warpalign {

// The outputs, contiguous. Neither may overlap the other, the inputs or the workspace. Every element is
// written. A pair with a NaN or -inf among the costs of its cells, or whose every path costs inf, gets paths
// of length 0.
struct SoftDtwSamples {
  std::int32_t paths_per_pair = 0;  // S >= 0
  // Path s of pair b is the same in every call with this seed, and the same on every device but for draws
  // that are within 2^-31 of a threshold and the rounding of float64. It depends on no other pair, but on b
  // and s.
  std::uint64_t seed = 0;
  // (B, S, N+M-1, 2): the cells (i, j) of each path, from (0, 0) to (n-1, m-1); -1 after its end.
  std::int64_t* paths = nullptr;
  std::int64_t* lengths = nullptr;  // (B, S): the number of cells of each path
};

// Bytes of workspace that soft_dtw_sample() needs: on CUDA about N M bytes for each pair, of as many pairs as
// fit 256 MiB, and of one pair at least; on a CPU as much for each thread, plus its series in float64. Reads
// no device memory.
std::size_t soft_dtw_sample_workspace_bytes(const SoftDtwProblem& problem, const SoftDtwSamples& samples,
                                            const Execution& execution);

// Draws paths. All arithmetic is float64; probabilities of steps are multiples of 2^-31. The problem is that
// of soft_dtw(), in float32 or float64, with gamma > 0 and without subsequence.
//
// Host execution: the results are written on return. CUDA execution: the work is enqueued on
// execution.stream; nothing is allocated or waited for. On any status but ok nothing has been written.
Status soft_dtw_sample(const SoftDtwProblem& problem, const SoftDtwSamples& samples, Workspace workspace,
                       const Execution& execution);

}  // namespace warpalign
