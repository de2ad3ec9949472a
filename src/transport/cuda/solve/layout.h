// The division of the work of sinkhorn()'s CUDA path: sizes, computed on the host.
//
// A team of blocks solves one problem at a time. Within a pass over the costs a block takes whole rows, or
// segments of them if rows are long. A warp or the whole block owns a row: thread t of `width` owns the
// columns t, t + width, t + 2 width, ... of the segment.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "core/anywhere.h"
#include "cuda/launch/device.h"

namespace warpalign::detail::transport {

inline constexpr int kMostWarps = 16;  // of a block
inline constexpr int kRecordBytes = 64;
// The beginning of a block's shared memory, for reductions over the block.
inline constexpr int kScratchBytes = kMostWarps * kRecordBytes + 2 * kMostWarps * 8;
// It is followed, in an update, by the parts of 32 totals, and in a pass by the columns' numbers.
inline constexpr int kTotalsBytes = kMostWarps * 32 * 8;

// A kernel's rows: `width` threads, each with this many columns.
struct RowShape {
  int columns_of_thread;
  int width;  // threads of a row: a warp, or the whole block

  [[nodiscard]] WARPALIGN_ANYWHERE constexpr int columns() const { return columns_of_thread * width; }
  [[nodiscard]] WARPALIGN_ANYWHERE constexpr bool warp_rows() const { return width == 32; }
};

struct SolveLayout {
  int threads;      // of a block
  int segments;     // of a row
  int row_groups;   // parts of the rows: a task is one of them, in one segment
  int team_blocks;  // of a team
  int teams;
  int cluster;   // blocks of a cluster, which share a row, or a problem whose exponentials it keeps; 1: none
  bool streams;  // whether the device has bulk copies
  int sharing_steps;  // see gradient_blocks()
  // Of problems whose exponentials stay in shared memory (kept/kept_layout.h):
  int rows;  // of a block, at most
  int columns;
  bool of_points;  // whether their costs are made from points

