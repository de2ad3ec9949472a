// The layout of soft-DTW on a GPU: sizes and offsets, computed on the host from the problem and the device.
//
// A pair's (n, m) matrix is cut into strips of 32 * W columns, one warp each; lane t owns W columns and is
// one row later than lane t - 1, so that a warp advances along an anti-diagonal. Neighbouring strips form
// panels, one per block. docs/developer/kernels/soft_dtw.md has the picture.
#pragma once

#include <algorithm>
#include <cstddef>

#include "cuda/launch/device.h"
#include "soft_dtw/cuda/call/kernel_key.h"

namespace warpalign::detail::soft_dtw {

using cuda::aligned;
using cuda::DeviceTraits;
using cuda::div_up;

constexpr int kGroup = 8;          // steps between two handshakes with the neighbouring strips
constexpr int kChannelGroups = 8;  // groups by which a strip may be ahead of its neighbour
constexpr int kChannelBarriers = 2 * kChannelGroups;

// At step s lane t of strip k is at row s - t - row_shift(k). With these shifts, the rows that the last lane
// of a strip computes in one group of steps are those that the first lane of the next strip needs in one
// group, whose number in its own count is less by lag(k).
constexpr int row_shift(int strip) { return strip * 7 % kGroup; }
constexpr int lag(int strip) { return (row_shift(strip) + 31 - row_shift(strip + 1)) / kGroup; }
static_assert(lag(0) == 3 && lag(1) == 4 && lag(7) == 4);

// Sweeps from both ends of a pair. The second sweep has the same strips, counted from the right, and its rows
// from the last one on. Its lanes are later by further_shift() rows, besides row_shift(), so that both sweeps
// end groups of steps at the same places.
constexpr int further_shift(int n, int strips) { return (strips - n) & (kGroup - 1); }
// The groups of both sweeps together, in the first one's strip k.
constexpr int groups_of_both(int n, int strips, int k) {
  return (n + 31 + row_shift(k) + row_shift(strips - 1 - k) + further_shift(n, strips)) / kGroup;
}
// The groups of the first sweep: half, less lag() for every strip to the left. So both sweeps reach the
// meeting at the same time over the whole pair, and no step to the right leads from a strip's part of the
// first sweep to the next strip's part of the second.
constexpr int groups_before_meeting(int n, int strips, int k) {
  const auto lags = [](int of) {
    return (31 * of - row_shift(of)) / kGroup;
  };  // the sum of lag(0 ... of - 1)
  const int least = (groups_of_both(n, strips, strips - 1) + lags(strips - 1)) / 2 - lags(k);
  return std::clamp(least, 0, groups_of_both(n, strips, k));
}
// The shortest pair that is swept from both ends.
constexpr int kShortestMeeting = 64;
constexpr int kMoreGroups = 2;  // added to groups_of(n), for the second sweep's shifts

// Groups after which every lane of every strip has left row n - 1.
constexpr int groups_of(int n) { return div_up(n + 31 + kGroup - 1, kGroup); }
constexpr int strips_of(int m, int columns_per_lane) { return div_up(m, 32 * columns_per_lane); }

// Rows of a tile of costs, and how many tiles a strip has in shared memory.
constexpr int kTileRows = 16;
constexpr int kRingTiles = 8;
// The fewest tiles of a ring: as many as the wave can need at the same time. No tile is made ahead then.
constexpr int kLeastRingTiles = 4;
// Elements from one column of a ring to the next.
constexpr int ring_stride(int tiles) { return tiles * kTileRows + kGroup + 4; }

// Sizes that depend on the arithmetic: bytes of one stored state and of one real.
struct CellSizes {
  int state;
  int real;
};

// Sizes that depend on the source of costs.
struct SourceSizes {
  int carried;           // partial sums that travel along a row with E
  int warp_bytes;        // shared memory of one strip
  int least_warp_bytes;  // the same with kLeastRingTiles, for kernels that support it
  int segment;           // groups between two stored states
  int roles;             // warps that work on a strip
  int phases;            // warps that recompute a strip, each one segment at a time
  int starts;            // groups of that segment at whose start the lanes' states are stored
  bool parts;            // whether a number per strip is joined into the pair's results
};

// The sizes of a kernel that determine the layout of its launch.
struct KernelSizes {
  CellSizes cell;
  SourceSizes source;
  int columns_per_lane;  // W
  int most_strips;       // the most strips of a block that registers allow
  int resident_blocks;   // blocks of that many strips per multiprocessor that registers allow
};

constexpr int log2_of(int power_of_two) { return power_of_two == 1 ? 0 : 1 + log2_of(power_of_two / 2); }

constexpr std::size_t kHeaderBytes = 256;  // the ticket counter
constexpr std::size_t kRecordBytes = 64;   // bytes of a pair in flight
constexpr std::size_t kPartBytes = 16;     // bytes of a strip

struct Layout {
  int warps;   // strips of a panel
  int panels;  // of a pair
  int pairs_per_block;
  int groups;     // groups of the padded length
  int segments;   // segments of the padded length, each with its stored states
  int ring_log2;  // log2 of the tiles of a strip's ring, for kernels in which it is not a constant
  bool gradient;  // whether the reverse sweep runs
  bool tickets;   // whether panels of one pair go to different blocks, in the order of a common counter
  bool meets;     // sweeps start from both ends of a pair (meeting.cuh)
  int slots;      // pairs in flight
  int grid;
  int shared_bytes;
  std::size_t columns;       // bytes from the start of scratch: border and flow columns of slot 0
  std::size_t column_bytes;  // of a slot
  std::size_t flow;          // bytes from the start of a slot's columns: flow columns
  std::size_t rows_done;     // bytes from the start of a slot's columns: progress on grad_x
  std::size_t parts;         // bytes from the start of a slot's columns: the strips' parts of the results
  std::size_t meeting;       // bytes from the start of a slot's columns: lane states where sweeps meet
  std::size_t states;        // bytes from the start of scratch: lane states of slot 0
  std::size_t state_bytes;   // of a slot
  std::size_t grad_x;        // bytes from the start of scratch: slot 0's grad_x of the sweep from the back
  std::size_t grad_x_bytes;  // of a slot
  std::size_t scratch;       // bytes of the whole scratch

