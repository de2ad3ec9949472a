// A layer's sweep by the first way of its plan that the device takes.
#pragma once

#include "recurrent/cuda/schedule/plan.cuh"

namespace warpalign::detail::recurrent {

// Some steps of a layer's directions.
template <class T>
struct LayerSweep {
  const LstmProblem& p;
  const SweepPlan<T>& plan;
  StepParams<T>& step;
  Places places;
  bool is_whole;  // the places are all steps of the step's cells
};

template <class T>
void enqueue_products(Queue& queue, const LayerSweep<T>& s) {
  const bool backward = s.plan.is_backward();
  if constexpr (sizeof(T) == 2) {
    if (s.p.projection > 0) {
      return backward ? sweep_back_by_projected_products(queue, s.p, s.step)
                      : sweep_by_projected_products(queue, s.p, s.step);
    }
  }
  return backward ? sweep_back_by_products(queue, s.p, s.step, s.places)
                  : sweep_by_products(queue, s.p, s.step, s.places);
}
template <class T>
void enqueue_steps(Queue& queue, const LayerSweep<T>& s) {
  const LstmProblem& p = s.p;
  StepParams<T>& step = s.step;
  const int directions = directions_of(p), begin = s.places.begin, end = s.places.end;
  if (!s.plan.is_backward()) {
    for (step.place = begin; step.place < end; ++step.place) {
      queue.template step<CellTask<T>>(step, directions, step.place > begin);
      if (p.layer_norm) queue.rows_of_step(kNormalisedCell<T>, step, directions);
      if (p.projection > 0) queue.template step<ProjectionTask<T>>(step, directions, true);
    }
    return;
  }
  for (step.place = begin; step.place < end; ++step.place) {
    queue.template step<CarryTask<T>>(step, directions, step.place > begin);
    if (p.projection > 0) queue.template step<ProjectionTask<T>>(step, directions, true);
    if (p.layer_norm) queue.rows_of_step(kNormalisedBackward<T>, step, directions);
  }
  if (end == step.cell[0].at.steps) queue.template step<CarryTask<T>>(step, directions, true);
}

// Enqueues the sweep this way; false: the device refuses it, or the arrays do not suit it, and nothing has
// been enqueued.
template <class T>
bool enqueue(Queue& queue, const LayerSweep<T>& s, Way way) {
  const bool backward = s.plan.is_backward();
  switch (way) {
    case Way::kBlocks:  // a driver's own: it has the states that these take and leave
      return false;
    case Way::kClusters:
      return run_on_clusters(queue, s.p, s.plan.clusters(), s.step, backward, s.places);
    case Way::kGrid: {
      if (!s.is_whole) return false;
      const int count = directions_of(s.p);
      if (s.plan.serves(Way::kGrid)) return run_resident(queue, s.p, s.plan.grid(), s.step, backward, count);
      const auto plan = plan_grid<T>(queue, s.p, backward, {count, count});  // clusters were refused
      return run_resident(queue, s.p, plan, s.step, backward, count);
    }
    case Way::kProducts: {
      const bool suits =
          s.p.projection == 0 || (s.is_whole && s.step.cell[0].h_rows && has_words(s.p, s.step));
      if (!s.plan.serves(way) || !suits) return false;
      enqueue_products(queue, s);
      return true;
    }
    case Way::kTiles:
      if constexpr (sizeof(T) == 4) {
        if (!s.plan.serves(way)) return false;
        queue.by_tf32() ? sweep_by_tiles<1>(queue, s.p, s.step, s.places)
                        : sweep_by_tiles<3>(queue, s.p, s.step, s.places);
        return true;
      }
      return false;
    case Way::kSteps:
      enqueue_steps(queue, s);
      return true;
  }
  return false;
}
template <class T>
void sweep(Queue& queue, const LayerSweep<T>& s) {
  for (int way = static_cast<int>(s.plan.way()); way <= static_cast<int>(Way::kSteps); ++way) {
    if (enqueue(queue, s, static_cast<Way>(way))) return;
  }
}

}  // namespace warpalign::detail::recurrent
