// A step's product on the matrix units, for 16-bit types and float32: the tasks of step_kernel() (tile.cuh),
// for 16 or 32 rows of the batch at a time.
//
// A block has 1, 2 or 4 tiles of 16 rows of weights. Its 8 warps share the tiles, and the
// depth of a tile: warp w has tile w % tiles. The blocks of a cluster share the depth again. Sums over warps
// and blocks have one order, which does not depend on the rows of a block.
//
// A launch begins before the launch in front has ended, and loads its weights meanwhile.
//
// A product of float32 is kProducts of TF32: three, or one of rounded factors. 16-bit types have one.
#pragma once

#include <algorithm>

#include "cuda/launch/launch.cuh"
#include "cuda/numbers/tf32.cuh"
#include "cuda/threads/cluster.cuh"
#include "recurrent/cuda/cell/weights.cuh"
#include "recurrent/cuda/steps/tile.cuh"

namespace warpalign::detail::recurrent {

// Types that have such steps.
template <class T>
constexpr bool kHasUnits = sizeof(T) < 8;
// Tiles of 8 rows of the batch that a block has: of small batches, and of larger ones.
constexpr int kRowTiles = 2, kWideRowTiles = 4;
constexpr int kFewestPieces = 16;  // of depth: two for each warp; less would be padding for the most part
// The most tiles of a block. Its threads then finish one item each, or two where blocks are wide.
template <class Task>
constexpr int kMostTiles = Task::kRows;

// How a launch shares a product.
struct UnitShare {
  int tiles;   // of a block: 1, 2 or 4
  int blocks;  // of a cluster
  int stacks;  // of so many tiles: all rows of weights

  // A product has `rows` rows of weights, and a depth of `pieces`. A block gets `most_tiles` tiles at most.
  // Fewer stacks than `least_stacks` leave multiprocessors idle. `clusters`: whether the device has them.
  static UnitShare of(int rows, int pieces, int most_tiles, int multiprocessors, int least_stacks,
                      bool clusters) {
    const auto stacks = [&](int tiles) { return (rows + 16 * tiles - 1) / (16 * tiles); };
    int tiles = 1;
    while (tiles < most_tiles && stacks(2 * tiles) >= least_stacks) tiles *= 2;
    if (tiles > 1) return {tiles, 1, stacks(tiles)};
    const int wanted = (multiprocessors + stacks(1) - 1) / stacks(1);
    const int deepest = pieces / (32 * kTileWarps);  // a warp then has 8 fours of pieces at least
    const int most = clusters ? std::min({wanted, deepest, cuda::kClusterOfEveryDevice}) : 1;
    return {1, std::max(most, 1), stacks(1)};
  }
};

// A lane's operands of two products: 8 columns of a row of 16-bit elements, or 4 of float32. Four lanes have
// 32 columns, or 16.
template <class T>
struct alignas(16) OperandPiece {
  cuda::Word first, second;

  // sums += weights times entries. upper, lower: of rows g and g + 8 of weights.
  template <int kProducts>
  __device__ __forceinline__ static void multiply(const OperandPiece& upper, const OperandPiece& lower,
                                                  const OperandPiece& entries, float (&sums)[4]) {
    Weights16(upper.first, lower.first).template multiply<T>(entries.first, sums);
    Weights16(upper.second, lower.second).template multiply<T>(entries.second, sums);
  }
};
template <>
struct alignas(16) OperandPiece<float> {
  float of[4];

  template <int kProducts>
  __device__ __forceinline__ static void multiply(const OperandPiece& upper, const OperandPiece& lower,
                                                  const OperandPiece& entries, float (&sums)[4]) {
#pragma unroll
    for (int k = 0; k < 4; k += 2) {
      const float a[4] = {upper.of[k], lower.of[k], upper.of[k + 1], lower.of[k + 1]};
      const float b[2] = {entries.of[k], entries.of[k + 1]};
      if constexpr (kProducts == 1) {
        multiply_rounded(a, b, sums);
      } else {
        multiply_split(a, b, sums);
      }
    }
  }

