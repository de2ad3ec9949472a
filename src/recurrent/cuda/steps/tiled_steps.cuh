// Forward steps of float32 for large batches: R h by tiles with both factors in shared memory, and the cell,
// in one launch. Each product is three products of TF32, or one of rounded factors (kProducts).
//
// A block has 64 rows of weights, which are the four gates of 16 units, by 64 or 32 rows of the batch. With
// one product it may have 32 by 32. A warp has 32 by 32 results. As there are fewer such parts than warps,
// warps share the depth. With three products sums of 8 are made by the matrix units, which round down, and
// are added in float32. With one the units sum all: what they round is far below the factors' rounding.
//
// Stages of the depth are copied ahead. A stage has all rows one behind the other. A row has slabs of 16
// columns, and odd rows have neighbouring slabs in turned order: so 8 lanes that read pieces of 16 bytes of a
// slab of two rows meet no bank twice, and neither do 8 that write a row.
#pragma once

#include <algorithm>

#include "cuda/launch/shared.cuh"
#include "cuda/memory/copy_async.cuh"
#include "recurrent/cuda/steps/product_steps.cuh"

namespace warpalign::detail::recurrent {

template <int kWeightRows, int kBatchRows>
struct StepTile {
  static constexpr int kWeights = kWeightRows, kBatch = kBatchRows, kRows = kWeights + kBatch;
  static constexpr int kUnits = kWeights / 4;
  static constexpr int kParts = kWeights / 32 * (kBatch / 32);  // of 32 by 32
  static constexpr int kSlabs = kTileWarps / kParts;            // of a stage: a warp has one of them
  static constexpr int kSlabColumns = 16, kColumns = kSlabs * kSlabColumns;
  static constexpr int kStages = 4;
  static constexpr int kStageEntries = kRows * kColumns;
  static constexpr int kPitch = kWeights + 4;  // of the sums of a row of the batch: keeps banks apart
  static constexpr std::size_t kBytes =
      std::max(kStages * kStageEntries, kSlabs* kBatch* kPitch) * sizeof(float);

  // Where a row has a slab.
  __device__ __forceinline__ static int slab_place(int row, int slab) {
    return (slab ^ row % 2) * kSlabColumns;
  }
};
using SquareTile = StepTile<64, 64>;
using FlatTile = StepTile<64, 32>;
using SmallTile = StepTile<32, 32>;  // by one product

// A thread's copies of a stage: pieces of one column of some rows.
template <class Tile>
class StageCopies {
 public:
  static constexpr int kPieces = Tile::kColumns / 4, kStep = kTileThreads / kPieces;

  __device__ __forceinline__ StageCopies(const CudaCell<float>& cell, int first_unit, float* stages)
      : row_(static_cast<int>(threadIdx.x) / kPieces), depth_(cell.output_stride) {
    const int piece = static_cast<int>(threadIdx.x) % kPieces, last = 4 * cell.hidden - 1;
    column_ = piece * 4;
    to_ = stages + row_ * Tile::kColumns + Tile::slab_place(row_, piece / 4) + piece % 4 * 4;
#pragma unroll
    for (int n = 0; n < kWeightCopies; ++n) {
      weights_[n] = CellTask<float>::weight(cell, min(4 * first_unit + row_ + n * kStep, last));
    }
  }
  // h: of all rows of the batch. Rows that are not there give sums that nobody takes.
  __device__ __forceinline__ void set_factors(const float* h, int first_row, int batch) {
#pragma unroll
    for (int n = 0; n < kBatchCopies; ++n) {
      const int b = min(first_row + row_ + n * kStep, batch - 1);
      factors_[n] = h + static_cast<Offset>(b) * depth_;
    }
  }
  __device__ __forceinline__ void copy_weights(int stage, int slot) const {
#pragma unroll
    for (int n = 0; n < kWeightCopies; ++n) copy(weights_[n], stage, slot, n * kStep);
  }
  __device__ __forceinline__ void copy_factors(int stage, int slot) const {
#pragma unroll
    for (int n = 0; n < kBatchCopies; ++n) copy(factors_[n], stage, slot, Tile::kWeights + n * kStep);
  }

 private:
  static constexpr int kWeightCopies = Tile::kWeights / kStep, kBatchCopies = Tile::kBatch / kStep;

