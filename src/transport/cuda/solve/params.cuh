// What the kernel of sinkhorn() takes. "Rows" and "columns" are the kernel's: where costs lie column by
// column, its rows are the problem's columns.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "transport/cuda/solve/layout.h"
#include "warpalign/sinkhorn.h"

namespace warpalign::detail::transport {

// A number of columns for every point of a side: (B, length, columns).
template <class Real>
struct Table {
  const Real* data;  // null: all 0
  std::int64_t stride[3];
  int columns;
};

// One of the two sets of every problem. Arrays of the workspace belong to a team of blocks, which solves one
// problem after the other.
template <class Real>
struct SideParams {
  const Real* weights;          // (B, length); null: 1 / true length
  const std::int32_t* lengths;  // (B,); null: all are `length`
  int length;                   // N or M
  double strength;
  const Real* start;   // (B, length), the potential to begin with; null: 0
  Real* potential;     // a result; null: not wanted
  Real* grad_weights;  // a result; null: not wanted
  bool has_lambda;     // the result contains lambda
  double* potentials;  // (teams, 3, length), in bits: two that take turns, and a shift (solver.cuh)
  Real* partials;      // (teams, splits, length): sums over a part of the other side
  int splits;
  // Where costs are made from points:
  Table<Real> points;     // D columns
  Real* grad_points;      // null: not wanted
  Real* inverse_lengths;  // (teams, length), of the cosine
  void* packed;           // (teams, terms, unit_rows()), on the matrix units
  double* norms;          // (teams, length), squared, of the packed points
};

// s = sum W P of plan_gradient(): W is `dense`, or U V^T. Null: not wanted.
template <class Real>
struct PlanGradientParams {
  bool wanted;
  const Real* dense;  // (B, N, M)
  std::int64_t dense_stride[3];
  Table<Real> factors[2];  // U and V
  Real* sums[2];           // of W P: (B, N), (B, M)
  Real* grad_weights[2];
  Real* grad_cost;  // (B, N, M)
  Real* grad_epsilon;
};

// Tangents and results of sinkhorn_jvp() for one of the two sets. Arrays of the workspace belong to a team.
template <class Real>
struct SideTangentParams {
  Table<Real> points;   // D columns
  const Real* weights;  // (B, length); null: 0
  const Real* forces;   // (B, length); null: 0
  Real* stretches;      // (teams, length), of the cosine: how the logarithms of lengths move
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
  const void* cost;             // of Real, or
  bool half_cost;               // of binary16
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
  bool product;      // the reference measure is a b^T
  bool checks_sums;  // of weights: a problem that no plan can solve becomes NaN
  bool symmetric;    // updates
  bool rows_first;   // an iteration updates rows, then columns; else the other way round
  Real* shift;       // (B,) each; null: not wanted
  Real* value;
  Real* linear;
  Real* grad_epsilon;
  Real* error;
  std::int32_t* iterations;
  SolveLayout layout;
  float* centres;         // (teams, D): what packed points are relative to
  int gradient_blocks;    // that share out the steps of a gradient by packed points
  float* gradient_parts;  // (teams, gradient_blocks, kGradientPart), of gradients by packed points
  // P v, or P^T v, of plan_apply().
  Table<Real> factor;  // K columns for every column, transposed for every row
  Real* result;        // (B, N, K), transposed (B, M, K)
  // Results of plan_topk(): (B, N, k) each, transposed (B, M, k).
  Real* top_values;
  std::int32_t* top_indices;
  int top_count;
  bool transposed;  // P^T
  // The result of plan_sample(): (B, S, 2).
  std::int32_t* pairs;
  int pair_count;
  std::uint64_t seed;
  PlanGradientParams<Real> gradient;
  TangentParams<Real> tangents;
  unsigned char* records;  // (teams, 2, team_blocks, kRecordBytes)
  int* arrivals;           // (teams,), 0 before the launch
};

}  // namespace warpalign::detail::transport
