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
inline constexpr int kHalfPassBlocks = 3;      // blocks per multiprocessor that registers allow
inline constexpr int kHalfTile = 64;           // points of the other side at a time
inline constexpr int kHalfStages = 3;          // tiles in shared memory
inline constexpr int kHalfMostWidth = 128;     // coordinates
inline constexpr float kHalfNothing = -1e30F;  // the shift before the first logit
inline constexpr float kHalfSlack = 30;        // bits that a logit may be above the shift

// Instantiations by width / 16.
inline constexpr int kHalfSteps[] = {1, 5, 8};

constexpr std::size_t half_shared_bytes(int steps) {
  return std::size_t{kHalfStages} * kHalfTile *
         ((16 * steps + 8) * sizeof(std::uint16_t) + 2 * sizeof(float));
}

// Into how many parts a pass cuts the other side: some eight blocks for each multiprocessor of a large GPU,
// but at least four tiles for each of them. By the lengths alone, so that sums have the same order
// everywhere.
constexpr int half_splits(int length, int other) {
  const int blocks = (length + kHalfPassPoints - 1) / kHalfPassPoints;
  const int tiles = (other + kHalfTile - 1) / kHalfTile;
  const int wanted = (1056 + blocks - 1) / blocks, most = (tiles + 3) / 4;
  return wanted < most ? wanted : most;
}

// One problem of points (squared Euclidean costs, at most 128 coordinates, Precision::kMedium), a fixed
// number of alternating iterations at one epsilon, and no output but potentials, value, shift, linear and
// iterations.
bool takes_half_points(const SinkhornProblem&, const SinkhornOutputs&, const Execution&);

std::size_t half_points_workspace_bytes(const SinkhornProblem&);
Status half_points_sinkhorn(const SinkhornProblem&, const SinkhornOutputs&, Workspace, void* stream);

}  // namespace warpalign::detail::transport
