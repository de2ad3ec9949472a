// Which calls run as resident sweeps, and their launch.
#pragma once

#include "cuda/cluster_launch.h"
#include "recurrent/cuda/cluster_call.cuh"
#include "recurrent/cuda/resident_kernels.cuh"

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

// Chooses the way of a sweep of so many cells on the current device.
template <class T, bool kPlain>
class ResidentChoice {
 public:
  ResidentChoice(Queue& queue, const LstmProblem& p, bool backward, SweptCells cells)
      : queue_(queue), p_(p), backward_(backward), cells_(cells) {}

  // So many groups of each of the most cells are resident at once.
  [[nodiscard]] int most_groups() const { return most_groups_; }
  [[nodiscard]] int ranks() const { return cuda::div_up(p_.hidden, kOwnUnits); }

  // The way that the device takes; without a kernel: none.
  ResidentWay<T> choose() {
    constexpr int kFirstMajor = 8, kFirstMajorOfClusters = 9;  // with such matrix instructions; with clusters
    int device = 0;
    if (!cuda::to_status(cudaGetDevice(&device)).ok()) return {};
    const int major = cuda::attribute(cudaDevAttrComputeCapabilityMajor, device);
    if (major < kFirstMajor) return {};
    // A block gets all of it, so that it has a multiprocessor to itself.
    most_bytes_ = static_cast<std::size_t>(std::max(cuda::traits_of(device).shared_bytes_per_block, 0));
    const auto alone = ResidentWays<T, kPlain>::of(p_.hidden, backward_);
    most_groups_ = resident_blocks(alone) / (cells_.most * ranks());
    if (most_groups_ == 0) return {};
    const int all_tiles = cuda::div_up(p_.batch, 8), tiles = cuda::div_up(all_tiles, most_groups_);
    // Cells sweep at once, and their products come one after the other.
    const int most_tiles = kTilesOfProducts * cells_.most * most_groups_;
    if (all_tiles >= most_tiles && takes_products<T>(queue_, p_)) return {};
    // A row's bits depend on the way, so that one way has to serve all batches where they must not.
    if (!kPlain || queue_.execution().batch_invariant) return alone;
    if (!backward_) return tiles == 1 ? ResidentWays<T, kPlain>::of_a_tile(p_.hidden) : alone;
    if (major < kFirstMajorOfClusters || tiles < kTilesOfSplit) return alone;
    const auto split = ResidentWays<T, kPlain>::split(p_.hidden);
    const int clusters = cuda::div_up(ranks(), split.cluster);  // so many hold a group
    const int groups = cells_.most * std::min(all_tiles, most_groups_);
    return resident_blocks(split) >= groups * clusters * split.cluster ? split : alone;
  }
  [[nodiscard]] int most_tiles(const ResidentWay<T>& way) const { return way.most_tiles(most_bytes_); }

 private:
  // How many blocks of this way's clusters are resident at once; 0 too where memory is not enough for a slice
  // of two tiles.
  [[nodiscard]] int resident_blocks(const ResidentWay<T>& way) const {
    if (way.bytes(2) > most_bytes_) return 0;
    cuda::LaunchConfig config{.blocks = 0, .threads = kResidentThreads};
    config.shared_bytes = most_bytes_;
    config.cluster = way.cluster;
    int count = 0;
    const Status status = way.cluster > 1 ? cuda::resident_clusters(way.kernel->function(), config, &count)
                                          : cuda::resident_blocks(way.kernel->function(), config, &count);
    return status.ok() ? count * way.cluster : 0;
  }

  Queue& queue_;
  const LstmProblem& p_;
  const bool backward_;
  const SweptCells cells_;
  std::size_t most_bytes_ = 0;
  int most_groups_ = 0;
};

template <class T, bool kPlain>
bool run_resident_as(Queue& queue, const LstmProblem& p, const StepParams<T>& step, bool backward,
                     SweptCells cells) {
  ResidentChoice<T, kPlain> choice(queue, p, backward, cells);
  const ResidentWay<T> way = choice.choose();
  const bool by_ring = backward && way.cluster > 1,
             in_place = backward && step.cell[0].dz == step.cell[0].gates;
  if (!way.kernel || by_ring != (step.cell[0].dz_ring != nullptr) || (in_place && !by_ring)) return false;
  const int all_tiles = cuda::div_up(p.batch, 8),
            most_groups = choice.most_groups() * cells.most / cells.count;
  const int ranks = cuda::div_up(choice.ranks(), way.cluster) * way.cluster;
  ResidentParams<T> params{{step.cell[0], step.cell[1]}, ranks, 0, 0, 0, way.shared_steps};
  for (int d = 0; d < cells.count; ++d) {  // all one-bits: nothing is there yet
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
  config.cluster = way.cluster;
  while (params.first_tile < all_tiles) {
    const int left = all_tiles - params.first_tile;
    params.tiles = std::min(cuda::div_up(left, most_groups), choice.most_tiles(way));
    params.groups = std::min(cuda::div_up(left, params.tiles), most_groups);
    config.shared_bytes = way.bytes(params.tiles);
    config.blocks = cells.count * params.groups * ranks;
    for (int d = 0; d < cells.count && by_ring; ++d) {
      queue.clear(params.cell[d].ring_arrivals, params.groups * sizeof(int));
    }
    const Status status = queue.launch_cooperative(*way.kernel, config, params);
    if (!status.ok() && params.first_tile == 0) return false;
    queue.fail(status);
    params.first_tile += params.groups * params.tiles;
  }
  return true;
}

// The sweep of the whole grid that serves so many cells on the current device; without a kernel: none.
// groups: of each cell.
template <class T>
ResidentWay<T> resident_way(Queue& queue, const LstmProblem& p, bool backward, SweptCells cells,
                            int* groups = nullptr) {
  if constexpr (sizeof(T) == 2) {
    if (!may_be_resident<T>(p) || has_few_steps(queue, p)) return {};
    const auto choose = [&](auto choice) {
      const ResidentWay<T> way = choice.choose();
      if (groups) *groups = choice.most_groups();
      return way;
    };
    return is_plain(p) ? choose(ResidentChoice<T, true>(queue, p, backward, cells))
                       : choose(ResidentChoice<T, false>(queue, p, backward, cells));
  } else {
    return {};
  }
}

// Who hands dz on in the backward sweep of so many cells on the current device.
enum class Exchange { kNone, kWholeRows, kRing };
template <class T>
Exchange exchange_of(Queue& queue, const LstmProblem& p, SweptCells cells) {
  if (sizeof(T) > 2 || plan_clusters<T>(p, true).kernel) return Exchange::kNone;
  const ResidentWay<T> way = resident_way<T>(queue, p, true, cells);
  return !way.kernel ? Exchange::kNone : way.cluster > 1 ? Exchange::kRing : Exchange::kWholeRows;
}

// Enqueues the sweep of these cells; false: they have to run in another way.
template <class T>
bool run_resident(Queue& queue, const LstmProblem& p, const StepParams<T>& step, bool backward,
                  SweptCells cells) {
  if constexpr (sizeof(T) == 2) {
    if (!may_be_resident<T>(p) || !queue.status().ok() || has_few_steps(queue, p)) return false;
    const bool is_aligned =
        takes_words(cells.count, step) && has_aligned_h(cells.count, step, sizeof(cuda::TwoWords));
    if (!backward && !is_aligned) return false;
    if (is_plain(p)) return run_resident_as<T, true>(queue, p, step, backward, cells);
    return run_resident_as<T, false>(queue, p, step, backward, cells);
  } else {
    return false;
  }
}

}  // namespace warpalign::detail::recurrent
