// The sweep of the whole grid for slices of several tiles of rows: two tiles of 8 rows are worked on
// together. A thread finishes one unit of one of their 16 rows. So a tile waits less than it would alone.
#pragma once

#include "recurrent/cuda/pair_weights.cuh"
#include "recurrent/cuda/unit_lanes.cuh"

namespace warpalign::detail::recurrent {

// Shared memory: partial sums of two tiles, and, for each pair, the threads' states.
constexpr int partials_of_pair(int weight_tiles) { return 2 * kResidentWarps * warp_distance(weight_tiles); }
constexpr std::size_t kPairBytes = kResidentThreads * sizeof(OwnState);

// Who a thread is: it finishes unit lane / 2 of the block, of row `row` of each pair of tiles.
struct PairPlace {
  int cell, group, rank, unit, row;
  int first_row, end_row;  // of the group's slice

  template <class T>
  __device__ __forceinline__ explicit PairPlace(const ResidentParams<T>& p) {
    const int block = static_cast<int>(blockIdx.x), thread = static_cast<int>(threadIdx.x);
    rank = block % p.ranks;
    group = block / p.ranks % p.groups;
    cell = block / p.ranks / p.groups;
    unit = rank * kOwnUnits + thread / 2 % kOwnUnits;
    row = thread / 32 + thread % 2 * 8;
    first_row = (p.first_tile + group * p.tiles) * 8;
    end_row = min(first_row + p.tiles * 8, p.cell[0].at.batch);
  }
  // Row r of the pair of tiles that begins with tile `tile`, as a row of the batch; past it: the slice has
  // none.
  __device__ __forceinline__ int batch_row(int tile, int r) const {
    const int b = first_row + tile * 8 + r;
    return b < end_row ? b : kNoRow;
  }
  static constexpr int kNoRow = 0x7fffffff;
};

// Where a lane's rows begin of a product of a pair of tiles; null: 0.
template <class T>
struct RowPair {
  const T* of[2];
};

// Puts the warp's partial sums into its place of shared memory: of tile n of rows and tile m of weights.
template <int kTiles, class Sums>
__device__ __forceinline__ void put_pair_sums(const Sums (&sums)[2], float* places) {
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int n = 0; n < 2; ++n) {
#pragma unroll
    for (int m = 0; m < kTiles; ++m) {
      float* const to = places + (warp * 2 + n) * warp_distance(kTiles) +
                        (m * 8 + 2 * (lane % 4)) * kColumnDistance + lane / 4;
      to[0] = sums[n].at(m, 0), to[kColumnDistance] = sums[n].at(m, 1);
      to[8] = sums[n].at(m, 2), to[kColumnDistance + 8] = sums[n].at(m, 3);
    }
  }
}

// Joins the warps' partial sums in shared memory.
template <int kTiles, class Sums>
__device__ __forceinline__ void join_pair_sums(const Sums (&sums)[2], float* partials,
                                               float (&totals)[kTiles]) {
  constexpr int kDistance = warp_distance(kTiles);
  __syncthreads();  // the sums of the turn before have been read
  put_pair_sums<kTiles>(sums, partials);
  __syncthreads();
  const int lane = static_cast<int>(threadIdx.x) % 32, row = static_cast<int>(threadIdx.x) / 32;
  const int unit = lane / 2, tile = lane % 2;
#pragma unroll
  for (int m = 0; m < kTiles; ++m) {
    float sum[2] = {};
    const float* const from = partials + tile * kDistance + (m * 8 + row) * kColumnDistance + unit;
#pragma unroll
    for (int k = 0; k < kResidentWarps; ++k) sum[k % 2] += from[2 * k * kDistance];
    totals[m] = sum[0] + sum[1];
  }
}

}  // namespace warpalign::detail::recurrent
