// Arguments of every kernel of the transducer: the batch, and the offsets of its utterances.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "cuda/rows/ragged.h"
#include "transducer/arcs.h"
#include "transducer/band.h"
#include "transducer/cuda/call/layout.h"

namespace warpalign::detail::transducer {

// The offsets of an utterance in packed rows and flat labels: sums over the earlier utterances. An additional
// Place follows that of the last utterance.
struct Place {
  std::int64_t row;     // of the logits
  std::int64_t slot;    // of `slots`; utterances whose rows exceed the caller's have no slots
  std::int64_t border;  // of the borders between panels, in frames; such utterances have none
  std::int64_t label;   // in `targets`
};

struct Batch {
  TransducerLattice lattice;
  ArcTable arcs;        // of the family
  ArcTable plain;       // of utterances without durations
  int slots;            // slots of a node, used or not
  int panels;           // the most panels of an utterance
  int panel_strips;     // strips of a panel
  std::int32_t labels;  // V
  bool packed;
  bool log_probs;
  std::int64_t rows;                // B T (U+1), or N
  const Place* places;              // (B + 1,); null: neither packed nor flat targets
  std::int64_t slots_of_utterance;  // padded
  Band band;                        // whose nodes alone have slots and sums; none: all nodes have

  [[nodiscard]] WARPALIGN_ANYWHERE int panels_of(int states) const {
    return (strips_of(states) + panel_strips - 1) / panel_strips;
  }
};

// One utterance: T_b, U_b, and the offsets of its rows, slots, borders and labels.
struct Utterance {
  int frames;
  int labels;
  bool fits;  // whether all of its rows and labels are in the caller's memory
  bool without_durations;
  std::int64_t row;
  std::int64_t slot;
  std::int64_t border;
  const std::int32_t* targets;
  SlotLayout layout;
  Band band;  // of this utterance, where its nodes alone have slots

  [[nodiscard]] __device__ __forceinline__ int states() const { return labels + 1; }
  // The column of a node's slots: with a band, the number of its state among the frame's.
  [[nodiscard]] __device__ __forceinline__ int column(int t, int u_of_node) const {
    return band ? u_of_node - band.begin(0, t) : u_of_node;
  }
};

__device__ __forceinline__ int frames_of(const TransducerLattice& p, int b) {
  return cuda::true_length(p.logit_lengths, b, p.frames, 0);
}
__device__ __forceinline__ int labels_of(const TransducerLattice& p, int b) {
  return cuda::true_length(p.target_lengths, b, p.states - 1, 0);
}

__device__ __forceinline__ Utterance utterance_at(const Batch& p, int b) {
  const TransducerLattice& l = p.lattice;
  Utterance u;
  u.frames = frames_of(l, b);
  u.labels = labels_of(l, b);
  u.fits = true;
  u.without_durations = l.without_durations && l.without_durations[b] != 0;
  u.layout = {l.frames, p.band ? p.band.width : l.states, p.slots};
  u.band = p.band;
  if (p.band) u.band.first += static_cast<std::int64_t>(b) * l.frames;
  u.row = static_cast<std::int64_t>(b) * l.frames * l.states;
  u.slot = b * p.slots_of_utterance;
  u.border = static_cast<std::int64_t>(b) * (p.panels - 1) * l.frames;
  u.targets = l.targets + first_target(l, b);
  if (p.places) {
    const Place& place = p.places[b];
    if (l.flat_targets) {
      u.targets = l.targets + place.label;
      u.fits = place.label + u.labels <= l.target_count;
    }
    if (p.packed) {
      u.row = place.row;
      u.slot = place.slot;
      u.border = place.border;
      u.layout = {u.frames, u.states(), p.slots};
      u.fits &= place.row + static_cast<std::int64_t>(u.frames) * u.states() <= p.rows;
    }
  }
  return u;
}

__device__ __forceinline__ const ArcTable& table_of(const Batch& p, const Utterance& u) {
  return u.without_durations ? p.plain : p.arcs;
}

// The step of a lane from row to row. For padded rows it also has the step in b, t and u, which avoids
// divisions.
struct RowStride {
  std::int64_t rows;
  int b, t, u;  // the same step as a node, for padded rows
};

// A row and its node: row = (b T + t) (U + 1) + u, or the caller's packed row.
struct RowCursor {
  std::int64_t row;
  int b, t, u;  // b = B after the last utterance

  __device__ __forceinline__ RowCursor(const Batch& p, std::int64_t first) : row(first), b(0) {
    if (p.packed) {
      find(p);
      return;
    }
    const std::int64_t frame = first / p.lattice.states;
    u = static_cast<int>(first - frame * p.lattice.states);
    b = static_cast<int>(frame / p.lattice.frames);
    t = static_cast<int>(frame - static_cast<std::int64_t>(b) * p.lattice.frames);
  }
  __device__ __forceinline__ void advance(const Batch& p, const RowStride& by) {
    row += by.rows;
    if (p.packed) return find(p);
    u += by.u;
    t += by.t;
    b += by.b;
    if (u >= p.lattice.states) {
      u -= p.lattice.states;
      ++t;
    }
    if (t >= p.lattice.frames) {
      t -= p.lattice.frames;
      ++b;
    }
  }
  // The offset of the row in memory with these strides.
  [[nodiscard]] __device__ __forceinline__ std::int64_t offset(const Batch& p,
                                                               const std::int64_t (&stride)[3]) const {
    if (p.packed) return row * stride[2];
    return b * stride[0] + t * stride[1] + u * stride[2];
  }

 private:
  // Sets b to the utterance, from b on, that contains the row; to B if there is none.
  __device__ __forceinline__ void find(const Batch& p) {
    int end = p.lattice.batch + 1;
    while (end - b > 1) {
      const int middle = b + (end - b) / 2;
      if (p.places[middle].row <= row) {
        b = middle;
      } else {
        end = middle;
      }
    }
    t = u = 0;
    if (b == p.lattice.batch) return;
    const int states = labels_of(p.lattice, b) + 1;
    const std::int64_t within = row - p.places[b].row;
    t = static_cast<int>(within >> 31 ? within / states
                                      : static_cast<unsigned>(within) / static_cast<unsigned>(states));
    u = static_cast<int>(within - static_cast<std::int64_t>(t) * states);
  }
};

// The place of a node's sum in `saved`.
__device__ __forceinline__ std::int64_t sum_place(const Batch& p, const RowCursor& at) {
  return p.band ? p.band.node(at.b, at.t, at.u) : at.row;
}

inline RowStride row_stride(const TransducerLattice& l, std::int64_t rows) {
  RowStride s{rows, 0, 0, 0};
  const std::int64_t frames = rows / l.states;
  s.u = static_cast<int>(rows % l.states);
  if (l.frames > 0) {
    s.t = static_cast<int>(frames % l.frames);
    s.b = static_cast<int>(frames / l.frames);
  }
  return s;
}

}  // namespace warpalign::detail::transducer