  // A fused sweep needs whole rows.
  [[nodiscard]] WARPALIGN_ANYWHERE bool sweeps() const { return segments <= cluster; }
  [[nodiscard]] WARPALIGN_ANYWHERE int first_row(int group, int rows) const {
    return static_cast<int>(static_cast<std::int64_t>(rows) * group / row_groups);
  }
};

// Bytes of a column's numbers: its potential (a pair in float32, a single number in float64) and its weight
// in the reference.
template <class Real>
inline constexpr int kNumbersOfColumn = sizeof(Real) == 4 ? 3 : 2;

// Bytes of dynamic shared memory of a block.
template <class Real, class Stored>
constexpr std::size_t dense_shared_bytes(const RowShape& shape, int threads) {
  const std::size_t row = shape.columns() * sizeof(Real);
  const std::size_t exchange = shape.warp_rows() ? threads / 32 * row : 0;
  const std::size_t costs_ahead =
      static_cast<std::size_t>(threads) * shape.columns_of_thread * sizeof(Stored);
  return kScratchBytes +
         std::max<std::size_t>(kTotalsBytes, kNumbersOfColumn<Real> * row + exchange + costs_ahead);
}

// The most columns of a problem whose iterations are those of costs/short_rows.cuh, and the numbers that a
// block of its team tells the others beside its sums of columns.
inline constexpr int kMostShortColumns = 512;
inline constexpr int kShortMoves = 4;

// The numbers that a block whose exponentials are kept tells the others of its team beside its sums of
// columns: its flags, and three that keep places apart.
inline constexpr int kToldFlags = 4;

// Costs from points: a block owns 64 points of one side at a time.
inline constexpr int kPointsThreads = 256;
inline constexpr int kPointsTile = 64;

inline constexpr int kPointsStage = 64;  // other points in shared memory at a time

// Points with few coordinates: the most coordinates, and the points of one side that a block owns at a time.
inline constexpr int kMostDimOfRows = 8;
inline constexpr int kOwnPointsOfRows = 2 * kPointsThreads;
inline constexpr int kUnitOfRows = 16;  // other points of a step

// For matrix units, points are packed in blocks of 16 points and 16 features: 32 rows of 8 features. Up to 32
// features are two blocks, more of them come in pieces of kUnitFeatures.
inline constexpr int kUnitFeatures = 64;
WARPALIGN_ANYWHERE constexpr int unit_pieces(int dim) { return cuda::div_up(dim, kUnitFeatures); }
WARPALIGN_ANYWHERE constexpr int unit_blocks(int dim) {
  return dim <= 32 ? 2 : unit_pieces(dim) * (kUnitFeatures / 16);
}
WARPALIGN_ANYWHERE constexpr std::int64_t unit_rows(int length, int dim) {
  return std::int64_t{cuda::div_up(length, kPointsStage)} * (kPointsStage / 16) * unit_blocks(dim) * 32;
}

inline constexpr int kUnitRowBytes = 16;
inline constexpr int kUnitWarps = 8;
// A warp owns 16 times so many points: one, where sums of three terms stay in registers from piece to piece.
WARPALIGN_ANYWHERE constexpr int unit_fragments(int terms, bool has_pieces) {
  return terms == 3 && has_pieces ? 1 : 2;
}
// The points of one side that a block owns at a time.
WARPALIGN_ANYWHERE constexpr int unit_own_points(int terms, int dim) {
  return 16 * unit_fragments(terms, dim > kUnitFeatures) * kUnitWarps;
}
// Gradients of such points: the points and features that a block owns at a time.
inline constexpr int kUnitGradientPoints = 128;
inline constexpr int kGradientPart = kUnitGradientPoints * kUnitFeatures;

// The number of a team's blocks that share the steps of such a gradient. Each writes up to one part of
// kGradientPart numbers. All parts together are at most twice as large as the points. A tile with fewer steps
// than sharing_steps is computed by one block, because sharing it costs a barrier of the team.
WARPALIGN_ANYWHERE constexpr int gradient_blocks(int length, int other_length, int dim, int team_blocks,
                                                 int sharing_steps) {
  const int tasks = cuda::div_up(length, kUnitGradientPoints) * unit_pieces(dim);
  const bool shares = cuda::div_up(other_length, kPointsStage) >= sharing_steps;
  const std::int64_t most = (std::int64_t{length} + other_length) * dim * 2 / kGradientPart;
  return static_cast<int>(
      std::clamp<std::int64_t>(shares ? std::max<std::int64_t>(most, tasks) : tasks, 1, team_blocks));
}

// The number of parts into which a team divides the other side of `length` points, so that all blocks have
// work.
constexpr int point_splits(int length, int other_length, int team_blocks) {
  const int tiles = cuda::div_up(length, kPointsTile);
  return std::clamp(cuda::div_up(2 * team_blocks, tiles), 1, cuda::div_up(other_length, kPointsTile));
}

// The part of the layout that depends on the extents alone; share_out() sets the rest.
constexpr SolveLayout block_layout(int rows, int columns, const RowShape& shape) {
  SolveLayout layout{};
  layout.threads = shape.warp_rows() ? 32 * std::clamp(cuda::div_up(rows, 4), 1, kMostWarps) : shape.width;
  layout.segments = cuda::div_up(columns, shape.columns());
  layout.cluster = 1;
  return layout;
}

// Distributes `resident` blocks among the problems of a batch. A problem gets the larger of two numbers: a
// block for every idle_elements elements, up to its share of the multiprocessors, and a block for every
// block_elements. With fewer elements, the team's barriers cost more than a block saves.
// same_for_every_batch: a problem gets as many as it would alone, so that its sums have the same order in
// every batch.
constexpr void share_out(SolveLayout& layout, int rows, int columns, int batch, int resident,
                         int multiprocessors, bool same_for_every_batch, int idle_elements,
                         int block_elements) {
  const std::int64_t elements = static_cast<std::int64_t>(rows) * columns;
  const int idle = same_for_every_batch ? multiprocessors : std::max(multiprocessors / batch, 1);
  const std::int64_t worth = std::max(std::min<std::int64_t>(elements / std::max(idle_elements, 1), idle),
                                      elements / std::max(block_elements, 1));
  int blocks = static_cast<int>(std::clamp<std::int64_t>(worth, layout.cluster, resident));
  if (!same_for_every_batch) blocks = std::clamp(resident / batch, layout.cluster, blocks);
  layout.row_groups = std::clamp(blocks / layout.segments, 1, rows);
  layout.team_blocks = std::min(blocks, layout.row_groups * layout.segments);
  layout.teams = std::clamp(resident / layout.team_blocks, 1, batch);
}

}  // namespace warpalign::detail::transport
