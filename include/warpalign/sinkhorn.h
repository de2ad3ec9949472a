// Entropic optimal transport between weighted sets: potentials, value and gradients in one call.
//
//   min over P >= 0 of   <C, P> + epsilon KL(P | R) + D_a(P 1) + D_b(P^T 1),      P (N, M),
//   KL(p | q) = sum p ln(p / q) - p + q,      R = a b^T (kProduct) or 1 (kCounting).
//
// D_a ties the row sums r = P 1 to the weights a, by the strength rho of the side:
//
//   rho = inf   r = a exactly (balanced)              rho = 0   nothing (semi-relaxed)
//   otherwise   rho KL(r | a) (unbalanced)            mass      r <= a and sum P = mass (partial transport)
//
// Balanced transport needs weights with equal sums: within 1e-4 of the larger sum, which rounding in float32
// stays below up to some millions of points. A larger difference leaves no plan, and potentials that never
// come to rest. Write a / sum(a) and b / sum(b), or relax a side by its strength.
//
// D_b does the same for the columns. The minimum is P[i,j] = R[i,j] exp((f[i] + g[j] + lambda - C[i,j]) /
// epsilon); lambda is 0 unless mass is given. f and g are the fixed point of one update per row (columns
// alike):
//
//   w = f / epsilon,  delta = ln(a / r):    w <- w + delta (inf),  tau (w + delta) with tau = rho / (rho +
//   epsilon),
//                                           0 (rho = 0),           min(0, w + delta) (partial)
//
// Sources: Cuturi, "Sinkhorn distances", NIPS 2013; Chizat, Peyre, Schmitzer & Vialard, "Scaling algorithms
// for unbalanced optimal transport problems", Math. Comp. 2018, table 1; Benamou, Carlier, Cuturi, Nenna &
// Peyre, "Iterative Bregman projections", SISC 2015, section 5 (partial).
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>

#include "warpalign/cost_kind.h"
#include "warpalign/dtype.h"
#include "warpalign/execution.h"
#include "warpalign/status.h"
#include "warpalign/tensor.h"

