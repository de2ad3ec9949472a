// Kernel parameters, and one pair of the batch.
#pragma once

#include <cfloat>
#include <cstddef>
#include <cstdint>

#include "core/constants.h"
#include "cuda/rows/ragged.h"
#include "soft_dtw/band.h"
#include "soft_dtw/cuda/call/layout.h"
#include "soft_dtw/cuda/panel/panel.h"
#include "soft_dtw/cuda/series/storage.cuh"
#include "soft_dtw/metric.h"
#include "soft_dtw/packed.h"
#include "warpalign/dtype.h"

namespace warpalign::detail::soft_dtw {

// Tangents of the inputs, for second order; null: 0. Shapes are those of the inputs.
struct Tangents {
  const void* x;
  const void* y;
  const void* cost;
  std::int64_t x_stride[3];
  std::int64_t y_stride[3];
  std::int64_t cost_stride[3];
};

// Arguments of every soft-DTW kernel. Strides count elements. Rows are the series x, columns the series y;
// launch.cu may have exchanged the caller's two.
struct Params {
  bool is_float64;    // the type of all numbers in the caller's memory: double, else float
  DType series_type;  // kFloat32, or the half type of x and y if a panel's kernels read it directly
  const void* x;      // (B, N, D)
  const void* y;      // (B, M, D)
  std::int64_t x_stride[3];
  std::int64_t y_stride[3];
  const void* cost;  // (B, N, M) instead of x and y, or null
  std::int64_t cost_stride[3];
  Tangents tangents;
  const std::int32_t* x_lengths;  // (B,) or null
  const std::int32_t* y_lengths;
  const std::int64_t* x_offsets;  // (B,): the first steps of packed series, or null
  const std::int64_t* y_offsets;
  void* value;      // (B,)
  void* grad_x;     // (B, N, D) or null
  void* grad_y;     // (B, M, D) or null
  void* alignment;  // (B, N, M) or null
  int batch;
  int n;
  int m;
  int dim;
  double scale;        // factor of costs: log2(e) / gamma; 1 for hard DTW
  const void* gammas;  // (B,): each pair's gamma, instead of scale, or null
  double half;      // factor of costs and values: 1, or 1/2 for the cosine, which is half a squared distance
  bool vectorized;  // four neighbouring features of x and y can be read at a time
  bool on_matrix_units;        // whether kernels that can use matrix units do
  bool three_terms;            // such a product is three of TF32, not one
  bool gradients_by_products;  // a panel's gradients are products on matrix units, whatever its costs are
  // For each of a panel's blocks of gradients: whether its products cancelled, so that it is computed again
  // from differences. Null if that is not checked.
  int* cancelled;
  const int* order;  // (B,): the order in which blocks take the pairs; null: ascending
  int* uncertified;  // (B,): pairs that need Cell64. Cell32 writes it; Cell64 skips the others, if it is not
                     // null
  Layout layout;
  unsigned char* scratch;
  Panel panel;  // for kernels whose source of costs it is

  // For kernels with options only. With a band grad_x, grad_y and alignment start as zeros.
  Band band;
  double step_penalty;
  Metric metric;
  bool subsequence;
  const std::uint8_t* x_mask;  // (B, N), not 0 where the step is missing, or null
  const std::uint8_t* y_mask;
  void* grad_gamma;  // (B,) or null
  void* end_values;  // (B, M) or null
};

// One pair: its own addresses and true lengths.
template <class In>
struct Pair {
  using Input = typename Storage<In>::Input;
  using Output = typename Storage<In>::Output;
  Input x;
  Input y;
  Input cost;
  Input x_tangent;
  Input y_tangent;
  Input cost_tangent;
  Output grad_x;
  Output grad_y;
  Output alignment;
  int index;
  int n;
  int m;
  double scale;  // factor of computed costs: log2(e) / gamma in the cell's precision; 1 for hard DTW
  // Whether the sweep starts at the last step of both series. Rows and columns are then counted from there,
  // and the padding columns come first, in the first strip.
  bool from_back;
  int columns;  // of all strips

  // Rows and columns as the caller counts them. A sweep from the back has the columns after column m - 1
  // first.
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
  const double scale = kLog2E<double> / gamma * half;
  return gamma > 0 && scale > DBL_MAX ? DBL_MAX : scale;
}

template <class Scale, class In>
__device__ __forceinline__ double scale_of(const Params& p, int b) {
  if (!p.gammas) return static_cast<Scale>(p.scale);
  const double gamma = static_cast<double>(load_input(Storage<In>::input(p.gammas, p.is_float64) + b));
  return static_cast<Scale>(scale_for(gamma, p.half));
}

// Whether this launch has a reverse sweep: a constant in most kernels.
template <Sweeps kSweeps>
__device__ __forceinline__ bool sweeps_back(const Params& p) {
  return kSweeps == Sweeps::kBoth || (kSweeps == Sweeps::kAsAsked && p.layout.gradient);
}

// address + elements; null if the address is null.
template <class Address>
__device__ __forceinline__ Address behind(Address at, std::int64_t elements) {
  return at ? at + elements : Address{};
}

template <class Cell, class In>
__device__ __forceinline__ Pair<In> pair_at(const Params& p, int b) {
  const std::int64_t i = b;
  const Tangents& t = p.tangents;
  const auto input = [&](const void* data, std::int64_t stride) {
    return behind(Storage<In>::input(data, p.is_float64), i * stride);
  };
  const auto tangent = [&](const void* data, std::int64_t stride) {
    return Cell::kDual ? input(data, stride) : typename Storage<In>::Input{};
  };
  const auto output = [&](void* data, std::int64_t first, std::int64_t columns) {
    return behind(Storage<In>::output(data, p.is_float64), first * columns);
  };
  const int n = cuda::true_length(p.x_lengths, b, p.n), m = cuda::true_length(p.y_lengths, b, p.m);
  return {Storage<In>::input(p.x, p.is_float64) + first_element(p.x_offsets, p.x_stride, b),
          Storage<In>::input(p.y, p.is_float64) + first_element(p.y_offsets, p.y_stride, b),
          input(p.cost, p.cost_stride[0]),
          tangent(t.x, t.x_stride[0]),
          tangent(t.y, t.y_stride[0]),
          tangent(t.cost, t.cost_stride[0]),
          output(p.grad_x, gradient_steps(p.x_offsets, b, p.n, n).first, p.dim),
          output(p.grad_y, gradient_steps(p.y_offsets, b, p.m, m).first, p.dim),
          output(p.alignment, i * p.n, p.m),
          b,
          n,
          m,
          scale_of<typename Cell::Scale, In>(p, b),
          false,
          0};
}

}  // namespace warpalign::detail::soft_dtw
