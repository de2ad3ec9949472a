// Soft-DTW between pairs of time series: value, input gradients and expected alignment in one call.
//
//   R[i,j] = C[i,j] + softmin_gamma(R[i-1,j], R[i,j-1], R[i-1,j-1]),   0 <= i < n, 0 <= j < m,
//   softmin_gamma(a, ...) = -gamma log(exp(-a/gamma) + ...),           R[-1,-1] = 0, R = inf elsewhere
//   outside, value = R[n-1,m-1],   E[i,j] = d value / d C[i,j],   C[i,j] = sum_d (x[i,d] - y[j,d])^2
//
// The problem's options replace C by another cost, restrict the cells by a band, add a penalty to R[i-1,j]
// and R[i,j-1], or leave the ends open.
//
// Source: Cuturi & Blondel, "Soft-DTW: a differentiable loss function for time-series", ICML 2017, eq. 2 and
// algorithms 1 and 2. The cost has no factor 1/2.
#pragma once

#include <cstddef>
#include <cstdint>

#include "warpalign/cost_kind.h"
#include "warpalign/dtype.h"
#include "warpalign/execution.h"
#include "warpalign/status.h"
#include "warpalign/tensor.h"

namespace warpalign {

// Which cells (i, j) of a pair's n x m table a path may use; n and m are the pair's own true lengths. Cells
// outside the band are not computed, and their alignment is 0.
enum class BandKind : std::int32_t {
  kNone,        // all
  kSakoeChiba,  // m >= n: i - radius <= j <= i + (m - n) + radius; n > m: with i and j exchanged
  kAbsolute,    // |i - j| <= radius; holds a path only if radius >= |n - m|
  kSlanted,     // |i (m-1) - j (n-1)| <= radius max(n-1, m-1): around the diagonal of the rectangle
  kItakura,     // parallelogram of slopes 1/max_slope and max_slope times n/m, as tslearn rounds it
};

struct Band {
  BandKind kind = BandKind::kNone;
  std::int32_t radius = 0;  // >= 0
  double max_slope = 2.0;   // >= 1 and finite
};

// What is computed. Pointers point to memory of the execution's device, aligned to the size of their
// elements. Either x and y are given, or cost; with cost, dim = 0. The products B N D, B M D and B N M are at
// most 2^48.
struct SoftDtwProblem {
  // Of x, y, cost and every output: float32 or float64. On CUDA x and y may be float16 or bfloat16; gammas
  // and every output are float32 then. soft_dtw_jvp() takes no half types.
  DType dtype = DType::kFloat32;
  std::int32_t batch = 0;  // B >= 0
  std::int32_t n = 0;      // N, 1 to 2^29: rows of the alignment
  std::int32_t m = 0;      // M, 1 to 2^29: columns
  std::int32_t dim = 0;    // D, 1 to 2^29, with x and y
  StridedTensor x;         // (B, N, D)
  StridedTensor y;         // (B, M, D)
  StridedTensor cost;      // (B, N, M)
  // True lengths per pair, (B,), 1 <= x_lengths[b] <= N and 1 <= y_lengths[b] <= M. Null: every length is N
  // (M). Host execution returns an error for a length out of range; CUDA execution clamps it into the range,
  // because the host never reads device memory.
  const std::int32_t* x_lengths = nullptr;
  const std::int32_t* y_lengths = nullptr;
  // Packed series, end to end without padding. x_offsets: (B,), in steps; pair b's series is the steps
  // x_offsets[b] ... x_offsets[b] + x_lengths[b] - 1 of an x (x_steps, D), whose stride[0] is not used.
  // x_lengths is not null, N is the longest length or more, and grad_x is (x_steps, D), 0 at steps of no
  // pair. Steps belong to one pair at most. Null: x is (B, N, D). The same for y. Host execution returns an
  // error for steps out of range; CUDA execution does not check. Not with a cost matrix, masks,
  // CostKind::kCosine, soft_dtw_jvp() or soft_dtw_sample(). x_steps D and y_steps D are at most 2^48.
  const std::int64_t* x_offsets = nullptr;
  const std::int64_t* y_offsets = nullptr;
  std::int64_t x_steps = 0;
  std::int64_t y_steps = 0;
  // Finite and >= 0, in units of the cost. 0: hard DTW, the value of the best path and the gradient along it.
  // Among equally good steps into a cell the diagonal one is taken, then the one from i - 1, then from j - 1.
  double gamma = 1.0;
  // A band that holds no path of some pair is an error. If the lengths are on a CUDA device, it is none: such
  // a pair gets value inf and gradient 0.
  Band band;
  double step_penalty = 0.0;  // >= 0 and finite: added to the cost of every step that is not diagonal
  CostKind cost_kind = CostKind::kSquaredEuclidean;  // of x and y; not looked at with a cost matrix
  // (B,), of dtype: each pair's own gamma, > 0 and finite, in place of `gamma`. Null: `gamma` for all pairs.
  // Host execution returns an error for a gamma out of range; CUDA execution does not check.
  const void* gammas = nullptr;
  // (B, N) and (B, M), contiguous. A step whose element is not 0 is missing: its cost is 0 against every
  // other step, its values are never used, and its gradient is 0. Null: no step is missing. Not with a cost
  // matrix.
  const std::uint8_t* x_mask = nullptr;
  const std::uint8_t* y_mask = nullptr;
  // x is searched for within y: a path may begin at any (0, j) and end at any (n-1, k), j <= k. The value is
  // softmin_gamma over k of R[n-1, k]. Not with a band, and not with grad_gamma.
  bool subsequence = false;
};

// The outputs: contiguous, aligned as inputs are; null: not computed. No output may overlap another output,
// the inputs or the workspace. Elements beyond a pair's true lengths are written as exactly 0. A pair with a
// NaN among its costs gets NaN everywhere. A pair whose every path costs inf gets value inf and gradient 0.
struct SoftDtwOutputs {
  void* value = nullptr;      // (B,), never null
  void* grad_x = nullptr;     // (B, N, D), or (x_steps, D) of packed series: d value[b] / d x[b]
  void* grad_y = nullptr;     // (B, M, D), or (y_steps, D): d value[b] / d y[b]
  void* alignment = nullptr;  // (B, N, M): E, the expected alignment = d value[b] / d C[b]
  // (B,): d value[b] / d gamma[b], minus the entropy of the distribution of paths; 0 at gamma = 0.
  void* grad_gamma = nullptr;
  // (B, M), with subsequence only: R[n-1, k], the value of the paths that end at k; inf beyond the true
  // length.
  void* end_values = nullptr;

