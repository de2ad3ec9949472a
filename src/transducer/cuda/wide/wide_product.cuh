// Products of matrices by warpgroups (sm_90a). Persistent blocks take tiles of 128 rows and 128 to 256
// columns, one after another. One warp copies stages of 64 terms into a ring in shared memory; two warpgroups
// multiply, each 64 rows.
//
//   c[r,n] = sum over k of a[r,k] b[n,k]
//
// Factors are of a half type, or float32 numbers as sums of bfloat16 parts, a = a_0 + a_1 + a_2, of which
// each has the next 8 bits. Then a b is the sum of the products a_i b_j with i + j < number of parts, the
// smallest ones first: three products of two parts (16 bits), six of three (24 bits).
//
// Matrix units round sums down: each of 16 more terms takes up to 2^-23 of a sum away. Products of half types
// are summed so. With float32 the units sum the terms of a stage, and additions of float32, which round to
// nearest, the stages.
//
// Every sum is in a fixed order, so that it does not depend on the other rows and columns.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "cuda/launch/shared.cuh"
#include "cuda/memory/bulk_copy.cuh"
#include "cuda/products/wgmma.cuh"
#include "cuda/threads/warp.cuh"
#include "transducer/cuda/wide/wide_panels.cuh"

namespace warpalign::detail::transducer {

inline constexpr int kWideRows = 128;         // rows of a tile
inline constexpr int kWideDepth = 64;         // terms of a stage
inline constexpr int kWideMultipliers = 256;  // threads that multiply
inline constexpr int kWideThreads = kWideMultipliers + cuda::kWarpSize;

// Packed columns of a tile of logits. Tiles of float32 are narrower: a thread has two sums of each element.
template <class Storage>
inline constexpr int kWideLabels = std::is_same_v<Storage, float> ? 128 : 256;

// A slot of the ring holds a part of both factors of a stage; a stage has a slot for each part.
template <int kColumns>
inline constexpr int kWideSlotBytes = (kWideRows + kColumns) * kWideDepth * 2;
template <int kColumns>
inline constexpr int kWideSlots = kColumns == 128 ? 6 : 4;
// Dynamic shared memory of a block.
template <int kColumns>
inline constexpr std::size_t kWideBytes = std::size_t{kWideSlots<kColumns>} * kWideSlotBytes<kColumns>;

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
  using Element = Half;
  static constexpr bool kIsTransposed = kTransposed;
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

// A ring of slots in shared memory. The copying thread waits until a slot is empty and fills it; both
// warpgroups wait until it is full, and empty it.
template <int kColumns>
class WideRing {
 public:
  static constexpr int kSlots = kWideSlots<kColumns>, kSlotBytes = kWideSlotBytes<kColumns>;

  struct Barriers {
    cuda::TransferBarrier full[kSlots], empty[kSlots];
  };

  // Called by all threads of the block.
  __device__ __forceinline__ WideRing(Barriers* barriers, unsigned char* shared)
      : barriers_(barriers), shared_(shared) {
    if (threadIdx.x == 0) {
      for (int s = 0; s < kSlots; ++s) {
        cuda::transfer_init<1>(barriers->full + s);
        cuda::transfer_init<kWideMultipliers / 128>(barriers->empty + s);
      }
      cuda::transfer_fence();
    }
    __syncthreads();
  }

  // Slots are numbered from 0 on, in the order in which they are filled.
  [[nodiscard]] __device__ __forceinline__ unsigned char* slot(int number) const {
    return shared_ + number % kSlots * kSlotBytes;
  }
  // Waits for the slot to be empty. The copies that are to come have so many bytes.
  __device__ __forceinline__ cuda::TransferBarrier* expect(int number, int bytes) const {
    if (number >= kSlots) {
      cuda::transfer_wait(barriers_->empty + number % kSlots, (number / kSlots - 1) % 2);
    }
    cuda::transfer_expect(barriers_->full + number % kSlots, bytes);
    return barriers_->full + number % kSlots;
  }
  __device__ __forceinline__ void wait(int number) const {
    cuda::transfer_wait(barriers_->full + number % kSlots, number / kSlots % 2);
  }
  // The calling warpgroup has read the slot.
  __device__ __forceinline__ void release(int number) const {
    if (threadIdx.x % 128 == 0) cuda::transfer_arrive(barriers_->empty + number % kSlots);
  }

