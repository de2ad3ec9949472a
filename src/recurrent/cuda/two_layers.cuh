// Two layers at a time, where sweeps have the whole grid: a launch sweeps a chunk of steps of one layer, and
// the chunk before it of the layer above, each on half of the blocks. Everything is on the call's own stream,
// one launch after the other, so that no two sweeps wait for places at once.
#pragma once

#include <cmath>

#include "recurrent/cuda/block_call.h"
#include "recurrent/cuda/chunks.cuh"
#include "recurrent/cuda/resident_call.cuh"

namespace warpalign::detail::recurrent {

// The steps of a chunk, an even number; 0: layers sweep in turn.
template <class T>
int steps_of_two_layers(Queue& queue, const LstmProblem& p, bool backward) {
  const bool is_left_out = p.layers < 2 || p.bidirectional || p.row_starts || p.resets || p.recompute ||
                           p.batch == 0 || p.steps < kStepsOfTwoLayers || queue.execution().batch_invariant;
  if (is_left_out || sweeps_in_blocks<T>(p) || plan_clusters<T>(p, backward).kernel) return 0;
  int groups = 0, groups_in_turn = 0;
  const ResidentWay<T> way = resident_way<T>(queue, p, backward, {2, 2}, &groups);
  if (!way.kernel || !resident_way<T>(queue, p, backward, {1, 1}, &groups_in_turn).kernel) return 0;
  const int all_tiles = cuda::div_up(p.batch, 8), tiles = cuda::div_up(all_tiles, groups);
  // Two layers' tiles are at most those that layers have in turn, one behind the other.
  if (tiles > std::min(kTilesOfTwoLayers, 2 * cuda::div_up(all_tiles, groups_in_turn))) return 0;
  // The start of a chunk takes as long as about so many steps. The first chunk of all and the last one have
  // half of the blocks idle: the shorter they are, the shorter this is.
  constexpr double kStart = 14;
  const double best = std::sqrt(kStart * p.steps * (p.layers / 2));
  const int chunks = std::max(static_cast<int>(p.steps / best + .5), 2);
  return cuda::div_up(p.steps, 2 * chunks) * 2;
}

// Sweeps chunks of so many layers side by side. Where they find no place, sweep_alone(step) sweeps each one.
template <class T, class Sweep>
void sweep_beside(Queue& queue, const LstmProblem& p, const StepParams<T>& chunks, int count, bool backward,
                  const Sweep& sweep_alone) {
  if (run_resident(queue, p, chunks, backward, {count, 2})) return;
  for (int n = 0; n < count; ++n) {
    StepParams<T> alone{};
    alone.cell[0] = chunks.cell[n];
    sweep_alone(alone);
  }
}

// A chunk of the n-th layer to begin.
struct LayerChunk {
  int n, chunk;
};
// act(list, count) for each launch's chunks, of which there are one or two. Layers take turns on the halves
// of the blocks: the second half is a chunk behind the first one.
template <class Act>
void for_two_layers(int layers, int chunks, const Act& act) {
  const int ends[2] = {(layers + 1) / 2 * chunks, layers / 2 * chunks + 1};  // of the halves
  for (int turn = 0; turn < std::max(ends[0], ends[1]); ++turn) {
    LayerChunk list[2];
    int count = 0;
    for (int half = 0; half < 2; ++half) {
      if (turn < half || turn >= ends[half]) continue;
      list[count++] = {(turn - half) / chunks * 2 + half, (turn - half) % chunks};
    }
    act(list, count);
  }
}

}  // namespace warpalign::detail::recurrent
