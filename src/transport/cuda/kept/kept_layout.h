// The division of a problem whose exponentials stay in shared memory (kept_rows.cuh): sizes and places as
// plain numbers.
//
// A block of the problem's team owns neighbouring rows. 1 to 32 neighbouring lanes, a group, own a row; a
// lane has `quads` times four neighbouring columns of it. 1 to 8 neighbouring threads share a column when the
// sums of columns are added up.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "transport/cuda/solve/layout.h"

namespace warpalign::detail::transport {

// The most columns of such a problem, and threads of a block. Longer rows are those of long_rows.cuh.
template <class Real>
inline constexpr int kMostKeptColumns = sizeof(Real) == 4 ? 512 : 256;
// The most coordinates of points.
inline constexpr int kMostKeptDim = 32;
// Exponentials that a lane works on at a time.
template <class Real>
inline constexpr int kKeptElements = sizeof(Real) == 4 ? 32 : 16;
// Rows that a group of lanes works on at a time.
template <class Real>
WARPALIGN_ANYWHERE constexpr int kept_rows_at_once(int quads) {
  return kKeptElements<Real> / 4 / quads;
}
// Points of one side whose features are in shared memory at a time, and the distance of two features there.
inline constexpr int kStagedPoints = 64;
inline constexpr int kStagedStride = kStagedPoints + 4;
// Numbers of such points, with one more of each. They lie where exponentials do at other times.
inline constexpr std::size_t kStagedNumbers = (kMostKeptDim + 1) * kStagedStride;

// Numbers of a row of costs or exponentials in memory.
WARPALIGN_ANYWHERE constexpr int kept_stride(int columns) { return cuda::div_up(columns, 4) * 4; }

struct KeptShape {
  int quads;
  int lane_bits;
  int lanes;   // that share a row: 1 << lane_bits
  int groups;  // groups of lanes in a block
  int stride;  // the distance of two rows in memory, in numbers
  int sharing_bits;
  int sharing;  // threads that share a column: 1 << sharing_bits
  int telling_bits;
  int telling;      // threads that share four columns, in a cluster: 1 << telling_bits
  int part_stride;  // numbers of a group's sums of columns; avoids bank conflicts
  int padded;       // rows of a block, with those that groups have in their last round and do not exist
};

template <class Real>
WARPALIGN_ANYWHERE constexpr KeptShape kept_shape(const SolveLayout& layout) {
  const int threads = layout.threads, columns = layout.columns;
  KeptShape s{};
  s.quads = columns > 256 ? 4 : 2;
  while (s.lane_bits < 5 && (4 * s.quads << s.lane_bits) < columns) ++s.lane_bits;
  s.lanes = 1 << s.lane_bits;
  s.groups = threads >> s.lane_bits;
  s.stride = kept_stride(columns);
  while (s.sharing_bits < 3 && (2 * columns << s.sharing_bits) <= threads) ++s.sharing_bits;
  s.sharing = 1 << s.sharing_bits;
  while (s.telling_bits < 5 && (s.stride / 2 << s.telling_bits) <= threads) ++s.telling_bits;
  s.telling = 1 << s.telling_bits;
  const int readers = layout.cluster > 1 ? (s.telling < 8 ? s.telling : 8) : s.sharing;
  s.part_stride = cuda::div_up(columns, 32) * 32 + (readers > 1 ? 32 / readers : 0);
  const int of_round = s.groups * kept_rows_at_once<Real>(s.quads);
  s.padded = cuda::div_up(layout.rows, of_round) * of_round;
  return s;
}

// Numbers of a block's arrays in shared memory, in the order in which they lie there.
struct KeptArrays {
  std::size_t parts;     // sums of columns, of the groups: also the memory of for_totals()
  std::size_t kernel;    // exponentials
  std::size_t received;  // sums of columns of the cluster's blocks, and flags, twice
  std::size_t rows;      // two numbers of each
  std::size_t scales;    // of rows, twice
  std::size_t columns;   // four numbers of each

