// A step's product of a few batch rows with the rows of a packed weight matrix, and what becomes of the sums.
//
// A block has 8 batch rows. A group is 4 weight rows. A warp makes the 4 x 8 dot products of its group, or of
// a part of their depth, with its lanes side by side along the depth. Parts are added in one order.
#pragma once

#include "cuda/warp.cuh"
#include "recurrent/cuda/params.cuh"

namespace warpalign::detail::recurrent {

constexpr int kTileRows = 8;
constexpr int kGroupRows = 4;  // weight rows of a group
constexpr int kTileWarps = 8;
constexpr int kTileThreads = kTileWarps * cuda::kWarpSize;

// The widest piece of a row that a thread reads at once.
template <class T>
struct alignas(16) Piece {
  static constexpr int kSize = 16 / sizeof(T);
  T entries[kSize];
};
template <class T>
constexpr int whole_pieces(int entries) {
  return (entries + Piece<T>::kSize - 1) / Piece<T>::kSize * Piece<T>::kSize;
}

// Entry `lane` of the 32 sums over all lanes: halves of them are exchanged, then halves of what is left. A
// loop over the halves would not be unrolled, and the sums would lie in local memory.
template <int kHalf = 16, class Real>
__device__ __forceinline__ Real sum_for_lane(Real (&sums)[32], int lane) {
  const bool is_upper = lane & kHalf;
#pragma unroll
  for (int k = 0; k < kHalf; ++k) {
    const Real sent = is_upper ? sums[k] : sums[k + kHalf];
    const Real kept = is_upper ? sums[k + kHalf] : sums[k];
    sums[k] = kept + cuda::shuffle_xor(sent, kHalf);
  }
  if constexpr (kHalf > 1) {
    return sum_for_lane<kHalf / 2>(sums, lane);
  } else {
    return sums[0];
  }
}

// sums[4 n + r]... of weights[w] with rows[r] in pieces begin, begin + 32, ... before end.
template <class T>
__device__ __forceinline__ void add_products(const T* const (&weights)[kGroupRows],
                                             const T* const (&rows)[kTileRows], int count, int begin, int end,
                                             int lane, Sum<T> (&sums)[32]) {
  constexpr int kSize = Piece<T>::kSize;
  const auto read = [](const T* row, int piece) {
    return *reinterpret_cast<const Piece<T>*>(row + static_cast<Offset>(piece) * kSize);
  };
  for (int piece = begin + lane; piece < end; piece += cuda::kWarpSize) {
    Sum<T> weight[kGroupRows][kSize];
#pragma unroll
    for (int w = 0; w < kGroupRows; ++w) {
      const Piece<T> packed = read(weights[w], piece);
#pragma unroll
      for (int k = 0; k < kSize; ++k) weight[w][k] = cuda::widen(packed.entries[k]);
    }
#pragma unroll
    for (int r = 0; r < kTileRows; ++r) {
      if (r >= count) continue;  // the same for all lanes
      const Piece<T> packed = read(rows[r], piece);
#pragma unroll
      for (int k = 0; k < kSize; ++k) {
        const Sum<T> entry = cuda::widen(packed.entries[k]);
#pragma unroll
        for (int w = 0; w < kGroupRows; ++w) sums[w * kTileRows + r] += weight[w][k] * entry;
      }
    }
  }
}

// Task says what is multiplied and what happens to the sums:
//   kSplits: parts of the depth;   groups(cell): on the host, how many groups there are;
//   skips(cell, place): whether there is nothing to multiply, and the sums are 0;
//   depth(cell): in elements, whole pieces;   weight(cell, group, w), row(cell, place, b): the packed rows;
//   finish(cell, place, b, group, sums): takes the 4 sums of a group, for one b of the batch.
template <class T, class Task>
__global__ void __launch_bounds__(kTileThreads) step_kernel(StepParams<T> p) {
  constexpr int kSplits = Task::kSplits, kGroups = kTileWarps / kSplits;
  __shared__ Sum<T> parts[kTileWarps][32];
  const int block = static_cast<int>(blockIdx.x);
  const CudaCell<T>& cell = p.cell[block / p.blocks_of_direction];
  const int batch = cell.at.batch, tiles = (batch + kTileRows - 1) / kTileRows;
  const int index = block % p.blocks_of_direction;
  const int first_row = index % tiles * kTileRows, first_group = index / tiles * kGroups;
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int groups = Task::groups(cell), group = first_group + warp / kSplits;
  Sum<T> sums[32] = {};
  if (group < groups && !Task::skips(cell, p.place)) {
    const T *weights[kGroupRows], *rows[kTileRows];
#pragma unroll
    for (int w = 0; w < kGroupRows; ++w) weights[w] = Task::weight(cell, group, w);
#pragma unroll
    for (int r = 0; r < kTileRows; ++r) {
      const int b = first_row + r;
      rows[r] = Task::row(cell, p.place, b < batch ? b : batch - 1);
    }
    const int pieces = Task::depth(cell) / Piece<T>::kSize, part = warp % kSplits;
    const int count = batch - first_row;
    add_products<T>(weights, rows, count, pieces * part / kSplits, pieces * (part + 1) / kSplits, lane, sums);
  }
  parts[warp][lane] = sum_for_lane(sums, lane);
  __syncthreads();
  const int thread = static_cast<int>(threadIdx.x);
  if (thread >= kGroups * kTileRows) return;
  const int own = thread / kTileRows, r = thread % kTileRows;
  if (first_group + own >= groups || first_row + r >= batch) return;
  Sum<T> totals[kGroupRows] = {};
#pragma unroll
  for (int w = 0; w < kGroupRows; ++w) {
#pragma unroll
    for (int part = 0; part < kSplits; ++part) {
      totals[w] += parts[own * kSplits + part][w * kTileRows + r];
    }
  }
  Task::finish(cell, p.place, first_row + r, first_group + own, totals);
}

}  // namespace warpalign::detail::recurrent