 private:
  __device__ __forceinline__ static void multiply_rounded(const float (&a)[4], const float (&b)[2],
                                                          float (&sums)[4]) {
    const float weights[4] = {cuda::near_tf32_factor(a[0]), cuda::near_tf32_factor(a[1]),
                              cuda::near_tf32_factor(a[2]), cuda::near_tf32_factor(a[3])};
    const float factors[2] = {cuda::near_tf32_factor(b[0]), cuda::near_tf32_factor(b[1])};
    cuda::mma_tf32(sums, weights, factors);
  }
  __device__ __forceinline__ static void multiply_split(const float (&a)[4], const float (&b)[2],
                                                        float (&sums)[4]) {
    float a_hi[4], a_lo[4], b_hi[2], b_lo[2];
#pragma unroll
    for (int n = 0; n < 4; ++n) {
      const auto parts = cuda::split_tf32(a[n]);
      a_hi[n] = parts.hi, a_lo[n] = parts.lo;
    }
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      const auto parts = cuda::split_tf32(b[n]);
      b_hi[n] = parts.hi, b_lo[n] = parts.lo;
    }
    float products[4] = {};  // the units round sums down
    cuda::mma_tf32(products, a_lo, b_hi);
    cuda::mma_tf32(products, a_hi, b_lo);
    cuda::mma_tf32(products, a_hi, b_hi);
#pragma unroll
    for (int n = 0; n < 4; ++n) sums[n] += products[n];
  }
};

// This thread's part of the depth.
struct PieceRange {
  int begin, end;  // in pieces; the lane has every fourth one

  template <class T>
  __device__ __forceinline__ OperandPiece<T> read(const T* row, int piece) const {
    if (!row || piece >= end) return {};
    return *reinterpret_cast<const OperandPiece<T>*>(row + piece * Piece<T>::kSize);
  }
};

// The sums of 16 rows of weights. The distance keeps banks apart.
struct alignas(16) TileSums {
  float of[20];
};
// Those of an item.
template <int kRows>
struct alignas(4 * kRows) ItemSums {
  float of[kRows];
};

template <class T, class Task, int kTiles, int kProducts>
__global__ void __launch_bounds__(kTileThreads, 2) unit_step_kernel(StepParams<T> p, UnitShare share) {
  constexpr bool kIsWide = kTiles > kRowTiles;
  constexpr int kUnitRows = 8 * kTiles;    // rows of the batch that a block has
  constexpr int kChunk = 8 / kTiles;       // fours of pieces that are read at once
  constexpr int kAhead = kIsWide ? 2 : 4;  // so many of weights are loaded before it waits
  constexpr int kRows = Task::kRows, kRowItems = 16 / kRows;
  constexpr int kEach = kMostTiles<Task> * kRowItems * kUnitRows / kTileThreads;  // items of a thread
  __shared__ TileSums parts[kTileWarps][kUnitRows];
  __shared__ ItemSums<kRows> gathered[kRowItems * kUnitRows + cuda::kClusterOfEveryDevice];
  const int tiles = share.tiles, splits = kTileWarps / tiles, blocks = share.blocks;
  const int block = static_cast<int>(blockIdx.x), place = p.place;
  const CudaCell<T> cell = cell_of(p.cell, block / p.blocks_of_direction);
  const int rank = block % blocks, index = block % p.blocks_of_direction / blocks;
  const int first_tile = index % share.stacks * tiles, first_row = index / share.stacks * kUnitRows;
  const int thread = static_cast<int>(threadIdx.x), warp = thread / 32, lane = thread % 32;
  const int g = lane / 4, batch = cell.at.batch, all_rows = Task::rows(cell);

  // Pieces in fours, one of each lane of a row.
  const int pieces = Task::depth(cell) / Piece<T>::kSize, fours = (pieces + 3) / 4;
  const int slice = rank * splits + warp / tiles, slices = blocks * splits;
  const int first_piece = fours * slice / slices * 4 + lane % 4;
  const int end = Task::skips(cell, place) ? 0 : min(fours * (slice + 1) / slices * 4, pieces);
  const PieceRange range{first_piece, end};
  const T* weights[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = (first_tile + warp % tiles) * 16 + half * 8 + g;
    weights[half] = Task::weight(cell, min(row, all_rows - 1));
  }
  OperandPiece<T> asked[kAhead][2];
#pragma unroll
  for (int n = 0; n < kAhead; ++n) {
#pragma unroll
    for (int half = 0; half < 2; ++half) asked[n][half] = range.read(weights[half], first_piece + 4 * n);
  }
  // The blocks of a cluster share the items.
  const int row_items = tiles * kRowItems, items = row_items * kUnitRows;
  const int share_items = (items + blocks - 1) / blocks;
  struct Place {
    int item, b;
    bool exists;
  };
  const auto place_of = [&](int each) {
    const int own = thread + each * kTileThreads, of_all = rank * share_items + own;
    const int item = first_tile * kRowItems + of_all % row_items, b = first_row + of_all / row_items;
    return Place{item, b, own < share_items && of_all < items && item * kRows < all_rows && b < batch};
  };
  typename Task::Ahead ahead[kEach]{};
  const auto ask = [&] {
#pragma unroll
    for (int each = 0; each < kEach; ++each) {
      const Place at = place_of(each);
      if (at.exists) Task::ask(cell, place, at.b, at.item, ahead[each]);
    }
  };
  const auto ask_state = [&] {
#pragma unroll
    for (int each = 0; each < kEach; ++each) {
      const Place at = place_of(each);
      if (at.exists) Task::ask_state(cell, place, at.b, at.item, ahead[each]);
    }
  };
  if constexpr (!kIsWide) ask();
  if (blocks > 1) cuda::cluster_sync();  // all have begun

  cuda::let_next_launch_begin();
  cuda::wait_for_launch_before();
  if constexpr (!kIsWide) ask_state();
  const T* const first_factor = end > 0 ? Task::factor(cell, place, first_row) : nullptr;
  int rows[kTiles];  // elements from the first row's on; -1: there is no such row
#pragma unroll
  for (int n = 0; n < kTiles; ++n) {
    const int row = first_row + n * 8 + g;
    const bool exists = row < batch && end > 0;
    rows[n] = exists ? static_cast<int>(Task::factor(cell, place, row) - first_factor) : -1;
  }
  const auto read_row = [&](int n, int piece) -> OperandPiece<T> {
    if (rows[n] < 0 || piece >= end) return {};
    return *reinterpret_cast<const OperandPiece<T>*>(first_factor + rows[n] + piece * Piece<T>::kSize);
  };
  float sums[kTiles][4] = {};
  const auto multiply = [&](const OperandPiece<T>(&weight)[2], const OperandPiece<T>(&entries)[kTiles]) {
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
      OperandPiece<T>::template multiply<kProducts>(weight[0], weight[1], entries[n], sums[n]);
    }
  };
