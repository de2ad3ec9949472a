// The path of sinkhorn() between points that are rounded to binary16 (half_points.cuh): its entry points, the
// calls that take it, and the division of its work.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/anywhere.h"
#include "warpalign/sinkhorn.h"

namespace warpalign::detail::transport {

inline constexpr int kHalfThreads = 256;      // threads per block of kernels in which a thread owns a point
inline constexpr int kHalfBoundBlocks = 64;   // blocks that find the range of coordinates
inline constexpr int kHalfLargest = 14;       // coordinates on the grid are below 2^14
inline constexpr int kHalfPassThreads = 128;  // threads per block of a pass; a warp owns 32 points
inline constexpr int kHalfPassPoints = kHalfPassThreads;
inline constexpr int kHalfPassBlocks = 3;       // blocks per multiprocessor that registers allow
inline constexpr int kHalfTile = 64;            // points of the other side at a time
inline constexpr int kHalfStages = 3;           // tiles in shared memory
inline constexpr int kHalfMostWidth = 128;      // the most coordinates
inline constexpr float kHalfNothing = -1e30F;   // the shift before the first logit
inline constexpr float kHalfSlack = 30;         // bits by which a logit may exceed the shift
inline constexpr float kHalfMostSum = 0x1p60F;  // sum of a few pairs above which the shift is raised
inline constexpr float kHalfLeastSlope = 0x1p-96F;

// A pass by warpgroups (sm_90a), if a side is long: a block has three warpgroups that multiply, 64 points
// each, and one warp that copies.
inline constexpr int kHalfGroups = 3;
inline constexpr int kHalfGroupThreads = kHalfGroups * 128 + 32;
inline constexpr int kHalfGroupPoints = kHalfGroups * 64;
inline constexpr int kHalfGroupStages = 6;

// Instantiations by width / 16.
inline constexpr int kHalfSteps[] = {1, 5, 8};

// Bytes of the points of a tile; and of a block's shared memory, with biases and, for <C, P>, squares.
constexpr int half_tile_bytes(int steps) { return kHalfTile * 16 * steps * 2; }
constexpr std::size_t half_shared_bytes(int steps) {
  return std::size_t{kHalfStages} * (half_tile_bytes(steps) + 2 * kHalfTile * 4);
}
constexpr std::size_t half_group_shared_bytes(int steps) {
  return std::size_t{kHalfGroupStages} * (half_tile_bytes(steps) + kHalfTile * 4);
}
// The number of points of a side in memory, rounded up to whole tiles.
constexpr int half_padded(int length) { return (length + kHalfTile - 1) / kHalfTile * kHalfTile; }

// The number of parts of the other side in a pass. It depends on the lengths alone, so that sums have the
// same order on every device. With mma: about eight blocks for each multiprocessor of a large GPU, but at
// least four tiles per block. With warpgroups, one block per multiprocessor: the fastest on 132
// multiprocessors if a block's beginning and end take as long as three tiles.
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

// Whether a call takes this path: one problem of points (squared Euclidean costs, at most 128 coordinates,
// Precision::kMedium), a fixed number of alternating iterations at one epsilon, and no outputs but
// potentials, value, shift, linear and iterations.
bool takes_half_points(const SinkhornProblem&, const SinkhornOutputs&, const Execution&);

// by_groups: warpgroups compute all passes but the last. The device must have them.
std::size_t half_points_workspace_bytes(const SinkhornProblem&, bool by_groups);
Status half_points_sinkhorn(const SinkhornProblem&, const SinkhornOutputs&, Workspace, const Execution&,
                            bool by_groups);

}  // namespace warpalign::detail::transport
