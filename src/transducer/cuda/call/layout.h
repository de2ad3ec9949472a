// The layout of the transducer's CUDA path: sizes and offsets, for the host and for kernels.
//
// The U + 1 columns of an utterance's lattice are cut into strips of 32, one warp each. Lane l of a strip
// works on frame s - l at step s, so that a warp advances along an anti-diagonal.
// docs/developer/kernels/transducer.md has the picture.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "core/anywhere.h"

namespace warpalign::detail::transducer {

inline constexpr int kStrip = 32;         // columns of a strip
inline constexpr int kPanelStrips = 4;    // the most strips of a panel: one for each warp scheduler
inline constexpr int kGroup = 8;          // steps between two barriers of a block
inline constexpr int kLagGroups = 5;      // groups by which a strip is later than its neighbour
inline constexpr int kBorderFrames = 32;  // frames of a border that are stored: more than the lag
// Lane 31 is 31 steps later than lane 0. Its results are used by the next strip in a later group than that in
// which they are made.
static_assert(kLagGroups * kGroup >= 31 + kGroup + 1 && kBorderFrames >= 2 * kGroup + 9);

WARPALIGN_ANYWHERE constexpr int strips_of(int states) { return (states + kStrip - 1) / kStrip; }

// The slots of an utterance: one number for every arc. In turn it is log2 of the arc's weight, the arc's
// share in alpha of its destination, and its posterior.
//
// The slot of an arc from (t, u) to column v, v = u or u + 1, is stored with column v: a lane owns all slots
// that it reads or writes. Within strip v / 32, lane l = v % 32 has frame t in row t + l, so that the slots
// of a step are contiguous: [strip][arc][t + l][l]. The slots of one arc in a group of steps are one run of
// memory. With two slots per node, the layout is [strip][t + l][l][arc].
struct SlotLayout {
  int frames;
  int states;
  int arcs;

  [[nodiscard]] WARPALIGN_ANYWHERE int rows() const { return frames + kStrip - 1; }  // rows of a strip
  [[nodiscard]] WARPALIGN_ANYWHERE int lane_stride() const { return arcs == 2 ? 2 : 1; }
  [[nodiscard]] WARPALIGN_ANYWHERE int row_stride() const { return kStrip * lane_stride(); }
  [[nodiscard]] WARPALIGN_ANYWHERE std::int64_t arc_stride() const {
    return arcs == 2 ? 1 : static_cast<std::int64_t>(rows()) * kStrip;
  }
  [[nodiscard]] WARPALIGN_ANYWHERE std::int64_t strip_begin(int strip) const {
    return static_cast<std::int64_t>(strip) * rows() * (kStrip * arcs);
  }
  // The index of a slot, relative to the strip's first slot.
  [[nodiscard]] WARPALIGN_ANYWHERE std::int64_t slot_of_strip(int row, int lane, int arc) const {
    return static_cast<std::int64_t>(row) * row_stride() + lane * lane_stride() + arc * arc_stride();
  }
  [[nodiscard]] WARPALIGN_ANYWHERE std::int64_t slot(int t, int column, int arc) const {
    const int lane = column % kStrip;
    return strip_begin(column / kStrip) + slot_of_strip(t + lane, lane, arc);
  }
  [[nodiscard]] WARPALIGN_ANYWHERE std::int64_t count() const { return strip_begin(strips_of(states)); }
};

// An upper bound of the slots of packed utterances, which have `rows` rows in all and at most `frames` frames
// and `states` states each. SlotLayout::count() is at most arcs (states + 31) (frames + 31).
constexpr std::int64_t most_packed_slots(std::int64_t rows, std::int64_t utterances, int frames, int states,
                                         int arcs) {
  const std::int64_t all_frames = std::min(rows, utterances * frames);
  const std::int64_t all_states = std::min(rows, utterances * states);
  const std::int64_t most = arcs * (rows + 31 * (all_states + all_frames) + 31 * 31 * utterances);
  const double padded = static_cast<double>(utterances) * (states + 31.0) * (frames + 31.0) * arcs;
  if (padded >= static_cast<double>(most)) return most;
  return std::min(most, utterances * SlotLayout{frames, states, arcs}.count());
}

// The number of neighbouring lanes that share a row of logits: each loads about kRowLoads words of 4 bytes at
// a time.
inline constexpr int kRowLoads = 8;
inline constexpr int kLeastRowLanes = 4;
constexpr int row_lanes(int labels, int columns_of_lane) {
  int lanes = kLeastRowLanes;
  while (lanes < 32 && lanes * columns_of_lane < labels) lanes *= 2;
  return lanes;
}

// The number of rows of a warp's tile: more for short rows, so that the constant cost of a tile is spread
// over them.
constexpr int row_tile(std::int64_t row_bytes) {
  return row_bytes <= 512 ? 32 : row_bytes <= 2048 ? 16 : row_bytes <= 8192 ? 8 : 4;
}

// The outcome of an utterance, stored in `saved`.
enum Outcome : std::int32_t { kPaths = 0, kNoPath = 1, kInvalid = 2, kUnknown = -1 };

}  // namespace warpalign::detail::transducer
