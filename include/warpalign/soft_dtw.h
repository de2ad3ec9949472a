// Soft-DTW between pairs of time series: value, input gradients and expected alignment in one call.
//
//   R[i,j] = C[i,j] + softmin_gamma(R[i-1,j], R[i,j-1], R[i-1,j-1]),   0 <= i < n, 0 <= j < m,
//   softmin_gamma(a, ...) = -gamma log(exp(-a/gamma) + ...),           R[-1,-1] = 0, R = inf elsewhere
//   outside, value = R[n-1,m-1],   E[i,j] = d value / d C[i,j],   C[i,j] = sum_d (x[i,d] - y[j,d])^2
//
// and with the problem's options other costs, a band, a penalty added to R[i-1,j] and R[i,j-1], open ends.
//
// Source: Cuturi & Blondel, "Soft-DTW: a differentiable loss function for time-series", ICML 2017, eq. 2 and
// algorithms 1 and 2. The cost carries no factor 1/2.
#pragma once

#include <cstddef>
#include <cstdint>

#include "warpalign/cost_kind.h"
#include "warpalign/dtype.h"
#include "warpalign/execution.h"
#include "warpalign/status.h"
#include "warpalign/tensor.h"

namespace warpalign {

// Which cells (i, j) of a pair's n x m table paths may use; n and m are the pair's own true lengths. The
// others are not computed, and their alignment is 0.
enum class BandKind : std::int32_t {
  kNone,        // all
  kSakoeChiba,  // m >= n: i - radius <= j <= i + (m - n) + radius; n > m: the same with i and j exchanged
  kAbsolute,    // |i - j| <= radius; holds a path only if radius >= |n - m|
  kSlanted,     // |i (m-1) - j (n-1)| <= radius max(n-1, m-1): around the diagonal of the rectangle
  kItakura,     // parallelogram of slopes 1/max_slope and max_slope times n/m, as tslearn rounds it
};

struct Band {
  BandKind kind = BandKind::kNone;
  std::int32_t radius = 0;  // >= 0
  double max_slope = 2.0;   // >= 1 and finite
};

// What is computed. Pointers live on the execution's device, aligned to the size of their elements. Either x
// and y are given, or cost (then dim = 0). B N D, B M D and B N M are at most 2^48.
struct SoftDtwProblem {
  DType dtype = DType::kFloat32;  // of x, y, cost and every output: float32 or float64
  std::int32_t batch = 0;         // B >= 0
  std::int32_t n = 0;             // N, 1 to 2^29: rows of the alignment
  std::int32_t m = 0;             // M, 1 to 2^29: columns
  std::int32_t dim = 0;           // D, 1 to 2^29, with x and y
  StridedTensor x;                // (B, N, D)
  StridedTensor y;                // (B, M, D)
  StridedTensor cost;             // (B, N, M)
  // True lengths per pair, (B,), 1 <= x_lengths[b] <= N; null: all N (all M). Host execution returns an error
  // for a length out of range; CUDA execution never reads it back and clamps it into the range.
  const std::int32_t* x_lengths = nullptr;
  const std::int32_t* y_lengths = nullptr;
  // Finite and >= 0, in units of the cost. 0: hard DTW, the value of the best path and the gradient along it;
  // of equal steps into a cell the diagonal one is taken, then the one from i - 1, then that from j - 1.
  double gamma = 1.0;
  // A pair whose band holds no path: host execution returns an error, and CUDA execution does so where all
  // pairs have the lengths N and M; with lengths on the device such a pair gets value inf, gradient 0.
  Band band;
  double step_penalty = 0.0;  // >= 0 and finite: added to the cost of every step that is not diagonal
  CostKind cost_kind = CostKind::kSquaredEuclidean;  // of x and y; not looked at with a cost matrix
  // (B,), of dtype: each pair's own gamma, > 0 and finite, instead of the one above. Null: that one for all.
  // Host execution returns an error for any other; CUDA execution never reads it back.
  const void* gammas = nullptr;
  // (B, N) and (B, M), contiguous; where not 0, the step is missing: it costs 0 against everything, its
  // values are never used and its gradient is 0. Null: none is missing. Not with a cost matrix.
  const std::uint8_t* x_mask = nullptr;
  const std::uint8_t* y_mask = nullptr;
  // x is sought within y: a path may begin at any (0, j) and end at any (n-1, k), j <= k, and the value is
  // that of all of them, softmin_gamma over k of R[n-1, k]. Without a band and without grad_gamma.
  bool subsequence = false;
};

// Where results go, contiguous, aligned as inputs are; null: not wanted. No output may overlap another one,
// the inputs or the workspace. What is beyond a pair's true lengths is written as exactly 0. A pair with a
// NaN among its costs gets NaN everywhere; a pair whose every path costs inf gets value inf, gradient 0.
struct SoftDtwOutputs {
  void* value = nullptr;      // (B,), always wanted
  void* grad_x = nullptr;     // (B, N, D): d value[b] / d x[b]
  void* grad_y = nullptr;     // (B, M, D): d value[b] / d y[b]
  void* alignment = nullptr;  // (B, N, M): E, the expected alignment = d value[b] / d C[b]
  // (B,): d value[b] / d gamma[b], which is minus the entropy of the distribution of paths; 0 at gamma = 0.
  void* grad_gamma = nullptr;
  // (B, M), with subsequence only: R[n-1, k], the value of the paths that end at k; inf beyond the true
  // length.
  void* end_values = nullptr;

