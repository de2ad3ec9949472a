// What kernels of one step on the matrix units multiply: operands from shared memory, and where they lie
// there.
#pragma once

#include "cuda/numbers/tf32.cuh"
#include "cuda/products/mma.cuh"
#include "recurrent/cuda/steps/tile.cuh"

namespace warpalign::detail::recurrent {

// Operands of the matrix units, of words as they are read from shared memory. kProducts: of TF32, for one of
// float32.
template <class T, int kProducts, int kWords>
struct UnitOperand {
  std::uint32_t words[kWords];

  __device__ __forceinline__ void take(const std::uint32_t* from) {
#pragma unroll
    for (int k = 0; k < kWords; ++k) words[k] = from[k];
  }
};
// Of float32, in two parts of TF32.
template <int kWords>
struct UnitOperand<float, 3, kWords> {
  float hi[kWords], lo[kWords];

  __device__ __forceinline__ void take(const std::uint32_t* from) {
#pragma unroll
    for (int k = 0; k < kWords; ++k) {
      const auto parts = cuda::split_tf32(__int_as_float(static_cast<int>(from[k])));
      hi[k] = parts.hi, lo[k] = parts.lo;
    }
  }
};
// Of float32, rounded to TF32.
template <int kWords>
struct UnitOperand<float, 1, kWords> {
  float of[kWords];

  __device__ __forceinline__ void take(const std::uint32_t* from) {
#pragma unroll
    for (int k = 0; k < kWords; ++k) of[k] = cuda::tf32_factor(__int_as_float(static_cast<int>(from[k])));
  }
};
// sums[i] += a[i] b. Products that follow each other have different sums: none waits for the one before.
template <class T, int kProducts, int kCount>
__device__ __forceinline__ void multiply(const UnitOperand<T, kProducts, 4> (&a)[kCount],
                                         const UnitOperand<T, kProducts, 2>& b, float (&sums)[kCount][4]) {
  if constexpr (sizeof(T) == 2) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) cuda::mma_half<T>(sums[i], a[i].words, b.words);
  } else if constexpr (kProducts == 1) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) cuda::mma_tf32(sums[i], a[i].of, b.of);
  } else {
    float products[kCount][4] = {};  // the units round sums down
#pragma unroll
    for (int i = 0; i < kCount; ++i) cuda::mma_tf32(products[i], a[i].lo, b.hi);
#pragma unroll
    for (int i = 0; i < kCount; ++i) cuda::mma_tf32(products[i], a[i].hi, b.lo);
#pragma unroll
    for (int i = 0; i < kCount; ++i) cuda::mma_tf32(products[i], a[i].hi, b.hi);
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
#pragma unroll
      for (int k = 0; k < 4; ++k) sums[i][k] += products[i][k];
    }
  }
}

// A chunk of a row: so many pieces of 16 bytes. The four lanes of a row in a product read two of them.
constexpr int kChunkPieces = 4;
// Where piece `piece` of row `row` of a ring's place lies. Eight rows' pieces of one number lie in different
// banks.
__device__ __forceinline__ int place_of(int row, int piece) {
  return row * kChunkPieces + (piece ^ (row / 2 % kChunkPieces));
}

}  // namespace warpalign::detail::recurrent
