#include <algorithm>
#include <type_traits>

#include "core/plan_cache.h"
#include "core/ways.h"
#include "cuda/launch/launch.cuh"
#include "transport/cuda/gromov/half_points.h"
#include "transport/cuda/kept/kept_layout.h"
#include "transport/cuda/solve/ways.h"
#include "transport/problem.h"
#include "transport/tuning.h"

namespace warpalign::detail::transport {
namespace {

// Points with fewer features have passes of their own, in which costs are differences.
constexpr int kFewestUnitFeatures = 5;
constexpr int kFewestSplitFeatures = kMostDimOfRows + 1;

RowThreads threads_of(Way way) {
  if (way == Way::kWarpRows) return RowThreads::kWarp;
  return way == Way::kClusterRows ? RowThreads::kCluster : RowThreads::kBlock;
}

// The length of a row of costs as it is in memory.
int columns_of(const SinkhornProblem& p) { return has_swapped_costs(p) ? p.n : p.m; }

// Whether there is a kernel whose rows of given costs these threads own.
bool has_kernel(const SinkhornProblem& p, RowThreads threads, const cuda::DeviceTraits& device) {
  const int columns = columns_of(p);
  if (p.dtype == DType::kFloat64) return dense_kernel_for<double>(columns, device.has_clusters, threads);
  if (p.half_cost) return half_dense_kernel_for(columns, threads);
  return dense_kernel_for<float>(columns, device.has_clusters, threads);
}

// A division into so many blocks, with as many threads as a block can have, of a problem whose exponentials
// stay in shared memory. Blocks that fit into a cluster are one.
template <class Real>
SolveLayout kept_layout(int rows, int columns, bool of_points, int blocks, const cuda::DeviceTraits& device) {
  const bool is_long = columns > kMostKeptColumns<Real>;
  SolveLayout layout{};
  layout.threads = is_long ? kLongThreads<Real> : kMostKeptColumns<Real>;
  layout.segments = 1;
  layout.streams = device.has_clusters;
  layout.columns = columns;
  layout.of_points = of_points;
  layout.rows = cuda::div_up(rows, blocks);
  layout.row_groups = layout.team_blocks = blocks;
  const bool is_cluster = device.has_clusters && blocks <= cuda::kClusterOfEveryDevice && !is_long;
  layout.cluster = is_cluster ? blocks : 1;
  return layout;
}

// The kernel for problems whose exponentials stay in shared memory.
template <class Real>
const SinkhornKernel<Real>& kept_kernel(int columns, bool half_cost) {
  if (columns <= kMostKeptColumns<Real>) return kept_rows_kernel<Real>();
  if constexpr (std::is_same_v<Real, float>) {
    if (half_cost) return half_long_rows_kernel();
  }
  return long_rows_kernel<Real>();
}

// The fewest blocks, at most one for a multiprocessor, whose shared memory has room for the exponentials of a
// problem, and for the passes of its kernel; 0: that many blocks have not.
template <class Real>
int fewest_blocks(int rows, int columns, bool of_points, bool half_cost, const cuda::DeviceTraits& device) {
  const SinkhornKernel<Real>& kernel = kept_kernel<Real>(columns, half_cost);
  const auto room = static_cast<std::size_t>(device.shared_bytes_per_block);
  const std::size_t bytes = sizeof(Real) * rows * static_cast<std::size_t>(columns);
  for (int blocks = static_cast<int>(std::min<std::size_t>(bytes / room, device.multiprocessors)) + 1;
       blocks <= std::min(rows, device.multiprocessors); ++blocks) {
    const SolveLayout layout = kept_layout<Real>(rows, columns, of_points, blocks, device);
    if (kernel.shared_bytes(layout) <= room) return blocks;
  }
  return 0;
}

int fewest_blocks(const SinkhornProblem& p, const cuda::DeviceTraits& device) {
  const bool of_points = !p.cost.data;
  const int columns = columns_of(p), rows = p.n + p.m - columns;
  return p.dtype == DType::kFloat32 ? fewest_blocks<float>(rows, columns, of_points, p.half_cost, device)
                                    : fewest_blocks<double>(rows, columns, of_points, p.half_cost, device);
}

bool has_long_rows(const SinkhornProblem& p) {
  return columns_of(p) > (p.dtype == DType::kFloat32 ? kMostKeptColumns<float> : kMostKeptColumns<double>);
}

// Why exponentials of a problem cannot stay in shared memory; null: they can.
const char* why_not_kept(const SinkhornProblem& p, const cuda::DeviceTraits& device) {
  if (columns_of(p) > kMostLongColumns) return "it takes rows of at most 6144 costs";
  if (!p.cost.data && p.dim > kMostKeptDim) return "it takes points of at most 32 features";
  if (!p.cost.data && p.dim > kMostDimOfRows && has_long_rows(p)) {
    return "with more than 512 points y, or 256 in float64, it takes at most 8 features";
  }
  return fewest_blocks(p, device) > 0 ? nullptr
                                      : "shared memory has no room for the exponentials of all pairs";
}

// Whether keeping exponentials takes less time than the other ways. Partial transport keeps none. Solves of
// few iterations have passes that are as fast. Problems of long rows may have to take turns, because each of
// them needs many multiprocessors. They need more iterations then: passes run on all problems at once.
bool should_keep(const SinkhornProblem& p, const Execution& execution, const cuda::DeviceTraits& device) {
  if (why_not_kept(p, device)) return false;
  const bool is_long = has_long_rows(p);
  if (p.cost.data && p.dtype == DType::kFloat64 && !is_long) return true;
  if (p.mass > 0) return false;
  if (!p.cost.data && !is_long) return true;
  const int teams = std::max(device.multiprocessors / fewest_blocks(p, device), 1);
  const int turns = is_long && !execution.batch_invariant ? cuda::div_up(p.batch, teams) : 1;
  // Passes over points take half as long as those over costs.
  const std::int64_t each = cuda_tuning(device).kept_cost_iterations * (!p.cost.data && turns > 1 ? 2 : 1);
  return p.max_iterations >= each * turns;
}

// The number of blocks for a problem whose exponentials stay in shared memory. One for so many elements is
// worth its barriers. Those of a cluster are cheaper, so that a problem of short rows that a cluster has room
// for gets no more blocks, and any other one of these a block for four times as many elements.
int blocks_of_kept(const SolveKey& key, int fewest, bool is_long) {
  const int most = std::min(key.device.multiprocessors, key.rows);
  const bool fits_cluster = !is_long && key.device.has_clusters && fewest <= cuda::kClusterOfEveryDevice;
  const int each = cuda_tuning(key.device).kept_block_elements * (fits_cluster || is_long ? 1 : 4);
  int blocks =
      static_cast<int>(std::clamp<std::int64_t>(std::int64_t{key.rows} * key.columns / each, 1, most));
  if (!key.batch_invariant) blocks = std::clamp(most / key.batch, 1, blocks);
  if (fits_cluster) blocks = std::min(blocks, cuda::kClusterOfEveryDevice);
  return std::max(blocks, fewest);
}

// The division of a problem whose exponentials stay in shared memory.
template <class Real>
Status lay_out_kept(const SolveKey& key, const SinkhornKernel<Real>& kernel, SolveLayout& layout) {
  const int fewest = fewest_blocks<Real>(key.rows, key.columns, !key.given, key.half_cost, key.device);
  const bool is_long = key.columns > kMostKeptColumns<Real>;
  const int blocks = blocks_of_kept(key, fewest, is_long);
  layout = kept_layout<Real>(key.rows, key.columns, !key.given, blocks, key.device);
  // A thread has as many elements as it works on at a time, and at least one column.
  const int fewest_threads = cuda::div_up(key.columns, 32) * 32;
  const std::int64_t threads =
      cuda::div_up(std::int64_t{layout.rows} * key.columns, kKeptElements<Real> * 32) * 32;
  if (!is_long) {
    layout.threads =
        static_cast<int>(std::clamp<std::int64_t>(threads, fewest_threads, kMostKeptColumns<Real>));
  }
  int resident = 0;
  Status status = kernel.resident_blocks(layout, &resident);
  if (layout.cluster > 1 && (!status.ok() || resident < blocks)) {  // where others share the device
    layout.cluster = 1;
    status = kernel.resident_blocks(layout, &resident);
  }
  // If problems would wait for each other, smaller blocks allow more of them at the same time.
  while (!is_long && !key.batch_invariant && status.ok() && resident / blocks < key.batch &&
         layout.threads / 64 * 32 >= fewest_threads) {
    layout.threads = layout.threads / 64 * 32;
    status = kernel.resident_blocks(layout, &resident);
  }
  if (status.ok() && resident < blocks) {
    status = Status::unsupported("execution", "this GPU has too little shared memory for sinkhorn");
  }
  layout.teams = std::clamp(resident / blocks, 1, key.batch);
  return status;
}

// The way of given costs if the caller names none.
Way way_of_rows(const SinkhornProblem& p, const Execution& execution, const cuda::DeviceTraits& device) {
  const int columns = columns_of(p);
  if (should_keep(p, execution, device)) return Way::kKeptRows;
  if (p.half_cost) return Way::kBlockRows;
  if (p.dtype == DType::kFloat64) {
    const auto* const kernel = dense_kernel_for<double>(columns, device.has_clusters, RowThreads::kAny);
    return kernel->cluster > 1 ? Way::kClusterRows : Way::kBlockRows;
  }
  const auto* const kernel = dense_kernel_for<float>(columns, device.has_clusters, RowThreads::kAny);
  return kernel->shape.warp_rows() ? Way::kWarpRows : Way::kBlockRows;
}

template <class Real>
const SinkhornKernel<Real>* kernel_for(const SolveKey& key) {
  if (key.job == Job::kReadPlan) return &plan_kernel_entry<Real>();
  if (key.job == Job::kDifferentiate) return &jvp_kernel_entry<Real>();
  if (key.keeps()) return &kept_kernel<Real>(key.columns, key.half_cost);
  if constexpr (std::is_same_v<Real, float>) {
    if (key.half_cost) return half_dense_kernel_for(key.columns, threads_of(key.way));
    if (key.way == Way::kPointsOnUnits) {
      return key.terms() == 1 ? &medium_points_kernel() : &split_points_kernel();
    }
  }
  if (key.given) return dense_kernel_for<Real>(key.columns, key.device.has_clusters, threads_of(key.way));
  return &points_kernel<Real>();
}

template <class Real>
SolveChoice<Real> make_choice(const SolveKey& key) {
  SolveChoice<Real> choice;
  choice.kernel = kernel_for<Real>(key);
  SolveLayout& layout = choice.layout;
  if (key.keeps()) {
    choice.status = lay_out_kept<Real>(key, *choice.kernel, layout);
    return choice;
  }
  if (key.has_rows()) {
    layout = block_layout(key.rows, key.columns, choice.kernel->shape);
    layout.streams = key.device.has_clusters;
    if (choice.kernel->cluster > 1) layout.segments = layout.cluster = choice.kernel->cluster;
  } else {
    layout.threads = kPointsThreads;
    layout.segments = layout.cluster = 1;
  }
  int resident = 0;
  choice.status = choice.kernel->resident_blocks(layout, &resident);
  // If problems would wait for each other, smaller blocks allow more of them at the same time.
  const bool shrinks = key.has_rows() && choice.kernel->shape.warp_rows() && !key.batch_invariant;
  while (shrinks && choice.status.ok() && resident < key.batch && layout.threads > 128) {
    layout.threads = layout.threads / 64 * 32;
    choice.status = choice.kernel->resident_blocks(layout, &resident);
  }
  if (choice.status.ok() && resident == 0) {
    choice.status = Status::unsupported("execution", "this GPU has too little shared memory for sinkhorn");
  }
  const CudaTuning tuning = cuda_tuning(key.device);
  layout.sharing_steps = tuning.sharing_steps;
  share_out(layout, key.rows, key.columns, key.batch, std::max(resident, layout.cluster),
            key.device.multiprocessors, key.batch_invariant, tuning.idle_block_elements,
            key.has_rows() ? tuning.block_elements : tuning.point_block_elements);
  return choice;
}

}  // namespace

const char* why_not(Way way, const SinkhornProblem& p, const SinkhornOutputs& out,
                    const Execution& execution) {
  const cuda::DeviceTraits device = cuda::traits_of(execution.cuda_device);
  if (way == Way::kKeptRows) return why_not_kept(p, device);
  if (way <= Way::kClusterRows) {
    if (!p.cost.data) return "it takes a cost matrix, and the problem has points";
    if (has_kernel(p, threads_of(way), device)) return nullptr;
    return way == Way::kWarpRows
               ? "rows of the cost matrix are too long for a warp's registers, or of float64 or binary16"
               : "two blocks share float64 rows of 6145 to 12288 columns on 9.0 and later";
  }
  if (p.cost.data) return "it takes points, and the problem has a cost matrix";
  if (way == Way::kPoints) return nullptr;
  if (way == Way::kPointsOnUnits) {
    if (p.dtype != DType::kFloat32 || p.cost_kind != CostKind::kSquaredEuclidean) {
      return "matrix units make squared distances of float32 points";
    }
    if (p.dim < kFewestUnitFeatures) return "matrix units take 5 features or more";
    if (execution.precision == Precision::kHighest && p.dim < kFewestSplitFeatures) {
      return "matrix units take 9 features or more at Precision::kHighest";
    }
    return device.has_matrix_units ? nullptr : "the device has no matrix units";
  }
  if (!takes_half_points(p, out, execution)) {
    return "it takes one float32 problem of squared distances of at most 128 features at Precision::kMedium, "
           "a "
           "fixed number of alternating iterations at one epsilon, and makes no gradients";
  }
  if (way == Way::kHalfPoints || device.has_warpgroups) return nullptr;
  return "the device, or this build, has no products by warpgroups";
}

Way way_for(const SinkhornProblem& p, const SinkhornOutputs& out, const Execution& execution) {
  if (const int way = named_way(execution, kWays); way >= 0) return Way(way);
  const cuda::DeviceTraits device = cuda::traits_of(execution.cuda_device);
  if (p.cost.data) return way_of_rows(p, execution, device);
  if (takes_half_points(p, out, execution)) {
    const bool by_groups =
        device.has_warpgroups && std::max(p.n, p.m) >= cuda_tuning(device).warpgroup_points;
    return by_groups ? Way::kHalfPointsByWarpgroups : Way::kHalfPoints;
  }
  if (should_keep(p, execution, device)) return Way::kKeptRows;
  return why_not(Way::kPointsOnUnits, p, out, execution) ? Way::kPoints : Way::kPointsOnUnits;
}

const char* reason_of(Way way, const Execution& execution) {
  if (names_way(execution)) return "named by Execution::way";
  switch (way) {
    case Way::kKeptRows:
      return "all exponentials have room in shared memory";
    case Way::kWarpRows:
      return "rows of the cost matrix fit into a warp's registers";
    case Way::kBlockRows:
      return "rows of the cost matrix are longer than a warp's registers, or not of float32";
    case Way::kClusterRows:
      return "float64 rows of the cost matrix fit into the registers of two blocks";
    case Way::kPoints:
      return "costs of points in the precision that is asked for";
    case Way::kPointsOnUnits:
      return "squared distances of float32 points with many features";
    case Way::kHalfPoints:
      return "one problem of points, without gradients, in 11 bits";
    case Way::kHalfPointsByWarpgroups:
      return "the same, with a long side";
  }
  return "";
}

Status check_way_of(const SinkhornProblem& p, const SinkhornOutputs& out, const Execution& execution) {
  if (Status s = check_way(execution, kWays, "sinkhorn() on CUDA"); !s.ok()) return s;
  return check_serves(named_way(execution, kWays), kWays,
                      [&](int way) { return why_not(Way(way), p, out, execution); });
}

template <class Real>
SolveChoice<Real> choose(const SolveKey& key) {
  thread_local PlanCache<SolveKey, SolveChoice<Real>> choices;
  // For a class of devices, numbers of blocks are estimates, which are not kept.
  return cuda::plans_for_class() ? make_choice<Real>(key)
                                 : choices.find(key, [&] { return make_choice<Real>(key); });
}
template SolveChoice<float> choose(const SolveKey&);
template SolveChoice<double> choose(const SolveKey&);

}  // namespace warpalign::detail::transport
