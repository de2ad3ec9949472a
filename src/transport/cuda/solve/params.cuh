// Arguments of the kernel of sinkhorn(). "Rows" and "columns" are the kernel's: for column-major costs, its
// rows are the problem's columns.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "transport/cuda/solve/layout.h"
#include "warpalign/sinkhorn.h"

namespace warpalign::detail::transport {

// A table with some columns for every point of a side: (B, length, columns).
template <class Real>
struct Table {
  const Real* data;  // null: all 0
  std::int64_t stride[3];
  int columns;
};

// One of the two sets of every problem. A team of blocks owns its arrays in the workspace, and solves one
// problem after the other.
template <class Real>
struct SideParams {
  const Real* weights;          // (B, length); null: 1 / true length
  const std::int32_t* lengths;  // (B,); null: all are `length`
  int length;                   // N or M
  double strength;
  const Real* start;   // (B, length), the initial potential; null: 0
  Real* potential;     // a result; may be null
  Real* grad_weights;  // a result; may be null
  bool has_lambda;     // whether the resulting potential contains lambda
  double* potentials;  // (teams, 3, length), in bits: old and new potentials, which alternate, and a shift
                       // (solver.cuh)
  Real* partials;      // (teams, splits, length): sums over a part of the other side
  int splits;
  // For costs from points:
  Table<Real> points;     // D columns
  Real* grad_points;      // may be null
  Real* inverse_lengths;  // (teams, length), for the cosine
  void* packed;           // (teams, terms, unit_rows()), for matrix units
  double* norms;          // (teams, length), squared, of the packed points
  int* near;              // (teams, tiles of kUnitGradientPoints), for gradients with three terms
};

// s = sum W P of plan_gradient(): W is `dense`, or U V^T. Results may be null.
template <class Real>
struct PlanGradientParams {
  bool wanted;
  const Real* dense;  // (B, N, M)
  std::int64_t dense_stride[3];
  Table<Real> factors[2];  // U and V
  Real* sums[2];           // sums of W P: (B, N), (B, M)
  Real* grad_weights[2];
  Real* grad_cost;  // (B, N, M)
  Real* grad_epsilon;
};

// Tangents and results of sinkhorn_jvp() for one of the two sets. A team owns its arrays in the workspace.
template <class Real>
struct SideTangentParams {
  Table<Real> points;   // D columns
  const Real* weights;  // (B, length); null: 0
  const Real* forces;   // (B, length); null: 0
  Real* stretches;      // (teams, length), for the cosine: tangents of the logarithms of lengths
  double* arrays;       // (teams, kTangentArrays, length)
  double* partials;     // (teams, 2, splits, length)
};
inline constexpr int kTangentArrays = 8;

template <class Real>
struct TangentParams {
  SideTangentParams<Real> rows;
  SideTangentParams<Real> columns;
  const Real* cost;  // (B, N, M); null: 0
  std::int64_t cost_stride[3];
  const Real* epsilon;  // (B,) each; null: 0
  const Real* log_scale;
  const Real* shift;  // lambda of the solution
};

template <class Real>
struct SolveParams {
  SideParams<Real> rows;
  SideParams<Real> columns;
  const void* cost;             // of type Real, or
  bool half_cost;               // of binary16
  std::int64_t cost_stride[3];  // batch, rows, columns
  Real* plan;                   // grad_cost, or the plan itself; may be null
  double plan_scale;            // `plan` is this times P
  std::int64_t plan_stride[3];
  int batch;
  int dim;        // 0: given costs
  CostKind kind;  // of costs from points
  double cost_scale;
  double epsilon;
  const Real* epsilons;  // (B,); null: epsilon
  double epsilon_start;
  double epsilon_factor;
  double mass;
  double tolerance;
  int max_iterations;
  bool product;              // whether the reference measure is a b^T
  bool checks_sums;          // whether weights whose sums differ make the problem's results NaN
  int symmetric_iterations;  // the first ones at the final epsilon; 0: annealing alternates, too
  bool rows_first;           // whether an iteration updates rows, then columns, or the reverse
  Real* shift;               // (B,) each; may be null
  Real* value;
  Real* linear;
  Real* grad_epsilon;
  Real* error;
  std::int32_t* iterations;
  SolveLayout layout;
  Real* short_sums;       // (teams, 2, team_blocks, columns + kShortMoves), for several blocks
  Real* kept_sums;        // (teams, 2, team_blocks, kToldFlags more than kept_costs has), for several blocks
                          // or long rows (LongKernel)
  Real* kept_costs;       // (teams, rows, columns rounded up to 4): of points, where `cost` points to
  int terms;              // binary16 numbers of a packed coordinate; 0: points are not packed
  float* centres;         // (teams, D): the centre of packed points
  int gradient_blocks;    // blocks that share the steps of a gradient of packed points
  float* gradient_parts;  // (teams, gradient_blocks, kGradientPart), for gradients of packed points
  // For plan_apply(): P v, or P^T v.
  Table<Real> factor;  // K columns for every column, transposed for every row
  Real* result;        // (B, N, K), transposed (B, M, K)
  // For plan_topk(): results (B, N, k) each, transposed (B, M, k).
  Real* top_values;
  std::int32_t* top_indices;
  int top_count;
  bool transposed;  // use P^T
  // For plan_sample(): the result (B, S, 2).
  std::int32_t* pairs;
  int pair_count;
  std::uint64_t seed;
  PlanGradientParams<Real> gradient;
  TangentParams<Real> tangents;
  unsigned char* records;  // (teams, 2, team_blocks, kRecordBytes)
  int* arrivals;           // (teams,), 0 before the launch
};

}  // namespace warpalign::detail::transport
