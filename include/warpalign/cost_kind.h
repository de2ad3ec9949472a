// Local costs between two steps of series, for every operator that compares steps.
#pragma once

#include <cstdint>

namespace warpalign {

// The cost C[i,j] of aligning step x[i] with step y[j], and its gradient by x[i]. The gradient by y[j] is the
// negative of that; for the cosine it is the same formula with x and y exchanged. If a cost is not
// differentiable its gradient is 0.
//
// A Mahalanobis distance |(x - y) L|^2 is kSquaredEuclidean of the series x L and y L, which the caller
// multiplies; its gradient by L is x^T grad_(x L) + y^T grad_(y L).
enum class CostKind : std::int32_t {
  kSquaredEuclidean,  // sum_d (x - y)^2               2 (x - y)
  kEuclidean,         // sqrt(sum_d (x - y)^2)         (x - y) / C, 0 where x = y
  kL1,                // sum_d |x - y|                 sign(x - y), 0 where equal
  kCosine,            // 1 - <x, y> / (|x| |y|)        (<u, v> u - v) / |x| with u = x / |x|, v = y / |y|;
                      //                               against a zero vector cost 1, gradient 0
  kHuber,             // sum_d h(x - y)                x - y within [-1, 1], beyond it the sign;
                      //                               h(t) = t^2 / 2 for |t| <= 1, else |t| - 1/2
};

}  // namespace warpalign

// A Mahalanobis distance |(x - y) L|^2 is kSquaredEuclidean of the series x L and y L, which the caller
// multiplies. Its gradient by L is x^T g_x + y^T g_y, with the gradients g_x and g_y by x L and y L.
