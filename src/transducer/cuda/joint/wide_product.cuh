// Products of matrices of a half type by warpgroups (sm_90a). Persistent blocks take tiles of 128 rows and
// 216 or 256 columns, one after another. One warp copies stages of 64 terms into a ring in shared memory; two
// warpgroups multiply, each 64 rows.
//
//   c[r,n] = sum over k of a[r,k] b[n,k]
//
// Every sum is in the order of k, so that it does not depend on the other rows and columns.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/launch/shared.cuh"
#include "cuda/memory/bulk_copy.cuh"
#include "cuda/numbers/half.cuh"
#include "cuda/products/wgmma.cuh"
#include "cuda/threads/warp.cuh"

namespace warpalign::detail::transducer {

// A matrix in blocks of kBlock rows, and panels of 8 columns within a block. 8 x 8 elements are 128
// contiguous bytes, and the panels of a block are contiguous.
template <class Half, int kBlock = 64>
struct Panels {
  static constexpr int kRows = kBlock;
  Half* data;
  std::int32_t count;  // number of panels

  [[nodiscard]] __device__ __forceinline__ Half* at(int row, int column) const {
    const std::int64_t run = static_cast<std::int64_t>(row / kBlock) * count + column / 8;
    return data + run * (kBlock * 8) + row % kBlock * 8 + column % 8;
  }
};

inline constexpr int kWideRows = 128;         // rows of a tile
inline constexpr int kWideDepth = 64;         // of a stage
inline constexpr int kWideStages = 4;         // one is multiplied, the others are being copied
inline constexpr int kWideMultipliers = 256;  // threads that multiply
inline constexpr int kWideThreads = kWideMultipliers + cuda::kWarpSize;

template <int kColumns>
inline constexpr int kWideStageBytes = (kWideRows + kColumns) * kWideDepth * 2;
// Dynamic shared memory of a block.
template <int kColumns>
inline constexpr std::size_t kWideBytes = std::size_t{kWideStages} * kWideStageBytes<kColumns>;

// A tile of the product, and the range of its terms, in multiples of kWideDepth.
struct WideTile {
  int row, column;
  int begin, end;
  int part = 0;  // number of the part, if several tiles share an element's terms
};

// The positions of a thread's sums in a tile.
struct WidePlace {
  int row;   // sum[4 j + 2 i + k] is in row + 8 i
  int pair;  // and in column 8 j + pair + k

  __device__ __forceinline__ WidePlace() {
    const int thread = static_cast<int>(threadIdx.x), lane = thread % cuda::kWarpSize;
    row = thread / cuda::kWarpSize * 16 + lane / 4;
    pair = lane % 4 * 2;
  }
};

// A stage of a factor: kAcross rows (columns) of the product, kWideDepth terms.
template <class Half, int kAcross, bool kTransposed, int kBlock>
struct WideStage {
  static constexpr int kBytes = kAcross * kWideDepth * 2;
  // Contiguous runs of a stage. Plain: the panels of the terms in each block of rows. Transposed: all panels
  // of one block.
  static constexpr int kRuns = kTransposed ? 1 : kAcross / kBlock;
  static constexpr int kPanelBytes = kBlock * 16;
  static_assert(kTransposed ? kBlock == kWideDepth : kAcross % kBlock == 0);

