// Which calls run as sweeps of the whole grid, and their launch. The device may refuse a launch: then nothing
// has been enqueued.
#pragma once

#include "cuda/launch/cluster_launch.h"
#include "recurrent/cuda/clusters/cluster_call.cuh"
#include "recurrent/cuda/grid/resident_kernels.cuh"

namespace warpalign::detail::recurrent {

// Whether a device may run the problem this way. The same for every device, since memory is laid out by it.
template <class T>
bool may_be_resident(const LstmProblem& p) {
  // Rows are read by 16 bytes.
  return sizeof(T) == 2 && !p.layer_norm && p.projection == 0 && p.hidden % (2 * kWordEntries) == 0 &&
         p.hidden <= kMostResidentHidden;
}

// Elements of the ring of a backward sweep, which has a group for a tile of rows at most.
template <class T>
std::size_t ring_entries(const LstmProblem& p) {
  return ring_slots(p.steps) * CudaSizes<T>(p).batch * CudaSizes<T>(p).gates_stride;
}
inline std::size_t most_groups(const LstmProblem& p) { return cuda::div_up(p.batch, 8); }

// The cells that a launch sweeps: a layer's directions, or layers.
struct SweptCells {
  int count;
  int most;  // of the launches of a call, whose way is that of so many cells
};
inline SweptCells directions_at_once(const LstmProblem& p) { return {directions_of(p), directions_of(p)}; }

// How the whole grid sweeps so many cells on the current device.
template <class T>
struct GridPlan {
  ResidentWay<T> way;  // without a kernel: it does not
  SweptCells cells{};
  int ranks = 0;               // units are shared out to so many blocks
  int most_groups = 0;         // of each of the most cells, resident at once
  std::size_t most_bytes = 0;  // shared memory of a block, which gets all: a multiprocessor to itself
};

// How many blocks of this way's clusters are resident at once; 0 too where memory is not enough for a slice
// of two tiles.
template <class T>
int resident_blocks(const ResidentWay<T>& way, std::size_t most_bytes) {
  if (way.bytes(2) > most_bytes) return 0;
  cuda::LaunchConfig config{.blocks = 0, .threads = kResidentThreads};
  config.shared_bytes = most_bytes;
  config.cluster = way.cluster;
  int count = 0;
  const Status status = way.cluster > 1 ? cuda::resident_clusters(way.kernel->function(), config, &count)
                                        : cuda::resident_blocks(way.kernel->function(), config, &count);
  return status.ok() ? count * way.cluster : 0;
}

template <class T, bool kPlain>
GridPlan<T> plan_grid_as(const Queue& queue, const LstmProblem& p, bool backward, SweptCells cells) {
  const cuda::DeviceTraits& device = queue.device();
  if (!device.has_matrix_units) return {};
  const auto bytes = static_cast<std::size_t>(std::max(device.shared_bytes_per_block, 0));
  GridPlan<T> plan{ResidentWays<T, kPlain>::of(p.hidden, backward), cells, cuda::div_up(p.hidden, kOwnUnits),
                   0, bytes};
  plan.most_groups = resident_blocks(plan.way, bytes) / (cells.most * plan.ranks);
  if (plan.most_groups == 0) return {};
  const int all_tiles = cuda::div_up(p.batch, 8), tiles = cuda::div_up(all_tiles, plan.most_groups);
  // Cells sweep at once, and their products come one after the other.
  const int most_tiles = kTilesOfProducts * cells.most * plan.most_groups;
  if (all_tiles >= most_tiles && takes_products<T>(queue, p)) return {};
  // A row's bits depend on the way, so that one way has to serve all batches where they must not.
  if (!kPlain || queue.execution().batch_invariant) return plan;
  if (!backward) {
    if (tiles == 1) plan.way = ResidentWays<T, kPlain>::of_a_tile(p.hidden);
    return plan;
  }
  if (!device.has_clusters || tiles < kTilesOfSplit) return plan;
  const auto split = ResidentWays<T, kPlain>::split(p.hidden);
  const int clusters = cuda::div_up(plan.ranks, split.cluster);  // so many hold a group
  const int groups = cells.most * std::min(all_tiles, plan.most_groups);
  if (resident_blocks(split, bytes) >= groups * clusters * split.cluster) plan.way = split;
  return plan;
}
template <class T>
GridPlan<T> plan_grid(const Queue& queue, const LstmProblem& p, bool backward, SweptCells cells) {
  if constexpr (sizeof(T) == 2) {
    if (!may_be_resident<T>(p) || has_few_steps(queue, p)) return {};
    return is_plain(p) ? plan_grid_as<T, true>(queue, p, backward, cells)
                       : plan_grid_as<T, false>(queue, p, backward, cells);
  } else {
    return {};
  }
}

// Enqueues the sweep of the first `count` cells; false: the device refuses it, or their arrays do not suit,
// and they have to run in another way.
template <class T>
bool run_resident(Queue& queue, const LstmProblem& p, const GridPlan<T>& plan, const StepParams<T>& step,
                  bool backward, int count) {
  const bool by_ring = backward && plan.way.cluster > 1,
             in_place = backward && step.cell[0].dz == step.cell[0].gates;
  if (!plan.way.kernel || !queue.status().ok() || by_ring != (step.cell[0].dz_ring != nullptr) ||
      (in_place && !by_ring)) {
    return false;
  }
  const bool is_aligned = takes_words(count, step) && has_aligned_h(count, step, sizeof(cuda::TwoWords));
  if (!backward && !is_aligned) return false;
  const int all_tiles = cuda::div_up(p.batch, 8), most_groups = plan.most_groups * plan.cells.most / count;
  const int ranks = cuda::div_up(plan.ranks, plan.way.cluster) * plan.way.cluster;
  ResidentParams<T> params{{step.cell[0], step.cell[1]}, ranks, 0, 0, 0, plan.way.shared_steps};
  for (int d = 0; d < count; ++d) {  // all one-bits: nothing is there yet
    const CudaCell<T>& cell = params.cell[d];
    if (by_ring) {
      queue.fill(cell.dz_ring, 0xff, ring_entries<T>(p) * sizeof(T));
    } else if (backward) {
      queue.fill(cell.dz, 0xff, cell.at.rows * cell.gates_stride * sizeof(T));
    } else if (d == 0 || cell.h_stride == cell.hidden) {  // rows of y are both directions'
      queue.fill(cell.h_rows, 0xff, cell.at.rows * cell.h_stride * sizeof(T));
    }
  }
  cuda::LaunchConfig config{.blocks = 0, .threads = kResidentThreads};
  config.cluster = plan.way.cluster;
  while (params.first_tile < all_tiles) {
    const int left = all_tiles - params.first_tile;
    params.tiles = std::min(cuda::div_up(left, most_groups), plan.way.most_tiles(plan.most_bytes));
    params.groups = std::min(cuda::div_up(left, params.tiles), most_groups);
    config.shared_bytes = plan.way.bytes(params.tiles);
    config.blocks = count * params.groups * ranks;
    for (int d = 0; d < count && by_ring; ++d) {
      queue.clear(params.cell[d].ring_arrivals, params.groups * sizeof(int));
    }
    const Status status = queue.launch_cooperative(*plan.way.kernel, config, params);
    if (!status.ok() && params.first_tile == 0) return false;
    queue.fail(status);
    params.first_tile += params.groups * params.tiles;
  }
  return true;
}

}  // namespace warpalign::detail::recurrent
