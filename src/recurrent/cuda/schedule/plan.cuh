// How a call's layers sweep, and what overlaps: a plan is made once for each pass of a call, from the problem
// and the device, and is all that the pass asks.
#pragma once

#include <cmath>
#include <string>

#include "recurrent/cuda/blocks/block_call.h"
#include "recurrent/cuda/clusters/cluster_call.cuh"
#include "recurrent/cuda/grid/resident_call.cuh"
#include "recurrent/cuda/schedule/schedule.cuh"
#include "recurrent/cuda/steps/projected_steps.cuh"
#include "recurrent/cuda/steps/tiled_steps.cuh"

namespace warpalign::detail::recurrent {

// The ways of a sweep, the first of which that serves a call is taken. A device may still refuse a launch of
// clusters or of the whole grid; then the next way that serves the call is taken.
enum class Way {
  kBlocks,    // a layer's weights are in a block's registers: blocks never meet
  kClusters,  // in those of a cluster's blocks, which exchange h by messages
  kGrid,      // in those of many blocks, which exchange h through global memory
  kProducts,  // large batches: the front end's products are faster
  kTiles,     // a launch for each step: float32, both factors in shared memory
  kSteps,     // a launch for each step: everything
};
constexpr const char* kWayNames[] = {"single blocks", "clusters",       "whole grid",
                                     "products",      "tiles in steps", "steps"};

template <class T>
class SweepPlan {
 public:
  SweepPlan(const Queue& queue, const LstmProblem& p, bool backward)
      : backward_(backward),
        by_blocks_(sweeps_in_blocks<T>(p)),
        by_products_(takes_products<T>(queue, p) && gains_by_products<T>(queue, p) &&
                     (p.projection == 0 || takes_projected_products<T>(queue, p))),
        by_tiles_(!backward && takes_tiles<T>(queue, p)) {
    if (by_blocks_) {
      way_ = Way::kBlocks;
    } else {
      choose(queue, p);
    }
    overlap(queue, p);
  }

  [[nodiscard]] Way way() const { return way_; }
  [[nodiscard]] bool is_backward() const { return backward_; }
  // Whether a way serves the call's layers, if those before it do not.
  [[nodiscard]] bool serves(Way way) const {
    switch (way) {
      case Way::kBlocks:
        return by_blocks_;
      case Way::kClusters:
        return clusters_.kernel != nullptr;
      case Way::kGrid:
        return grid_.way.kernel != nullptr;
      case Way::kProducts:
        return by_products_ && !by_tiles_;
      case Way::kTiles:
        return by_tiles_;
      case Way::kSteps:
        return true;
    }
    return false;
  }
  [[nodiscard]] const ClusterPlan<T>& clusters() const { return clusters_; }
  // Of a layer's directions, where clusters do not serve the call, and of two layers.
  [[nodiscard]] const GridPlan<T>& grid() const { return grid_; }
  [[nodiscard]] const GridPlan<T>& grid_of_two() const { return grid_of_two_; }

  [[nodiscard]] Overlap overlap() const { return overlap_; }
  [[nodiscard]] int chunk_steps() const { return chunk_steps_; }  // where layers overlap

  // Who hands dz on in a backward sweep of the whole grid.
  enum class Exchange { kNone, kWholeRows, kRing };
  [[nodiscard]] Exchange exchange() const {
    const GridPlan<T>& grid = overlap_ == Overlap::kPairs ? grid_of_two_ : grid_;
    if (way_ != Way::kGrid) return Exchange::kNone;
    return grid.way.cluster > 1 ? Exchange::kRing : Exchange::kWholeRows;
  }

  // One line, for people.
  [[nodiscard]] std::string describe() const {
    std::string text =
        std::string(backward_ ? "backward: " : "forward: ") + kWayNames[static_cast<int>(way_)];
    if (way_ == Way::kClusters) {
      text += " of " + std::to_string(clusters_.ranks) + " blocks, " + std::to_string(clusters_.clusters) +
              " of " + std::to_string(clusters_.resident) + " that fit";
    }
    if (way_ == Way::kGrid) {
      text += " in groups of " + std::to_string(grid_.ranks) + " blocks, " +
              std::to_string(grid_.most_groups) + " of which fit, " + std::to_string(grid_.way.cluster) +
              " blocks share units";
    }
    if (overlap_ == Overlap::kNone) return text + "; layers in turn";
    return text +
           (overlap_ == Overlap::kPairs ? "; two layers at a time" : "; layers on streams of their own") +
           ", by chunks of " + std::to_string(chunk_steps_) + " steps";
  }

