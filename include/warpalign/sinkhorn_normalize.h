// Sinkhorn normalisation of logits: a matrix with sums of 1, after so many iterations as are asked for.
//
//   P[0] = exp(L),    P[t] = columns(rows(P[t-1])),  t = 1 ... T,    rows(P)[i,j] = P[i,j] / sum over j' of
//   P[i,j'],
//
// columns() alike; with kColumnsFirst P[t] = rows(columns(P[t-1])). The sums that are normalised last are 1
// but for rounding; the others tend to 1 if the matrix is square. The gradient is that of these T iterations,
// which it computes again.
//
// Sources: Sinkhorn & Knopp, "Concerning nonnegative matrices and doubly stochastic matrices", Pacific J.
// Math. 1967; Adams & Zemel, "Ranking via Sinkhorn propagation", arXiv 1106.1925 (the gradient through
// iterations).
#pragma once

#include <cstddef>
#include <cstdint>

#include "warpalign/dtype.h"
#include "warpalign/execution.h"
#include "warpalign/status.h"
#include "warpalign/tensor.h"

namespace warpalign {

inline constexpr std::int32_t kMostNormalizedLines = 64;

// Which sums an iteration normalises first.
enum class NormalizeOrder : std::int32_t { kRowsFirst, kColumnsFirst };

// logits are aligned to the size of their elements. -inf forbids an element: P is 0 there, and so is the
// gradient. A row or column of -inf alone stays 0. A matrix with NaN or +inf becomes NaN everywhere.
struct NormalizeProblem {
  DType dtype = DType::kFloat32;  // of logits, plan and gradients; half types are read as they are
  std::int32_t batch = 0;         // B >= 0
  std::int32_t n = 0;             // N, 1 to kMostNormalizedLines
  std::int32_t m = 0;             // M, 1 to kMostNormalizedLines
  StridedTensor logits;           // (B, N, M)
  std::int32_t iterations = 20;   // T, 1 to 2^20
  NormalizeOrder order = NormalizeOrder::kRowsFirst;
};

// plan: (B, N, M), contiguous, P[T]. It may not overlap the logits.
Status sinkhorn_normalize(const NormalizeProblem& problem, void* plan, Workspace workspace,
                          const Execution& execution);
std::size_t sinkhorn_normalize_workspace_bytes(const NormalizeProblem& problem, const Execution& execution);

// grad_logits: (B, N, M), contiguous: the vector-Jacobian product of grad_plan, (B, N, M) of the problem's
// dtype. It may not overlap an input. On CUDA the sums of up to 2 T N numbers of a matrix are kept in shared
// memory; if they do not fit there, the workspace has them.
Status sinkhorn_normalize_gradient(const NormalizeProblem& problem, const StridedTensor& grad_plan,
                                   void* grad_logits, Workspace workspace, const Execution& execution);
std::size_t sinkhorn_normalize_gradient_workspace_bytes(const NormalizeProblem& problem,
                                                        const Execution& execution);

}  // namespace warpalign
