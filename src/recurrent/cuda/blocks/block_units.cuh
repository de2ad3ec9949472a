// What a step of a sweep in single blocks multiplies, on the matrix units: 16-bit types, from sm_80 on.
//
// A warp has 8 units, and a product of the matrix units 8 columns, for 1 or 4 rows of the batch. Lane 4 r + q
// gets what it needs in registers: that of unit r, and with one row gate q, with 4 rows row q. Sums of a
// column do not depend on other columns.
#pragma once

#include "recurrent/cuda/blocks/block_sweep.cuh"
#include "recurrent/cuda/cell/operands.cuh"

namespace warpalign::detail::recurrent {

// A product of the matrix units has so many columns.
constexpr int kWarpColumns = 8;

// A lane's operands of two products: 8 elements of 16 bits.
struct alignas(16) TwoOperands {
  cuda::Word words[2];
};
// The lane of a column: four lanes have the column's depth in turn, a piece each.
struct ColumnLane {
  int unit, part, column;

  __device__ __forceinline__ ColumnLane() {
    const int thread = static_cast<int>(threadIdx.x);
    unit = thread / kUnitThreads, part = thread % kUnitThreads;
    column = thread % cuda::kWarpSize / kUnitThreads;
  }
};

// R h. The rows of weights of a product are two gates of 8 units. A row of the batch has 8 / kRows columns.
template <class T, int kDepth, int kRows>
class UnitProduct {
 public:
  __device__ __forceinline__ UnitProduct(const CudaCell<T>& cell, const BlockPlace<kRows>&) {
    __shared__ Weights16 places[kUnitThreads * kDepth];
    unroll<kTiles>([&](int tile) {
      unroll<kPieces>([&](int n) {
        const TwoOperands upper = weights_of(cell, 2 * tile, n), lower = weights_of(cell, 2 * tile + 1, n);
        unroll<2>([&](int k) { weights_[tile][2 * n + k] = {upper.words[k], lower.words[k]}; });
      });
    });
#pragma unroll
    for (auto& tile : weights_) {
#pragma unroll
      for (Weights16& weights : tile) weights.settle(places);
    }
  }
  // Asks for what multiply() begins with.
  template <int kStride>
  __device__ __forceinline__ void ask(const T (&rows)[kRows][kStride]) {
    const T* const row = rows[lane_.column * kRows / kWarpColumns];
    unroll<kPieces>([&](int n) { operands_[n] = reinterpret_cast<const TwoOperands*>(row)[piece(n)]; });
  }
  template <int kStride>
  __device__ __forceinline__ void multiply(const T (&)[kRows][kStride]) {
#pragma unroll
    for (auto& tile : sums_) {
#pragma unroll
      for (auto& chain : tile) chain[0] = chain[1] = chain[2] = chain[3] = 0;
    }
    unroll<kSteps>([&](int s) {
      unroll<kTiles>([&](int tile) {
        weights_[tile][s].template multiply<T>(operands_[s / 2].words[s % 2], sums_[tile][s % kChains]);
      });
    });
  }
  // Of this thread's kRows gates.
  __device__ __forceinline__ void finish(float (&sums)[kRows]) const {
    if constexpr (kRows == 4) {
      unroll<4>([&](int gate) { sums[gate] = sum_of(gate); });
    } else {
      const float first = lane_.part % 2 ? sum_of(1) : sum_of(0);
      const float second = lane_.part % 2 ? sum_of(3) : sum_of(2);
      sums[0] = lane_.part / 2 ? second : first;
    }
  }

 private:
  static constexpr int kTiles = 2, kSteps = kDepth / 16, kPieces = kSteps / 2;
  static constexpr int kChains = 2;  // of products that wait for each other

  [[nodiscard]] __device__ __forceinline__ int piece(int n) const { return n * kUnitThreads + lane_.part; }
  [[nodiscard]] __device__ __forceinline__ TwoOperands weights_of(const CudaCell<T>& cell, int gate,
                                                                  int n) const {
    const T* const row =
        cell.hh + (static_cast<Offset>(gate) * cell.hidden + lane_.unit) * cell.output_stride;
    const bool is_there = lane_.unit < cell.hidden && piece(n) * Piece<T>::kSize < cell.hidden;
    return is_there ? reinterpret_cast<const TwoOperands*>(row)[piece(n)] : TwoOperands{};
  }
  // Columns 2 q and 2 q + 1 are those of the same row.
  [[nodiscard]] __device__ __forceinline__ float sum_of(int gate) const {
    return sums_[gate / 2][0][gate % 2 * 2] + sums_[gate / 2][1][gate % 2 * 2];
  }

