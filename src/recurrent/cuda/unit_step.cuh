// A step's product on the matrix units, for 16-bit types: the tasks of step_kernel() (tile.cuh), for 16 rows
// of the batch at a time.
//
// A block has 1, 2 or 4 tiles of 16 rows of weights. Its 8 warps share the tiles, and the
// depth of a tile: warp w has tile w % tiles. The blocks of a cluster share the depth again. Sums over warps
// and blocks have one order, which does not depend on the batch.
//
// A launch begins before the launch in front has ended, and loads its weights meanwhile.
#pragma once

#include <algorithm>

#include "cuda/cluster.cuh"
#include "cuda/launch.cuh"
#include "recurrent/cuda/tile.cuh"
#include "recurrent/cuda/weights.cuh"

namespace warpalign::detail::recurrent {

constexpr int kUnitRows = 16;      // batch rows of a block: two tiles of the matrix units
constexpr int kFewestPieces = 16;  // of depth: two for each warp; less would be padding for the most part
// Tiles of a block: each of its threads then finishes an item at most.
template <class Task>
constexpr int kMostTiles = Task::kRows;

// How a launch shares a product.
struct UnitShare {
  int tiles;   // of a block: 1, 2 or 4
  int blocks;  // of a cluster
  int stacks;  // of so many tiles: all rows of weights

  // Of a product of so many rows of weights and pieces of depth. most_tiles: of a block. clusters: whether
  // the device has them.
  static UnitShare of(int rows, int pieces, int most_tiles, int multiprocessors, bool clusters) {
    const auto stacks = [&](int tiles) { return (rows + 16 * tiles - 1) / (16 * tiles); };
    int tiles = 1;
    while (tiles < most_tiles && 2 * stacks(2 * tiles) >= 3 * multiprocessors) tiles *= 2;
    const int wanted = (multiprocessors + stacks(tiles) - 1) / stacks(tiles);
    const int deepest = pieces / (32 * kTileWarps);  // a warp then has 8 fours of pieces at least
    const int most = clusters ? std::min({wanted, deepest, cuda::kClusterOfEveryDevice}) : 1;
    return {tiles, std::max(most, 1), stacks(tiles)};
  }
};

// 32 columns of a row, dealt out to four lanes: operands of two products of 16 columns.
struct alignas(16) OperandPiece {
  cuda::Word first, second;
};

// This thread's part of the depth.
struct PieceRange {
  int begin, end;  // in pieces; the lane has every fourth one

  template <class T>
  __device__ __forceinline__ OperandPiece read(const T* row, int piece) const {
    if (!row || piece >= end) return {0, 0};
    return *reinterpret_cast<const OperandPiece*>(row + piece * Piece<T>::kSize);
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

template <class T, class Task>
__global__ void __launch_bounds__(kTileThreads, 2) unit_step_kernel(StepParams<T> p, UnitShare share) {
  constexpr int kChunk = 4;  // fours of pieces; so many of weights are loaded before it waits
  constexpr int kRows = Task::kRows, kMostItems = kTileThreads;
  static_assert(kMostTiles<Task> * 16 / kRows * kUnitRows == kMostItems);
  __shared__ TileSums parts[kTileWarps][kUnitRows];
  __shared__ ItemSums<kRows> gathered[kMostItems + cuda::kClusterOfEveryDevice];
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
  OperandPiece asked[kChunk][2];
#pragma unroll
  for (int n = 0; n < kChunk; ++n) {
#pragma unroll
    for (int half = 0; half < 2; ++half) asked[n][half] = range.read(weights[half], first_piece + 4 * n);
  }
  // The blocks of a cluster share the items.
  const int row_items = tiles * 16 / kRows, items = row_items * kUnitRows;
  const int share_items = (items + blocks - 1) / blocks, index_of_item = rank * share_items + thread;
  const int item = first_tile * 16 / kRows + index_of_item % row_items;
  const int b = first_row + index_of_item / row_items;
  const bool finishes = thread < share_items && index_of_item < items && item * kRows < all_rows && b < batch;
  typename Task::Ahead ahead{};
  if (finishes) Task::ask(cell, place, b, item, ahead);
  if (blocks > 1) cuda::cluster_sync();  // all have begun

  cuda::let_next_launch_begin();
  cuda::wait_for_launch_before();
  if (finishes) Task::ask_state(cell, place, b, item, ahead);
  const T* rows[2];
#pragma unroll
  for (int n = 0; n < 2; ++n) {
    const int row = first_row + n * 8 + g;
    rows[n] = row < batch && end > 0 ? Task::factor(cell, place, row) : nullptr;
  }
  float sums[2][4] = {};
  const auto multiply = [&](const OperandPiece(&weight)[2], const OperandPiece(&entries)[2]) {
    const Weights16 first{weight[0].first, weight[1].first}, second{weight[0].second, weight[1].second};
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      first.template multiply<T>(entries[n].first, sums[n]);
      second.template multiply<T>(entries[n].second, sums[n]);
    }
  };
  {
    OperandPiece entries[kChunk][2];
#pragma unroll
    for (int k = 0; k < kChunk; ++k) {
#pragma unroll
      for (int n = 0; n < 2; ++n) entries[k][n] = range.read(rows[n], first_piece + 4 * k);
    }
#pragma unroll
    for (int k = 0; k < kChunk; ++k) multiply(asked[k], entries[k]);
  }
  for (int begin = first_piece + 4 * kChunk; begin - lane % 4 < end; begin += 4 * kChunk) {
    OperandPiece entries[kChunk][2], more[kChunk][2];
#pragma unroll
    for (int k = 0; k < kChunk; ++k) {
#pragma unroll
      for (int n = 0; n < 2; ++n) {
        more[k][n] = range.read(weights[n], begin + 4 * k);
        entries[k][n] = range.read(rows[n], begin + 4 * k);
      }
    }
#pragma unroll
    for (int k = 0; k < kChunk; ++k) multiply(more[k], entries[k]);
  }
#pragma unroll
  for (int n = 0; n < 2; ++n) {
#pragma unroll
    for (int k = 0; k < 4; ++k) parts[warp][n * 8 + lane % 4 * 2 + k % 2].of[g + k / 2 * 8] = sums[n][k];
  }
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
  ItemSums<kRows> total{};
  if (blocks == 1) {
    if (finishes) total = sum_of_block(thread);
  } else {
    if (thread < items) {
      const int owner = thread / share_items;
      *cuda::in_block(&gathered[rank * share_items + thread % share_items], owner) = sum_of_block(thread);
    }
    cuda::cluster_sync();
    for (int from = 0; from < blocks && finishes; ++from) {
#pragma unroll
      for (int w = 0; w < kRows; ++w) total.of[w] += gathered[from * share_items + thread].of[w];
    }
  }
  if (finishes) Task::finish(cell, place, b, item, total.of, ahead);
}

}  // namespace warpalign::detail::recurrent
