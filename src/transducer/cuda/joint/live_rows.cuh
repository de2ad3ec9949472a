// The live nodes of a batch: those whose gradient is not 0.
#pragma once

#include "transducer/band.h"
#include "transducer/cuda/rows/node_posteriors.cuh"
#include "transducer/cuda/rows/row_gradient.cuh"

namespace warpalign::detail::transducer {

// The nodes of a batch that may be live: all of them, or with a band its nodes, which are numbered in the
// order of their rows.
template <class Real>
struct LiveRows {
  Batch batch;
  const Real* slots;
  const std::int32_t* outcome;
  Real label_factor;
  Band band;  // of a pruned joint

  [[nodiscard]] WARPALIGN_ANYWHERE std::int64_t count() const {
    const TransducerLattice& l = batch.lattice;
    return band ? std::int64_t{l.batch} * l.frames * band.width : batch.rows;
  }
  [[nodiscard]] __device__ __forceinline__ std::int64_t row(std::int64_t node) const {
    return band ? band.row(node) : node;
  }
  // Whether the gradient of a node's row may be other than 0.
  [[nodiscard]] __device__ __forceinline__ bool is_live(const RowCursor& at) const {
    const Utterance u = utterance_at(batch, at.b);
    if (at.t >= u.frames || at.u > u.labels) return false;
    const int utterance_outcome = outcome[at.b];
    if (utterance_outcome != kPaths) return utterance_outcome == kInvalid;
    const ArcTable& table = table_of(batch, u);
    const NodePosteriors<Real> arcs{batch, u, slots, label_factor, at.t, at.u};
    return !is_dead(arcs.of_blanks(table) + arcs.of_labels(table));
  }
};

constexpr int kLiveRows = 1024;  // nodes that a block counts

// The frames in which a state of a band has live nodes: from frame T - before to frame end - 1, and between
// them others, too. None if end is 0.
struct LiveFrames {
  std::int32_t before, end;
};

// For 32 neighbouring nodes: a mask of the live ones, and the number of live nodes before them.
struct LiveWord {
  std::uint32_t bits;
  std::int32_t before;
};

// The places of nodes in the list of live ones.
struct LivePlaces {
  LiveWord* words = nullptr;     // one for each 32 nodes
  LiveFrames* frames = nullptr;  // (B, U+1), with a band

  // -1 if the node is not live.
  [[nodiscard]] __device__ __forceinline__ int operator[](std::int64_t node) const {
    const LiveWord word = words[node / 32];
    const unsigned bit = 1u << node % 32;
    return word.bits & bit ? word.before + __popc(word.bits & (bit - 1)) : -1;
  }
};

}  // namespace warpalign::detail::transducer