  ColumnLane lane_;
  Weights16 weights_[kTiles][kSteps];
  float sums_[kTiles][kChains][4];
  TwoOperands operands_[kPieces];
};

// R^T dz. The rows of weights of a product are 8 units, for both halves of the depth. So are the columns of a
// row of the batch: even ones have its first half, odd ones the second half. Sums of a half of the weights
// with the other half of dz are left alone.
template <class T, int kDepth, int kRows>
class UnitProductBack {
 public:
  // Elements after a row of dz in shared memory: two rows' words lie in banks of their own.
  static constexpr int kRowPad = 32;

  __device__ __forceinline__ UnitProductBack(const CudaCell<T>& cell, const BlockPlace<kRows>&) {
    __shared__ Piece<T> places[kUnitThreads * kDepth];
    const int thread = static_cast<int>(threadIdx.x), matrix = thread % 32 / 8, row = thread % 8;
    // Each lane reads a row of the four matrices of a step: 8 units of R's row.
    const int gate = matrix / 2 * 2 + row % 2;
    const int piece_of_warp = thread / 32;
    Piece<T> rows[kSteps];
    unroll<kSteps>([&](int s) {
      const int from_unit = 2 * piece(s / 2, matrix % 2, row / 2) + s % 2;
      const Offset begin = (static_cast<Offset>(gate) * cell.hidden + from_unit) * cell.output_stride;
      const bool is_there = from_unit < cell.hidden && piece_of_warp * kWarpColumns < cell.hidden;
      rows[s] = is_there ? read_piece(cell.hh + begin, piece_of_warp) : Piece<T>{};
    });
    unroll<kSteps>([&](int s) {
      __syncwarp();
      places[thread] = rows[s];
      __syncwarp();
      cuda::load_matrices<true>(weights_[s].a, &places[thread]);
    });
  }
  // Asks for what multiply() begins with.
  template <int kStride>
  __device__ __forceinline__ void ask(const T (&rows)[kRows][kStride]) {
    unroll<kAsked>([&](int n) { operands_[n] = operands_of(rows, n); });
  }
  template <int kStride>
  __device__ __forceinline__ void multiply(const T (&rows)[kRows][kStride]) {
#pragma unroll
    for (auto& chain : sums_) chain[0] = chain[1] = chain[2] = chain[3] = 0;
    unroll<kSteps>([&](int s) {
      TwoOperands& operands = operands_[s / 2 % kAsked];
      weights_[s].template multiply<T>(operands.words[s % 2], sums_[s % kChains]);
      const int next = s / 2 + kAsked;
      if (s % 2 == 1 && next < kPieces) operands = operands_of(rows, next);
    });
  }
  // Of this thread's unit and row.
  __device__ __forceinline__ void finish(float (&sum)[1]) const {
    float sums[kChains];
    unroll<kChains>([&](int k) { sums[k] = sums_[k][0] + sums_[k][3]; });
    sum[0] = (sums[0] + sums[1]) + (sums[2] + sums[3]);
  }

 private:
  static constexpr int kSteps = kDepth / 8, kPieces = kSteps / 2;
  static constexpr int kAsked = kDepth == 128 ? 2 : kPieces < 4 ? kPieces : 4;  // at once; registers are few
  static constexpr int kChains = 4;  // of products that wait for each other

  // Pieces of both halves take turns, so that two columns' pieces lie in banks of their own.
  static __device__ __forceinline__ int piece(int n, int half, int part) {
    return (2 * n + half) * kUnitThreads + part;
  }
  template <int kStride>
  [[nodiscard]] __device__ __forceinline__ TwoOperands operands_of(const T (&rows)[kRows][kStride],
                                                                   int n) const {
    const T* const row = rows[lane_.column * kRows / kWarpColumns];
    return reinterpret_cast<const TwoOperands*>(row)[piece(n, lane_.column % 2, lane_.part)];
  }

  ColumnLane lane_;
  Weights16 weights_[kSteps];
  float sums_[kChains][4];
  TwoOperands operands_[kAsked];
};

}  // namespace warpalign::detail::recurrent
