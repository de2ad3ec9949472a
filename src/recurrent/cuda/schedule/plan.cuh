// How a call's layers sweep, and what overlaps. A plan is made once for each pass of a call, from the problem
// and the device, and is all that the pass asks.
#pragma once

#include <array>
#include <cmath>
#include <memory>
#include <string>

#include "core/plan_cache.h"
#include "core/plan_log.h"
#include "core/ways.h"
#include "recurrent/cuda/blocks/block_way.cuh"
#include "recurrent/cuda/call/way_names.h"
#include "recurrent/cuda/clusters/cluster_way.cuh"
#include "recurrent/cuda/grid/grid_way.cuh"
#include "recurrent/cuda/schedule/schedule.cuh"
#include "recurrent/cuda/steps/product_way.cuh"
#include "recurrent/cuda/steps/step_way.cuh"
#include "recurrent/cuda/stream/stream_way.cuh"

namespace warpalign::detail::recurrent {

template <class T>
using PlannedWay = std::shared_ptr<const Way<T>>;

template <class T>
struct WayEntry {
  const char* reason;
  PlannedWay<T> (*plan)(const Question&);
};
template <class T, class Planned>
PlannedWay<T> plan_way(const Question& question) {
  return std::make_shared<const Planned>(question);
}

// All ways of a sweep (kWayNames has their names). The first one that serves a call and pays is taken. The
// last one serves every call.
template <class T>
constexpr WayEntry<T> kWays[] = {
    // stream
    {"one step without a tape: a launch for each layer, bound by reading W and R once",
     &plan_way<T, StreamWay<T>>},
    // blocks
    {"R fits the registers of a block: one launch, in which no block waits for another one",
     &plan_way<T, BlockWay<T>>},
    // clusters
    {"R fits the registers of a cluster: one launch, h travels by messages", &plan_way<T, ClusterWay<T>>},
    // grid
    {"16-bit layers that no cluster holds: one launch, h travels through global memory",
     &plan_way<T, GridWay<T>>},
    // products
    {"large batches: a lent product and a kernel for each step, bound by arithmetic",
     &plan_way<T, ProductWay<T>>},
    // steps
    {"no other way serves the call or pays: a launch for each step, which begins early",
     &plan_way<T, StepWay<T>>},
};

template <class T>
class SweepPlan {
 public:
  SweepPlan() = default;
  explicit SweepPlan(const Question& question) : backward_(question.backward) {
    steps_ = plan_way<T, StepWay<T>>(question);
    choose(question);
    if (status_.ok()) overlap(question);
  }

  // Not ok: the way that the execution names cannot serve the call.
  [[nodiscard]] Status status() const { return status_; }
  [[nodiscard]] WayNeeds needs() const { return sweeps_->needs; }
  [[nodiscard]] Overlap overlap() const { return overlap_; }
  [[nodiscard]] int chunk_steps() const { return chunk_steps_; }  // where layers overlap

  [[nodiscard]] bool is_one_step() const { return one_step_ != nullptr; }
  // Enqueues a layer's step by the way of one step; false: there is none, and the layer has to sweep.
  bool enqueue_step(Queue& queue, const LayerSweep<T>& sweep) const {
    if (!one_step_) return false;
    const bool is_enqueued = one_step_->enqueue(queue, sweep);
    if (!is_enqueued && is_forced_) refuse(queue);
    return is_enqueued || is_forced_;
  }
  // Enqueues a layer's sweep by the plan's way, or by launches of steps where the device refuses it.
  void enqueue(Queue& queue, const LayerSweep<T>& sweep) const {
    if (sweeps_->enqueue(queue, sweep)) return;
    if (is_forced_) return refuse(queue);
    steps_->enqueue(queue, sweep);
  }
  // The same of `count` layers side by side, or of one after the other.
  void enqueue_layers(Queue& queue, const LayerSweep<T>& sweep, int count) const {
    if (sweeps_->enqueue_layers(queue, sweep, count)) return;
    for (int n = 0; n < count; ++n) {
      StepParams<T> alone{};
      alone.cell[0] = sweep.step.cell[n];
      enqueue(queue, LayerSweep<T>{sweep.p, sweep.backward, alone, {0, alone.cell[0].at.steps}, true});
    }
  }

  // One line, for people.
  [[nodiscard]] std::string describe() const {
    return (backward_ ? "backward: " : "forward: ") +
           (status_.ok() ? kWayNames[index_] + sizes() : to_string(status_));
  }
  void describe(PlanLog& log) const {
    if (!status_.ok()) return log.line("plan", to_string(status_));
    log.way(kWayNames[index_], is_forced_ ? "named by Execution::way" : kWays<T>[index_].reason);
    log.line("plan", describe());
  }