  __device__ __forceinline__ void copy(const float* row, int stage, int slot, int below) const {
    const int column = stage * Tile::kColumns + column_;
    const bool exists = column < depth_;
    float* const to = to_ + slot * Tile::kStageEntries + below * Tile::kColumns;
    cuda::copy_async_l2_or_zero(reinterpret_cast<Piece<float>*>(to),
                                reinterpret_cast<const Piece<float>*>(row + (exists ? column : 0)), exists);
  }

  int row_, depth_, column_;
  float* to_;
  const float *weights_[kWeightCopies], *factors_[kBatchCopies] = {};
};

// Sums of 32 rows of weights by 32 rows of the batch, in the places of mma_tf32().
template <int kProducts>
struct PartSums {
  float of[2][4][4] = {};

  // Adds the products of a slab. weights, factors: this lane's piece of its first rows.
  template <int kColumns>
  __device__ __forceinline__ void add(const float* weights, const float* factors) {
    constexpr int kEightRows = 8 * kColumns;
    OperandPiece<float> a[4], b[4];
#pragma unroll
    for (int n = 0; n < 4; ++n) {
      a[n] = *reinterpret_cast<const OperandPiece<float>*>(weights + n * kEightRows);
      b[n] = *reinterpret_cast<const OperandPiece<float>*>(factors + n * kEightRows);
    }
    if constexpr (kProducts == 1) {
      add_rounded(a, b);
    } else {
      add_split(a, b);
    }
  }

 private:
  using Pieces = OperandPiece<float>[4];