  // Bytes of a run. A transposed factor may end within the tile: elements after its end are not copied, and
  // affect only sums that are not used.
  __device__ static __forceinline__ int run_bytes(const Panels<Half, kBlock>& from, int first) {
    return kPanelBytes * (kTransposed ? min(kAcross / 8, from.count - first / 8) : kWideDepth / 8);
  }
  __device__ static __forceinline__ void copy(const Panels<Half, kBlock>& from, int first, int depth,
                                              unsigned char* to, cuda::TransferBarrier* barrier) {
#pragma unroll
    for (int run = 0; run < kRuns; ++run) {
      const Half* const source = kTransposed ? from.at(depth, first) : from.at(first + run * kBlock, depth);
      cuda::copy_bulk(to + run * (kBytes / kRuns), source, run_bytes(from, first), barrier);
    }
  }
  // The tile of rows (columns) from `first` on and terms from `depth` on.
  __device__ static __forceinline__ cuda::SharedTile tile(const unsigned char* stage, int first, int depth) {
    if (kTransposed) return {stage + first / 8 * kPanelBytes + depth * 16, 128, kPanelBytes};
    return {stage + first / kBlock * (kBytes / kRuns) + depth / 8 * kPanelBytes, kPanelBytes, 128};
  }
};

// Calls function(tile, sums, place) for every tile, tiles.at(0) to tiles.at(tiles.count() - 1), in the
// multiplying threads of the block that computes it. Called by all threads of all blocks.
template <int kColumns, bool kATransposed, bool kBTransposed, class Half, int kBlock, class Tiles,
          class Function>
__device__ __forceinline__ void multiply_wide(const Panels<Half>& a, const Panels<Half, kBlock>& b,
                                              const Tiles& tiles, const Function& function) {
  using StageA = WideStage<Half, kWideRows, kATransposed, Panels<Half>::kRows>;
  using StageB = WideStage<Half, kColumns, kBTransposed, kBlock>;
  __shared__ cuda::TransferBarrier full[kWideStages], empty[kWideStages];
  unsigned char* const shared = cuda::dynamic_shared();
  const int thread = static_cast<int>(threadIdx.x), lane = thread % cuda::kWarpSize;
  if (thread == 0) {
    for (int s = 0; s < kWideStages; ++s) {
      cuda::transfer_init<1>(full + s);
      cuda::transfer_init<kWideMultipliers / 128>(empty + s);
    }
    cuda::transfer_fence();
  }
  __syncthreads();
  const int count = tiles.count(), blocks = static_cast<int>(gridDim.x);
  int step = 0;  // stages so far
  if (thread >= kWideMultipliers) {
    if (lane > 0) return;
    for (int t = static_cast<int>(blockIdx.x); t < count; t += blocks) {
      const WideTile tile = tiles.at(t);
      const int bytes =
          StageA::kRuns * StageA::run_bytes(a, tile.row) + StageB::kRuns * StageB::run_bytes(b, tile.column);
      for (int k = tile.begin; k < tile.end; k += kWideDepth, ++step) {
        const int s = step % kWideStages;
        if (step >= kWideStages) cuda::transfer_wait(empty + s, (step / kWideStages - 1) % 2);
        unsigned char* const to = shared + s * kWideStageBytes<kColumns>;
        cuda::transfer_expect(full + s, bytes);
        StageA::copy(a, tile.row, k, to, full + s);
        StageB::copy(b, tile.column, k, to + StageA::kBytes, full + s);
      }
    }
    return;
  }
  const int group_row = thread / 128 * 64;
  const WidePlace place;
  for (int t = static_cast<int>(blockIdx.x); t < count; t += blocks) {
    const WideTile tile = tiles.at(t);
    if (tile.begin >= tile.end) continue;
    float sum[kColumns / 2];
    for (int k = tile.begin; k < tile.end; k += kWideDepth, ++step) {
      const int s = step % kWideStages;
      cuda::transfer_wait(full + s, step / kWideStages % 2);
      const unsigned char* const stage = shared + s * kWideStageBytes<kColumns>;
      cuda::wgmma_fence();
#pragma unroll
      for (int d = 0; d < kWideDepth; d += 16) {
        cuda::wgmma<Half, kColumns, kATransposed, kBTransposed>(sum, StageA::tile(stage, group_row, d),
                                                                StageB::tile(stage + StageA::kBytes, 0, d),
                                                                k > tile.begin || d > 0);
      }
      cuda::wgmma_commit();
      cuda::wgmma_wait<1>();  // the products of the previous stage have ended
      if (k > tile.begin && thread % 128 == 0) {
        cuda::transfer_arrive(empty + (step - 1) % kWideStages);
      }
    }
    cuda::wgmma_wait<0>();
    if (thread % 128 == 0) cuda::transfer_arrive(empty + (step - 1) % kWideStages);
    function(tile, sum, place);
  }
}

}  // namespace warpalign::detail::transducer
