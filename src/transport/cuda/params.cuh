// What the kernel of sinkhorn() takes. "Rows" and "columns" are the kernel's: where costs lie column by
// column, its rows are the problem's columns.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "transport/cuda/layout.h"
#include "warpalign/sinkhorn.h"

namespace warpalign::detail::transport {

// One of the two sets of every problem. Arrays of the workspace belong to a team of blocks, which solves one
// problem after the other.
template <class Real>
struct SideParams {
  const Real* weights;          // (B, length); null: 1 / true length
  const std::int32_t* lengths;  // (B,); null: all are `length`
  int length;                   // N or M
  double strength;
  const Real* start;   // (B, length), the potential to begin with; null: 0
  Real* potential;     // results; null: not wanted
  Real* grad_weights;  // likewise
  bool has_lambda;     // the result contains lambda
  double* potentials;  // (teams, 3, length), in bits: two that take turns, and a shift (solver.cuh)
  Real* partials;      // (teams, splits, length): sums over a part of the other side
  int splits;
  // Where costs are made from points:
  const Real* points;  // (B, length, D)
  std::int64_t point_stride[3];
  Real* grad_points;      // null: not wanted
  Real* inverse_lengths;  // (teams, length), of the cosine
};

template <class Real>
struct SolveParams {
  SideParams<Real> rows;
  SideParams<Real> columns;
  const Real* cost;
  std::int64_t cost_stride[3];  // of the batch, rows, columns
  Real* plan;                   // grad_cost, or the plan itself; null: not wanted
  double plan_scale;            // it is so many times P
  std::int64_t plan_stride[3];
  int batch;
  int dim;        // 0: costs are given
  CostKind kind;  // of points
  double cost_scale;
  double epsilon;
  const Real* epsilons;  // (B,); null: epsilon
  double epsilon_start;
  double epsilon_factor;
  double mass;
  double tolerance;
  int max_iterations;
  bool product;     // the reference measure is a b^T
  bool symmetric;   // updates
  bool rows_first;  // an iteration updates rows, then columns; else the other way round
  Real* shift;      // (B,) each; null: not wanted
  Real* value;
  Real* linear;
  Real* grad_epsilon;
  Real* error;
  std::int32_t* iterations;
  SolveLayout layout;
  // P v, or P^T v, of plan_apply(): K columns.
  const Real* factor;  // (B, M, K), transposed (B, N, K)
  std::int64_t factor_stride[3];
  Real* result;  // (B, N, K), transposed (B, M, K)
  int result_columns;
  // Of plan_topk(): (B, N, k) each, transposed (B, M, k).
  Real* top_values;
  std::int32_t* top_indices;
  int top_count;
  bool transposed;         // P^T
  unsigned char* records;  // (teams, 2, team_blocks, kRecordBytes)
  int* arrivals;           // (teams,), 0 before the launch
};

}  // namespace warpalign::detail::transport
