// Weights as operands of the matrix units, in registers.
#pragma once

#include "cuda/memory/remote_access.cuh"
#include "cuda/products/mma.cuh"

namespace warpalign::detail::recurrent {

// 16 rows and 16 columns of weights, dealt out to the lanes like the operands.
struct alignas(16) Weights16 {
  std::uint32_t a[4];

  // The words of rows lane / 4 and lane / 4 + 8.
  __device__ __forceinline__ Weights16(cuda::Word upper, cuda::Word lower)
      : a{static_cast<std::uint32_t>(upper), static_cast<std::uint32_t>(lower),
          static_cast<std::uint32_t>(upper >> 32), static_cast<std::uint32_t>(lower >> 32)} {}
  Weights16() = default;

  // Takes the way through shared memory, where each thread has a place: then the elements are in registers
  // side by side, as the matrix units need them. Otherwise every product of every step begins with four
  // moves.
  __device__ __forceinline__ void settle(Weights16* places) {
    Weights16& place = places[threadIdx.x];
    __syncwarp();
    place = *this;
    __syncwarp();
    *this = place;
  }

  template <class T>
  __device__ __forceinline__ void multiply(cuda::Word word, float (&sums)[4]) const {
    const std::uint32_t b[2] = {static_cast<std::uint32_t>(word), static_cast<std::uint32_t>(word >> 32)};
    cuda::mma_half<T>(sums, a, b);
  }
};

}  // namespace warpalign::detail::recurrent
