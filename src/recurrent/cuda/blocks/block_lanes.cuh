// What a step of a sweep in single blocks multiplies, by multiply-adds: float32 and float64.
//
// Forward each of a unit's four threads multiplies a quarter of the depth, H, for the four gates of the unit.
// Backward the depth is the 4H gates, and the 16 threads of four units share it: each thread has the four
// gates of every 16th unit. Then the threads exchange their sums, in one order for any number of rows.
#pragma once

#include "recurrent/cuda/blocks/block_sweep.cuh"

namespace warpalign::detail::recurrent {

// Sums over kLanes neighbouring lanes: lanes hand on halves of the sums, until each has one. Lanes with the
// upper half of the sums are those with the bit kLanes / 2. Where sums are few, all lanes get the last one.
template <int kLanes, int kCount, class Real, int kAll>
__device__ __forceinline__ void share_sums(Real (&sums)[kAll]) {
  constexpr int kHalf = kLanes / 2;
  const bool is_upper = threadIdx.x & kHalf;
  if constexpr (kCount > 1) {
#pragma unroll
    for (int k = 0; k < kCount / 2; ++k) {
      const Real sent = is_upper ? sums[k] : sums[k + kCount / 2];
      const Real kept = is_upper ? sums[k + kCount / 2] : sums[k];
      sums[k] = kept + cuda::shuffle_xor(sent, kHalf);
    }
  } else {
    sums[0] += cuda::shuffle_xor(sums[0], kHalf);
  }
  if constexpr (kHalf > 1) share_sums<kHalf, (kCount > 1 ? kCount / 2 : 1)>(sums);
}

// R h.
template <class T, int kDepth, int kRows>
class LaneProduct {
 public:
  __device__ __forceinline__ LaneProduct(const CudaCell<T>& cell, const BlockPlace<kRows>& at)
      : part_(at.part) {
    const bool has_unit = at.unit < cell.hidden;
#pragma unroll
    for (int gate = 0; gate < 4; ++gate) {
      const T* const from =
          cell.hh + (static_cast<Offset>(gate) * cell.hidden + at.unit) * cell.output_stride;
#pragma unroll
      for (int n = 0; n < kPieces; ++n) {
        const int piece = n * kUnitThreads + part_;
        const bool is_there = has_unit && piece * kSize < cell.hidden;
        const Piece<T> read = is_there ? read_piece(from, piece) : Piece<T>{};
#pragma unroll
        for (int e = 0; e < kSize; ++e) weights_[gate][n * kSize + e] = read.entries[e];
      }
    }
  }
  // Asks for what multiply() begins with.
  template <int kStride>
  __device__ __forceinline__ void ask(const T (&rows)[kRows][kStride]) {
    read_row(rows[0]);
  }
  template <int kStride>
  __device__ __forceinline__ void multiply(const T (&rows)[kRows][kStride]) {
#pragma unroll
    for (int k = 0; k < 4 * kRows; ++k) sums_[k] = 0;
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      if (r > 0) read_row(rows[r]);
#pragma unroll
      for (int k = 0; k < kPieces; ++k) {
#pragma unroll
        for (int e = 0; e < kSize; ++e) {
#pragma unroll
          for (int gate = 0; gate < 4; ++gate) {
            sums_[r * 4 + gate] += weights_[gate][k * kSize + e] * operands_[k].entries[e];
          }
        }
      }
    }
  }
  // Of this thread's kRows gates.
  __device__ __forceinline__ void finish(T (&sums)[kRows]) {
    share_sums<kUnitThreads, 4 * kRows>(sums_);
#pragma unroll
    for (int k = 0; k < kRows; ++k) sums[k] = sums_[k];
  }

 private:
  static constexpr int kSize = Piece<T>::kSize, kPieces = kDepth / (kUnitThreads * kSize);

  __device__ __forceinline__ void read_row(const T* row) {
#pragma unroll
    for (int k = 0; k < kPieces; ++k) operands_[k] = read_piece(row, k * kUnitThreads + part_);
  }

  int part_;
  T weights_[4][kPieces * kSize], sums_[4 * kRows];
  Piece<T> operands_[kPieces];
};

// R^T dz.
template <class T, int kDepth, int kRows>
class LaneProductBack {
 public:
  static constexpr int kRowPad = kBlockRowPad;  // elements behind a row of dz in shared memory

  // Of R's columns of the four units of these lanes, the rows of every 16th unit.
  __device__ __forceinline__ LaneProductBack(const CudaCell<T>& cell, const BlockPlace<kRows>&)
      : lane_(static_cast<int>(threadIdx.x) % kLanes) {
    const int hidden = cell.hidden, thread = static_cast<int>(threadIdx.x);
#pragma unroll
    for (int n = 0; n < kLaneUnits; ++n) {
      const int from_unit = n * kLanes + lane_;
#pragma unroll
      for (int gate = 0; gate < 4; ++gate) {
        const T* const from = cell.hh + (static_cast<Offset>(gate) * hidden + from_unit) * cell.output_stride;
#pragma unroll
        for (int k = 0; k < kOutputs / kSize; ++k) {
          const int piece = thread / kLanes * (kOutputs / kSize) + k;
          const bool is_there = from_unit < hidden && piece * kSize < hidden;
          const Piece<T> read = is_there ? read_piece(from, piece) : Piece<T>{};
#pragma unroll
          for (int e = 0; e < kSize; ++e) weights_[k * kSize + e][n * 4 + gate] = read.entries[e];
        }
      }
    }
  }
  // Asks for what multiply() begins with.
  template <int kStride>
  __device__ __forceinline__ void ask(const T (&rows)[kRows][kStride]) {
    read_row(rows[0]);
  }
  template <int kStride>
  __device__ __forceinline__ void multiply(const T (&rows)[kRows][kStride]) {
#pragma unroll
    for (int k = 0; k < kOutputs * kRows; ++k) sums_[k] = 0;
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      if (r > 0) read_row(rows[r]);
#pragma unroll
      for (int k = 0; k < kPieces; ++k) {
#pragma unroll
        for (int e = 0; e < kSize; ++e) {
#pragma unroll
          for (int to = 0; to < kOutputs; ++to) {
            sums_[to * kRows + r] += weights_[to][k * kSize + e] * operands_[k].entries[e];
          }
        }
      }
    }
  }
  // Of this thread's unit and row.
  __device__ __forceinline__ T finish() {
    share_sums<kLanes, kOutputs * kRows>(sums_);
    return sums_[0];
  }

 private:
  static constexpr int kLanes = 16, kOutputs = 4, kLaneUnits = kDepth / kLanes;
  static constexpr int kSize = Piece<T>::kSize, kPieces = 4 * kLaneUnits / kSize;

  __device__ __forceinline__ void read_row(const T* row) {
#pragma unroll
    for (int k = 0; k < kPieces; ++k) {
      operands_[k] = read_piece(row, (k * kSize / 4 * kLanes + lane_) * (4 / kSize) + k % (4 / kSize));
    }
  }

  int lane_;
  T weights_[kOutputs][4 * kLaneUnits], sums_[kOutputs * kRows];
  Piece<T> operands_[kPieces];
};

}  // namespace warpalign::detail::recurrent
