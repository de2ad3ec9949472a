// The division of a problem whose exponentials stay in shared memory (kept_rows.cuh): sizes and places as
// plain numbers.
//
// A block of the problem's team owns neighbouring rows. 1 to 32 neighbouring lanes, a group, own a row; a
// lane has `quads` times four neighbouring columns of it. 1 to 8 neighbouring threads share a column when the
// sums of columns are added up.
#pragma once

#include <algorithm>
#include <cstddef>

#include "transport/cuda/solve/layout.h"

namespace warpalign::detail::transport {

// The most columns of such a problem, and threads of a block.
template <class Real>
inline constexpr int kMostKeptColumns = sizeof(Real) == 4 ? 512 : 256;
// The most coordinates of points.
inline constexpr int kMostKeptDim = 32;
// Rows that a group works on at a time.
inline constexpr int kKeptRowsAtOnce = 2;
// Points of one side whose features are in shared memory at a time, and the distance of two features there.
inline constexpr int kStagedPoints = 64;
inline constexpr int kStagedStride = kStagedPoints + 4;

// Numbers of a row of costs or exponentials in memory.
WARPALIGN_ANYWHERE constexpr int kept_stride(int columns) { return cuda::div_up(columns, 4) * 4; }

struct KeptShape {
  int quads;
  int lanes;        // of a row
  int groups;       // of lanes in a block
  int stride;       // numbers of a row in memory
  int sharing;      // threads that share a column
  int part_stride;  // numbers of a group's sums of columns; avoids bank conflicts
  int padded;       // rows of a block, with those that groups have in their last round and do not exist
};

WARPALIGN_ANYWHERE constexpr KeptShape kept_shape(int threads, int rows, int columns) {
  KeptShape s{};
  s.quads = columns > 256 ? 4 : 2;
  s.lanes = 1;
  while (s.lanes < 32 && s.lanes * 4 * s.quads < columns) s.lanes *= 2;
  s.groups = threads / s.lanes;
  s.stride = kept_stride(columns);
  s.sharing = 1;
  while (s.sharing < 8 && 2 * s.sharing * columns <= threads) s.sharing *= 2;
  s.part_stride = cuda::div_up(columns, 32) * 32 + (s.sharing > 1 ? 32 / s.sharing : 0);
  const int of_round = s.groups * kKeptRowsAtOnce;
  s.padded = cuda::div_up(rows, of_round) * of_round;
  return s;
}

// Numbers of a block's arrays in shared memory, in the order in which they lie there.
struct KeptArrays {
  std::size_t parts;     // sums of columns, of the groups: also the memory of for_totals()
  std::size_t kernel;    // exponentials
  std::size_t staged;    // features of points, and one more number of each
  std::size_t received;  // sums of columns of the cluster's blocks, and flags, twice
  std::size_t rows;      // four numbers of each
  std::size_t scales;    // of rows, twice
  std::size_t columns;   // four numbers of each

  [[nodiscard]] WARPALIGN_ANYWHERE constexpr std::size_t all() const {
    return parts + kernel + staged + received + rows + scales + columns;
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
          numbers(layout.of_points ? (kMostKeptDim + 1) * kStagedStride : 0),
          numbers(layout.cluster > 1 ? 2 * layout.cluster * (s.stride + kToldFlags) : 0),
          4 * rows,
          2 * rows,
          4 * numbers(s.stride)};
}

// Bytes behind the arrays: the largest magnitudes of the warps, and flags.
inline constexpr int kKeptFlagBytes = (kMostWarps + 4) * 4;

template <class Real>
constexpr std::size_t kept_shared_bytes(const SolveLayout& layout) {
  const KeptShape shape = kept_shape(layout.threads, layout.rows, layout.columns);
  return kScratchBytes + sizeof(Real) * kept_arrays<Real>(shape, layout).all() + kKeptFlagBytes;
}

}  // namespace warpalign::detail::transport
