// Forward steps of float32 for large batches: R h by tiles with both factors in shared memory, and the cell,
// in one launch. Each product is three products of TF32, or one of rounded factors (kProducts).
//
// A block has 64 rows of weights, which are the four gates of 16 units, by 64 or 32 rows of the batch. With
// one product it may have 32 by 32. A warp has 32 by 32 results. As there are fewer such parts than warps,
// warps share the depth. With three products sums of 8 are made by the matrix units, which round down, and
// are added in float32. With one the units sum all: what they round is far below the factors' rounding.
//
// Stages of the depth are copied ahead. A stage has all rows one after the other. A row has slabs of 16
// columns, and odd rows have neighbouring slabs in turned order: so 8 lanes that read pieces of 16 bytes of a
// slab of two rows meet no bank twice, and neither do 8 that write a row.
#pragma once

#include "cuda/launch/shared.cuh"
#include "cuda/memory/copy_async.cuh"
#include "recurrent/cuda/cell/operands.cuh"
#include "recurrent/cuda/schedule/queue.cuh"
#include "recurrent/cuda/steps/choice.cuh"
#include "recurrent/cuda/steps/forward.cuh"
#include "recurrent/cuda/steps/unit_step.cuh"

namespace warpalign::detail::recurrent {

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
    unroll<kWeightCopies>([&](int n) {
      weights_[n] = CellTask<float>::weight(cell, min(4 * first_unit + row_ + n * kStep, last));
    });
  }
  // h: of all rows of the batch. Rows that are not there give sums that nobody takes.
  __device__ __forceinline__ void set_factors(const float* h, int first_row, int batch) {
    unroll<kBatchCopies>([&](int n) {
      const int b = min(first_row + row_ + n * kStep, batch - 1);
      factors_[n] = h + static_cast<Offset>(b) * depth_;
    });
  }
  __device__ __forceinline__ void copy_weights(int stage, int slot) const {
    unroll<kWeightCopies>([&](int n) { copy(weights_[n], stage, slot, n * kStep); });
  }
  __device__ __forceinline__ void copy_factors(int stage, int slot) const {
    unroll<kBatchCopies>([&](int n) { copy(factors_[n], stage, slot, Tile::kWeights + n * kStep); });
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

// Sums of 32 rows of weights by 32 rows of the batch: of[n][m] is the product of 8 rows of the batch and 16
// of weights.
template <int kProducts>
struct PartSums {
  float of[4][2][4] = {};

  // Adds the products of a slab. weights, factors: this lane's piece of its first rows.
  template <int kColumns>
  __device__ __forceinline__ void add(const float* weights, const float* factors) {
    constexpr int kEightRows = 8 * kColumns;
    OperandPiece a[4], b[4];
    unroll<4>([&](int n) {
      a[n] = *reinterpret_cast<const OperandPiece*>(weights + n * kEightRows);
      b[n] = *reinterpret_cast<const OperandPiece*>(factors + n * kEightRows);
    });
#pragma unroll
    for (int k = 0; k < 4; k += 2) {
      UnitOperand<float, kProducts, 4> of_weights[2];
      unroll<2>(
          [&](int m) { unroll<4>([&](int n) { of_weights[m].set(n, a[2 * m + n % 2].words[k + n / 2]); }); });
      unroll<4>([&](int n) {
        UnitOperand<float, kProducts, 2> factor;
        factor.set(0, b[n].words[k]), factor.set(1, b[n].words[k + 1]);
        multiply<float, kProducts>(of_weights, factor, of[n]);
      });
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
    unroll<kEach>([&](int n) {
      if (exists(n)) Task::ask(cell, p.place, first_row + row_of(n), unit, ahead[n]);
    });
  };
  const auto ask_state = [&] {
    unroll<kEach>([&](int n) {
      if (exists(n)) Task::ask_state(cell, p.place, first_row + row_of(n), unit, ahead[n]);
    });
  };

  StageCopies<Tile> copies(cell, first_unit, shared);
  unroll<kStages - 1>([&](int n) {
    if (n < count) copies.copy_weights(n, n);
  });
  if constexpr (kProducts == 1) ask();  // else registers are few
  cuda::let_next_launch_begin();
  cuda::wait_for_launch_before();
  copies.set_factors(h_before(cell, p.place), first_row, cell.at.batch);
  unroll<kStages - 1>([&](int n) {
    if (n < count) copies.copy_factors(n, n);
    cuda::end_copy_group();
  });
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
  unroll<2>([&](int m) {
    unroll<4>([&](int n) {
      unroll<4>([&](int k) {
        const int b = row + n * 8 + t * 2 + k % 2;
        shared[(slab * Tile::kBatch + b) * Tile::kPitch + weight + m * 16 + g + k / 2 * 8] = sums.of[n][m][k];
      });
    });
  });
  if constexpr (kProducts != 1) ask(), ask_state();
  __syncthreads();
  const CudaCell<float> own = kProducts == 1 ? cell_again(p.cell, block / p.blocks_of_direction) : cell;
#pragma unroll
  for (int n = 0; n < kEach; ++n) {
    if (!exists(n)) continue;
    float z[4] = {};
    unroll<Tile::kSlabs>([&](int k) {
      const auto& more = *reinterpret_cast<const ItemSums<4>*>(
          shared + (k * Tile::kBatch + row_of(n)) * Tile::kPitch + 4 * own_unit);
      unroll<4>([&](int gate) { z[gate] += more.of[gate]; });
    });
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

// These steps of a layer's forward sweep.
template <int kProducts>
void sweep_by_tiles(Queue& queue, const LstmProblem& p, StepParams<float>& params, Places places,
                    StepTiles tiles) {
  const auto sweep = [&](auto tile) {
    using Tile = decltype(tile);
    cuda::LaunchConfig config{.blocks = static_cast<int>(blocks_of_tiles<Tile>(p)), .threads = kTileThreads};
    config.shared_bytes = Tile::kBytes;
    params.blocks_of_direction = config.blocks / directions_of(p);
    for (params.place = places.begin; params.place < places.end; ++params.place) {
      config.programmatic = params.place > places.begin;
      queue.launch(kTiledCell<Tile, kProducts>, config, params, cuda::div_up(p.hidden, Tile::kUnits));
    }
  };
  if constexpr (kProducts == 1) {
    if (tiles == StepTiles::kSmall) return sweep(SmallTile{});
  } else if (tiles == StepTiles::kSquare) {
    return sweep(SquareTile{});
  }
  sweep(FlatTile{});
}
// kernels_tf32.cu compiles it.
extern template void sweep_by_tiles<1>(Queue&, const LstmProblem&, StepParams<float>&, Places, StepTiles);

}  // namespace warpalign::detail::recurrent
