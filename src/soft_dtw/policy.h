// How soft-DTW is laid out on a GPU: plain numbers, computed on the host from the problem and the device.
//
// A pair's (n, m) matrix is cut into strips of 32 * W columns, one warp each; lane t owns W columns and runs
// one row behind lane t - 1, so that a warp advances along an anti-diagonal. docs/kernels/soft_dtw.md has the
// picture.
#pragma once

#include <algorithm>
#include <cstddef>

namespace warpalign::softdtw {

constexpr int kPhase = 16;                // steps between two kept states; also the rows of one cost tile
constexpr int kGroup = 8;                 // steps between two handshakes with the neighbouring strips
constexpr int kRingRows = 48;             // kPhase + 31 rows are in use at once, rounded up to whole tiles
constexpr int kChannelRows = 8 * kGroup;  // rows that a strip may run ahead of the next one
constexpr int kChannelBarriers = 16;
constexpr int kCounterBytes = 256;     // progress counters at the start of a pair's scratch
constexpr int kMaxResidentWarps = 64;  // of a multiprocessor, on every architecture at most
constexpr int kMaxResidentBlocks = 16;
constexpr int kMaxWarps = 16;  // in a block, with one float32 column per lane

static_assert(kRingRows % kPhase == 0 && kRingRows >= kPhase + 31);
static_assert(kPhase % kGroup == 0);

// What the arithmetic needs: bytes of one kept state and of one real.
struct CellSizes {
  int state;
  int real;
};

// Registers hold a whole phase of weights: wider lanes and wider reals leave room for fewer warps in a block.
constexpr int max_warps(int columns_per_lane, CellSizes cell) {
  return kMaxWarps / (cell.real / 4 * columns_per_lane);
}

constexpr int div_up(int a, int b) { return a / b + (a % b != 0); }

constexpr int strips_of(int m, int columns_per_lane) { return div_up(m, 32 * columns_per_lane); }
// The last lane of a strip ends 31 steps after the first one.
constexpr int phases_of(int n) { return div_up(n + 31, kPhase); }

struct DeviceLimits {
  int multiprocessors;
  int shared_bytes_per_block;
};

struct LaunchShape {
  int columns_per_lane;  // W
  int features;          // kept in registers (FewFeatures); 0: costs come in tiles (TileSource)
  int warps_per_pair;
  int pairs_per_block;
  int grid;
  int shared_bytes;
  // Scratch of one pair in flight, in bytes from its slot's start.
  std::size_t borders;  // State[strips or 1][N]: right-most column of each strip
  std::size_t states;   // State[strips][phases][W + 1][32]: lane states at the start of each phase
  std::size_t flow;     // Real[phases * kPhase][1 + features]: reverse flow across rounds of strips
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

// features: how many the source keeps in registers; 0: costs come in tiles.
constexpr int ring_bytes(int columns_per_lane, int features, CellSizes cell) {
  return features > 0 ? 0 : kRingRows * 32 * columns_per_lane * cell.real;
}
constexpr int queue_bytes(int features, CellSizes cell) {
  return kChannelRows * std::max(cell.state, (1 + features) * cell.real);
}
constexpr int shared_bytes_per_warp(int columns_per_lane, int features, CellSizes cell) {
  return ring_bytes(columns_per_lane, features, cell) + queue_bytes(features, cell) + kChannelBarriers * 8;
}
constexpr int shared_bytes_per_pair(CellSizes cell) { return 16 + cell.state; }

constexpr std::size_t aligned(std::size_t bytes) { return (bytes + 255) / 256 * 256; }

// What is launched: everything that the layout follows from. n and m are the padded lengths.
struct LaunchRequest {
  int batch;
  int n;
  int m;
  bool gradient;
  CellSizes cell;
  int columns_per_lane;
  int features;
  int max_warps;  // in a block, as the kernel's registers allow
};

inline LaunchShape launch_shape(const LaunchRequest& r, DeviceLimits device) {
  LaunchShape shape{};
  shape.columns_per_lane = r.columns_per_lane;
  shape.features = r.features;
  const int strips = strips_of(r.m, r.columns_per_lane);
  const int per_warp = shared_bytes_per_warp(r.columns_per_lane, r.features, r.cell);
  const int fitting =
      std::min((device.shared_bytes_per_block - shared_bytes_per_pair(r.cell)) / per_warp, r.max_warps);
  shape.warps_per_pair = std::min(strips, fitting);
  shape.pairs_per_block = std::clamp(std::min(4, fitting) / shape.warps_per_pair, 1, r.batch);
  shape.shared_bytes =
      shape.pairs_per_block * (shape.warps_per_pair * per_warp + shared_bytes_per_pair(r.cell));

  // As many blocks as can be resident; a few more than that cost only scratch.
  const int by_shared = std::max(1, device.shared_bytes_per_block / shape.shared_bytes);
  const int by_warps = kMaxResidentWarps / (shape.warps_per_pair * shape.pairs_per_block);
  shape.grid = std::min(div_up(r.batch, shape.pairs_per_block),
                        device.multiprocessors * std::min({by_shared, by_warps, kMaxResidentBlocks}));

  const bool wraps = strips > shape.warps_per_pair;
  const std::size_t phases = phases_of(r.n);
  const std::size_t columns = r.gradient ? strips : (wraps ? 1 : 0);
  const std::size_t states = r.gradient ? strips * phases * (r.columns_per_lane + 1) * 32 : 0;
  const std::size_t flows = r.gradient && wraps ? phases * kPhase * (1 + r.features) : 0;
  shape.borders = wraps ? kCounterBytes : 0;
  shape.states = shape.borders + aligned(columns * r.n * r.cell.state);
  shape.flow = shape.states + aligned(states * r.cell.state);
  shape.scratch = shape.flow + aligned(flows * r.cell.real);
  return shape;
}

}  // namespace warpalign::softdtw