 private:
  void choose(const Queue& queue, const LstmProblem& p) {
    if (!has_few_steps(queue, p)) clusters_ = plan_clusters<T>(queue, p, backward_);
    if (!clusters_.kernel) grid_ = plan_grid<T>(queue, p, backward_, directions_at_once(p));
    for (const Way way : {Way::kClusters, Way::kGrid, Way::kProducts, Way::kTiles, Way::kSteps}) {
      way_ = way;
      if (serves(way)) return;
    }
  }

  void overlap(const Queue& queue, const LstmProblem& p) {
    chunk_steps_ = steps_on_streams(queue, p);
    if (chunk_steps_ > 0) {
      overlap_ = Overlap::kStreams;
      return;
    }
    chunk_steps_ = steps_in_pairs(queue, p);
    if (chunk_steps_ > 0) overlap_ = Overlap::kPairs;
  }
  // The steps of a chunk where layers sweep on streams of their own; 0: they do not.
  [[nodiscard]] int steps_on_streams(const Queue& queue, const LstmProblem& p) const {
    const bool may_overlap = p.layers > 1 && !p.bidirectional && !p.row_starts && !p.layer_norm &&
                             !p.recompute && p.batch > 0 && p.side_streams.count > 0;
    if (!may_overlap || way_ == Way::kGrid) return 0;
    if (way_ == Way::kProducts && (p.projection > 0 || !p.side_streams.products)) return 0;
    const bool by_launches = way_ > Way::kGrid;
    if (!by_launches && !have_place(queue, p)) return 0;
    // The start of a chunk takes as long as so many steps. The layers' products over a chunk share a stream,
    // and take as long as the fewest steps. Steps of single blocks are short.
    const double start = by_blocks_ ? 28 + p.batch / 4.0 : by_launches ? 5 : 10;
    const int fewest = by_launches ? 16 : (by_blocks_ ? 6 + p.batch / 8 : 6) / 2 * p.layers * 2;
    // (T / c + L - 1) chunks of c steps and a start each take least with this c.
    const double best = std::sqrt(start * p.steps / (p.layers - 1));
    const int chunk = std::max(static_cast<int>(best / 2 + .5) * 2, fewest);
    return 2 * chunk <= p.steps ? chunk : 0;
  }
  // Whether sweeps in one launch of two layers find place beside each other.
  [[nodiscard]] bool have_place(const Queue& queue, const LstmProblem& p) const {
    if (!by_blocks_) return clusters_.resident >= 2 * clusters_.clusters;
    return 2 * p.batch <= kBlocksOfMultiprocessor * queue.device().multiprocessors;
  }
  // The steps of a chunk where a launch sweeps two layers, an even number; 0: it does not.
  int steps_in_pairs(const Queue& queue, const LstmProblem& p) {
    const bool is_left_out = p.layers < 2 || p.bidirectional || p.row_starts || p.resets || p.recompute ||
                             p.batch == 0 || p.steps < kStepsOfTwoLayers || queue.execution().batch_invariant;
    if (is_left_out || way_ != Way::kGrid) return 0;
    grid_of_two_ = plan_grid<T>(queue, p, backward_, {2, 2});
    if (!grid_of_two_.way.kernel) return 0;
    const int all_tiles = cuda::div_up(p.batch, 8), tiles = cuda::div_up(all_tiles, grid_of_two_.most_groups);
    // Two layers have at most as many tiles in turn as they have one after the other.
    if (tiles > std::min(kTilesOfTwoLayers, 2 * cuda::div_up(all_tiles, grid_.most_groups))) return 0;
    // The start of a chunk takes as long as about so many steps. The first chunk of all and the last one have
    // half of the blocks idle: the shorter they are, the shorter this is.
    constexpr double kStart = 14;
    const double best = std::sqrt(kStart * p.steps * (p.layers / 2));
    const int chunks = std::max(static_cast<int>(p.steps / best + .5), 2);
    return cuda::div_up(p.steps, 2 * chunks) * 2;
  }

  bool backward_, by_blocks_, by_products_, by_tiles_;
  Way way_ = Way::kSteps;
  ClusterPlan<T> clusters_;
  GridPlan<T> grid_, grid_of_two_;
  Overlap overlap_ = Overlap::kNone;
  int chunk_steps_ = 0;
};

}  // namespace warpalign::detail::recurrent
