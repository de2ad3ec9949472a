// The way of a sweep by steps: a launch for each step, or a few with a projection or layer norm. It serves
// every call. R h and the cell are in one launch: by tiles in shared memory, on the matrix units, or by
// lanes.
#pragma once

#include "recurrent/cuda/steps/choice.cuh"
#include "recurrent/cuda/steps/projection_task.cuh"
#include "recurrent/cuda/steps/tiled_steps.cuh"
#include "recurrent/cuda/steps/unit_step.cuh"

namespace warpalign::detail::recurrent {

// Such as "wide units back, cell, TF32". The same way for both passes of a projection.
template <class Task>
std::string task_name(const char* form, bool rounds = false) {
  return std::string(form) + (Task::kIsBack ? " back, " : ", ") + Task::kName + (rounds ? ", TF32" : "");
}
template <class T, class Task>
inline const cuda::Kernel kStep{kKernels, task_name<Task>("step").c_str(), cuda::type_name<T>(),
                                step_kernel<T, Task>};
// kRounds: one product of TF32 in place of three. kIsWide: blocks of 32 rows of the batch, and not of 16.
template <class T, class Task, bool kIsWide, bool kRounds>
inline const cuda::Kernel kUnitStep{
    kKernels, task_name<Task>(kIsWide ? "wide units" : "units", kRounds).c_str(), cuda::type_name<T>(),
    unit_step_kernel<T, Task, kIsWide ? kWideRowTiles : kRowTiles, sizeof(T) == 4 && !kRounds ? 3 : 1>};
template <class T>
struct UnitKernel {
  const cuda::Kernel<StepParams<T>, UnitShare>* kernel;
  bool is_wide;
};
// The kernel for such a step, or the one that comes nearest. 16-bit types have other ways for large batches.
template <class T, class Task>
UnitKernel<T> unit_step(bool is_wide, bool rounds) {
  if constexpr (sizeof(T) == 4 && Task::kIsCell) {
    if constexpr (Task::kIsBack) {
      if (rounds && is_wide) return {&kUnitStep<T, Task, true, true>, true};
    }
    if (rounds) return {&kUnitStep<T, Task, false, true>, false};
    if (is_wide) return {&kUnitStep<T, Task, true, false>, true};
  }
  return {&kUnitStep<T, Task, false, false>, false};
}

template <class T>
inline const cuda::Kernel kNormalisedCell{kKernels, "step, normalised cell", cuda::type_name<T>(),
                                          normalised_cell_kernel<T>};
template <class T>
inline const cuda::Kernel kNormalisedBackward{kKernels, "step back, normalised cell", cuda::type_name<T>(),
                                              normalised_backward_kernel<T>};

template <class T>
class StepWay final : public Way<T> {
 public:
  explicit StepWay(const Question& question) : tiles_(choose_tiles<T>(question)), tuning_(question.tuning) {
    this->on_streams = {static_cast<double>(tuning_.step_chunk_start), 16};
  }

  [[nodiscard]] std::string describe() const override {
    return tiles_ == StepTiles::kNone ? "" : " by tiles in shared memory";
  }

  bool enqueue(Queue& queue, const LayerSweep<T>& sweep) const override {
    StepParams<T>& step = sweep.step;
    const int begin = sweep.places.begin, end = sweep.places.end;
    if constexpr (sizeof(T) == 4) {
      if (tiles_ != StepTiles::kNone) {
        queue.by_tf32() ? sweep_by_tiles<1>(queue, sweep.p, step, sweep.places, tiles_)
                        : sweep_by_tiles<3>(queue, sweep.p, step, sweep.places, tiles_);
        return true;
      }
    }
    for (step.place = begin; step.place < end; ++step.place) {
      if (sweep.backward) {
        step_back(queue, sweep.p, step, step.place > begin);
      } else {
        step_forward(queue, sweep.p, step, step.place > begin);
      }
    }
    if (sweep.backward && end == step.cell[0].at.steps) {
      launch_task<CarryTask<T>>(queue, step, directions_of(sweep.p), true);  // on to h0
    }
    return true;
  }

