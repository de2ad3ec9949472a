// Stands in for src/cuda/products/mma_from.cuh.
#pragma once

#include "cuda/products/mma.cuh"

namespace warpalign::cuda {

template <class Half>
void mma_half_from(float (&product)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2],
                   float2 first) {
  for (int i = 0; i < 4; ++i) product[i] = i % 2 == 0 ? first.x : first.y;
  mma_half<Half>(product, a, b);
}

}  // namespace warpalign::cuda
