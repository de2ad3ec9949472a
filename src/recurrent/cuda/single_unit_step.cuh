// One step without a tape on the matrix units, for 2 rows of the batch and more; and which way such a step
// takes (single_step.cuh has the other one).
#pragma once

#include <limits>

#include "recurrent/cuda/single_step.cuh"
#include "recurrent/cuda/unit_step.cuh"

namespace warpalign::detail::recurrent {

constexpr int kMostSingleTiles = 4;  // of 16 rows of weights, of a block

// What a warp multiplies: its part of the depth of R h0, and then of W x. Weights are read two blocks of
// pieces ahead, those of W while R h0 is multiplied.
template <class T, int kTiles>
struct SingleProducts {
  static constexpr int kBlock = kTiles > 2 ? 2 : 4;  // fours of pieces of a block
  static constexpr int kChunk = kTiles > 1 ? 1 : 2;  // of them whose rows of the batch are read at once

  struct Part {
    const T* weights;  // of this lane: a row, and the one 8 rows behind it
    const T* rows;     // of the batch
    int depth, stride;
    PieceRange range;
    int blocks;  // that the warp has
  };
  Part of_h, of_x;
  OperandPiece<T> ahead[2][kBlock][2];

  __device__ __forceinline__ SingleProducts(const SingleStepParams<T>& p, int first_row, int tile, int slice,
                                            int slices) {
    const int hidden = p.cell.hidden;
    const T* const h0 = p.h0 ? p.h0 + static_cast<Offset>(first_row) * hidden : nullptr;
    of_h = part_of(p.hh, hidden, h0, hidden, hidden, tile, slice, slices);
    if (!h0) of_h.blocks = 0;
    of_x = part_of(p.ih, hidden, p.x + first_row * p.x_stride, static_cast<int>(p.x_stride), p.input, tile,
                   slice, slices);
    read_weights(0, ahead[0]);
    read_weights(1, ahead[1]);
  }
  // Rows 16 tile to 16 tile + 15 of weights are the gates of a unit and then those of the next one.
  __device__ __forceinline__ static Part part_of(const T* from, int hidden, const T* rows, int stride,
                                                 int depth, int tile, int slice, int slices) {
    const int lane = static_cast<int>(threadIdx.x) % cuda::kWarpSize;
    const int pieces = depth / Piece<T>::kSize, fours = (pieces + 3) / 4;
    const int begin = fours * slice / slices, end = fours * (slice + 1) / slices;
    const int row = tile * 16 + lane / 4;
    return {from + (static_cast<Offset>(row % 4) * hidden + row / 4) * depth,
            rows,
            depth,
            stride,
            {begin * 4 + lane % 4, min(end * 4, pieces)},
            (end - begin + kBlock - 1) / kBlock};
  }
  // By value, so that both stay in registers.
  [[nodiscard]] __device__ __forceinline__ Part part_at(bool is_h) const {
    return {is_h ? of_h.weights : of_x.weights,
            is_h ? of_h.rows : of_x.rows,
            is_h ? of_h.depth : of_x.depth,
            is_h ? of_h.stride : of_x.stride,
            {is_h ? of_h.range.begin : of_x.range.begin, is_h ? of_h.range.end : of_x.range.end},
            is_h ? of_h.blocks : of_x.blocks};
  }
  [[nodiscard]] __device__ __forceinline__ int blocks() const { return of_h.blocks + of_x.blocks; }
  // Of block `block` of both parts.
  __device__ __forceinline__ void read_weights(int block, OperandPiece<T> (&to)[kBlock][2]) const {
    const bool is_h = block < of_h.blocks;
    const Part part = part_at(is_h);
    const int piece = part.range.begin + 4 * kBlock * (is_h ? block : block - of_h.blocks);
#pragma unroll
    for (int k = 0; k < kBlock; ++k) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        to[k][half] = part.range.template read<T>(part.weights + half * 2 * part.depth, piece + 4 * k);
      }
    }
  }
  // Multiplies a block's weights, and reads those of the second block behind it into their place. count: rows
  // of the batch; more sums are those of the last row.
  __device__ __forceinline__ void add(int block, OperandPiece<T> (&weights)[kBlock][2], int count,
                                      float (&sums)[kTiles][4]) const {
    const int lane = static_cast<int>(threadIdx.x) % cuda::kWarpSize;
    const bool is_h = block < of_h.blocks;
    const Part part = part_at(is_h);
    const int piece = part.range.begin + 4 * kBlock * (is_h ? block : block - of_h.blocks);
    if (block == of_h.blocks) cuda::wait_for_launch_before();
    int rows[kTiles];  // where they begin
#pragma unroll
    for (int n = 0; n < kTiles; ++n) rows[n] = min(n * 8 + lane / 4, count - 1) * part.stride;
#pragma unroll
    for (int first = 0; first < kBlock; first += kChunk) {
      OperandPiece<T> entries[kChunk][kTiles];
#pragma unroll
      for (int k = 0; k < kChunk; ++k) {
#pragma unroll
        for (int n = 0; n < kTiles; ++n) {
          entries[k][n] = part.range.template read<T>(part.rows + rows[n], piece + 4 * (first + k));
        }
      }
#pragma unroll
      for (int k = 0; k < kChunk; ++k) {
#pragma unroll
        for (int n = 0; n < kTiles; ++n) {
          OperandPiece<T>::multiply(weights[first + k][0], weights[first + k][1], entries[k][n], sums[n]);
        }
      }
    }
    read_weights(block + 2, weights);
  }
};