 private:
  // follows: the preceding launch is one of the same sweep, so that this one may begin early.
  void step_forward(Queue& queue, const LstmProblem& p, StepParams<T>& step, bool follows) const {
    launch_task<CellTask<T>>(queue, step, directions_of(p), follows);
    if (p.layer_norm) launch_rows(queue, kNormalisedCell<T>, step, directions_of(p));
    if (p.projection > 0) launch_task<ProjectionTask<T>>(queue, step, directions_of(p), true);
  }
  void step_back(Queue& queue, const LstmProblem& p, StepParams<T>& step, bool follows) const {
    launch_task<CarryTask<T>>(queue, step, directions_of(p), follows);
    if (p.projection > 0) launch_task<ProjectionTask<T>>(queue, step, directions_of(p), true);
    if (p.layer_norm) launch_rows(queue, kNormalisedBackward<T>, step, directions_of(p));
  }

  template <class Task>
  void launch_task(Queue& queue, StepParams<T>& params, int directions, bool follows) const {
    const CudaCell<T>& cell = params.cell[0];
    cuda::LaunchConfig config{.blocks = 0, .threads = kTileThreads};
    config.programmatic = follows && queue.device().has_clusters;
    constexpr int kGroups = kTileWarps / Task::kSplits;
    const int blocks =
        cuda::div_up(Task::rows(cell), kGroups * kGroupRows) * cuda::div_up(cell.at.batch, kTileRows);
    if constexpr (kHasUnits<T>) {
      const int pieces = Task::depth(cell) / Piece<T>::kSize;
      const int multiprocessors = queue.device().multiprocessors;
      // A row's bits depend on the kernel and on the tiles of a block, so that one choice of them has to
      // serve all batches where they must not.
      const bool invariant = queue.execution().batch_invariant;
      const bool gains =
          sizeof(T) == 2 || invariant ||
          (cell.at.batch >= tuning_.float_unit_rows &&
           blocks * directions > static_cast<Offset>(tuning_.float_lane_turns) * multiprocessors);
      if (queue.device().has_matrix_units && pieces >= kFewestPieces && gains) {
        const Offset wide = sizeof(T) == 2 ? tuning_.wide_block_units : tuning_.wide_float_block_units;
        const bool is_many = static_cast<Offset>(cell.at.batch) * cell.hidden >= wide * multiprocessors;
        const UnitKernel<T> found = unit_step<T, Task>(is_many, queue.by_tf32());
        const int least_stacks = (sizeof(T) == 2 && is_many && !invariant ? 1 : 3) * multiprocessors / 2;
        const auto share = UnitShare::of(Task::rows(cell), pieces, kMostTiles<Task>, multiprocessors,
                                         least_stacks, queue.device().has_clusters);
        const int rows = 8 * (found.is_wide ? kWideRowTiles : kRowTiles);
        params.blocks_of_direction = share.stacks * share.blocks * cuda::div_up(cell.at.batch, rows);
        config.blocks = params.blocks_of_direction * directions;
        config.cluster = share.blocks;
        return queue.launch(*found.kernel, config, params, share);
      }
    }
    params.blocks_of_direction = blocks;
    config.blocks = blocks * directions;
    queue.launch(kStep<T, Task>, config, params);
  }
  static void launch_rows(Queue& queue, const cuda::Kernel<StepParams<T>>& kernel, StepParams<T>& params,
                          int directions) {
    params.blocks_of_direction = params.cell[0].at.batch;
    queue.launch(kernel, params.blocks_of_direction * directions, kNormThreads, params);
  }

  StepTiles tiles_;
  CudaTuning tuning_;
};

}  // namespace warpalign::detail::recurrent
