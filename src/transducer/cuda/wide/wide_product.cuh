// Products of matrices by warpgroups (sm_90a). Persistent blocks take tiles of 128 rows and 216 or 256
// columns, one after another. One warp copies stages of 64 terms into a ring in shared memory; two warpgroups
// multiply, each 64 rows.
//
//   c[r,n] = sum over k of a[r,k] b[n,k]
//
// Factors are of a half type, or float32 numbers as sums of bfloat16 parts, a = a_0 + a_1 + a_2, of which
// each has the next 8 bits. Then a b is the sum of the products a_i b_j with i + j < number of parts, the
// smallest ones first: three products of two parts (16 bits), six of three (24 bits).
//
// Matrix units round sums down: each of 16 more terms takes up to 2^-23 of a sum away.
//
// Every sum is in a fixed order, so that it does not depend on the other rows and columns.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "cuda/launch/shared.cuh"
#include "cuda/memory/bulk_copy.cuh"
#include "cuda/numbers/half.cuh"
#include "cuda/products/wgmma.cuh"
#include "cuda/threads/warp.cuh"

namespace warpalign::detail::transducer {

// A matrix in blocks of kBlock rows, and panels of 8 columns within a block. 8 x 8 elements are 128
// contiguous bytes, and the panels of a block are contiguous. The parts of float32 numbers are matrices one
// after another.
template <class Half, int kBlock = 64>
struct Panels {
  static constexpr int kRows = kBlock;
  Half* data;
  std::int32_t count;        // number of panels
  std::int64_t part_stride;  // elements of a part

  [[nodiscard]] __device__ __forceinline__ Half* at(int row, int column, int part = 0) const {
    const std::int64_t run = static_cast<std::int64_t>(row / kBlock) * count + column / 8;
    return data + part * part_stride + run * (kBlock * 8) + row % kBlock * 8 + column % 8;
  }
};

// What multiplies in place of numbers of type Storage.
template <class Storage>
using WideFactor = std::conditional_t<std::is_same_v<Storage, float>, cuda::BFloat16, Storage>;

// A part of two neighbouring numbers. What is left of them, for the next parts, takes their place: 0 of a
// number of a half type.
template <class Half>
__device__ __forceinline__ std::uint32_t next_part(float& first, float& second) {
  const std::uint32_t part = cuda::narrow_pair<Half>(first, second);
  float low, high;
  cuda::widen_pair<Half>(part, low, high);
  // The parts of -0 are -0.
  if (first != 0) first -= low;
  if (second != 0) second -= high;
  return part;
}

// Two float32 numbers as pairs of the upper and of the lower halves of their bits.
struct SplitPair {
  std::uint32_t upper, lower;

  __device__ __forceinline__ SplitPair(std::uint32_t upper_halves, std::uint32_t lower_halves)
      : upper(upper_halves), lower(lower_halves) {}
  __device__ __forceinline__ SplitPair(float first, float second) {
    const auto a = static_cast<std::uint32_t>(__float_as_int(first)),
               b = static_cast<std::uint32_t>(__float_as_int(second));
    upper = a >> 16 | (b & 0xffff0000u);
    lower = (a & 0xffffu) | b << 16;
  }
  [[nodiscard]] __device__ __forceinline__ float first() const {
    return __int_as_float(static_cast<int>(upper << 16 | (lower & 0xffffu)));
  }
  [[nodiscard]] __device__ __forceinline__ float second() const {
    return __int_as_float(static_cast<int>((upper & 0xffff0000u) | lower >> 16));
  }
};

// The products of parts that make up a product.
__device__ __forceinline__ int pairs_of(int parts) { return parts * (parts + 1) / 2; }

inline constexpr int kWideRows = 128;         // rows of a tile
inline constexpr int kWideDepth = 64;         // of a stage
inline constexpr int kWideStages = 4;         // one is multiplied, the others are being copied
inline constexpr int kWideMultipliers = 256;  // threads that multiply
inline constexpr int kWideThreads = kWideMultipliers + cuda::kWarpSize;

inline constexpr int kWideLabels = 256;  // packed columns of a tile of logits

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

// Tiles of a chunk's rows and columns. Consecutive tiles have the same rows.
struct WideTiles {
  int rows, columns, depth, width;

  [[nodiscard]] __device__ __forceinline__ int column_tiles() const { return (columns + width - 1) / width; }
  [[nodiscard]] __device__ __forceinline__ int count() const {
    return (rows + kWideRows - 1) / kWideRows * column_tiles();
  }
  [[nodiscard]] __device__ __forceinline__ WideTile at(int index) const {
    const int n = column_tiles();
    return {index / n * kWideRows, index % n * width, 0, depth};
  }
};

// Tiles of W's sums, in `split` parts of a chunk's `terms` nodes.
struct WideSplitTiles {
  int rows, columns, width, split;
  int terms;  // a multiple of kWideDepth