// What does not depend on the layer below is done while that one still runs: R h0, and reading W and c0.
// kTiles: of 8 rows of the batch, of a block.
template <class T, int kTiles>
__global__ void __launch_bounds__(kTileThreads, 2)
    single_unit_step_kernel(SingleStepParams<T> p, UnitShare share) {
  constexpr int kUnitRows = 8 * kTiles, kItemsOfTile = 16 / kGroupRows;
  constexpr int kEach =  // items of a thread
      (kMostSingleTiles * kItemsOfTile * kUnitRows + kTileThreads - 1) / kTileThreads;
  __shared__ TileSums parts[kTileWarps][kUnitRows];
  // Biases and c0 of each thread's items, which would take the registers of what is read ahead.
  __shared__ float biases[kEach][4][kTileThreads], befores[kEach][kTileThreads];
  const CudaCell<T>& cell = p.cell;
  cuda::let_next_launch_begin();
  const int block = static_cast<int>(blockIdx.x), thread = static_cast<int>(threadIdx.x);
  const int tiles = share.tiles, splits = kTileWarps / tiles;
  const int first_tile = block % share.stacks * tiles, first_row = block / share.stacks * kUnitRows;
  const int warp = thread / cuda::kWarpSize, lane = thread % cuda::kWarpSize;
  const int tile = min(first_tile + warp % tiles, (4 * cell.hidden - 1) / 16);
  const int count = cell.at.batch - first_row;
  SingleProducts<T, kTiles> products(p, first_row, tile, warp / tiles, splits);
  const int row_items = tiles * kItemsOfTile;
#pragma unroll
  for (int each = 0; each < kEach; ++each) {
    const int own = thread + each * kTileThreads;
    const int unit = first_tile * kItemsOfTile + own % row_items, b = own / row_items;
    if (unit >= cell.hidden || b >= min(count, kUnitRows)) continue;
#pragma unroll
    for (int gate = 0; gate < 4; ++gate) {
      biases[each][gate][thread] = bias_of(cell, gate * cell.hidden + unit);
    }
    befores[each][thread] =
        p.c0 ? cell.read_cell(p.c0, static_cast<Offset>(first_row + b) * cell.hidden + unit) : 0.0f;
  }
  float sums[kTiles][4] = {};
#pragma unroll 1
  for (int n = 0; n < products.blocks(); n += 2) {
    products.add(n, products.ahead[0], count, sums);
    if (n + 1 < products.blocks()) products.add(n + 1, products.ahead[1], count, sums);
  }
  cuda::wait_for_launch_before();  // also where a warp has no part of W x
#pragma unroll
  for (int n = 0; n < kTiles; ++n) {
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      parts[warp][n * 8 + lane % 4 * 2 + k % 2].of[lane / 4 + k / 2 * 8] = sums[n][k];
    }
  }
  __syncthreads();
