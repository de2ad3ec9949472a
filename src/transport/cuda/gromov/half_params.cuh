// What the kernels of the path between points rounded to binary16 (half_points.cuh) share.
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

// The share of a part of the other side in a point's sum.
struct HalfPart {
  float top;     // the shift
  float sum;     // sum 2^(t - top)
  float linear;  // sum 2^(t - top) (|y'|^2 - 2 x'.y'), of the last pass
};

// The share of a block's points in the totals.
struct HalfTotals {
  double mass;       // of the plan
  double linear;     // <C, P>, C not scaled
  double value;      // the dual's
  double reference;  // of the reference's weights
  double mass_bits;  // log2(mass) of partial transport, whose first mass may be below any number
};
constexpr HalfTotals kNoHalfTotals{0, 0, 0, 0, -std::numeric_limits<double>::infinity()};

struct HalfSide {
  const float* points;  // (length, D)
  std::int64_t stride[2];
  const float* weights;  // (length); null: 1 / length
  const float* start;    // (length), a potential; null: 0
  float* potential;      // (length), a result; null: not wanted
  int length;
  double strength;
  int splits;          // parts of the other side
  Float16* rounded;    // (half_padded(length), width), 0 behind the last point and coordinate
  float* squares;      // (half_padded(length)): |x'|^2
  double* bits;        // (length): w
  float* bias;         // (half_padded(length)), -inf behind the last point
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
  float2* bounds;  // (kHalfBoundBlocks, D): the least and the largest coordinate
  double* grid;    // 1 / s^2, lambda
  float* shift;
  float* value;
  float* linear;
  std::int32_t* done;  // iterations
};

// Bits of a logit for 1 of a product. Below its least value it changes no logit.
__device__ __forceinline__ float half_slope(const HalfParams& p) {
  return fmaxf(static_cast<float>(2 * p.k * p.grid[0]), kHalfLeastSlope);
}

}  // namespace warpalign::detail::transport
