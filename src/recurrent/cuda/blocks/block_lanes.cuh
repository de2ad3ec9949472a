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
    unroll<kCount / 2>([&](int k) {
      const Real sent = is_upper ? sums[k] : sums[k + kCount / 2];
      const Real kept = is_upper ? sums[k + kCount / 2] : sums[k];
      sums[k] = kept + cuda::shuffle_xor(sent, kHalf);
    });
  } else {
    sums[0] += cuda::shuffle_xor(sums[0], kHalf);
  }
  if constexpr (kHalf > 1) share_sums<kHalf, (kCount > 1 ? kCount / 2 : 1)>(sums);
}

// kBack: R^T dz, and not R h. A thread has four rows of weights: the gates of its unit, or R's columns of the
// four units that its lanes have.
template <class T, int kDepth, int kRows, bool kBack>
class LaneProduct {
 public:
  static constexpr int kRowPad = kBlockRowPad;  // elements after a row of operands in shared memory

  __device__ __forceinline__ LaneProduct(const CudaCell<T>& cell, const BlockPlace<kRows>& at)
      : lane_(static_cast<int>(threadIdx.x) % kLanes) {
    if constexpr (kBack) {
      load_columns(cell);
    } else {
      load_rows(cell, at.unit);
    }
  }
  // Asks for what multiply() begins with.
  template <int kStride>
  __device__ __forceinline__ void ask(const T (&rows)[kRows][kStride]) {
    read_row(rows[0]);
  }
  template <int kStride>
  __device__ __forceinline__ void multiply(const T (&rows)[kRows][kStride]) {
    unroll<4 * kRows>([&](int k) { sums_[k] = 0; });
    unroll<kRows>([&](int r) {
      if (r > 0) read_row(rows[r]);
      unroll<kPieces>([&](int k) {
        unroll<kSize>([&](int e) {
          unroll<4>([&](int w) {
            sums_[kBack ? w * kRows + r : r * 4 + w] += weights_[w][k * kSize + e] * operands_[k].entries[e];
          });
        });
      });
    });
  }
  // Of this thread's kRows gates; backward of its unit and row.
  __device__ __forceinline__ void finish(T (&sums)[kBack ? 1 : kRows]) {
    share_sums<kLanes, 4 * kRows>(sums_);
    unroll<(kBack ? 1 : kRows)>([&](int k) { sums[k] = sums_[k]; });
  }

 private:
  static constexpr int kLanes = kBack ? 16 : kUnitThreads;  // that share the depth
  static constexpr int kSize = Piece<T>::kSize;
  static constexpr int kPieces = (kBack ? 4 : 1) * kDepth / (kLanes * kSize);

  // The lane's k-th piece of a row. Backward a unit's four gates lie side by side, and the lane has every
  // 16th unit's.
  [[nodiscard]] __device__ __forceinline__ int piece(int k) const {
    if constexpr (!kBack) return k * kLanes + lane_;
    return (k * kSize / 4 * kLanes + lane_) * (4 / kSize) + k % (4 / kSize);
  }
  __device__ __forceinline__ void read_row(const T* row) {
    unroll<kPieces>([&](int k) { operands_[k] = read_piece(row, piece(k)); });
  }
  __device__ __forceinline__ void load_rows(const CudaCell<T>& cell, int unit) {
    unroll<4>([&](int gate) {
      const T* const from = cell.hh + (static_cast<Offset>(gate) * cell.hidden + unit) * cell.output_stride;
      unroll<kPieces>([&](int n) {
        const bool is_there = unit < cell.hidden && piece(n) * kSize < cell.hidden;
        const Piece<T> read = is_there ? read_piece(from, piece(n)) : Piece<T>{};
        unroll<kSize>([&](int e) { weights_[gate][n * kSize + e] = read.entries[e]; });
      });
    });
  }
  __device__ __forceinline__ void load_columns(const CudaCell<T>& cell) {
    const int hidden = cell.hidden, thread = static_cast<int>(threadIdx.x);
    unroll<kDepth / kLanes>([&](int n) {
      const int from_unit = n * kLanes + lane_;
      unroll<4>([&](int gate) {
        const T* const from = cell.hh + (static_cast<Offset>(gate) * hidden + from_unit) * cell.output_stride;
        unroll<4 / kSize>([&](int k) {
          const int column = thread / kLanes * (4 / kSize) + k;
          const bool is_there = from_unit < hidden && column * kSize < hidden;
          const Piece<T> read = is_there ? read_piece(from, column) : Piece<T>{};
          unroll<kSize>([&](int e) { weights_[k * kSize + e][n * 4 + gate] = read.entries[e]; });
        });
      });
    });
  }

  int lane_;
  T weights_[4][kPieces * kSize], sums_[4 * kRows];
  Piece<T> operands_[kPieces];
};

}  // namespace warpalign::detail::recurrent
