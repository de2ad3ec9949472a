// Whole sweeps in one launch. Blocks write h, or parts of dh, into each other's shared memory. Sweeps on
// clusters serve up to 512 units of 16-bit types, without projection, on sm_90 and later.
//
// A cluster of blocks holds R once, in registers, and has a slice of the batch. Clusters never meet. A block
// has 32 units, a warp 4 of them for 8 rows of the batch at a time: a thread finishes one unit of one row.
// A slice has tiles of 8 rows, which take turns.
//
// Messages go to two buffers in turn. A block sends for step s + 1 only when it has all messages of step s,
// and everybody sends those after the last look at messages of step s - 1. So nothing is overwritten early,
// and waiting needs no barrier of the cluster. Waiting ends because hardware starts a cluster as a whole.
#pragma once

#include "cuda/launch/shared.cuh"
#include "cuda/memory/remote_access.cuh"
#include "recurrent/cuda/cell/mail.cuh"
#include "recurrent/cuda/cell/operands.cuh"
#include "recurrent/cuda/cell/params.cuh"
#include "recurrent/cuda/cell/unit_lanes.cuh"

namespace warpalign::detail::recurrent {

constexpr int kClusterWarps = 8;
constexpr int kClusterThreads = kClusterWarps * cuda::kWarpSize;
constexpr int kFewestRanks = 2, kMostRanks = 16;  // blocks of a cluster; one alone gets no messages
constexpr int kWarpUnits = 4;                     // 16-bit elements of a word
constexpr int kBlockUnits = kClusterWarps * kWarpUnits;
constexpr int kTileWords = 32;  // a k-step of 16 columns and 8 rows has so many words

template <class T>
struct ClusterParams {
  CudaCell<T> cell[2];
  int ranks;   // blocks of a cluster
  int slices;  // a direction has so many
  int tiles;   // of a slice
  Places places;
};

struct ClusterPlace {
  int rank, warp, lane, direction, slice;

  template <class T>
  __device__ __forceinline__ explicit ClusterPlace(const ClusterParams<T>& p) {
    const int cluster = static_cast<int>(blockIdx.x) / p.ranks;
    rank = cuda::cluster_rank();
    warp = static_cast<int>(threadIdx.x) / cuda::kWarpSize;
    lane = static_cast<int>(threadIdx.x) % cuda::kWarpSize;
    direction = cluster / p.slices;
    slice = cluster % p.slices;
  }
};

// Where word `word` of row `row` lies among the words of a tile of rows, so that neither those who write it
// nor the lanes that read operands of mma_half() meet in a bank.
__device__ __forceinline__ int word_place(int word, int row) {
  const int t = word % 4;
  return word / 4 * kTileWords + t * 8 + (row ^ t / 2 * 4);
}
// This lane's operand: the word of row lane / 4, columns 4 t ... 4 t + 3 of the k-step, with t = lane % 4.
__device__ __forceinline__ const cuda::Word* operand_of_lane(const cuda::Word* words) {
  const int lane = static_cast<int>(threadIdx.x) % cuda::kWarpSize;
  return words + word_place(lane % 4, lane / 4);
}

}  // namespace warpalign::detail::recurrent
