// The way of a sweep of the whole grid: which kernel a call takes, how many groups of blocks there are, and
// the launches.
#pragma once

#include <cmath>

#include "cuda/launch/cluster_launch.h"
#include "recurrent/cuda/grid/resident_kernels.cuh"
#include "recurrent/cuda/steps/choice.cuh"

namespace warpalign::detail::recurrent {

// The cells that a launch sweeps: a layer's directions, or layers.
struct SweptCells {
  int count;
  int most;  // of the launches of a call, whose kernel is that of so many cells
};

// How the whole grid sweeps so many cells on the current device.
template <class T>
struct GridPlan {
  ResidentKernel<T> kernel;  // none: it does not
  SweptCells cells{};
  int ranks = 0;               // units are shared out to so many blocks
  int most_groups = 0;         // of each of the most cells, resident at once
  std::size_t most_bytes = 0;  // shared memory of a block, which gets all: a multiprocessor to itself
  bool pays = true;

  // Tiles of 8 rows that a group has at most.
  [[nodiscard]] int tiles(int batch) const { return cuda::div_up(cuda::div_up(batch, 8), most_groups); }
};

// How many blocks of this kernel's clusters are resident at once; 0 too where memory is not enough for a
// slice of two tiles.
template <class T>
int resident_blocks(const ResidentKernel<T>& kernel, std::size_t most_bytes) {
  if (kernel.bytes(2) > most_bytes) return 0;
  cuda::LaunchConfig config{.blocks = 0, .threads = kResidentThreads};
  config.shared_bytes = most_bytes;
  config.cluster = kernel.cluster;
  int count = 0;
  const Status status = kernel.cluster > 1
                            ? cuda::resident_clusters(kernel.kernel->function(), config, &count)
                            : cuda::resident_blocks(kernel.kernel->function(), config, &count);
  return status.ok() ? count * kernel.cluster : 0;
}

template <class T, bool kPlain>
GridPlan<T> plan_grid(const Question& question, SweptCells cells) {
  using Kernels = ResidentKernels<T, kPlain>;
  const LstmProblem& p = question.p;
  const auto bytes = static_cast<std::size_t>(std::max(question.device().shared_bytes_per_block, 0));
  GridPlan<T> plan{Kernels::of(p.hidden, question.backward), cells, cuda::div_up(p.hidden, kOwnUnits), 0,
                   bytes};
  plan.most_groups = resident_blocks(plan.kernel, bytes) / (cells.most * plan.ranks);
  if (plan.most_groups == 0) return {};
  const int all_tiles = cuda::div_up(p.batch, 8), tiles = plan.tiles(p.batch);
  // Cells sweep at once, and their products come one after the other.
  plan.pays =
      all_tiles < static_cast<Offset>(question.tuning.product_tiles) * cells.most * plan.most_groups ||
      !takes_products<T>(question);
  // A row's bits depend on the kernel, so that one has to serve all batches where they must not.
  if (!kPlain || question.batch_invariant()) return plan;
  if (!question.backward) {
    if (tiles == 1) plan.kernel = Kernels::of_a_tile(p.hidden);
    return plan;
  }
  if (!question.device().has_clusters || tiles < question.tuning.split_tiles) return plan;
  const auto split = Kernels::split(p.hidden);
  const int clusters = cuda::div_up(plan.ranks, split.cluster);  // so many hold a group
  const int groups = cells.most * std::min(all_tiles, plan.most_groups);
  if (resident_blocks(split, bytes) >= groups * clusters * split.cluster) plan.kernel = split;
  return plan;
}

template <class T>
class GridWay final : public Way<T> {
 public:
  explicit GridWay(const Question& question) {
    if constexpr (sizeof(T) == 2) {
      const LstmProblem& p = question.p;
      const int directions = directions_of(p);
      this->refusal = refusal_of(question);
      if (this->refusal) return;
      plan_ = plan_of(question, {directions, directions});
      if (!plan_.kernel.kernel) this->refusal = "a group of its blocks is not resident at once";
      if (this->refusal) return;
      this->pays = plan_.pays && !has_few_steps(question);
      this->pair_steps = plan_pairs(question);
      this->needs.h_of_all_steps = true;
      const GridPlan<T>& plan = this->pair_steps > 0 ? plan_of_two_ : plan_;
      if (question.backward) {
        this->needs.exchange = plan.kernel.cluster > 1 ? Exchange::kRing : Exchange::kRows;
      }
    } else {
      this->refusal = "it serves 16-bit types";
    }
  }

  [[nodiscard]] std::string describe() const override {
    return " in groups of " + std::to_string(plan_.ranks) + " blocks, " + std::to_string(plan_.most_groups) +
           " of which fit, " + std::to_string(plan_.kernel.cluster) + " blocks share units";
  }

  bool enqueue(Queue& queue, const LayerSweep<T>& sweep) const override {
    return sweep.is_whole && run(queue, sweep, plan_, directions_of(sweep.p));
  }
  bool enqueue_layers(Queue& queue, const LayerSweep<T>& sweep, int count) const override {
    return run(queue, sweep, plan_of_two_, count);
  }