namespace warpalign {

// The measure R that the entropy is relative to. It does not change a balanced plan; it does change every
// other.
enum class TransportReference : std::int32_t { kProduct, kCounting };

// How an iteration updates the potentials. kAlternating: g, then f from the new g; rows end exact.
// kSymmetric: both from the old ones, each then averaged with its old value. kMixed: kSymmetric for the first
// iterations, in which two equal sets converge, then kAlternating. It is kSymmetric throughout where both
// sides are the same memory.
enum class SinkhornUpdates : std::int32_t { kAlternating, kSymmetric, kMixed };

// One of the two sets.
struct TransportSide {
  const void* weights =
      nullptr;  // (B, length), contiguous, of the problem's dtype, >= 0; null: 1 / true length
  double strength = std::numeric_limits<double>::infinity();  // rho, 0 to inf, in units of the cost
  // True lengths, (B,), from 1 to the length; null: no padding. Padding is ignored.
  const std::int32_t* lengths = nullptr;
};

// Pointers live on the execution's device, aligned to the size of their elements. Either x and y are given,
// or cost (then dim = 0). B N M, B N D and B M D are at most 2^48.
struct SinkhornProblem {
  DType dtype = DType::kFloat32;  // kFloat32 or kFloat64: of inputs and outputs
  std::int32_t batch = 0;         // B >= 0
  std::int32_t n = 0;             // N, 1 to 2^29
  std::int32_t m = 0;             // M, 1 to 2^29
  std::int32_t dim = 0;           // D, 1 to 2^29, with x and y
  StridedTensor x;                // (B, N, D)
  StridedTensor y;                // (B, M, D)
  StridedTensor cost;             // (B, N, M); inf forbids a pair
  // The elements of cost are kFloat16, and dtype is kFloat32. Everything is computed as from these costs
  // widened to float32: the plan, its sums, values and derivatives are exactly those of the rounded costs.
  bool half_cost = false;
  CostKind cost_kind = CostKind::kSquaredEuclidean;  // of x and y
  double cost_scale = 1.0;                           // > 0: the cost is so many times the given one
  TransportSide a;                                   // rows, x
  TransportSide b;                                   // columns, y
  double epsilon = 1.0;                              // > 0 and finite, in units of the scaled cost
  const void* epsilons = nullptr;                    // (B,), of dtype: each problem's own; null: epsilon
  // Annealing: iterations begin with this epsilon, which shrinks by the factor until it is epsilon. 0: none.
  double epsilon_start = 0.0;
  double epsilon_factor = 0.5;  // between 0 and 1, exclusive
  // > 0: partial transport of so much mass, at most the smaller sum of weights. Strengths are then not looked
  // at.
  double mass = 0.0;
  TransportReference reference = TransportReference::kProduct;
  SinkhornUpdates updates = SinkhornUpdates::kAlternating;
  const void* f0 = nullptr;            // (B, N), of dtype, finite: where to start; null: 0
  const void* g0 = nullptr;            // (B, M); not used by kAlternating, whose first update replaces g
  const void* shift0 = nullptr;        // (B,): lambda of f0; null: 0. Read by sinkhorn_jvp() alone.
  std::int32_t max_iterations = 1000;  // >= 1, at the final epsilon
  // Iterations end when no potential moves by more than tolerance * epsilon: on a hard side the largest
  // |ln(sum / weight)|. 0: never before max_iterations.
  double tolerance = 1e-5;
};

// The outputs: contiguous, aligned as inputs are; null: not computed. No output may overlap another one, the
// inputs or the workspace. Behind true lengths 0 is written. A problem with a NaN among its costs gets NaN
// everywhere. A hard side with a weight that every cost forbids gets value inf and potential inf there. If
// epsilon is so small that differences of exponents C / epsilon exceed the precision of the dtype (epsilon
// below about 1e-11 of the largest cost in float32, 1e-15 in float64), value and error are inf or NaN, or
// error is large.
struct SinkhornOutputs {
  void* f = nullptr;       // (B, N); with mass, lambda is part of it
  void* g = nullptr;       // (B, M)
  void* shift = nullptr;   // (B,): lambda, 0 unless mass is given
  void* value = nullptr;   // (B,): the objective, by its dual: quadratically exact in the potentials' error
  void* linear = nullptr;  // (B,): <C, P>
  void* grad_x = nullptr;  // (B, N, D): d value / d x by the envelope theorem; the others alike
  void* grad_y = nullptr;  // (B, M, D)
  void* grad_cost = nullptr;           // (B, N, M): d value / d the given cost, cost_scale P
  void* grad_a = nullptr;              // (B, N): by the weights a; with mass as with a hard side
  void* grad_b = nullptr;              // (B, M)
  void* grad_epsilon = nullptr;        // (B,): KL(P | R)
  std::int32_t* iterations = nullptr;  // (B,): at the final epsilon
  // (B,): how far a further update would move a potential, over epsilon. inf or NaN where value, linear or
  // grad_epsilon is not finite: an error at or below the tolerance stands for a solution.
  void* error = nullptr;
};

// Bytes of workspace that sinkhorn() needs. Only which pointers are null is looked at. O(N + M) per problem
// for points and for contiguous costs. On a CPU a solve of 8 iterations or more also keeps its exponentials,
// and the costs of points of 16 features or more: N M numbers each of each problem that is being solved, of
// 256 MiB at most in all.
std::size_t sinkhorn_workspace_bytes(const SinkhornProblem& problem, const SinkhornOutputs& outputs,
                                     const Execution& execution);

// On any status but ok nothing has been written. On CUDA lengths are held within their
// range, and a problem becomes NaN whose epsilon is not finite and > 0, whose balanced weights differ in sum,
// or whose mass exceeds a sum of weights. (Precision::kMedium with outputs.error null does not look at sums.)
// Costs with a stride of 1 along rows
// or along columns are read at full speed; half ones if all other strides are even, and cost is aligned to 4
// bytes.
Status sinkhorn(const SinkhornProblem& problem, const SinkhornOutputs& outputs, Workspace workspace,
                const Execution& execution);

// A direction, of the problem's dtype; null: 0.
//
// The objective V depends on the inputs, on ln cost_scale, and on forces h: V is the maximum of the dual
// D(f, g) + <h_f, f> + <h_g, g>, at h = 0. Its derivatives by h are f and g; by ln cost_scale it is `linear`.
// So the derivative of every output of sinkhorn() is a second derivative of V, and these are symmetric: along
// forces that are d loss / d f and d loss / d g, the derivative of grad_x is d loss / d x, and so on.
struct SinkhornTangents {
  StridedTensor x;                  // (B, N, D)
  StridedTensor y;                  // (B, M, D)
  StridedTensor cost;               // (B, N, M)
  const void* a = nullptr;          // (B, N), contiguous, as are the following
  const void* b = nullptr;          // (B, M)
  const void* epsilon = nullptr;    // (B,)
  const void* log_scale = nullptr;  // (B,): of ln cost_scale
  const void* f = nullptr;          // (B, N): forces on f
  const void* g = nullptr;          // (B, M)
};

// The derivative of every output of sinkhorn() that is not null, along the tangents. problem.f0, g0 and
// shift0 are the solution's f, g and shift; problem.epsilon_start and updates are not looked at. The
// potentials' derivatives solve a linear system with the plan's rows and columns (implicit differentiation of
// the fixed point), by conjugate gradients on one side, at most problem.max_iterations of them. A sum of
// partial transport is held at its weight where its potential is below -tolerance epsilon. On CUDA no N x M
// table exists but that of grad_cost; a CPU keeps exponentials and costs as in sinkhorn().
//
// outputs.iterations: steps of conjugate gradients; error: the residual that is left, relative to the right
// side; shift: not written. In balanced transport, where a constant can be moved between f and g, the
// derivatives are those of the pair whose means over points with weight are equal. A force on a point without
// weight has no effect.
Status sinkhorn_jvp(const SinkhornProblem& problem, const SinkhornTangents& tangents,
                    const SinkhornOutputs& outputs, Workspace workspace, const Execution& execution);
std::size_t sinkhorn_jvp_workspace_bytes(const SinkhornProblem& problem, const SinkhornTangents& tangents,
                                         const SinkhornOutputs& outputs, const Execution& execution);

}  // namespace warpalign
