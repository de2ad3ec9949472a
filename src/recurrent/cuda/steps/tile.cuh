// A step's product of a few batch rows with the rows of a packed weight matrix, and what becomes of the sums.
//
// A block has 8 batch rows. A group is 4 weight rows. A warp makes the 4 x 8 dot products of its group, or of
// a part of their depth, with its lanes side by side along the depth. Parts are added in one order.
//
// A step's launch may begin before the preceding launch has ended. So it asks first for what no step of the
// sweep writes: weights, W x, the tape.
#pragma once

#include "cuda/launch/dependent.cuh"
#include "cuda/threads/warp.cuh"
#include "recurrent/cuda/cell/pieces.cuh"

namespace warpalign::detail::recurrent {

constexpr int kTileRows = 8;
constexpr int kGroupRows = 4;  // weight rows of a group
constexpr int kTileWarps = 8;
constexpr int kTileThreads = kTileWarps * cuda::kWarpSize;

// Entry `lane` of the 32 sums over all lanes: halves of them are exchanged, then halves of what is left. A
// loop over the halves would not be unrolled, and the sums would lie in local memory.
template <int kHalf = 16, class Real>
__device__ __forceinline__ Real sum_for_lane(Real (&sums)[32], int lane) {
  const bool is_upper = lane & kHalf;
  unroll<kHalf>([&](int k) {
    const Real sent = is_upper ? sums[k] : sums[k + kHalf];
    const Real kept = is_upper ? sums[k + kHalf] : sums[k];
    sums[k] = kept + cuda::shuffle_xor(sent, kHalf);
  });
  if constexpr (kHalf > 1) {
    return sum_for_lane<kHalf / 2>(sums, lane);
  } else {
    return sums[0];
  }
}

// sums[8 w + r] += weights[w] times rows[r], of one piece.
template <class T>
__device__ __forceinline__ void add_piece(const Piece<T> (&weights)[kGroupRows],
                                          const T* const (&rows)[kTileRows], int count, int piece,
                                          Sum<T> (&sums)[32]) {
  constexpr int kSize = Piece<T>::kSize;
  Sum<T> weight[kGroupRows][kSize];
  unroll<kGroupRows>(
      [&](int w) { unroll<kSize>([&](int k) { weight[w][k] = cuda::widen(weights[w].entries[k]); }); });
  const auto add = [&](const Piece<T>& packed, int r) {
    unroll<kSize>([&](int k) {
      const Sum<T> entry = cuda::widen(packed.entries[k]);
      unroll<kGroupRows>([&](int w) { sums[w * kTileRows + r] += weight[w][k] * entry; });
    });
  };
  if (count == 1) return add(read_piece(rows[0], piece), 0);
  // Rows that are not there are the last one again. All are asked for before the first one is multiplied.
  Piece<T> packed[kTileRows];
  unroll<kTileRows>([&](int r) { packed[r] = read_piece(rows[r], piece); });
  unroll<kTileRows>([&](int r) { add(packed[r], r); });
}
// The same of all pieces from begin to the one before end, shared by the lanes.
template <class T>
__device__ __forceinline__ void add_products(const T* const (&weights)[kGroupRows],
                                             const T* const (&rows)[kTileRows], int count, int begin, int end,
                                             int lane, Sum<T> (&sums)[32]) {
  for (int piece = begin + lane; piece < end; piece += cuda::kWarpSize) {
    Piece<T> packed[kGroupRows];
    unroll<kGroupRows>([&](int w) { packed[w] = read_piece(weights[w], piece); });
    add_piece(packed, rows, count, piece, sums);
  }
}

// Task says what is multiplied and what happens to the sums:
//   rows(cell), weight(cell, row): the rows of weights, packed;   factor(cell, place, b): what multiplies
//   them; depth(cell): of both in elements, whole pieces; skips(cell, place): whether there is nothing to
//   multiply, and the sums are 0; kRows: so many rows of weights (1 or 4) make an item, which is finished for
//   one b of the batch; ask(cell, place, b, item, ahead): reads what no step of the sweep writes;
//   ask_state(...): the same of what the preceding launch has left;
//   finish(cell, place, b, item, sums, ahead): takes the sums of the item's rows;
//   kSplits: parts of the depth, of step_kernel().
template <class T, class Task>
__global__ void __launch_bounds__(kTileThreads, sizeof(T) == 4 ? 2 : 1) step_kernel(StepParams<T> p) {
  constexpr int kSplits = Task::kSplits, kGroups = kTileWarps / kSplits, kRows = Task::kRows;
  constexpr int kAhead = 2;  // pieces of a weight row that a lane asks for before it waits
  __shared__ Sum<T> parts[kTileWarps][32];
  const int block = static_cast<int>(blockIdx.x);
  const CudaCell<T> cell = cell_of(p.cell, block / p.blocks_of_direction);
  const int batch = cell.at.batch, tiles = (batch + kTileRows - 1) / kTileRows;
  const int index = block % p.blocks_of_direction;
  const int first_row = index % tiles * kTileRows, first_group = index / tiles * kGroups;
  const int thread = static_cast<int>(threadIdx.x), warp = thread / 32, lane = thread % 32;
  const int all_rows = Task::rows(cell), own_rows = (first_group + warp / kSplits) * kGroupRows;
  const int pieces = Task::depth(cell) / Piece<T>::kSize, part = warp % kSplits;
  const int begin = pieces * part / kSplits;
  const int end = own_rows < all_rows && !Task::skips(cell, p.place) ? pieces * (part + 1) / kSplits : 0;
  const T* weights[kGroupRows];
  Piece<T> asked[kAhead][kGroupRows];
  unroll<kGroupRows>([&](int w) { weights[w] = Task::weight(cell, min(own_rows + w, all_rows - 1)); });
  unroll<kAhead>([&](int n) {
    const int piece = begin + n * cuda::kWarpSize + lane;
    unroll<kGroupRows>([&](int w) {
      if (piece < end) asked[n][w] = read_piece(weights[w], piece);
    });
  });
  // The first threads finish an item each.
  constexpr int kItems = kGroups * kGroupRows / kRows;  // of a row of the batch
  const int own = thread % kItems, r = thread / kItems, b = first_row + r;
  const int item = first_group * kGroupRows / kRows + own;
  const bool finishes = r < kTileRows && item * kRows < all_rows && b < batch;
  typename Task::Ahead ahead{};
  if (finishes) Task::ask(cell, p.place, b, item, ahead);

  cuda::wait_for_launch_before();
  cuda::let_next_launch_begin();
  if (finishes) Task::ask_state(cell, p.place, b, item, ahead);
  const T* rows[kTileRows];
  unroll<kTileRows>([&](int n) { rows[n] = Task::factor(cell, p.place, min(first_row + n, batch - 1)); });
  Sum<T> sums[32] = {};
  unroll<kAhead>([&](int n) {
    const int piece = begin + n * cuda::kWarpSize + lane;
    if (piece < end) add_piece(asked[n], rows, batch - first_row, piece, sums);
  });
  add_products<T>(weights, rows, batch - first_row, begin + kAhead * cuda::kWarpSize, end, lane, sums);
  parts[warp][lane] = sum_for_lane(sums, lane);
  __syncthreads();
  if (!finishes) return;
  Sum<T> totals[kRows] = {};
  unroll<kRows>([&](int w) {
    const int row = own * kRows + w;
    unroll<kSplits>(
        [&](int k) { totals[w] += parts[row / kGroupRows * kSplits + k][row % kGroupRows * kTileRows + r]; });
  });
  Task::finish(cell, p.place, b, item, totals, ahead);
}

}  // namespace warpalign::detail::recurrent
