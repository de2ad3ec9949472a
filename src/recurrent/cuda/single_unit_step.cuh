// One step without a tape on the matrix units, for 2 rows of the batch and more; and which way such a step
// takes (single_step.cuh has the other one).
#pragma once

#include "recurrent/cuda/single_step.cuh"
#include "recurrent/cuda/unit_step.cuh"

namespace warpalign::detail::recurrent {

constexpr int kMostSingleTiles = 4;  // of 16 rows of weights, of a block

// Rows of weights and of factors as the matrix units multiply them: a warp's part of a product's depth.
template <class T, int kTiles>
struct SingleProduct {
  static constexpr int kChunk = kTiles > 2 ? 2 : 4;  // fours of pieces that are read at once
  static constexpr int kAhead = kTiles > 2 ? 4 : 8;  // so many of weights are read ahead

  const T* weights[2];
  PieceRange range;
  OperandPiece<T> ahead[kAhead][2];

  // Rows 16 tile to 16 tile + 15, which are the gates of a unit and then those of the next one.
  __device__ __forceinline__ SingleProduct(const T* from, int tile, int hidden, int depth, int slice,
                                           int slices) {
    const int lane = static_cast<int>(threadIdx.x) % cuda::kWarpSize;
    const int pieces = depth / Piece<T>::kSize, fours = (pieces + 3) / 4;
    range = {fours * slice / slices * 4 + lane % 4, min(fours * (slice + 1) / slices * 4, pieces)};
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = min(tile * 16 + half * 8 + lane / 4, 4 * hidden - 1);
      weights[half] = from + (static_cast<Offset>(row % 4) * hidden + row / 4) * depth;
    }
  }
  __device__ __forceinline__ void read_ahead() {
#pragma unroll
    for (int k = 0; k < kAhead; ++k) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        ahead[k][half] = range.template read<T>(weights[half], range.begin + 4 * k);
      }
    }
  }
  // read_ahead() has been called. rows: of the batch, `count` of them.
  __device__ __forceinline__ void add(const T* rows, Offset stride, int count, float (&sums)[kTiles][4]) {
    const int lane = static_cast<int>(threadIdx.x) % cuda::kWarpSize;
    const auto read = [&](int n, int piece) -> OperandPiece<T> {
      const int row = n * 8 + lane / 4;
      return range.template read<T>(row < count ? rows + row * stride : nullptr, piece);
    };
    const auto multiply = [&](const OperandPiece<T>(&weight)[2], int piece) {
#pragma unroll
      for (int n = 0; n < kTiles; ++n) {
        OperandPiece<T>::multiply(weight[0], weight[1], read(n, piece), sums[n]);
      }
    };
#pragma unroll
    for (int k = 0; k < kAhead; ++k) multiply(ahead[k], range.begin + 4 * k);
#pragma unroll 1
    for (int begin = range.begin + 4 * kAhead; begin - lane % 4 < range.end; begin += 4 * kChunk) {
      OperandPiece<T> more[kChunk][2];
#pragma unroll
      for (int k = 0; k < kChunk; ++k) {
#pragma unroll
        for (int half = 0; half < 2; ++half)
          more[k][half] = range.template read<T>(weights[half], begin + 4 * k);
      }
#pragma unroll
      for (int k = 0; k < kChunk; ++k) multiply(more[k], begin + 4 * k);
    }
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
  const CudaCell<T>& cell = p.cell;
  cuda::let_next_launch_begin();
  const int block = static_cast<int>(blockIdx.x), thread = static_cast<int>(threadIdx.x);
  const int tiles = share.tiles, splits = kTileWarps / tiles;
  const int first_tile = block % share.stacks * tiles, first_row = block / share.stacks * kUnitRows;
  const int warp = thread / cuda::kWarpSize, lane = thread % cuda::kWarpSize;
  const int tile = first_tile + warp % tiles, count = cell.at.batch - first_row;
  float sums[kTiles][4] = {};
  if (p.h0) {
    SingleProduct<T, kTiles> of_h(p.hh, tile, cell.hidden, cell.hidden, warp / tiles, splits);
    of_h.read_ahead();
    of_h.add(p.h0 + static_cast<Offset>(first_row) * cell.hidden, cell.hidden, count, sums);
  }
  SingleProduct<T, kTiles> of_x(p.ih, tile, cell.hidden, p.input, warp / tiles, splits);
  of_x.read_ahead();
  const int row_items = tiles * kItemsOfTile;
  float z[kEach][4] = {}, before[kEach] = {};
#pragma unroll
  for (int each = 0; each < kEach; ++each) {
    const int own = thread + each * kTileThreads;
    const int unit = first_tile * kItemsOfTile + own % row_items, b = own / row_items;
    if (unit >= cell.hidden || b >= min(count, kUnitRows)) continue;
#pragma unroll
    for (int gate = 0; gate < 4; ++gate) z[each][gate] = bias_of(cell, gate * cell.hidden + unit);
    if (p.c0) before[each] = cell.read_cell(p.c0, static_cast<Offset>(first_row + b) * cell.hidden + unit);
  }
  cuda::wait_for_launch_before();
  of_x.add(p.x + first_row * p.x_stride, p.x_stride, count, sums);
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
    for (int split = 0; split < splits; ++split) {
      const TileSums& part = parts[split * tiles + item / kItemsOfTile][b];
#pragma unroll
      for (int gate = 0; gate < 4; ++gate) z[each][gate] += part.of[item % kItemsOfTile * 4 + gate];
    }
    finish_single_step(p, z[each], before[each], first_row + b, unit);
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
  const int least_stacks = multiprocessors * 9 / 10;
  const auto share = UnitShare::of(4 * p.hidden, 0, kMostSingleTiles, multiprocessors, least_stacks, false);
  const int tiles = p.batch <= 8 ? 1 : p.batch <= 8 * kRowTiles ? kRowTiles : kWideRowTiles;
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
    launch_single_units(queue, p, step, config);
  } else {
    if (p.batch > kMostSingleRows) return false;
    launch_single_lanes<kTileRows>(queue, p, step, config);
  }
  return true;
}

}  // namespace warpalign::detail::recurrent
