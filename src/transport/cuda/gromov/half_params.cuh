// Shared by the kernels of the path between points rounded to binary16 (half_points.cuh).
#pragma once

#include <math_constants.h>

#include <limits>

#include "cuda/launch/kernel.cuh"
#include "cuda/numbers/half.cuh"
#include "cuda/numbers/math.cuh"
#include "cuda/threads/warp.cuh"
#include "transport/cuda/gromov/half_points.h"

namespace warpalign::detail::transport {

using cuda::Float16;

// A point's sum over a part of the other side.
struct HalfPart {
  float top;     // the shift
  float sum;     // sum 2^(t - top)
  float linear;  // sum 2^(t - top) (|y'|^2 - 2 x'.y'), in the last pass
};

// The totals over a block's points.
struct HalfTotals {
  double mass;       // mass of the plan
  double linear;     // <C, P>, C not scaled
  double value;      // value of the dual
  double reference;  // sum of the reference's weights
  double mass_bits;  // log2(mass), for partial transport, whose first mass may underflow
};
constexpr HalfTotals kNoHalfTotals{0, 0, 0, 0, -std::numeric_limits<double>::infinity()};

struct HalfSide {
  const float* points;  // (length, D)
  std::int64_t stride[2];
  const float* weights;  // (length); null: 1 / length
  const float* start;    // (length), the initial potential; null: 0
  float* potential;      // (length), a result; may be null
  int length;
  double strength;
  int splits;          // parts of the other side
  Float16* rounded;    // (half_padded(length), width), 0 after the last point and coordinate
  float* squares;      // (half_padded(length)): |x'|^2
  double* bits;        // (length): w
  float* bias;         // (half_padded(length)), -inf after the last point
  HalfPart* parts;     // (splits, length)
  HalfTotals* totals;  // (blocks of an update)
};

struct HalfParams {
  HalfSide sides[2];
  int dim;
  int width;  // coordinates of a rounded point, a multiple of 16
  double k;   // log2(e) cost_scale / epsilon
  double epsilon;
  double cost_scale;
  double mass;
  bool product;
  int iterations;
  float2* bounds;  // (kHalfBoundBlocks, D): the smallest and the largest coordinate
  double* grid;    // 1 / s^2, lambda
  float* shift;
  float* value;
  float* linear;
  std::int32_t* done;  // number of iterations
};

// The change of a logit, in bits, per unit of a product. It is clamped from below, where it affects no logit.
__device__ __forceinline__ float half_slope(const HalfParams& p) {
  return fmaxf(static_cast<float>(2 * p.k * p.grid[0]), kHalfLeastSlope);
}

}  // namespace warpalign::detail::transport
