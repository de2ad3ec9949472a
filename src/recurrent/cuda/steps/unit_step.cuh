// A step's product on the matrix units, for 16-bit types and float32: the tasks of step_kernel() (tile.cuh),
// for 16 or 32 rows of the batch at a time.
//
// A block has 1, 2 or 4 tiles of 16 rows of weights. Its 8 warps share the tiles, and the
// depth of a tile: warp w has tile w % tiles. The blocks of a cluster share the depth again. Sums over warps
// and blocks have one order, which does not depend on the rows of a block.
//
// A launch begins before the preceding launch has ended, and loads its weights meanwhile.
//
// A product of float32 is kProducts of TF32: three, or one of rounded factors. 16-bit types have one.
#pragma once

#include <algorithm>

#include "cuda/launch/launch.cuh"
#include "cuda/numbers/tf32.cuh"
#include "cuda/threads/cluster.cuh"
#include "recurrent/cuda/cell/operands.cuh"
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

// This thread's part of the depth.
struct PieceRange {
  int begin, end;  // in pieces; the lane has every fourth one

  template <class T>
  __device__ __forceinline__ OperandPiece read(const T* row, int piece) const {
    if (!row || piece >= end) return {};
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
  unroll<2>([&](int half) {
    const int row = (first_tile + warp % tiles) * 16 + half * 8 + g;
    weights[half] = Task::weight(cell, min(row, all_rows - 1));
  });
  OperandPiece asked[kAhead][2];
  unroll<kAhead>([&](int n) {
    unroll<2>([&](int half) { asked[n][half] = range.read(weights[half], first_piece + 4 * n); });
  });
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
    unroll<kEach>([&](int each) {
      const Place at = place_of(each);
      if (at.exists) Task::ask(cell, place, at.b, at.item, ahead[each]);
    });
  };
  const auto ask_state = [&] {
    unroll<kEach>([&](int each) {
      const Place at = place_of(each);
      if (at.exists) Task::ask_state(cell, place, at.b, at.item, ahead[each]);
    });
  };
  if constexpr (!kIsWide) ask();
  if (blocks > 1) cuda::cluster_sync();  // all have begun

  cuda::let_next_launch_begin();
  cuda::wait_for_launch_before();
  if constexpr (!kIsWide) ask_state();
  const T* const first_factor = end > 0 ? Task::factor(cell, place, first_row) : nullptr;
  int rows[kTiles];  // elements from the first row's on; -1: there is no such row
  unroll<kTiles>([&](int n) {
    const int row = first_row + n * 8 + g;
    const bool exists = row < batch && end > 0;
    rows[n] = exists ? static_cast<int>(Task::factor(cell, place, row) - first_factor) : -1;
  });
  const auto read_row = [&](int n, int piece) -> OperandPiece {
    if (rows[n] < 0 || piece >= end) return {};
    return *reinterpret_cast<const OperandPiece*>(first_factor + rows[n] + piece * Piece<T>::kSize);
  };
  float sums[kTiles][1][4] = {};
  const auto multiply = [&](const OperandPiece(&weight)[2], const OperandPiece(&entries)[kTiles]) {
    unroll<kTiles>([&](int n) { multiply_pieces<T, kProducts>(weight[0], weight[1], entries[n], sums[n]); });
  };
#pragma unroll
  for (int first = 0; first < kAhead; first += kChunk) {
    OperandPiece entries[kChunk][kTiles];
    unroll<kChunk>([&](int k) {
      unroll<kTiles>([&](int n) { entries[k][n] = read_row(n, first_piece + 4 * (first + k)); });
    });
    unroll<kChunk>([&](int k) { multiply(asked[first + k], entries[k]); });
  }
  for (int begin = first_piece + 4 * kAhead; begin - lane % 4 < end; begin += 4 * kChunk) {
    OperandPiece entries[kChunk][kTiles], more[kChunk][2];
    unroll<kChunk>([&](int k) {
      unroll<2>([&](int half) { more[k][half] = range.read(weights[half], begin + 4 * k); });
      unroll<kTiles>([&](int n) { entries[k][n] = read_row(n, begin + 4 * k); });
    });
    unroll<kChunk>([&](int k) { multiply(more[k], entries[k]); });
  }
  unroll<kTiles>([&](int n) {
    unroll<4>([&](int k) { parts[warp][n * 8 + lane % 4 * 2 + k % 2].of[g + k / 2 * 8] = sums[n][0][k]; });
  });
  if constexpr (kIsWide) ask(), ask_state();  // their registers held the sums
  __syncthreads();

  const auto sum_of_block = [&](int of) {
    const int row = of % row_items * kRows;
    ItemSums<kRows> total{};
    for (int split = 0; split < splits; ++split) {
      const TileSums& part = parts[split * tiles + row / 16][of / row_items];
      unroll<kRows>([&](int w) { total.of[w] += part.of[row % 16 + w]; });
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
      unroll<kRows>([&](int w) { total.of[w] += gathered[from * share_items + own].of[w]; });
    }
    Task::finish(cell, place, at.b, at.item, total.of, ahead[each]);
  }
}

}  // namespace warpalign::detail::recurrent
