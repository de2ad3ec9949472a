// Kernel parameters, and one pair of the batch.
#pragma once

#include <cfloat>
#include <cstddef>
#include <cstdint>

#include "cuda/ragged.h"
#include "soft_dtw/band.h"
#include "soft_dtw/cuda/layout.h"
#include "soft_dtw/metric.h"

namespace warpalign::detail::soft_dtw {

// Of second order alone: the inputs' tangents, likewise; null: 0.
template <class In>
struct Tangents {
  const In* x;
  const In* y;
  const In* cost;
  std::int64_t x_stride[3];
  std::int64_t y_stride[3];
  std::int64_t cost_stride[3];
};

// Strides count elements. Rows are the series x, columns y (launch.cu may have exchanged the caller's two).
template <class In>
struct Params {
  const In* x;  // (B, N, D)
  const In* y;  // (B, M, D)
  std::int64_t x_stride[3];
  std::int64_t y_stride[3];
  const In* cost;  // (B, N, M) in place of x and y, or null
  std::int64_t cost_stride[3];
  Tangents<In> tangents;
  const std::int32_t* x_lengths;  // (B,) or null
  const std::int32_t* y_lengths;
  In* value;      // (B,)
  In* grad_x;     // (B, N, D) or null
  In* grad_y;     // (B, M, D) or null
  In* alignment;  // (B, N, M) or null
  int batch;
  int n;
  int m;
  int dim;
  double scale;      // of costs: log2(e) / gamma; 1 for hard DTW
  const In* gammas;  // (B,): gammas of which to make it, or null
  double half;       // of costs and values: 1, or 1/2 where the cost is half of what is computed
  bool vectorized;   // x and y can be read as float4 along D
  bool three_terms;  // of matrix units: a product of float32 is three of TF32, not one
  const int* order;  // (B,): in which blocks take the pairs, or null: as they come
  int* uncertified;  // (B,): pairs that need Cell64. Cell32 writes it; Cell64 obeys it where it is not null
  Layout layout;
  unsigned char* scratch;

  // Of kernels with options only. With a band grad_x, grad_y and alignment start as zeros.
  Band band;
  double step_penalty;
  Metric metric;
  bool subsequence;
  const std::uint8_t* x_mask;  // (B, N), not 0 where the step is missing, or null
  const std::uint8_t* y_mask;
  In* grad_gamma;  // (B,) or null
  In* end_values;  // (B, M) or null
};

// One pair: its own pointers and true lengths.
template <class In>
struct Pair {
  const In* x;
  const In* y;
  const In* cost;
  const In* x_tangent;
  const In* y_tangent;
  const In* cost_tangent;
  In* grad_x;
  In* grad_y;
  In* alignment;
  int index;
  int n;
  int m;
  double scale;  // of computed costs: log2(e) / gamma as the cell has it; 1 for hard DTW
  // Of a sweep that starts at the last step of both series, whose rows and columns count from there: in front
  // of its first column are those that its first strip has too many.
  bool from_back;
  int columns;  // of all strips

  // Rows and columns as the caller counts them. What is behind column m - 1 is in front of a sweep's first
  // one.
  [[nodiscard]] __device__ __forceinline__ int true_row(int i) const { return from_back ? n - 1 - i : i; }
  [[nodiscard]] __device__ __forceinline__ int true_column(int j) const {
    return from_back ? columns - 1 - j : j;
  }
};

// Whether step i of a series is missing. mask: (B, length), or null.
__device__ __forceinline__ bool is_missing(const std::uint8_t* mask, int b, int length, int i) {
  return mask && mask[static_cast<std::int64_t>(b) * length + i] != 0;
}

// log2(e) / gamma, and finite for every gamma > 0. half: Params's.
constexpr double scale_for(double gamma, double half) {
  const double scale = 1.4426950408889634074 / gamma * half;
  return gamma > 0 && scale > DBL_MAX ? DBL_MAX : scale;
}

template <class Scale, class In>
__device__ __forceinline__ double scale_of(const Params<In>& p, int b) {
  if (!p.gammas) return static_cast<Scale>(p.scale);
  return static_cast<Scale>(scale_for(static_cast<double>(p.gammas[b]), p.half));
}

template <class In>
__device__ __forceinline__ const In* of_pair(const In* data, std::int64_t offset) {
  return data ? data + offset : nullptr;
}

template <class Cell, class In>
__device__ __forceinline__ Pair<In> pair_at(const Params<In>& p, int b) {
  const std::int64_t i = b;
  const Tangents<In>& t = p.tangents;
  return {p.x + i * p.x_stride[0],
          p.y + i * p.y_stride[0],
          of_pair(p.cost, i * p.cost_stride[0]),
          Cell::kDual ? of_pair(t.x, i * t.x_stride[0]) : nullptr,
          Cell::kDual ? of_pair(t.y, i * t.y_stride[0]) : nullptr,
          Cell::kDual ? of_pair(t.cost, i * t.cost_stride[0]) : nullptr,
          p.grad_x ? p.grad_x + i * p.n * p.dim : nullptr,
          p.grad_y ? p.grad_y + i * p.m * p.dim : nullptr,
          p.alignment ? p.alignment + i * p.n * p.m : nullptr,
          b,
          cuda::true_length(p.x_lengths, b, p.n),
          cuda::true_length(p.y_lengths, b, p.m),
          scale_of<typename Cell::Scale>(p, b),
          false,
          0};
}

}  // namespace warpalign::detail::soft_dtw
