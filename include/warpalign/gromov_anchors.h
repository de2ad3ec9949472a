// Building blocks of sampled Gromov-Wasserstein transport.
//
// CUDA only: anchor_columns() draws pairs of points (anchors) from a plan, and anchor_coordinates() computes
// the distances of all points to them, which are the coordinates for the sinkhorn() call that ends a step.
// CPU only: largest_differences() computes distances between points that are represented by their distances
// to landmarks.
//
// Source: Kerdoncuff, Emonet & Sebban, "Sampled Gromov Wasserstein", Machine Learning 2021.
#pragma once

#include <cstddef>
#include <cstdint>

#include "warpalign/dtype.h"
#include "warpalign/execution.h"
#include "warpalign/status.h"

namespace warpalign {

// Columns of a plan P[i,j] ~ b[j] exp((g[j] - cost_scale |x[i] - y[j]|^2) / epsilon), one in each given row.
// The largest of the logits with Gumbel noise is drawn with the probability that the plan's row says
// (Maddison, Tarlow & Minka, "A* sampling", NIPS 2014). The random numbers of draw s depend on the seed, the
// column and s alone, so that every launch draws the same columns. All arrays are contiguous and on the
// device, and float32 except for indices.
struct AnchorColumns {
  std::int32_t n = 0;                  // N, 1 to 2^29
  std::int32_t m = 0;                  // M, 1 to 2^29
  std::int32_t dim = 0;                // D, 1 to 128
  std::int32_t count = 0;              // S, 0 to 2^16
  const void* x = nullptr;             // (N, D)
  const void* y = nullptr;             // (M, D)
  const void* g = nullptr;             // (M): a potential
  const void* b = nullptr;             // (M): weights; null: equal ones
  const std::int64_t* rows = nullptr;  // (S): clamped to 0 to N - 1
  double cost_scale = 1;               // > 0
  double epsilon = 1;                  // > 0
  std::uint64_t seed = 0;
  std::int64_t* columns = nullptr;  // (S), written; 0 in a row without any share
};

Status anchor_columns(const AnchorColumns& problem, Workspace workspace, const Execution& execution);
std::size_t anchor_columns_workspace_bytes(const AnchorColumns& problem);

// How the distance of two points follows from their coordinates.
enum class AnchorDistance : std::int32_t { kLargestDifference, kEuclidean, kSquaredEuclidean };

// coordinates[i,s] = d(points[i], points[anchors[s]]) / unit - 1/2, rounded to binary16.
struct AnchorCoordinates {
  std::int32_t n = 0;      // N, 1 to 2^29
  std::int32_t dim = 0;    // D, 1 to 2^20
  std::int32_t count = 0;  // S, 1 to 2^16
  AnchorDistance distance = AnchorDistance::kLargestDifference;
  const void* points = nullptr;           // (N, D), float32
  const std::int64_t* anchors = nullptr;  // (S): clamped to 0 to N - 1
  const void* unit = nullptr;             // one number > 0
  void* coordinates = nullptr;            // (N, S), written
};

Status anchor_coordinates(const AnchorCoordinates& problem, const Execution& execution);

// distances[i,j] = max over d of |x[i,d] - y[j,d]|; NaN where a difference is NaN. All arrays are contiguous.
struct LargestDifferences {
  DType dtype = DType::kFloat32;  // kFloat32 or kFloat64
  std::int32_t n = 0;             // N, 0 to 2^29
  std::int32_t m = 0;             // M, 0 to 2^29
  std::int32_t dim = 0;           // D, 1 to 2^20
  const void* x = nullptr;        // (N, D)
  const void* y = nullptr;        // (M, D)
  void* distances = nullptr;      // (N, M), written
};

// The execution must be one of a CPU.
Status largest_differences(const LargestDifferences& problem, Workspace workspace,
                           const Execution& execution);
std::size_t largest_differences_workspace_bytes(const LargestDifferences& problem,
                                                const Execution& execution);

}  // namespace warpalign
