// The live nodes of a batch: those whose gradient is not 0.
#pragma once

#include "transducer/band.h"
#include "transducer/cuda/rows/node_posteriors.cuh"
#include "transducer/cuda/rows/row_gradient.cuh"

namespace warpalign::detail::transducer {

// Whether a row's gradient may be other than 0.
template <class Real>
struct LiveRows {
  Batch batch;
  const Real* slots;
  const std::int32_t* outcome;
  Real label_factor;
  Band band;  // of a pruned joint: no other node is live

  [[nodiscard]] __device__ __forceinline__ bool is_live(std::int64_t row) const {
    if (row >= batch.rows) return false;
    const RowCursor at(batch, row);
    const Utterance u = utterance_at(batch, at.b);
    if (at.t >= u.frames || at.u > u.labels || !band.has(at.b, at.t, at.u)) return false;
    const int utterance_outcome = outcome[at.b];
    if (utterance_outcome != kPaths) return utterance_outcome == kInvalid;
    const ArcTable& table = table_of(batch, u);
    const NodePosteriors<Real> arcs{batch, u, slots, label_factor, at.t, at.u};
    return !is_dead(arcs.of_blanks(table) + arcs.of_labels(table));
  }
};

constexpr int kLiveRows = 1024;  // rows that a block counts

// For 32 neighbouring rows: a mask of the live ones, and the number of live rows before them.
struct LiveWord {
  std::uint32_t bits;
  std::int32_t before;
};

// The places of rows in the list of live ones.
struct LivePlaces {
  const LiveWord* words;

  // -1 if the row is not live.
  [[nodiscard]] __device__ __forceinline__ int operator[](std::int64_t row) const {
    const LiveWord word = words[row / 32];
    const unsigned bit = 1u << row % 32;
    return word.bits & bit ? word.before + __popc(word.bits & (bit - 1)) : -1;
  }
};

}  // namespace warpalign::detail::transducer