 private:
  static void refuse(Queue& queue) {
    queue.fail(Status::unsupported("way", "the device refuses the launch, or an array begins within a word"));
  }
  void choose(const Question& question) {
    const int named = named_way(question.queue.execution(), kWayNames);
    const auto why_not = [&](int way) { return kWays<T>[way].plan(question)->refusal; };
    sweeps_ = steps_;  // whose memory a call has that ends with one step, or with an error
    is_forced_ = named >= 0;
    status_ = check_way(question.queue.execution(), kWayNames, "lstm() on CUDA");
    if (status_.ok()) status_ = check_serves(named, kWayNames, why_not);
    for (int index = 0; index < static_cast<int>(std::size(kWays<T>)) && status_.ok(); ++index) {
      if (is_forced_ && index != named) continue;
      const PlannedWay<T> way = kWays<T>[index].plan(question);
      if (way->refusal || !(is_forced_ || way->pays)) continue;
      if (index_ < 0) index_ = index;
      if (!way->needs.one_step) {
        sweeps_ = way;
        return;
      }
      one_step_ = way;
    }
  }

  [[nodiscard]] std::string sizes() const {
    const std::string text = one_step_ ? "" : sweeps_->describe();
    if (overlap_ == Overlap::kNone) return text + "; layers in turn";
    return text +
           (overlap_ == Overlap::kPairs ? "; two layers at a time" : "; layers on streams of their own") +
           ", by chunks of " + std::to_string(chunk_steps_) + " steps";
  }
  void overlap(const Question& question) {
    chunk_steps_ = steps_on_streams(question);
    if (chunk_steps_ > 0) {
      overlap_ = Overlap::kStreams;
      return;
    }
    chunk_steps_ = sweeps_->pair_steps;
    if (chunk_steps_ > 0) overlap_ = Overlap::kPairs;
  }
  // The steps of a chunk where layers sweep on streams of their own; 0: they do not.
  [[nodiscard]] int steps_on_streams(const Question& question) const {
    const LstmProblem& p = question.p;
    const StreamChunks chunks = sweeps_->on_streams;
    const bool may_overlap = p.layers > 1 && !p.bidirectional && !p.row_starts && !p.layer_norm &&
                             !p.recompute && p.batch > 0 && p.side_streams.count > 0;
    if (!may_overlap || chunks.start == 0) return 0;
    // (T / c + L - 1) chunks of c steps and a start each take least with this c.
    const double best = std::sqrt(chunks.start * p.steps / (p.layers - 1));
    const int chunk = std::max(static_cast<int>(best / 2 + .5) * 2, chunks.fewest);
    return 2 * chunk <= p.steps ? chunk : 0;
  }

  bool backward_ = false, is_forced_ = false;
  Status status_;
  int index_ = -1;                           // in kWays, of the way that is told
  PlannedWay<T> one_step_, sweeps_, steps_;  // steps_: in place of a way that the device refuses
  Overlap overlap_ = Overlap::kNone;
  int chunk_steps_ = 0;
};

// All that a plan follows from.
struct PlanKey {
  std::array<int, 28> numbers;
  std::string way;  // that the execution names

  explicit PlanKey(const Question& question);
  PlanKey() = default;
  bool operator==(const PlanKey&) const = default;
};
inline PlanKey::PlanKey(const Question& question) {
  const LstmProblem& p = question.p;
  const Execution& execution = question.queue.execution();
  const cuda::DeviceTraits& device = question.device();
  if (names_way(execution)) way = execution.way;
  numbers = {execution.cuda_device,
             cuda::plans_for_class(),
             device.compute_capability,
             device.multiprocessors,
             device.shared_bytes_per_block,
             static_cast<int>(execution.precision),
             execution.batch_invariant,
             question.lends_products(),
             question.backward,
             question.with_tape,
             p.steps,
             p.batch,
             p.hidden,
             p.projection,
             p.layers,
             p.bidirectional,
             p.lengths != nullptr,
             p.row_starts != nullptr,
             p.resets != nullptr,
             p.layer_norm,
             p.recompute,
             p.training,
             p.zoneout_hidden > 0,
             p.zoneout_cell > 0,
             p.weight_dropout > 0,
             p.side_streams.count > 0,
             p.side_streams.products != nullptr};
}

// A thread's plans are kept: the query of a call's workspace and its run make one together. Asking a device
// how many blocks it holds takes longer than many a launch.
template <class T>
SweepPlan<T> plan_of_call(const Queue& queue, const LstmProblem& p, bool backward, bool with_tape) {
  thread_local PlanCache<PlanKey, SweepPlan<T>> plans;
  const Question question(queue, p, backward, with_tape);
  if (!queue.status().ok()) return SweepPlan<T>(question);
  return plans.find(PlanKey(question), [&] { return SweepPlan<T>(question); });
}

}  // namespace warpalign::detail::recurrent