  // The number of bytes that are set to one-bits before a launch: 0 if blocks do not wait for each other.
  [[nodiscard]] std::size_t cleared() const { return tickets ? states : 0; }
  [[nodiscard]] constexpr int ends() const { return meets ? 2 : 1; }
};

constexpr int queue_bytes(int carried, CellSizes cell) {
  return kGroup * std::max(cell.state, (1 + carried) * cell.real);
}
// Shared memory of a strip, in bytes, with source_bytes for its source of costs.
constexpr int shared_bytes_of_strip(const KernelSizes& k, int source_bytes) {
  // One more entry than a channel has groups: the inbox for data from another panel.
  const int queues = (kChannelGroups + 1) * queue_bytes(k.source.carried, k.cell);
  const int states = k.source.starts * (k.columns_per_lane + 1) * 32 * k.cell.state;
  const int border = k.source.segment * kGroup * k.cell.state;
  return source_bytes + queues + k.source.phases * (states + border) + kChannelBarriers * 8;
}
constexpr int shared_bytes_of_strip(const KernelSizes& k) {
  return shared_bytes_of_strip(k, k.source.warp_bytes);
}

// What is launched. n and m are the padded lengths of rows and columns.
struct LayoutRequest {
  int batch;
  int n;
  int m;
  int dim;
  bool gradient;
  bool meets;
  bool rerun;  // few pairs, if any, need work: blocks take whole pairs
  // Of a rerun, in bytes: limits the number of pairs in flight, which is at least one.
  std::size_t scratch_limit;
  int fewest_panel_strips;  // CudaTuning's
};

// Computes the offsets in the scratch.
inline void place(Layout& l, const KernelSizes& k, const LayoutRequest& r, int strips) {
  const std::size_t rows = static_cast<std::size_t>(l.groups) * kGroup;
  const std::size_t kept = r.gradient ? strips - 1 : l.ends() * (l.panels - 1);
  const std::size_t flows = r.gradient ? l.ends() * (l.panels - 1) : 0;
  const std::size_t segments = r.gradient ? l.segments : 0;
  const std::size_t lane_states = (k.columns_per_lane + 1) * 32 * k.cell.state;
  l.columns = kHeaderBytes + aligned(l.slots * kRecordBytes);
  l.flow = aligned(kept * rows * k.cell.state);
  l.rows_done = l.flow + aligned(flows * rows * (1 + k.source.carried) * k.cell.real);
  l.parts = l.rows_done + (l.tickets ? aligned(l.ends() * l.panels * k.source.roles * sizeof(int)) : 0);
  l.meeting = l.parts + (k.source.parts ? aligned(strips * kPartBytes) : 0);
  l.column_bytes = l.meeting + (l.meets ? aligned(2 * strips * lane_states) : 0);
  l.states = l.columns + l.slots * l.column_bytes;
  l.state_bytes = aligned(segments * strips * lane_states);
  l.grad_x = l.states + l.slots * l.state_bytes;
  l.grad_x_bytes = l.meets && r.gradient && k.source.carried == 0
                       ? aligned(sizeof(float) * static_cast<std::size_t>(r.n) * r.dim)
                       : 0;
  l.scratch = l.grad_x + l.slots * l.grad_x_bytes;
}

inline Layout layout_for(const KernelSizes& k, const LayoutRequest& r, DeviceTraits device) {
  Layout l{};
  l.gradient = r.gradient;
  l.meets = r.meets;
  const int strips = strips_of(r.m, k.columns_per_lane);
  int per_strip = shared_bytes_of_strip(k);
  l.ring_log2 = log2_of(kRingTiles);
  if (per_strip > device.shared_bytes_per_block) {
    per_strip = shared_bytes_of_strip(k, k.source.least_warp_bytes);
    l.ring_log2 = log2_of(kLeastRingTiles);
  }
  const int most = std::min(device.shared_bytes_per_block / per_strip, k.most_strips);
  if (most < 1) return l;  // not one strip fits this device: no warps

  // With enough pairs a block takes whole pairs, and their panels one after the other. Panels are narrow
  // then, because the last strip of a panel starts long after the first. With few pairs panels are narrow
  // enough for every multiprocessor to get one, or several if a strip is a single warp.
  const int fused = std::min(strips, most);
  l.warps = fused;
  const int resident = k.resident_blocks * k.most_strips;
  for (int warps = 2; warps < fused && !r.rerun; warps *= 2) {
    if (r.batch / device.multiprocessors < resident / warps) continue;
    l.warps = warps;
    break;
  }
  if (!r.rerun && r.batch < device.multiprocessors && strips > 1) {
    const int panels = std::clamp(device.multiprocessors / (r.batch * l.ends()), 1, strips);
    const bool in_tiles = k.source.carried == 0 && k.columns_per_lane == 1;
    const int narrowest = in_tiles ? 1 : std::clamp(r.fewest_panel_strips, 1, fused);
    l.warps = std::clamp(div_up(strips, panels), narrowest, fused);
    l.tickets = strips > l.warps;
  }
  l.tickets |= l.meets;
  l.groups = groups_of(r.n) + (l.meets ? kMoreGroups : 0);
  l.segments = div_up(l.groups, k.source.segment) + (l.meets ? 1 : 0);
  l.panels = div_up(strips, l.warps);
  l.pairs_per_block = l.tickets ? 1 : l.panels > 1 ? 1 : std::clamp(std::min(4, most) / l.warps, 1, r.batch);
  l.shared_bytes = l.pairs_per_block * l.warps * per_strip;

  const int by_registers = k.resident_blocks * k.most_strips / (l.warps * l.pairs_per_block);
  const int blocks = std::max(1, std::min(by_registers, device.shared_bytes_per_block / l.shared_bytes));
  const int tasks = l.tickets ? r.batch * l.panels * l.ends() : div_up(r.batch, l.pairs_per_block);
  l.grid = std::min(tasks, device.multiprocessors * blocks);
  l.slots = l.tickets ? r.batch : std::min(l.grid * l.pairs_per_block, r.batch);

  place(l, k, r, strips);
  if (r.rerun && l.grid > 1 && l.scratch > r.scratch_limit) {
    const std::size_t per_block = (l.column_bytes + l.state_bytes + kRecordBytes) * l.pairs_per_block;
    l.grid = std::clamp(static_cast<int>(r.scratch_limit / per_block), 1, l.grid);
    l.slots = std::min(l.grid * l.pairs_per_block, r.batch);
    place(l, k, r, strips);
  }
  return l;
}

}  // namespace warpalign::detail::soft_dtw
