// How the CUDA path of sinkhorn() shares out its work: plain numbers, computed on the host.
//
// A team of blocks solves one problem at a time. Within a pass over the costs a block takes whole rows, or,
// where rows are long, segments of them. A row belongs to a warp or to the whole block: thread t of `width`
// has the columns t, t + width, t + 2 width, ... of the segment.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "core/anywhere.h"
#include "cuda/launch/device.h"

namespace warpalign::detail::transport {

inline constexpr int kMostWarps = 16;  // of a block
inline constexpr int kRecordBytes = 64;
// In front of a block's shared memory: what reductions over the block need.
inline constexpr int kScratchBytes = kMostWarps * kRecordBytes + 2 * kMostWarps * 8;
// Behind it in an update: the parts of 32 totals. In a pass: the columns' numbers.
inline constexpr int kTotalsBytes = kMostWarps * 32 * 8;

// How a kernel has rows: kWidth threads, each with so many columns.
struct RowShape {
  int columns_of_thread;
  int width;  // threads: a warp, or all of the block

  [[nodiscard]] WARPALIGN_ANYWHERE constexpr int columns() const { return columns_of_thread * width; }
  [[nodiscard]] WARPALIGN_ANYWHERE constexpr bool warp_rows() const { return width == 32; }
};

struct SolveLayout {
  int threads;      // of a block
  int segments;     // of a row
  int row_groups;   // the rows' parts: a task is a part of the rows of one segment
  int team_blocks;  // of a team
  int teams;
  int cluster;        // blocks that a row is shared by, each with a segment of it; 1: none
  bool streams;       // whether the device has bulk copies
  int sharing_steps;  // see gradient_blocks()

  // A fused sweep needs whole rows.
  [[nodiscard]] WARPALIGN_ANYWHERE bool sweeps() const { return segments <= cluster; }
  [[nodiscard]] WARPALIGN_ANYWHERE int first_row(int group, int rows) const {
    return static_cast<int>(static_cast<std::int64_t>(rows) * group / row_groups);
  }
};

// A float32 potential is a pair; a float64 one is a single number. The weight of the reference comes besides.
template <class Real>
inline constexpr int kNumbersOfColumn = sizeof(Real) == 4 ? 3 : 2;

// Dynamic shared memory of a block.
template <class Real, class Stored>
constexpr std::size_t dense_shared_bytes(const RowShape& shape, int threads) {
  const std::size_t row = shape.columns() * sizeof(Real);
  const std::size_t exchange = shape.warp_rows() ? threads / 32 * row : 0;
  const std::size_t costs_ahead =
      static_cast<std::size_t>(threads) * shape.columns_of_thread * sizeof(Stored);
  return kScratchBytes +
         std::max<std::size_t>(kTotalsBytes, kNumbersOfColumn<Real> * row + exchange + costs_ahead);
}

// Points: a block has 64 of one side at a time.
inline constexpr int kPointsThreads = 256;
inline constexpr int kPointsTile = 64;

inline constexpr int kPointsStage = 64;  // other points in shared memory at a time

// Points of few coordinates: a block has so many of one side at a time.
inline constexpr int kMostDimOfRows = 8;
inline constexpr int kOwnPointsOfRows = 2 * kPointsThreads;

// Points on the matrix units are packed in blocks of 16 points and 16 features: 32 rows of 8 features.
WARPALIGN_ANYWHERE constexpr int unit_blocks(int dim) { return cuda::div_up(dim, 64) * 4; }
WARPALIGN_ANYWHERE constexpr std::int64_t unit_rows(int length, int dim) {
  return std::int64_t{cuda::div_up(length, kPointsStage)} * (kPointsStage / 16) * unit_blocks(dim) * 32;
}

inline constexpr int kUnitRowBytes = 16;
// Gradients by such points: a block has so many points and features at a time.
inline constexpr int kUnitGradientPoints = 128;
inline constexpr int kUnitFeatures = 64;
inline constexpr int kGradientPart = kUnitGradientPoints * kUnitFeatures;

// How many of a team's blocks share out the steps of such a gradient. Each leaves up to one part of
// kGradientPart numbers. All parts together are at most twice as large as the points. A tile with fewer steps
// than sharing_steps is one block's: sharing it costs a wait of the team.
WARPALIGN_ANYWHERE constexpr int gradient_blocks(int length, int other_length, int dim, int team_blocks,
                                                 int sharing_steps) {
  const int tasks = cuda::div_up(length, kUnitGradientPoints) * (unit_blocks(dim) * 16 / kUnitFeatures);
  const bool shares = cuda::div_up(other_length, kPointsStage) >= sharing_steps;
  const std::int64_t most = (std::int64_t{length} + other_length) * dim * 2 / kGradientPart;
  return static_cast<int>(
      std::clamp<std::int64_t>(shares ? std::max<std::int64_t>(most, tasks) : tasks, 1, team_blocks));
}

// Into how many parts a team cuts the other side of `length` points, so that all blocks have work.
constexpr int point_splits(int length, int other_length, int team_blocks) {
  const int tiles = cuda::div_up(length, kPointsTile);
  return std::clamp(cuda::div_up(2 * team_blocks, tiles), 1, cuda::div_up(other_length, kPointsTile));
}

// What follows from the extents alone: share_out() does the rest.
constexpr SolveLayout block_layout(int rows, int columns, const RowShape& shape) {
  SolveLayout layout{};
  layout.threads = shape.warp_rows() ? 32 * std::clamp(cuda::div_up(rows, 4), 1, kMostWarps) : shape.width;
  layout.segments = cuda::div_up(columns, shape.columns());
  layout.cluster = 1;
  return layout;
}

// Shares `resident` blocks out among the problems of a batch: with block_elements elements one more block of
// a team is worth its part in the team's waits. same_for_every_batch: a problem gets as many as it would
// alone, so that its sums have the same order in every batch.
constexpr void share_out(SolveLayout& layout, int rows, int columns, int batch, int resident,
                         bool same_for_every_batch, int block_elements) {
  const std::int64_t worth = static_cast<std::int64_t>(rows) * columns / std::max(block_elements, 1);
  int blocks = static_cast<int>(std::clamp<std::int64_t>(worth, layout.cluster, resident));
  if (!same_for_every_batch) blocks = std::clamp(resident / batch, layout.cluster, blocks);
  layout.row_groups = std::clamp(blocks / layout.segments, 1, rows);
  layout.team_blocks = std::min(blocks, layout.row_groups * layout.segments);
  layout.teams = std::clamp(resident / layout.team_blocks, 1, batch);
}

}  // namespace warpalign::detail::transport
