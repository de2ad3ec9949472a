// The path of sinkhorn() between points that are rounded to binary16 (half_points.cuh): which calls take it,
// and how it shares out its work. Plain numbers, and its entry points.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/anywhere.h"
#include "warpalign/sinkhorn.h"

namespace warpalign::detail::transport {

inline constexpr int kHalfThreads = 256;      // threads per block where a thread has a point
inline constexpr int kHalfBoundBlocks = 64;   // blocks that look for the range of coordinates
inline constexpr int kHalfLargest = 14;       // coordinates on the grid are below 2^14
inline constexpr int kHalfPassThreads = 128;  // threads per block of a pass; a warp has 32 points
inline constexpr int kHalfPassPoints = kHalfPassThreads;
inline constexpr int kHalfPassBlocks = 3;       // blocks per multiprocessor that registers allow
inline constexpr int kHalfTile = 64;            // points of the other side at a time
inline constexpr int kHalfStages = 3;           // tiles in shared memory
inline constexpr int kHalfMostWidth = 128;      // coordinates
inline constexpr float kHalfNothing = -1e30F;   // the shift before the first logit
inline constexpr float kHalfSlack = 30;         // bits that a logit may be above the shift
inline constexpr float kHalfMostSum = 0x1p60F;  // a few pairs' sum, before the shift moves
inline constexpr float kHalfLeastSlope = 0x1p-96F;

// A pass by warpgroups (sm_90a), where a side is long: three of them multiply, 64 points each; one warp
// copies.
inline constexpr int kHalfGroups = 3;
inline constexpr int kHalfGroupThreads = kHalfGroups * 128 + 32;
inline constexpr int kHalfGroupPoints = kHalfGroups * 64;
inline constexpr int kHalfGroupStages = 6;

// Instantiations by width / 16.
inline constexpr int kHalfSteps[] = {1, 5, 8};

// Bytes of a tile of a side: points, biases, and squares where costs are wanted.
constexpr int half_tile_bytes(int steps) { return kHalfTile * 16 * steps * 2; }
constexpr std::size_t half_shared_bytes(int steps) {
  return std::size_t{kHalfStages} * (half_tile_bytes(steps) + 2 * kHalfTile * 4);
}
constexpr std::size_t half_group_shared_bytes(int steps) {
  return std::size_t{kHalfGroupStages} * (half_tile_bytes(steps) + kHalfTile * 4);
}
// Points of a side in memory: whole tiles.
constexpr int half_padded(int length) { return (length + kHalfTile - 1) / kHalfTile * kHalfTile; }

// Into how many parts a pass cuts the other side, by the lengths alone, so that sums have the same order
// everywhere. Blocks of mma: some eight for each multiprocessor of a large GPU, but at least four tiles for
// each of them. Blocks of warpgroups, one a multiprocessor: what ends first on 132 multiprocessors, where a
// block's beginning and end take as long as three tiles.
constexpr int half_splits(int length, int other, bool by_groups) {
  const int points = by_groups ? kHalfGroupPoints : kHalfPassPoints;
  const int blocks = (length + points - 1) / points, tiles = (other + kHalfTile - 1) / kHalfTile;
  if (!by_groups) {
    const int wanted = (1056 + blocks - 1) / blocks, most = (tiles + 3) / 4;
    return wanted < most ? wanted : most;
  }
  constexpr int kMultiprocessors = 132, kMost = 64, kEnds = 3;
  int best = 1;
  std::int64_t least = INT64_MAX;
  for (int splits = 1; splits <= kMost && splits <= tiles; ++splits) {
    const std::int64_t rounds = (std::int64_t{blocks} * splits + kMultiprocessors - 1) / kMultiprocessors;
    const std::int64_t time = rounds * ((tiles + splits - 1) / splits + kEnds);
    if (time < least) {
      least = time;
      best = splits;
    }
  }
  return best;
}

// One problem of points (squared Euclidean costs, at most 128 coordinates, Precision::kMedium), a fixed
// number of alternating iterations at one epsilon, and no output but potentials, value, shift, linear and
// iterations.
bool takes_half_points(const SinkhornProblem&, const SinkhornOutputs&, const Execution&);

// by_groups: warpgroups make all passes but the last; only where the device has them.
std::size_t half_points_workspace_bytes(const SinkhornProblem&, bool by_groups);
Status half_points_sinkhorn(const SinkhornProblem&, const SinkhornOutputs&, Workspace, const Execution&,
                            bool by_groups);

}  // namespace warpalign::detail::transport