  [[nodiscard]] bool wants_gradient() const { return grad_x || grad_y || alignment || grad_gamma; }
};

// Bytes of workspace that soft_dtw() needs for this problem, with these outputs wanted (only which of them
// are null is looked at), on this execution. 0 is possible. Reads no device memory.
std::size_t soft_dtw_workspace_bytes(const SoftDtwProblem& problem, const SoftDtwOutputs& outputs,
                                     const Execution& execution);

// Host execution: results are there on return. CUDA execution: work is enqueued on execution.stream, nothing
// is allocated or waited for, so that a CUDA graph can capture it. On any status but ok nothing has been
// written.
Status soft_dtw(const SoftDtwProblem& problem, const SoftDtwOutputs& outputs, Workspace workspace,
                const Execution& execution);

// Second order: tangents of the problem's inputs, (B, N, D) and (B, M, D), or (B, N, M) with a cost matrix,
// of its dtype. Null: 0. What is beyond a pair's true lengths, missing, outside the band or of cost inf
// counts for nothing.
struct SoftDtwTangents {
  StridedTensor x;
  StridedTensor y;
  StridedTensor cost;
};

// Every output gets the derivative, along the tangents, of what soft_dtw() puts there: value <gradient,
// tangent>, the gradients the Hessian of value[b] times the tangent (its own part of it), the alignment that
// Hessian product by cost. This is forward mode over reverse mode: the recursions of R and E on dual numbers,
// in float64, with as little kept as in soft_dtw(). The Hessian is symmetric, so that these are also the
// vector-Jacobian products of the gradients, which a second backward pass needs.
//
// Where a cost has no derivative its second one is 0 too. gamma and the penalty are constants. Unsupported:
// gamma = 0, whose value is piecewise of its costs' order, and subsequence. grad_gamma
// must be null. A pair with a NaN among its costs gets NaN everywhere, and one whose every path costs inf 0.
std::size_t soft_dtw_jvp_workspace_bytes(const SoftDtwProblem& problem, const SoftDtwTangents& tangents,
                                         const SoftDtwOutputs& outputs, const Execution& execution);

// As soft_dtw(): nothing is allocated, and on any status but ok nothing has been written.
Status soft_dtw_jvp(const SoftDtwProblem& problem, const SoftDtwTangents& tangents,
                    const SoftDtwOutputs& outputs, Workspace workspace, const Execution& execution);

}  // namespace warpalign
