// Whole sweeps in one launch: the recurrent weights stay in registers, and blocks hand h, or dz, to each
// other through global memory. 16-bit types, no layer norm, no projection.
//
// A group of blocks holds R once and has a slice of the batch. A block has 16 units. Its 8 warps each have an
// eighth of the depth of the block's products. Two tiles of 8 rows are worked on together: a thread finishes
// one unit of one of their 16 rows. So a tile waits less than it would alone.
//
// What the blocks hand over are the rows of h or dz themselves: they start as all one-bits, and a reader
// waits until no word of 4 elements is all ones. No rounded number has these bits, NaN included. There are no
// flags, fences or slots. Waiting ends because all blocks are resident: the launch is cooperative.
#pragma once

#include "cuda/launch/shared.cuh"
#include "recurrent/cuda/cell/unit_lanes.cuh"
#include "recurrent/cuda/grid/row_weights.cuh"
#include "recurrent/cuda/steps/forward.cuh"

namespace warpalign::detail::recurrent {

template <class T>
struct ResidentParams {
  CudaCell<T> cell[2];  // a layer's directions, or two layers
  int ranks;            // blocks of a group
  int groups;           // each cell has so many
  int tiles;            // of 8 rows, of a group
  int first_tile;       // the first group begins here: a large batch takes several launches
  int shared_steps;     // of the weights
};

// Partial sums of a warp and a tile of rows: [kTiles][8 columns][20], of which 16 are rows. Distances keep
// banks apart.
constexpr int kColumnDistance = 20;
constexpr int warp_distance(int tiles) { return tiles * 8 * kColumnDistance + 16; }
// What a thread carries from step to step for a pair of tiles: h and c, or their gradients.
struct OwnState {
  float h, c;
};
// Shared memory: partial sums of two tiles, and, for each pair, the threads' states.
constexpr int partials_of_pair(int weight_tiles) { return 2 * kResidentWarps * warp_distance(weight_tiles); }
constexpr std::size_t kPairBytes = kResidentThreads * sizeof(OwnState);

// Who a thread is: it finishes unit lane / 2 of the block, of row `row` of each pair of tiles. Of a tile
// alone both threads of a unit finish it, and share the writing.
template <int kTogether>
struct GridPlace {
  int cell, group, rank, unit, row, half;
  int first_row, end_row;  // of the group's slice

  template <class T>
  __device__ __forceinline__ explicit GridPlace(const ResidentParams<T>& p) {
    const int block = static_cast<int>(blockIdx.x), thread = static_cast<int>(threadIdx.x);
    rank = block % p.ranks;
    group = block / p.ranks % p.groups;
    cell = block / p.ranks / p.groups;
    unit = rank * kOwnUnits + thread / 2 % kOwnUnits;
    half = thread % 2;
    row = thread / 32 + (kTogether == 2 ? half * 8 : 0);
    first_row = (p.first_tile + group * p.tiles) * 8;
    end_row = min(first_row + p.tiles * 8, p.cell[0].at.batch);
  }
  // Row r of the tiles from tile `tile` on, as a row of the batch; kNoRow: the slice has none.
  __device__ __forceinline__ int batch_row(int tile, int r) const {
    const int b = first_row + tile * 8 + r;
    return b < end_row ? b : kNoRow;
  }
  static constexpr int kNoRow = 0x7fffffff;
};
using PairPlace = GridPlace<2>;

// Where R's rows of a block's units begin, for RowWeights: a tile for each gate.
template <class T>
__device__ __forceinline__ const T* row_of_gate(const CudaCell<T>& cell, int rank, int gate, int r) {
  const int unit = rank * kOwnUnits + r;
  if (unit >= cell.hidden) return nullptr;
  return cell.hh + (static_cast<Offset>(gate) * cell.hidden + unit) * cell.output_stride;
}

// Puts the warp's partial sums into its place of shared memory: of tile n of rows and tile m of weights.
template <int kTiles, int kRows, class Sums>
__device__ __forceinline__ void put_sums(const Sums (&sums)[kRows], float* places) {
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  unroll<kRows>([&](int n) {
    unroll<kTiles>([&](int m) {
      float* const to = places + (warp * kRows + n) * warp_distance(kTiles) +
                        (m * 8 + 2 * (lane % 4)) * kColumnDistance + lane / 4;
      to[0] = sums[n].at(m, 0), to[kColumnDistance] = sums[n].at(m, 1);
      to[8] = sums[n].at(m, 2), to[kColumnDistance + 8] = sums[n].at(m, 3);
    });
  });
}

// Joins the warps' partial sums in shared memory. turn: counts the calls. A tile alone has two sets of
// places, which take turns, and two threads that add half of the sums each.
template <int kTiles, int kRows, class Sums>
__device__ __forceinline__ void join_sums(const Sums (&sums)[kRows], float* partials,
                                          [[maybe_unused]] int turn, float (&totals)[kTiles]) {
  constexpr int kDistance = warp_distance(kTiles);
  const int lane = static_cast<int>(threadIdx.x) % 32, row = static_cast<int>(threadIdx.x) / 32;
  const int unit = lane / 2, half = lane % 2;
  if constexpr (kRows == 2) {
    __syncthreads();  // the sums of the turn before have been read
  } else {
    partials += turn % 2 * kResidentWarps * kDistance;
  }
  put_sums<kTiles>(sums, partials);
  __syncthreads();
  const float* const from = partials + half * kDistance + row * kColumnDistance + unit;
  unroll<kTiles>([&](int m) {
    float sum[2] = {};
    unroll<kResidentWarps * kRows / 2>(
        [&](int k) { sum[k % 2] += from[2 * k * kDistance + m * 8 * kColumnDistance]; });
    totals[m] = sum[0] + sum[1];
    if constexpr (kRows == 1) totals[m] += cuda::shuffle_xor(totals[m], 1);
  });
}

// Where a row's state is before step t, for products: h of the step before, or h0.
template <class T, class Rows>
__device__ __forceinline__ const T* state_before(const CudaCell<T>& cell, const Rows& rows, int place, int t,
                                                 int b) {
  if (b >= rows.batch || !rows.has_row(t, b)) return nullptr;
  const int last = cell.step_at(place - 1);
  if (!rows.holds(last, b) || rows.resets_at(t, b)) {
    return cell.h0 + static_cast<Offset>(b) * cell.output_stride;
  }
  return cell.h_rows + (rows.first(last) + b) * cell.h_stride;
}

}  // namespace warpalign::detail::recurrent
