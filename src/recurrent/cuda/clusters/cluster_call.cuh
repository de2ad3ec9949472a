// Which calls run as sweeps on clusters, and their launch. The device may refuse a launch: then nothing has
// been enqueued.
#pragma once

#include "cuda/launch/cluster_launch.h"
#include "recurrent/cuda/clusters/cluster_backward.cuh"
#include "recurrent/cuda/clusters/cluster_backward_float32.cuh"
#include "recurrent/cuda/clusters/cluster_forward.cuh"
#include "recurrent/cuda/clusters/cluster_forward_float32.cuh"
#include "recurrent/cuda/layer_norm/cluster_norm.cuh"
#include "recurrent/cuda/schedule/kept_call.cuh"
#include "recurrent/cuda/steps/product_steps.cuh"

namespace warpalign::detail::recurrent {

constexpr const char* name_of(SweepOptions options, const char* none, const char* lengths, const char* all) {
  return options == SweepOptions::kNone ? none : options == SweepOptions::kEnds ? lengths : all;
}
template <class T, int kSteps, SweepOptions kOptions>
inline const cuda::Kernel kClusterForward{
    kKernels,
    kSteps == 16 ? name_of(kOptions, "clusters of up to 8", "clusters of up to 8, lengths", nullptr)
                 : name_of(kOptions, "clusters of up to 16", "clusters of up to 16, lengths",
                           "clusters of up to 16, options"),
    cuda::type_name<T>(), cluster_forward_kernel<T, kSteps, kOptions>};
template <class T, int kParts, SweepOptions kOptions>
inline const cuda::Kernel kClusterBackward{
    kKernels,
    kParts == 2 ? name_of(kOptions, "clusters of up to 8 back", "clusters of up to 8 back, lengths", nullptr)
                : name_of(kOptions, "clusters of up to 16 back", "clusters of up to 16 back, lengths",
                          "clusters of up to 16 back, options"),
    cuda::type_name<T>(), cluster_backward_kernel<T, kParts, kOptions>};

template <class T>
inline const cuda::Kernel kClusterForwardFloat{kKernels, "clusters of up to 4", cuda::type_name<T>(),
                                               cluster_forward_float_kernel<T>};
template <class T>
inline const cuda::Kernel kClusterBackwardFloat{kKernels, "clusters of up to 4 back", cuda::type_name<T>(),
                                                cluster_backward_float_kernel<T>};

// Whether there are sweeps on clusters of a type, and how many blocks a cluster has at most.
template <class T>
constexpr bool kHasClusters = sizeof(T) < 8;
template <class T>
constexpr int kMostRanksOf = sizeof(T) == 2 ? kMostRanks : kFloatRanks;

// The kernel for calls with these options. Those with resets or zoneout have one size, of 16 blocks.
template <class T, SweepOptions kOptions>
ClusterKernel<T> cluster_kernel_with(int ranks, bool backward) {
  constexpr int kFew = kMostRanks / 2;
  constexpr std::size_t kRows = kOptions == SweepOptions::kNone ? 0 : sizeof(TileRows);
  constexpr std::size_t kFixed = sizeof(OwnGradients);  // backward
  if constexpr (kOptions != SweepOptions::kAll) {
    if (ranks <= kFew && backward) {
      return {&kClusterBackward<T, 2, kOptions>, kFixed, sizeof(BackwardTile<kFew>) + kRows};
    }
    if (ranks <= kFew) return {&kClusterForward<T, 16, kOptions>, 0, sizeof(ForwardTile<16>) + kRows};
  }
  if (backward) {
    return {&kClusterBackward<T, 4, kOptions>, kFixed, sizeof(BackwardTile<kMostRanks>) + kRows};
  }
  return {&kClusterForward<T, 32, kOptions>, 0, sizeof(ForwardTile<32>) + kRows};
}
// None: there is no sweep on clusters.
template <class T>
ClusterKernel<T> cluster_kernel(int ranks, bool backward, const LstmProblem& p) {
  if constexpr (sizeof(T) == 4) {
    if (!is_plain(p) || p.layer_norm) return {};
    if (!backward) return {&kClusterForwardFloat<T>, 0, sizeof(FloatForwardTile)};
    return {&kClusterBackwardFloat<T>, sizeof(OwnFloatGradients), sizeof(BackwardTile<kFloatRanks>)};
  } else {
    const bool has_more = p.resets || p.zoneout_hidden > 0 || p.zoneout_cell > 0;
    if (p.layer_norm) return has_more ? ClusterKernel<T>{} : NormSweeps<T>::of(backward);
    if (is_plain(p)) return cluster_kernel_with<T, SweepOptions::kNone>(ranks, backward);
    return has_more ? cluster_kernel_with<T, SweepOptions::kAll>(ranks, backward)
                    : cluster_kernel_with<T, SweepOptions::kEnds>(ranks, backward);
  }
}

// How a layer's sweep runs on clusters.
template <class T>
struct ClusterPlan {
  const cuda::Kernel<ClusterParams<T>>* kernel = nullptr;  // null: it does not
  int ranks = 0, slices = 0, tiles = 0;
  int clusters = 0;  // all directions together have so many
  int resident = 0;  // at once
  std::size_t shared_bytes = 0;
};

// The plan for the current device; without a kernel where it has none, or where steps by products are faster.
template <class T>
ClusterPlan<T> plan_clusters(const Queue& queue, const LstmProblem& p, bool backward) {
  if constexpr (kHasClusters<T>) {
    // Calls with options are made of launches, whose bits are others.
    if (sizeof(T) == 4 && queue.execution().batch_invariant) return {};
    const int ranks = std::max(cuda::div_up(p.hidden, kBlockUnits), kFewestRanks);
    const int directions = directions_of(p);
    if (p.projection > 0 || p.hidden % kWarpUnits != 0 || ranks > kMostRanksOf<T>) return {};
    if (!queue.device().has_clusters) return {};
    const auto way = cluster_kernel<T>(ranks, backward, p);
    if (!way.kernel) return {};
    const auto most_bytes = static_cast<std::size_t>(std::max(queue.device().shared_bytes_per_block, 0));
    if (most_bytes < way.fixed_bytes + way.tile_bytes) return {};
    const int most_tiles = static_cast<int>((most_bytes - way.fixed_bytes) / way.tile_bytes);
    cuda::LaunchConfig config{.blocks = 0, .threads = kClusterThreads};
    config.cluster = ranks;
    config.shared_bytes = way.fixed_bytes + way.tile_bytes;
    int resident = 0;
    if (!cuda::resident_clusters(way.kernel->function(), config, &resident).ok() || resident == 0) return {};
    // Clusters that find no place wait until others have ended. A step takes as long as about 2 tiles' work
    // and the work of its own tiles.
    const int all_tiles = cuda::div_up(p.batch, 8);
    int best = 0, tiles = 1, in_turn = 0;
    for (int n = 1; n <= std::min(most_tiles, all_tiles); ++n) {
      const int rounds = cuda::div_up(directions * cuda::div_up(all_tiles, n), resident);
      if (best == 0 || (n + 2) * rounds < best) best = (n + 2) * rounds, tiles = n, in_turn = n * rounds;
    }
    constexpr int kTiles = sizeof(T) == 4 ? kTilesOfFloatProducts : kTilesOfProducts;
    if (in_turn >= kTiles * directions && takes_products<T>(queue, p)) return {};
    int slices = cuda::div_up(all_tiles, tiles);
    // Tiles of rows that end early leave place in time, and other clusters find place beside.
    if ((p.lengths || p.row_starts) && directions * slices <= resident) {
      slices = std::min(all_tiles, resident / directions);
    }
    return {way.kernel,
            ranks,
            slices,
            tiles,
            directions * slices,
            resident,
            way.fixed_bytes + tiles * way.tile_bytes};
  } else {
    return {};
  }
}

// R^T of R h normalised, of all rows, in the place of the gradient by R h, which comes behind the sweep.
template <class T>
const T* multiply_across(Queue& queue, const LstmProblem& p, const CudaCell<T>& cell) {
  const Offset hidden = cell.hidden, gates = 4 * hidden;
  queue.multiply({p.dtype,
                  cell.at.rows,
                  hidden,
                  gates,
                  cell.norm_h,
                  {gates, 1},
                  cell.hh_across,
                  {1, cell.gates_stride},
                  cell.dz_h,
                  hidden,
                  false});
  return cell.dz_h;
}

// Enqueues these steps of a layer's sweep; false: they have to run in another way.
template <class T>
bool run_on_clusters(Queue& queue, const LstmProblem& p, const ClusterPlan<T>& plan,
                     const StepParams<T>& step, bool backward, Places places) {
  if constexpr (kHasClusters<T>) {
    if (!plan.kernel || !queue.status().ok()) return false;
    if (sizeof(T) == 2 && !takes_words(directions_of(p), step)) return false;
    ClusterParams<T> params{{step.cell[0], step.cell[1]}, plan.ranks, plan.slices, plan.tiles, places};
    const bool normalises_back = p.layer_norm && backward;
    cuda::LaunchConfig config{.blocks = plan.clusters * plan.ranks, .threads = kClusterThreads};
    config.cluster = plan.ranks;
    config.shared_bytes = plan.shared_bytes;
    if constexpr (sizeof(T) == 2) {
      for (int d = 0; d < directions_of(p); ++d) {
        draw_kept(queue, step.cell[d], backward, places);
        if (normalises_back) params.cell[d].across = multiply_across(queue, p, step.cell[d]);
      }
    }
    if (!queue.try_launch(*plan.kernel, config, params)) return false;
    for (int d = 0; d < directions_of(p) && normalises_back; ++d) normalise_back(queue, step.cell[d], true);
    return true;
  } else {
    return false;
  }
}

}  // namespace warpalign::detail::recurrent