  __device__ __forceinline__ void add_split(const Pieces& a, const Pieces& b) {
#pragma unroll
    for (int k = 0; k < 4; k += 2) {
      float a_hi[2][4], a_lo[2][4];
#pragma unroll
      for (int m = 0; m < 2; ++m) {
#pragma unroll
        for (int n = 0; n < 4; ++n) {
          const auto parts = cuda::split_tf32(a[2 * m + n % 2].of[k + n / 2]);
          a_hi[m][n] = parts.hi, a_lo[m][n] = parts.lo;
        }
      }
#pragma unroll
      for (int n = 0; n < 4; ++n) {
        const auto first = cuda::split_tf32(b[n].of[k]), second = cuda::split_tf32(b[n].of[k + 1]);
        const float b_hi[2] = {first.hi, second.hi}, b_lo[2] = {first.lo, second.lo};
        float products[2][4] = {};
#pragma unroll
        for (int m = 0; m < 2; ++m) cuda::mma_tf32(products[m], a_lo[m], b_hi);
#pragma unroll
        for (int m = 0; m < 2; ++m) cuda::mma_tf32(products[m], a_hi[m], b_lo);
#pragma unroll
        for (int m = 0; m < 2; ++m) cuda::mma_tf32(products[m], a_hi[m], b_hi);
#pragma unroll
        for (int m = 0; m < 2; ++m) {
#pragma unroll
          for (int w = 0; w < 4; ++w) of[m][n][w] += products[m][w];
        }
      }
    }
  }
  __device__ __forceinline__ void add_rounded(const Pieces& a, const Pieces& b) {
#pragma unroll
    for (int k = 0; k < 4; k += 2) {
      float rounded[2][4];
#pragma unroll
      for (int m = 0; m < 2; ++m) {
#pragma unroll
        for (int n = 0; n < 4; ++n) rounded[m][n] = cuda::near_tf32_factor(a[2 * m + n % 2].of[k + n / 2]);
      }
#pragma unroll
      for (int n = 0; n < 4; ++n) {
        const float factors[2] = {cuda::near_tf32_factor(b[n].of[k]), cuda::near_tf32_factor(b[n].of[k + 1])};
#pragma unroll
        for (int m = 0; m < 2; ++m) cuda::mma_tf32(of[m][n], rounded[m], factors);
      }
    }
  }
};

template <class Tile, int kProducts>
__global__ void __launch_bounds__(kTileThreads, 2) tiled_cell_kernel(StepParams<float> p, int stacks) {
  using Task = CellTask<float>;
  constexpr int kStages = Tile::kStages, kUnits = Tile::kUnits;
  float* const shared = reinterpret_cast<float*>(cuda::dynamic_shared());
  const int block = static_cast<int>(blockIdx.x), index = block % p.blocks_of_direction;
  const CudaCell<float> cell = cell_of(p.cell, block / p.blocks_of_direction);
  const int first_unit = index % stacks * kUnits, first_row = index / stacks * Tile::kBatch;
  const int thread = static_cast<int>(threadIdx.x), warp = thread / 32, lane = thread % 32;
  const int count = (cell.output_stride + Tile::kColumns - 1) / Tile::kColumns;  // stages
  constexpr int kEach = kUnits * Tile::kBatch / kTileThreads;
  const int own_unit = thread % kUnits, unit = first_unit + own_unit;
  const auto row_of = [&](int n) { return n * (kTileThreads / kUnits) + thread / kUnits; };
  const auto exists = [&](int n) { return unit < cell.hidden && first_row + row_of(n) < cell.at.batch; };
  Task::Ahead ahead[kEach]{};
  const auto ask = [&] {
#pragma unroll
    for (int n = 0; n < kEach; ++n) {
      if (exists(n)) Task::ask(cell, p.place, first_row + row_of(n), unit, ahead[n]);
    }
  };
  const auto ask_state = [&] {
#pragma unroll
    for (int n = 0; n < kEach; ++n) {
      if (exists(n)) Task::ask_state(cell, p.place, first_row + row_of(n), unit, ahead[n]);
    }
  };

  StageCopies<Tile> copies(cell, first_unit, shared);
#pragma unroll
  for (int n = 0; n < kStages - 1; ++n) {
    if (n < count) copies.copy_weights(n, n);
  }
  if constexpr (kProducts == 1) ask();  // else registers are few
  cuda::let_next_launch_begin();
  cuda::wait_for_launch_before();
  copies.set_factors(h_before(cell, p.place), first_row, cell.at.batch);
#pragma unroll
  for (int n = 0; n < kStages - 1; ++n) {
    if (n < count) copies.copy_factors(n, n);
    cuda::end_copy_group();
  }
  if constexpr (kProducts == 1) ask_state();

  constexpr int kAcross = Tile::kWeights / 32;  // parts
  const int part = warp % Tile::kParts, slab = warp / Tile::kParts, g = lane / 4, t = lane % 4;
  const int weight = part % kAcross * 32, row = part / kAcross * 32;
  const float* const entries = shared + (weight + g) * Tile::kColumns + Tile::slab_place(g, slab) + t * 4;
  PartSums<kProducts> sums;
  for (int stage = 0, slot = 0; stage < count; ++stage, slot = (slot + 1) % kStages) {
    cuda::await_copy_groups<kStages - 2>();
    __syncthreads();  // the stage is there, and nobody reads the one before
    if (stage + kStages - 1 < count) {
      const int free = (slot + kStages - 1) % kStages;
      copies.copy_weights(stage + kStages - 1, free);
      copies.copy_factors(stage + kStages - 1, free);
    }
    cuda::end_copy_group();
    const float* const of_stage = entries + slot * Tile::kStageEntries;
    sums.template add<Tile::kColumns>(of_stage, of_stage + (Tile::kWeights - weight + row) * Tile::kColumns);
  }
  cuda::await_copies();
  __syncthreads();  // the sums take the stages' place
#pragma unroll
  for (int m = 0; m < 2; ++m) {
#pragma unroll
    for (int n = 0; n < 4; ++n) {
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        const int b = row + n * 8 + t * 2 + k % 2;
        shared[(slab * Tile::kBatch + b) * Tile::kPitch + weight + m * 16 + g + k / 2 * 8] = sums.of[m][n][k];
      }
    }
  }
  if constexpr (kProducts != 1) ask(), ask_state();
  __syncthreads();
  const CudaCell<float> own = kProducts == 1 ? cell_again(p.cell, block / p.blocks_of_direction) : cell;
#pragma unroll
  for (int n = 0; n < kEach; ++n) {
    if (!exists(n)) continue;
    float z[4] = {};
#pragma unroll
    for (int k = 0; k < Tile::kSlabs; ++k) {
      const auto& more = *reinterpret_cast<const ItemSums<4>*>(
          shared + (k * Tile::kBatch + row_of(n)) * Tile::kPitch + 4 * own_unit);
#pragma unroll
      for (int gate = 0; gate < 4; ++gate) z[gate] += more.of[gate];
    }
    Task::finish(own, p.place, first_row + row_of(n), unit, z, ahead[n]);
  }
}
template <class Tile, int kProducts>
constexpr const char* kTiledName = Tile::kBatch == 64     ? "tiles of 64 rows, cell"
                                   : kProducts == 3       ? "tiles of 32 rows, cell"
                                   : Tile::kWeights == 64 ? "tiles of 32 rows, cell, TF32"
                                                          : "small tiles, cell, TF32";
