// Memory for zoneout's bits, and their draw.
#pragma once

#include "recurrent/cuda/blocks/block_call.h"
#include "recurrent/cuda/cell/kept.cuh"
#include "recurrent/cuda/clusters/cluster_sweep.cuh"

namespace warpalign::detail::recurrent {

// Memory for the bits of so many rows, where sweeps in single blocks or on clusters may serve the layer. The
// same for every device, since memory is laid out by it.
template <class T>
const std::uint8_t* take_kept(const LstmProblem& p, Offset rows, Arena& arena) {
  const bool may_be_on_clusters =
      sizeof(T) == 2 && p.hidden % kWarpUnits == 0 && p.hidden <= kMostRanks * kBlockUnits;
  const bool reads =
      !p.layer_norm && p.projection == 0 && (p.hidden <= kMostBlockHiddenOfOptions<T> || may_be_on_clusters);
  return take_if<std::uint8_t>(reads && draws_zoneout(p), arena, rows * kept_words(p.hidden));
}

// Draws the bits of these steps.
template <class T>
void draw_kept(Queue& queue, const CudaCell<T>& cell, bool backward, Places places) {
  if (!cell.kept) return;
  const int steps = cell.at.steps, count = places.end - places.begin, words = kept_words(cell.hidden);
  const Offset first = cell.reverse == backward ? places.begin : steps - places.end;
  // Packed rows are swept as a whole.
  const Offset rows = count == steps ? cell.at.rows : static_cast<Offset>(count) * cell.at.batch;
  const KeptParams params{cell.at,
                          cell.masks,
                          cell.zoneout_hidden.threshold,
                          cell.zoneout_cell.threshold,
                          words,
                          first * cell.at.batch,
                          rows,
                          const_cast<std::uint8_t*>(cell.kept)};
  queue.for_each(static_cast<std::size_t>(rows) * words, kKept, params);
}

}  // namespace warpalign::detail::recurrent
