// Shapes of tiles of forward steps of float32 (tiled_steps.cuh).
#pragma once

#include <algorithm>

#include "recurrent/cuda/steps/tile.cuh"

namespace warpalign::detail::recurrent {

// A block has so many rows of weights, which are the four gates of a fourth as many units, and of the batch.
template <int kWeightRows, int kBatchRows>
struct StepTile {
  static constexpr int kWeights = kWeightRows, kBatch = kBatchRows, kRows = kWeights + kBatch;
  static constexpr int kUnits = kWeights / 4;
  static constexpr int kParts = kWeights / 32 * (kBatch / 32);  // of 32 by 32 results
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
using SmallTile = StepTile<32, 32>;  // by one product of TF32

}  // namespace warpalign::detail::recurrent
