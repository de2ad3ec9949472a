// The ways of sinkhorn() on CUDA, the choice of a kernel with its layout, and the key of a choice. A choice
// is made once: PlanCache keeps it for the query of the workspace's size, the call, and later calls of the
// same sizes.
#pragma once

#include <cstdint>

#include "core/plan_log.h"
#include "cuda/launch/device.h"
#include "transport/cuda/solve/kernels.h"
#include "warpalign/execution.h"
#include "warpalign/sinkhorn.h"

namespace warpalign::detail::transport {

enum class Way {
  kKeptRows,       // exponentials stay in shared memory (kept/), of given costs or of points
  kWarpRows,       // given costs: a warp owns a row
  kBlockRows,      // given costs: a block owns a row, or a segment of it
  kClusterRows,    // two blocks share a row
  kPoints,         // costs of points, without matrix units
  kPointsOnUnits,  // products of coordinates on the matrix units
  kHalfPoints,     // coordinates rounded to binary16 (half_points.h)
  kHalfPointsByWarpgroups,
};
inline constexpr const char* kWays[] = {
    "kept_rows", "warp_rows",       "block_rows",  "cluster_rows",
    "points",    "points_on_units", "half_points", "half_points_by_warpgroups",
};

// Why a way cannot serve a call; null: it can.
const char* why_not(Way way, const SinkhornProblem&, const SinkhornOutputs&, const Execution&);
// The way that the caller has named, or the plan's choice, of a call that some way can serve.
Way way_for(const SinkhornProblem&, const SinkhornOutputs&, const Execution&);
// The reason for the choice of a way.
const char* reason_of(Way way, const Execution&);
// An error if the caller has named a way that does not exist or cannot serve the call.
Status check_way_of(const SinkhornProblem&, const SinkhornOutputs&, const Execution&);

enum class Job { kSolve, kReadPlan, kDifferentiate };

// Everything that determines the choice of a kernel and of its layout.
struct SolveKey {
  Job job;
  Way way;            // with Job::kSolve
  int rows, columns;  // of the costs as they lie in memory
  int batch;
  bool given;  // whether the problem has a cost matrix, not points
  bool half_cost;
  bool batch_invariant;
  Precision precision;
  cuda::DeviceTraits device;

  // binary16 numbers of a coordinate on the matrix units; 0: they are not used.
  [[nodiscard]] int terms() const {
    if (job != Job::kSolve || way != Way::kPointsOnUnits) return 0;
    return precision == Precision::kMedium ? 1 : precision == Precision::kHigh ? 2 : 3;
  }
  // Whether a block has whole rows of costs, or segments of them.
  [[nodiscard]] bool has_rows() const { return job == Job::kSolve && (given || keeps()); }
  [[nodiscard]] bool keeps() const { return job == Job::kSolve && way == Way::kKeptRows; }

  friend bool operator==(const SolveKey&, const SolveKey&) = default;
};

template <class Real>
struct SolveChoice {
  const SinkhornKernel<Real>* kernel = nullptr;
  SolveLayout layout = {};
  Status status = {};
};

// From the cache of the calling thread, or made now.
template <class Real>
SolveChoice<Real> choose(const SolveKey& key);

}  // namespace warpalign::detail::transport
