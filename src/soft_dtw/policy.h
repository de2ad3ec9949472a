// How soft-DTW is laid out on a GPU: plain numbers, computed on the host from the problem and the device.
//
// A pair's (n, m) matrix is cut into strips of 32 * W columns, one warp each; lane t owns W columns and runs
// one row behind lane t - 1, so that a warp advances along an anti-diagonal. docs/kernels/soft_dtw.md has the
// picture.
#pragma once

#include <algorithm>
#include <cstddef>

namespace warpalign::softdtw {

constexpr int kPhase = 16;        // steps between two kept states; also the rows of one cost tile
constexpr int kGroup = 8;         // steps between two handshakes with the neighbouring strips
constexpr int kRingRows = 48;     // kPhase + 31 rows are in use at once, rounded up to whole tiles
constexpr int kChannelRows = 8 * kGroup;  // rows that a strip may run ahead of the next one
constexpr int kChannelBarriers = 16;
constexpr int kCounterBytes = 256;  // progress counters at the start of a pair's scratch
constexpr int kMaxWarps = 16;       // in a block, with one float32 column per lane

static_assert(kRingRows % kPhase == 0 && kRingRows >= kPhase + 31);
static_assert(kPhase % kGroup == 0);

constexpr int div_up(int a, int b) { return a / b + (a % b != 0); }

constexpr int strips_of(int m, int columns_per_lane) { return div_up(m, 32 * columns_per_lane); }
// The last lane of a strip ends 31 steps after the first one.
constexpr int phases_of(int n) { return div_up(n + 31, kPhase); }

// What the arithmetic needs: bytes of one kept state and of one real.
struct CellSizes {
  int state;
  int real;
};

struct DeviceLimits {
  int multiprocessors;
  int shared_bytes_per_block;
};

struct LaunchShape {
  int columns_per_lane;  // W
  int warps_per_pair;
  int pairs_per_block;
  int grid;
  int shared_bytes;
  // Scratch of one pair in flight, in bytes from its slot's start.
  std::size_t borders;  // State[strips or 1][N]: right-most column of each strip
  std::size_t states;   // State[strips][phases][W + 1][32]: lane states at the start of each phase
  std::size_t flow;     // Real[phases * kPhase]: reverse flow across rounds of strips
  std::size_t scratch;  // size of the slot

  [[nodiscard]] std::size_t scratch_per_block() const {
    return scratch * static_cast<std::size_t>(pairs_per_block);
  }
  [[nodiscard]] std::size_t workspace_bytes() const {
    return scratch_per_block() * static_cast<std::size_t>(grid);
  }

  // Fewer blocks, at least one, so that their scratch fits in so many bytes.
  void limit_scratch(std::size_t bytes) {
    if (scratch == 0) return;
    grid = std::max(1, static_cast<int>(std::min<std::size_t>(grid, bytes / scratch_per_block())));
  }
};

constexpr int shared_bytes_per_warp(int columns_per_lane, CellSizes cell) {
  return kRingRows * 32 * columns_per_lane * cell.real + kChannelRows * cell.state +
         kChannelBarriers * 8;
}
constexpr int shared_bytes_per_pair(CellSizes cell) { return 16 + cell.state; }

constexpr std::size_t aligned(std::size_t bytes) { return (bytes + 255) / 256 * 256; }

// n, m: the padded lengths; max_warps: what the kernel's registers allow in a block.
inline LaunchShape launch_shape(int batch, int n, int m, bool gradient, CellSizes cell, DeviceLimits device,
                                int columns_per_lane, int max_warps) {
  LaunchShape shape{};
  shape.columns_per_lane = columns_per_lane;
  const int strips = strips_of(m, columns_per_lane);
  const int fitting = (device.shared_bytes_per_block - shared_bytes_per_pair(cell)) /
                      shared_bytes_per_warp(columns_per_lane, cell);
  shape.warps_per_pair = std::min({strips, fitting, max_warps});
  shape.pairs_per_block = std::max(1, std::min({4, fitting, max_warps}) / shape.warps_per_pair);
  shape.pairs_per_block = std::min(shape.pairs_per_block, batch);
  shape.shared_bytes =
      shape.pairs_per_block *
      (shape.warps_per_pair * shared_bytes_per_warp(columns_per_lane, cell) + shared_bytes_per_pair(cell));

  const int per_multiprocessor = std::max(1, device.shared_bytes_per_block / shape.shared_bytes);
  shape.grid = std::min(div_up(batch, shape.pairs_per_block),
                        device.multiprocessors * std::min(per_multiprocessor, 16));

  const bool wraps = strips > shape.warps_per_pair;
  const std::size_t phases = phases_of(n);
  const std::size_t border_columns = gradient ? strips : (wraps ? 1 : 0);
  shape.borders = wraps ? kCounterBytes : 0;
  shape.states = shape.borders + aligned(border_columns * n * cell.state);
  shape.flow = shape.states + aligned(gradient ? static_cast<std::size_t>(strips) * phases *
                                                     (columns_per_lane + 1) * 32 * cell.state
                                               : 0);
  shape.scratch = shape.flow + aligned(gradient && wraps ? phases * kPhase * cell.real : 0);
  return shape;
}

}  // namespace warpalign::soft_dtw
