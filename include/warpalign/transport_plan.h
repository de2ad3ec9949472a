// The plan of a transport problem, by its potentials: what is read off it without storing N x M numbers.
//
//   P[i,j] = R[i,j] exp((f[i] + g[j] - C[i,j]) / epsilon)
//
// Every function takes the problem of warpalign/sinkhorn.h with f0 and g0 as f and g (both of them), and
// reads its costs, weights, lengths, epsilon and reference, but neither strengths, mass, annealing nor
// iterations. Behind true lengths the plan is 0. Pointers, overlap, workspaces and failures are as for
// sinkhorn().
#pragma once

#include <cstddef>
#include <cstdint>

#include "warpalign/execution.h"
#include "warpalign/sinkhorn.h"
#include "warpalign/status.h"
#include "warpalign/tensor.h"

namespace warpalign {

// Products with K columns at a time.
struct PlanProduct {
  bool transposed = false;   // P^T v instead of P v
  std::int32_t columns = 0;  // K, 1 to 2^29
  StridedTensor v;           // (B, M, K), transposed (B, N, K), of the problem's dtype
  void* result = nullptr;    // (B, N, K), transposed (B, M, K), contiguous
};

Status plan_apply(const SinkhornProblem& problem, const PlanProduct& product, Workspace workspace,
                  const Execution& execution);
std::size_t plan_apply_workspace_bytes(const SinkhornProblem& problem, const PlanProduct& product,
                                       const Execution& execution);

// The derivatives of s = sum W[i,j] P[i,j] by everything the plan is made of, as if all were independent.
// W is dense, or U V^T. s is linear in P, so these are the vector-Jacobian products of whatever is read off
// the plan.
struct PlanGradient {
  std::int32_t columns = 0;  // K of U and V; 0: W is given
  StridedTensor w;           // (B, N, M)
  StridedTensor u;           // (B, N, K)
  StridedTensor v;           // (B, M, K)
  // Contiguous; each may be null.
  void* row_sums = nullptr;      // (B, N): sum over j of W P. d s / d f = row_sums / epsilon
  void* column_sums = nullptr;   // (B, M): sum over i of W P
  void* grad_x = nullptr;        // (B, N, D)
  void* grad_y = nullptr;        // (B, M, D)
  void* grad_cost = nullptr;     // (B, N, M): by the given cost
  void* grad_a = nullptr;        // (B, N): through R; 0 with kCounting
  void* grad_b = nullptr;        // (B, M)
  void* grad_epsilon = nullptr;  // (B,): at fixed f and g
};

Status plan_gradient(const SinkhornProblem& problem, const PlanGradient& gradient, Workspace workspace,
                     const Execution& execution);
std::size_t plan_gradient_workspace_bytes(const SinkhornProblem& problem, const PlanGradient& gradient,
                                          const Execution& execution);

// The largest entries of every row, transposed of every column, in falling order; equal ones by index.
// Entries after the true length come last, with value 0.
struct PlanTop {
  bool transposed = false;
  std::int32_t count = 0;           // k, 1 to M, transposed to N
  void* values = nullptr;           // (B, N, k), transposed (B, M, k)
  std::int32_t* indices = nullptr;  // the same shape
};

Status plan_topk(const SinkhornProblem& problem, const PlanTop& top, Workspace workspace,
                 const Execution& execution);
std::size_t plan_topk_workspace_bytes(const SinkhornProblem& problem, const PlanTop& top,
                                      const Execution& execution);

// Pairs (i, j) drawn independently with probability P[i,j] / sum P. Sample k of problem b takes the Philox
// 4x32-10 words of counter (k, b, 0, 0) and key seed (src/core/philox.h): two for the row, two for the
// column. The same seed gives the same pairs for every batch that holds the problem at the same place, and
// any number of threads; a GPU draws the same but for ties within rounding. A plan of no mass, or with NaN,
// gives (-1, -1).
struct PlanSamples {
  std::int32_t count = 0;  // S, 1 to 2^29
  std::uint64_t seed = 0;
  std::int32_t* pairs = nullptr;  // (B, S, 2)
};

Status plan_sample(const SinkhornProblem& problem, const PlanSamples& samples, Workspace workspace,
                   const Execution& execution);
std::size_t plan_sample_workspace_bytes(const SinkhornProblem& problem, const PlanSamples& samples,
                                        const Execution& execution);

// The plan itself: plan (B, N, M), contiguous.
Status plan_dense(const SinkhornProblem& problem, void* plan, Workspace workspace,
                  const Execution& execution);
std::size_t plan_dense_workspace_bytes(const SinkhornProblem& problem, const Execution& execution);

}  // namespace warpalign