  [[nodiscard]] bool wants_gradient() const { return grad_x || grad_y || alignment || grad_gamma; }
};

// Bytes of workspace that soft_dtw() needs for this problem on this execution. Outputs matter by
// which of them are null. 0 is possible. Reads no device memory.
std::size_t soft_dtw_workspace_bytes(const SoftDtwProblem& problem, const SoftDtwOutputs& outputs,
                                     const Execution& execution);

// Host execution: the results are written on return. CUDA execution: the work is enqueued on
// execution.stream; nothing is allocated or waited for, so that a CUDA graph can capture the call. On any
// status but ok nothing has been written.
Status soft_dtw(const SoftDtwProblem& problem, const SoftDtwOutputs& outputs, Workspace workspace,
                const Execution& execution);

// Second order: tangents of the problem's inputs, (B, N, D) and (B, M, D), or (B, N, M) with a cost matrix,
// of the problem's dtype. Null: 0. Tangents of elements beyond a pair's true lengths, of missing steps, and
// of cells outside the band or of cost inf have no effect.
struct SoftDtwTangents {
  StridedTensor x;
  StridedTensor y;
  StridedTensor cost;
};

// Bytes of workspace that soft_dtw_jvp() needs.
std::size_t soft_dtw_jvp_workspace_bytes(const SoftDtwProblem& problem, const SoftDtwTangents& tangents,
                                         const SoftDtwOutputs& outputs, const Execution& execution);

// Every output gets the derivative, along the tangents, of the result that soft_dtw() writes there:
//   value                <gradient, tangent>
//   grad_x, grad_y       the Hessian of value[b] by the inputs times the tangent, its rows of x and of y
//   alignment            the Hessian of value[b] by the costs times the tangent of the costs
// This is forward mode over reverse mode: the recursions of R and E on dual numbers, in float64. The Hessian
// is symmetric: the results are also the vector-Jacobian products of the gradients, which a second backward
// pass needs.
//
// If a cost has no derivative, its second derivative is 0 too. gamma and the penalty are constants.
// Unsupported are subsequence, and gamma = 0, whose second derivatives vanish almost everywhere. grad_gamma
// must be null. A pair with a NaN among its costs gets NaN everywhere. A pair whose every path costs inf gets
// 0.
//
// As with soft_dtw(), nothing is allocated, and on any status but ok nothing has been written.
Status soft_dtw_jvp(const SoftDtwProblem& problem, const SoftDtwTangents& tangents,
                    const SoftDtwOutputs& outputs, Workspace workspace, const Execution& execution);

}  // namespace warpalign