  [[nodiscard]] __device__ __forceinline__ int column_tiles() const { return (columns + width - 1) / width; }
  [[nodiscard]] __device__ __forceinline__ int count() const {
    return (rows + kWideRows - 1) / kWideRows * column_tiles() * split;
  }
  [[nodiscard]] __device__ __forceinline__ WideTile at(int index) const {
    const int n = column_tiles(), all_tiles = count() / split;
    const int tile = index % all_tiles, part = index / all_tiles, stages = terms / kWideDepth;
    return {tile / n * kWideRows, tile % n * width, part * stages / split * kWideDepth,
            (part + 1) * stages / split * kWideDepth, part};
  }
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
                                              int part, unsigned char* to, cuda::TransferBarrier* barrier) {
#pragma unroll
    for (int run = 0; run < kRuns; ++run) {
      const Half* const source =
          kTransposed ? from.at(depth, first, part) : from.at(first + run * kBlock, depth, part);
      cuda::copy_bulk(to + run * (kBytes / kRuns), source, run_bytes(from, first), barrier);
    }
  }
  // The tile of rows (columns) from `first` on and terms from `depth` on.
  __device__ static __forceinline__ cuda::SharedTile tile(const unsigned char* stage, int first, int depth) {
    if (kTransposed) return {stage + first / 8 * kPanelBytes + depth * 16, 128, kPanelBytes};
    return {stage + first / kBlock * (kBytes / kRuns) + depth / 8 * kPanelBytes, kPanelBytes, 128};
  }
};

// Copies the stages of a block's tiles, in their order. One thread calls this.
template <class StageA, class StageB, int kStageBytes, class A, class B, class Tiles>
__device__ __forceinline__ void copy_wide(const A& a, const B& b, int parts, const Tiles& tiles,
                                          unsigned char* shared, cuda::TransferBarrier* full,
                                          cuda::TransferBarrier* empty) {
  const int count = tiles.count();
  int step = 0;
  for (int t = static_cast<int>(blockIdx.x); t < count; t += static_cast<int>(gridDim.x)) {
    const WideTile tile = tiles.at(t);
    const int bytes =
        StageA::kRuns * StageA::run_bytes(a, tile.row) + StageB::kRuns * StageB::run_bytes(b, tile.column);
    for (int both = parts - 1; both >= 0; --both) {
      for (int part = 0; part <= both; ++part) {
        for (int k = tile.begin; k < tile.end; k += kWideDepth, ++step) {
          const int s = step % kWideStages;
          if (step >= kWideStages) cuda::transfer_wait(empty + s, (step / kWideStages - 1) % 2);
          unsigned char* const to = shared + s * kStageBytes;
          cuda::transfer_expect(full + s, bytes);
          StageA::copy(a, tile.row, k, part, to, full + s);
          StageB::copy(b, tile.column, k, both - part, to + StageA::kBytes, full + s);
        }
      }
    }
  }
}

// Calls function(tile, sums, place) for every tile, tiles.at(0) to tiles.at(tiles.count() - 1), in the
// multiplying threads of the block that computes it. Called by all threads of all blocks. parts: of each
// number of both factors.
template <int kColumns, bool kATransposed, bool kBTransposed, class Half, int kBlock, class Tiles,
          class Function>
__device__ __forceinline__ void multiply_wide(const Panels<Half>& a, const Panels<Half, kBlock>& b, int parts,
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
    copy_wide<StageA, StageB, kWideStageBytes<kColumns>>(a, b, parts, tiles, shared, full, empty);
    return;
  }
  const int group_row = thread / 128 * 64;
  const WidePlace place;
  for (int t = static_cast<int>(blockIdx.x); t < count; t += blocks) {
    const WideTile tile = tiles.at(t);
    if (tile.begin >= tile.end) continue;
    float sum[kColumns / 2];
    const int terms = pairs_of(parts) * (tile.end - tile.begin);
    for (int k = 0; k < terms; k += kWideDepth, ++step) {
      const int s = step % kWideStages;
      cuda::transfer_wait(full + s, step / kWideStages % 2);
      const unsigned char* const stage = shared + s * kWideStageBytes<kColumns>;
      cuda::wgmma_fence();
#pragma unroll
      for (int d = 0; d < kWideDepth; d += 16) {
        cuda::wgmma<Half, kColumns, kATransposed, kBTransposed>(sum, StageA::tile(stage, group_row, d),
                                                                StageB::tile(stage + StageA::kBytes, 0, d),
                                                                k > 0 || d > 0);
      }
      cuda::wgmma_commit();
      cuda::wgmma_wait<1>();  // the products of the previous stage have ended
      if (k > 0 && thread % 128 == 0) {
        cuda::transfer_arrive(empty + (step - 1) % kWideStages);
      }
    }
    cuda::wgmma_wait<0>();
    if (thread % 128 == 0) cuda::transfer_arrive(empty + (step - 1) % kWideStages);
    function(tile, sum, place);
  }
}

}  // namespace warpalign::detail::transducer