 private:
  static const char* refusal_of(const Question& question) {
    const LstmProblem& p = question.p;
    if (p.layer_norm || p.projection > 0) return "layers with layer norm or a projection have none";
    // Rows are read by 16 bytes.
    if (p.hidden % (2 * kWordEntries) != 0 || p.hidden > kMostResidentHidden) {
      return "it serves up to 2048 units, a multiple of 8";
    }
    if (!question.device().has_matrix_units) return "it needs the matrix units of compute capability 8.0";
    return nullptr;
  }
  static GridPlan<T> plan_of(const Question& question, SweptCells cells) {
    return is_plain(question.p) ? plan_grid<T, true>(question, cells) : plan_grid<T, false>(question, cells);
  }
  // The steps of a chunk where a launch sweeps two layers, an even number; 0: it does not.
  int plan_pairs(const Question& question) {
    const LstmProblem& p = question.p;
    const bool is_left_out = p.layers < 2 || p.bidirectional || p.row_starts || p.resets || p.recompute ||
                             p.batch == 0 || p.steps < question.tuning.pair_steps ||
                             question.batch_invariant();
    if (is_left_out) return 0;
    plan_of_two_ = plan_of(question, {2, 2});
    if (!plan_of_two_.kernel.kernel || !plan_of_two_.pays) return 0;
    // Two layers have at most as many tiles in turn as they have one after the other.
    if (plan_of_two_.tiles(p.batch) > std::min(question.tuning.pair_tiles, 2 * plan_.tiles(p.batch)))
      return 0;
    // The first chunk of all and the last one have half of the blocks idle: the shorter they are, the shorter
    // this is. But each start of a chunk takes as long as some steps.
    const double best =
        std::sqrt(static_cast<double>(question.tuning.pair_chunk_start) * p.steps * (p.layers / 2));
    const int chunks = std::max(static_cast<int>(p.steps / best + .5), 2);
    return cuda::div_up(p.steps, 2 * chunks) * 2;
  }

  // All one-bits: nothing is there yet.
  static void clear_rows(Queue& queue, const LayerSweep<T>& sweep, int count, bool by_ring) {
    for (int d = 0; d < count; ++d) {
      const CudaCell<T>& cell = sweep.step.cell[d];
      if (by_ring) {
        queue.fill(cell.dz_ring, 0xff, ring_entries<T>(sweep.p) * sizeof(T));
      } else if (sweep.backward) {
        queue.fill(cell.dz, 0xff, cell.at.rows * cell.gates_stride * sizeof(T));
      } else if (d == 0 || cell.h_stride == cell.hidden) {  // rows of y are both directions'
        queue.fill(cell.h_rows, 0xff, cell.at.rows * cell.h_stride * sizeof(T));
      }
    }
  }
  // Enqueues the sweep of the first `count` cells.
  static bool run(Queue& queue, const LayerSweep<T>& sweep, const GridPlan<T>& plan, int count) {
    const StepParams<T>& step = sweep.step;
    const bool by_ring = sweep.backward && plan.kernel.cluster > 1;
    const bool in_place = sweep.backward && step.cell[0].dz == step.cell[0].gates;
    if (!plan.kernel.kernel || !queue.status().ok() || by_ring != (step.cell[0].dz_ring != nullptr) ||
        (in_place && !by_ring)) {
      return false;
    }
    const bool is_aligned = takes_words(count, step) && has_aligned_h(count, step, sizeof(cuda::TwoWords));
    if (!sweep.backward && !is_aligned) return false;
    clear_rows(queue, sweep, count, by_ring);
    const int all_tiles = cuda::div_up(sweep.p.batch, 8);
    const int most_groups = plan.most_groups * plan.cells.most / count;
    const int ranks = cuda::div_up(plan.ranks, plan.kernel.cluster) * plan.kernel.cluster;
    ResidentParams<T> params{{step.cell[0], step.cell[1]}, ranks, 0, 0, 0, plan.kernel.shared_steps};
    cuda::LaunchConfig config{.blocks = 0, .threads = kResidentThreads};
    config.cluster = plan.kernel.cluster;
    config.cooperative = true;
    while (params.first_tile < all_tiles) {
      const int left = all_tiles - params.first_tile;
      params.tiles = std::min(cuda::div_up(left, most_groups), plan.kernel.most_tiles(plan.most_bytes));
      params.groups = std::min(cuda::div_up(left, params.tiles), most_groups);
      config.shared_bytes = plan.kernel.bytes(params.tiles);
      config.blocks = count * params.groups * ranks;
      for (int d = 0; d < count && by_ring; ++d) {
        queue.clear(params.cell[d].ring_arrivals, params.groups * sizeof(int));
      }
      const Status status = queue.try_launch(*plan.kernel.kernel, config, params);
      if (!status.ok() && params.first_tile == 0) return false;
      queue.fail(status);
      params.first_tile += params.groups * params.tiles;
    }
    return true;
  }

  GridPlan<T> plan_;         // of a layer's directions
  GridPlan<T> plan_of_two_;  // of two layers
};

}  // namespace warpalign::detail::recurrent
