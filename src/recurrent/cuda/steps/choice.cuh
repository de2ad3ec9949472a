// Which launches of steps are the faster ones, as measured: products that the caller lends, tiles in shared
// memory, or neither.
#pragma once

#include "recurrent/cuda/schedule/way.cuh"
#include "recurrent/cuda/steps/step_tile.cuh"
#include "recurrent/cuda/steps/word_steps.cuh"

namespace warpalign::detail::recurrent {

// Whether the caller lends products that serve a problem's steps.
template <class T>
bool takes_products(const Question& question) {
  const LstmProblem& p = question.p;
  if (!question.lends_products() || p.layer_norm || p.row_starts) return false;
  if (p.batch < question.tuning.product_rows) return false;
  return p.projection == 0 || (sizeof(T) == 2 && is_plain(p) && p.hidden % kWordUnits == 0);
}
// Whether they are faster than launches of steps. 16-bit types without a projection have sweeps in one launch
// before, which had too many tiles then.
template <class T>
bool gains_by_products(const Question& question) {
  const LstmProblem& p = question.p;
  const CudaTuning& tuning = question.tuning;
  if (sizeof(T) == 2 && p.projection == 0) return true;
  const int units = sizeof(T) == 8             ? tuning.float64_product_units
                    : sizeof(T) == 2           ? tuning.projected_product_units
                    : question.queue.by_tf32() ? tuning.tf32_product_units
                                               : tuning.float32_product_units;
  return question.reaches(static_cast<Offset>(p.batch) * p.hidden, units);
}

// The tiles of a forward step of float32; kNone: it is not by tiles.
enum class StepTiles { kNone, kSmall, kFlat, kSquare };
// How many blocks such a step has.
template <class Tile>
Offset blocks_of_tiles(const LstmProblem& p) {
  return static_cast<Offset>(directions_of(p)) * cuda::div_up(p.hidden, Tile::kUnits) *
         cuda::div_up(p.batch, Tile::kBatch);
}
// Steps by one product of TF32. Lent products of TF32 may be faster than tiles, and layers at once share the
// GPU.
template <class T>
StepTiles choose_tf32_tiles(const Question& question) {
  const LstmProblem& p = question.p;
  const CudaTuning& tuning = question.tuning;
  if (p.batch < tuning.tf32_tile_rows) return StepTiles::kNone;
  const Offset blocks = blocks_of_tiles<FlatTile>(p), layers = p.side_streams.count > 0 ? p.layers : 1;
  const bool is_small = !question.reaches(100 * blocks, tuning.small_tile_blocks) &&
                        !question.reaches(100 * blocks * layers, tuning.small_tile_layer_blocks);
  if (takes_products<T>(question) && gains_by_products<T>(question)) {
    const bool is_large = question.reaches(blocks - 1, tuning.tf32_tile_blocks);
    if (is_large || (p.hidden > tuning.tf32_tile_units && !is_small)) return StepTiles::kNone;
  }
  return is_small ? StepTiles::kSmall : StepTiles::kFlat;
}
// On GPUs whose matrix units are many times as fast as others. A row's bits depend on the batch then.
template <class T>
StepTiles choose_tiles(const Question& question) {
  const LstmProblem& p = question.p;
  const cuda::DeviceTraits& device = question.device();
  if (sizeof(T) != 4 || question.backward || p.layer_norm || p.projection > 0) return StepTiles::kNone;
  if (question.batch_invariant() || !device.has_clusters) return StepTiles::kNone;
  if (device.shared_bytes_per_block < static_cast<int>(std::max(FlatTile::kBytes, SmallTile::kBytes))) {
    return StepTiles::kNone;
  }
  if (question.queue.by_tf32()) return choose_tf32_tiles<T>(question);
  const bool pays = p.batch >= question.tuning.tile_rows &&
                    question.reaches(100 * blocks_of_tiles<FlatTile>(p), question.tuning.tile_blocks);
  if (!pays) return StepTiles::kNone;
  // Two blocks of a multiprocessor hide each other's waits.
  return question.reaches(100 * blocks_of_tiles<SquareTile>(p), question.tuning.square_tile_blocks)
             ? StepTiles::kSquare
             : StepTiles::kFlat;
}

}  // namespace warpalign::detail::recurrent