#pragma unroll
  for (int first = 0; first < kAhead; first += kChunk) {
    OperandPiece<T> entries[kChunk][kTiles];
#pragma unroll
    for (int k = 0; k < kChunk; ++k) {
#pragma unroll
      for (int n = 0; n < kTiles; ++n) {
        entries[k][n] = read_row(n, first_piece + 4 * (first + k));
      }
    }
#pragma unroll
    for (int k = 0; k < kChunk; ++k) multiply(asked[first + k], entries[k]);
  }
  for (int begin = first_piece + 4 * kAhead; begin - lane % 4 < end; begin += 4 * kChunk) {
    OperandPiece<T> entries[kChunk][kTiles], more[kChunk][2];
#pragma unroll
    for (int k = 0; k < kChunk; ++k) {
#pragma unroll
      for (int half = 0; half < 2; ++half) more[k][half] = range.read(weights[half], begin + 4 * k);
#pragma unroll
      for (int n = 0; n < kTiles; ++n) entries[k][n] = read_row(n, begin + 4 * k);
    }
#pragma unroll
    for (int k = 0; k < kChunk; ++k) multiply(more[k], entries[k]);
  }
#pragma unroll
  for (int n = 0; n < kTiles; ++n) {
#pragma unroll
    for (int k = 0; k < 4; ++k) parts[warp][n * 8 + lane % 4 * 2 + k % 2].of[g + k / 2 * 8] = sums[n][k];
  }
  if constexpr (kIsWide) ask(), ask_state();  // their registers held the sums
  __syncthreads();

  const auto sum_of_block = [&](int of) {
    const int row = of % row_items * kRows;
    ItemSums<kRows> total{};
    for (int split = 0; split < splits; ++split) {
      const TileSums& part = parts[split * tiles + row / 16][of / row_items];
#pragma unroll
      for (int w = 0; w < kRows; ++w) total.of[w] += part.of[row % 16 + w];
    }
    return total;
  };
  if (blocks > 1) {
    for (int of = thread; of < items; of += kTileThreads) {
      const int owner = of / share_items;
      *cuda::in_block(&gathered[rank * share_items + of % share_items], owner) = sum_of_block(of);
    }
    cuda::cluster_sync();
  }
#pragma unroll
  for (int each = 0; each < kEach; ++each) {
    const Place at = place_of(each);
    if (!at.exists) continue;
    const int own = thread + each * kTileThreads;
    ItemSums<kRows> total{};
    if (blocks == 1) total = sum_of_block(own);
    for (int from = 0; from < blocks && blocks > 1; ++from) {
#pragma unroll
      for (int w = 0; w < kRows; ++w) total.of[w] += gathered[from * share_items + own].of[w];
    }
    Task::finish(cell, place, at.b, at.item, total.of, ahead[each]);
  }
}

}  // namespace warpalign::detail::recurrent
