// Operands of the matrix units, in the registers of a warp's lanes.
//
// A product has 16 rows of weights, 8 rows of the batch, and a depth of 16 in 16-bit types and of 8 in
// float32. Lane 4 g + t has columns of rows g and g + 8 of the weights, and of row g of the batch.
#pragma once

#include "cuda/memory/remote_access.cuh"
#include "cuda/numbers/tf32.cuh"
#include "cuda/products/mma.cuh"
#include "recurrent/cuda/cell/unroll.cuh"

namespace warpalign::detail::recurrent {

// 16 rows and 16 columns of 16-bit weights.
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

// A lane's piece of a row, as operands of two products: 8 columns of 16-bit elements, or 4 of float32.
struct alignas(16) OperandPiece {
  std::uint32_t words[4];
};

// kWords words of an operand: 4 of weights, 2 of a row of the batch. kProducts: of TF32, for one of float32.
template <class T, int kProducts, int kWords>
struct UnitOperand {  // 16-bit types: pairs of elements
  std::uint32_t words[kWords];

  __device__ __forceinline__ void set(int k, std::uint32_t word) { words[k] = word; }
};
template <int kWords>
struct UnitOperand<float, 3, kWords> {  // in two parts of TF32
  float hi[kWords], lo[kWords];

  __device__ __forceinline__ void set(int k, float v) {
    const auto parts = cuda::split_tf32(v);
    hi[k] = parts.hi, lo[k] = parts.lo;
  }
  __device__ __forceinline__ void set(int k, std::uint32_t word) {
    set(k, __int_as_float(static_cast<int>(word)));
  }
};
template <int kWords>
struct UnitOperand<float, 1, kWords> {  // rounded to TF32
  float of[kWords];

  __device__ __forceinline__ void set(int k, float v) { of[k] = cuda::near_tf32_factor(v); }
  __device__ __forceinline__ void set(int k, std::uint32_t word) {
    set(k, __int_as_float(static_cast<int>(word)));
  }
};
// sums[i] += a[i] b. Products that follow each other have different sums: none waits for the one before. The
// units round sums of float32 down, so that three products are summed there, and the rest in float32.
template <class T, int kProducts, int kCount>
__device__ __forceinline__ void multiply(const UnitOperand<T, kProducts, 4> (&a)[kCount],
                                         const UnitOperand<T, kProducts, 2>& b, float (&sums)[kCount][4]) {
  if constexpr (sizeof(T) == 2) {
    unroll<kCount>([&](int i) { cuda::mma_half<T>(sums[i], a[i].words, b.words); });
  } else if constexpr (kProducts == 1) {
    unroll<kCount>([&](int i) { cuda::mma_tf32(sums[i], a[i].of, b.of); });
  } else {
    float products[kCount][4] = {};
    unroll<kCount>([&](int i) { cuda::mma_tf32(products[i], a[i].lo, b.hi); });
    unroll<kCount>([&](int i) { cuda::mma_tf32(products[i], a[i].hi, b.lo); });
    unroll<kCount>([&](int i) { cuda::mma_tf32(products[i], a[i].hi, b.hi); });
    unroll<kCount>([&](int i) { unroll<4>([&](int k) { sums[i][k] += products[i][k]; }); });
  }
}

// sums += weights times entries: pieces of rows g and g + 8 of weights, and of a row of the batch.
template <class T, int kProducts>
__device__ __forceinline__ void multiply_pieces(const OperandPiece& upper, const OperandPiece& lower,
                                                const OperandPiece& entries, float (&sums)[1][4]) {
#pragma unroll
  for (int k = 0; k < 4; k += 2) {
    UnitOperand<T, kProducts, 4> a[1];
    a[0].set(0, upper.words[k]), a[0].set(1, lower.words[k]);
    a[0].set(2, upper.words[k + 1]), a[0].set(3, lower.words[k + 1]);
    UnitOperand<T, kProducts, 2> b;
    b.set(0, entries.words[k]), b.set(1, entries.words[k + 1]);
    multiply<T, kProducts>(a, b, sums);
  }
}

}  // namespace warpalign::detail::recurrent