 private:
  Barriers* barriers_;
  unsigned char* shared_;
};

// Copies the stages of a block's tiles, in their order. One thread calls this.
template <class StageA, class StageB, class A, class B, class Tiles, class Ring>
__device__ __forceinline__ void copy_wide(const A& a, const B& b, int parts, const Tiles& tiles,
                                          const Ring& ring) {
  const int count = tiles.count();
  int number = 0;
  for (int t = static_cast<int>(blockIdx.x); t < count; t += static_cast<int>(gridDim.x)) {
    const WideTile tile = tiles.at(t);
    const int bytes =
        StageA::kRuns * StageA::run_bytes(a, tile.row) + StageB::kRuns * StageB::run_bytes(b, tile.column);
    for (int k = tile.begin; k < tile.end; k += kWideDepth) {
      for (int part = 0; part < parts; ++part, ++number) {
        cuda::TransferBarrier* const full = ring.expect(number, bytes);
        unsigned char* const to = ring.slot(number);
        StageA::copy(a, tile.row, k, part, to, full);
        StageB::copy(b, tile.column, k, part, to + StageA::kBytes, full);
      }
    }
  }
}

// sum (+)= the product of the factors in two slots, asynchronously, for the rows of the calling warpgroup.
template <class StageA, class StageB, int kColumns>
__device__ __forceinline__ void multiply_slots(float (&sum)[kColumns / 2], const unsigned char* a,
                                               const unsigned char* b, bool adds) {
  const int group_row = static_cast<int>(threadIdx.x) / 128 * 64;
#pragma unroll
  for (int d = 0; d < kWideDepth; d += 16) {
    cuda::wgmma<typename StageA::Element, kColumns, StageA::kIsTransposed, StageB::kIsTransposed>(
        sum, StageA::tile(a, group_row, d), StageB::tile(b + StageA::kBytes, 0, d), adds || d > 0);
  }
}

// The sums of a tile of half types, whose first stage is in slot `number`.
template <class StageA, class StageB, int kColumns>
__device__ __forceinline__ void sum_stages(float (&sum)[kColumns / 2], const WideRing<kColumns>& ring,
                                           int stages, int number) {
  for (int k = 0; k < stages; ++k) {
    ring.wait(number + k);
    cuda::wgmma_fence();
    const unsigned char* const slot = ring.slot(number + k);
    multiply_slots<StageA, StageB, kColumns>(sum, slot, slot, k > 0);
    cuda::wgmma_commit();
    cuda::wgmma_wait<1>();  // the products of the previous stage have ended
    if (k > 0) ring.release(number + k - 1);
  }
  cuda::wgmma_wait<0>();
  ring.release(number + stages - 1);
}

// The same of float32, whose stages have a slot for each part.
template <class StageA, class StageB, int kColumns, int kParts>
__device__ __forceinline__ void sum_parts(float (&sum)[kColumns / 2], const WideRing<kColumns>& ring,
                                          int stages, int number) {
#pragma unroll
  for (float& s : sum) s = 0;
  for (int k = 0; k < stages; ++k, number += kParts) {
    float of_stage[kColumns / 2];
#pragma unroll
    for (int part = 0; part < kParts; ++part) ring.wait(number + part);
    cuda::wgmma_fence();
    // A group has the products a_i b_j with i + j = both.
#pragma unroll
    for (int both = kParts - 1; both >= 0; --both) {
#pragma unroll
      for (int part = 0; part <= both; ++part) {
        multiply_slots<StageA, StageB, kColumns>(of_stage, ring.slot(number + part),
                                                 ring.slot(number + both - part),
                                                 both < kParts - 1 || part > 0);
      }
      cuda::wgmma_commit();
      if (both == kParts - 1) continue;
      cuda::wgmma_wait<1>();  // the products of the previous group, the last ones with part both + 1
      ring.release(number + both + 1);
    }
    cuda::wgmma_wait<0>();
    ring.release(number);
#pragma unroll
    for (int i = 0; i < kColumns / 2; ++i) sum[i] += of_stage[i];
  }
}

// Calls function(tile, sums, place) for every tile, tiles.at(0) to tiles.at(tiles.count() - 1), in the
// multiplying threads of the block that computes it. Called by all threads of all blocks. parts: of each
// number of both factors.
template <class Storage, int kColumns, bool kATransposed, bool kBTransposed, class A, class B, class Tiles,
          class Function>
__device__ __forceinline__ void multiply_wide(const A& a, const B& b, int parts, const Tiles& tiles,
                                              const Function& function) {
  using StageA = WideStage<typename A::Element, kWideRows, kATransposed, A::kRows>;
  using StageB = WideStage<typename B::Element, kColumns, kBTransposed, B::kRows>;
  constexpr bool kSplit = std::is_same_v<Storage, float>;
  __shared__ typename WideRing<kColumns>::Barriers barriers;
  const WideRing<kColumns> ring(&barriers, cuda::dynamic_shared());
  const int of_stage = kSplit ? parts : 1;
  if (threadIdx.x < kWideMultipliers) {
    const WidePlace place;
    int number = 0;  // of the first slot that the next tile reads
    const int count = tiles.count();
    for (int t = static_cast<int>(blockIdx.x); t < count; t += static_cast<int>(gridDim.x)) {
      const WideTile tile = tiles.at(t);
      const int stages = (tile.end - tile.begin + kWideDepth - 1) / kWideDepth;
      if (stages == 0) continue;
      float sum[kColumns / 2];
      if constexpr (kSplit) {
        if (parts == 3) {
          sum_parts<StageA, StageB, kColumns, 3>(sum, ring, stages, number);
        } else {
          sum_parts<StageA, StageB, kColumns, 2>(sum, ring, stages, number);
        }
      } else {
        sum_stages<StageA, StageB, kColumns>(sum, ring, stages, number);
      }
      number += stages * of_stage;
      function(tile, sum, place);
    }
  } else if (threadIdx.x % cuda::kWarpSize == 0) {
    copy_wide<StageA, StageB>(a, b, of_stage, tiles, ring);
  }
}

}  // namespace warpalign::detail::transducer