template <class Tile, int kProducts>
inline const cuda::Kernel kTiledCell{kKernels, kTiledName<Tile, kProducts>, cuda::type_name<float>(),
                                     tiled_cell_kernel<Tile, kProducts>};

// How many blocks a step has in tiles.
template <class Tile>
int blocks_of_tiles(const LstmProblem& p) {
  return directions_of(p) * cuda::div_up(p.hidden, Tile::kUnits) * cuda::div_up(p.batch, Tile::kBatch);
}

// Whether so many blocks of a step by one product are too few for the larger tiles. Layers at once share the
// GPU.
inline bool takes_small_tiles(const LstmProblem& p, int multiprocessors) {
  const int blocks = blocks_of_tiles<FlatTile>(p);
  const int layers = p.side_streams.count > 0 ? p.layers : 1;
  return 10 * blocks < 7 * multiprocessors && 2 * blocks * layers < 3 * multiprocessors;
}
// Whether the front end's products of TF32 are faster than tiles by one product.
template <class T>
bool loses_to_products(const Queue& queue, const LstmProblem& p, int multiprocessors) {
  if (!takes_products<T>(queue, p) || !gains_by_products<T>(queue, p)) return false;
  return blocks_of_tiles<FlatTile>(p) > 2 * multiprocessors ||
         (p.hidden > kMostUnitsOfTiles && !takes_small_tiles(p, multiprocessors));
}

// Whether steps of float32 go by tiles, where no sweep in one launch serves the call: on GPUs whose matrix
// units are many times as fast as others. A row's bits depend on the batch then.
template <class T>
bool takes_tiles(const Queue& queue, const LstmProblem& p) {
  const Execution& execution = queue.execution();
  const int rows = queue.by_tf32() ? kRowsOfTf32Tiles : kRowsOfTiles;
  if (sizeof(T) != 4 || p.layer_norm || p.projection > 0 || p.batch < rows) return false;
  const cuda::DeviceTraits& device = queue.device();
  if (execution.batch_invariant || !device.has_clusters) return false;
  const int multiprocessors = device.multiprocessors, bytes = device.shared_bytes_per_block;
  if (bytes < static_cast<int>(std::max(FlatTile::kBytes, SmallTile::kBytes))) return false;
  if (queue.by_tf32()) return !loses_to_products<T>(queue, p, multiprocessors);
  return 4 * blocks_of_tiles<FlatTile>(p) >= 3 * multiprocessors;
}

// These steps of a layer's forward sweep.
template <int kProducts>
void sweep_by_tiles(Queue& queue, const LstmProblem& p, StepParams<float>& params, Places places) {
  const int multiprocessors = queue.device().multiprocessors;
  const auto sweep = [&](auto tile) {
    using Tile = decltype(tile);
    cuda::LaunchConfig config{.blocks = blocks_of_tiles<Tile>(p), .threads = kTileThreads};
    config.shared_bytes = Tile::kBytes;
    params.blocks_of_direction = config.blocks / directions_of(p);
    for (params.place = places.begin; params.place < places.end; ++params.place) {
      config.programmatic = params.place > places.begin;
      queue.launch(kTiledCell<Tile, kProducts>, config, params, cuda::div_up(p.hidden, Tile::kUnits));
    }
  };
  if constexpr (kProducts == 1) {
    if (takes_small_tiles(p, multiprocessors)) return sweep(SmallTile{});
  } else if (2 * blocks_of_tiles<SquareTile>(p) >= 3 * multiprocessors) {
    return sweep(SquareTile{});  // two blocks of a multiprocessor hide each other's waits
  }
  sweep(FlatTile{});
}
// kernels_tf32.cu compiles it.
extern template void sweep_by_tiles<1>(Queue& queue, const LstmProblem& p, StepParams<float>& params,
                                       Places places);

}  // namespace warpalign::detail::recurrent
