// The cosine cost as a squared distance: 1 - <x, y> / (|x| |y|) = |u - v|^2 / 2 with u = x / |x|, v = y /
// |y|. A step of length 0 gets a direction that is orthogonal to every step of the other series, so that its
// cost is 1, by definition.
#pragma once

#include <cuda_runtime.h>

#include "warpalign/soft_dtw.h"

namespace warpalign::detail::soft_dtw {

// The number of features of a unit step: those of the step, two for the directions of steps of length 0, and
// padding to multiples of 16 bytes.
constexpr int unit_features(int dim) { return (dim + 2 + 3) / 4 * 4; }

// One side of the problem.
struct UnitSteps {
  DType dtype;
  int batch;
  int length;
  int dim;
  bool is_y;
  StridedTensor series;         // (B, length, dim)
  const std::int32_t* lengths;  // (B,) or null
  const std::uint8_t* mask;     // (B, length) or null
  void* units;                  // (B, length, unit_features(dim))
  StridedTensor tangents = {};  // of the series, for second order; null: 0
  void* unit_tangents = nullptr;
};

// Writes side.units, and side.unit_tangents if it is not null.
Status make_unit_steps(const UnitSteps& side, cudaStream_t stream);

// The gradient of the cosine with respect to the series, (B, length, dim), from the gradient of |u - v|^2
// with respect to the units, (B, length, unit_features(dim)).
Status from_unit_gradient(const UnitSteps& side, const void* unit_gradient, void* gradient,
                          cudaStream_t stream);
// The derivative of that gradient along the tangents, from the units' gradient and its derivative.
Status from_unit_tangent(const UnitSteps& side, const void* unit_gradient, const void* unit_gradient_tangent,
                         void* tangent, cudaStream_t stream);

}  // namespace warpalign::detail::soft_dtw