  [[nodiscard]] WARPALIGN_ANYWHERE constexpr std::size_t all() const {
    return parts + kernel + received + rows + scales + columns;
  }
};
template <class Real>
WARPALIGN_ANYWHERE constexpr KeptArrays kept_arrays(const KeptShape& s, const SolveLayout& layout) {
  const auto numbers = [](int count) { return static_cast<std::size_t>(count); };
  const std::size_t table = numbers(layout.rows) * s.stride;
  const std::size_t least = kTotalsBytes / sizeof(Real);
  const std::size_t parts = numbers(s.groups) * s.part_stride;
  const std::size_t rows = numbers(cuda::div_up(s.padded, 4) * 4);
  return {parts > least ? parts : least,
          table,
          numbers(layout.cluster > 1 ? 2 * layout.cluster * (s.stride + kToldFlags) : 0),
          2 * rows,
          2 * rows,
          4 * numbers(s.stride)};
}

// In front of the arrays: what the iterations of a block share beside them.
struct alignas(16) KeptBlock {
  std::uint64_t boxes[2];  // mailboxes of the cluster's messages, in turns
  int flags[4];            // (2, 2): a scale has left its range; a sum has; each in turns
  float tops[kMostWarps];  // the largest magnitudes of the warps
  // Numbers that do not change. They lie here, and not in registers, because a loop over rows leaves few of
  // those free, and local memory is slow beside so much shared memory.
  struct Places {
    int kernel, received, points, scales, scaled;  // where these arrays begin, in numbers behind arrays()
    int scales_stride, stride, part_stride;
    int lane_bits, groups, sharing_bits, telling_bits;
    int own, columns;  // the block's rows, the problem's columns
    int rank, blocks;  // the block's number in its team, and the team's number of blocks
    int in_cluster;    // whether the team's blocks are a cluster
  } places;
};

// Longer rows (long_rows.cuh): the most columns, threads of a block, and rows that a thread works on at a
// time.
inline constexpr int kMostLongColumns = 6144;
template <class Real>
inline constexpr int kLongThreads = sizeof(Real) == 4 ? 256 : 384;
inline constexpr int kLongRowsAtOnce = 8;

struct LongShape {
  int warps;
  int stride;  // the distance of two rows in memory, in numbers
  int padded;  // rows of a block, up to a multiple of those that a thread works on at a time
  int owned;   // columns whose scales a block updates
};
template <class Real>
WARPALIGN_ANYWHERE constexpr LongShape long_shape(const SolveLayout& layout) {
  const int stride = kept_stride(layout.columns);
  return {kLongThreads<Real> / 32, stride, cuda::div_up(layout.rows, kLongRowsAtOnce) * kLongRowsAtOnce,
          4 * cuda::div_up(stride / 4, layout.team_blocks)};
}
// In front of the arrays.
inline constexpr int kGoesOn = 4;
struct alignas(16) LongBlock {
  int flags[6];  // (3, 2), in turns: a scale has left its range; a sum has; from kGoesOn on: a potential
                 // moves
  float tops[kMostWarps];
};
template <class Real>
constexpr std::size_t long_shared_bytes(const SolveLayout& layout) {
  const LongShape s = long_shape<Real>(layout);
  const std::size_t numbers = (static_cast<std::size_t>(layout.rows) + 1) * s.stride +
                              static_cast<std::size_t>(s.warps + 5) * s.padded + 4 * s.owned;
  return kScratchBytes + std::max(sizeof(LongBlock) + sizeof(Real) * numbers,
                                  layout.of_points ? sizeof(KeptBlock) + sizeof(Real) * kStagedNumbers : 0);
}

template <class Real>
constexpr std::size_t kept_shared_bytes(const SolveLayout& layout) {
  if (layout.columns > kMostKeptColumns<Real>) return long_shared_bytes<Real>(layout);
  const KeptShape shape = kept_shape<Real>(layout);
  const std::size_t numbers = kept_arrays<Real>(shape, layout).all();
  return kScratchBytes + sizeof(KeptBlock) +
         sizeof(Real) * std::max(numbers, layout.of_points ? kStagedNumbers : 0);
}

}  // namespace warpalign::detail::transport