#pragma unroll
  for (int each = 0; each < kEach; ++each) {
    const int own = thread + each * kTileThreads;
    const int item = own % row_items, unit = first_tile * kItemsOfTile + item, b = own / row_items;
    if (unit >= cell.hidden || b >= min(count, kUnitRows)) continue;
    float z[4];
#pragma unroll
    for (int gate = 0; gate < 4; ++gate) z[gate] = biases[each][gate][thread];
    for (int split = 0; split < splits; ++split) {
      const TileSums& part = parts[split * tiles + item / kItemsOfTile][b];
#pragma unroll
      for (int gate = 0; gate < 4; ++gate) z[gate] += part.of[item % kItemsOfTile * 4 + gate];
    }
    finish_single_step(p, z, befores[each][thread], first_row + b, unit);
  }
}
template <class T, int kTiles>
inline const cuda::Kernel kSingleUnitStep{kKernels,
                                          kTiles == 1           ? "single step on units, 8 rows"
                                          : kTiles == kRowTiles ? "single step on units, 16 rows"
                                                                : "single step on units, 32 rows",
                                          cuda::type_name<T>(), single_unit_step_kernel<T, kTiles>};

template <class T>
void launch_single_units(Queue& queue, const LstmProblem& p, const SingleStepParams<T>& step,
                         cuda::LaunchConfig config) {
  const int multiprocessors = cuda::attribute(cudaDevAttrMultiProcessorCount, queue.execution().cuda_device);
  const int tiles = p.batch <= 8 ? 1 : p.batch <= 8 * kRowTiles ? kRowTiles : kWideRowTiles;
  // Nine tenths of all multiprocessors have a block, or two.
  const int blocks = sizeof(T) == 4 && tiles == kWideRowTiles ? 2 : 1;
  const int least_stacks = blocks * multiprocessors * 9 / 10;
  const auto share = UnitShare::of(4 * p.hidden, 0, kMostSingleTiles, multiprocessors, least_stacks, false);
  config.blocks = share.stacks * cuda::div_up(p.batch, 8 * tiles);
  queue.launch(tiles == 1           ? kSingleUnitStep<T, 1>
               : tiles == kRowTiles ? kSingleUnitStep<T, kRowTiles>
                                    : kSingleUnitStep<T, kWideRowTiles>,
               config, step, share);
}

// Enqueues a layer's step; false: it has to run in another way. follows: the launch in front is the layer
// below's step.
template <class T>
bool run_single_step(Queue& queue, const LstmProblem& p, const SingleStepParams<T>& step, bool with_tape,
                     bool follows) {
  constexpr int kFirstWithUnits = 8;
  const auto is_whole = [](const void* data, Offset stride) {
    return reinterpret_cast<std::uintptr_t>(data) % sizeof(Piece<T>) == 0 && stride % Piece<T>::kSize == 0;
  };
  if (p.steps != 1 || p.batch > (p.hidden < kWideSingleLayer ? kMostSingleUnitRows : kMostSingleRows) ||
      with_tape || p.bidirectional || p.projection > 0 || p.layer_norm || !is_plain(p) || drops_weights(p) ||
      queue.execution().batch_invariant) {
    return false;
  }
  if (!is_whole(step.x, step.x_stride) || !is_whole(step.ih, step.input) || !is_whole(step.hh, p.hidden) ||
      !is_whole(step.h0, p.hidden)) {
    return false;
  }
  cuda::LaunchConfig config{.blocks = 0, .threads = kTileThreads};
  config.programmatic = follows && knows_programmatic_launches();
  if (p.batch == 1) return launch_single_lanes<1>(queue, p, step, config), true;
  if constexpr (kHasUnits<T>) {
    const int device = queue.execution().cuda_device;
    if (cuda::attribute(cudaDevAttrComputeCapabilityMajor, device) < kFirstWithUnits) return false;
    if (step.x_stride > std::numeric_limits<int>::max() / kMostSingleUnitRows) return false;
    launch_single_units(queue, p, step, config);
  } else {
    if (p.batch > kMostSingleRows) return false;
    launch_single_lanes<kTileRows>(queue, p, step, config);
  }
  return true;
}

}  // namespace warpalign::detail::recurrent
