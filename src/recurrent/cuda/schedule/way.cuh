// A way of a sweep: how a layer's steps run on the device. The table of all ways is in plan.cuh.
#pragma once

#include <string>

#include "recurrent/cuda/schedule/rows_call.cuh"
#include "recurrent/tuning.h"

namespace warpalign::detail::recurrent {

// The call that a plan is made for.
struct Question {
  const Queue& queue;
  const LstmProblem& p;
  bool backward;
  bool with_tape;
  CudaTuning tuning;  // the device's thresholds

  Question(const Queue& queue, const LstmProblem& p, bool backward, bool with_tape)
      : queue(queue), p(p), backward(backward), with_tape(with_tape), tuning(cuda_tuning(queue.device())) {}

  [[nodiscard]] const cuda::DeviceTraits& device() const { return queue.device(); }
  // Whether there are so many of something for each multiprocessor. Forced thresholds may be large.
  [[nodiscard]] bool reaches(std::int64_t amount, int of_multiprocessor) const {
    return amount >= static_cast<std::int64_t>(of_multiprocessor) * device().multiprocessors;
  }
  [[nodiscard]] bool batch_invariant() const { return queue.execution().batch_invariant; }
  // Whether the caller lends products that the steps of a sweep may use: their sums depend on the batch.
  [[nodiscard]] bool lends_products() const {
    return queue.execution().matrix_product.run && !batch_invariant();
  }
};

// Whether launches of steps read R no more often than a sweep in one launch does before its first step. But
// bits must not depend on the number of steps where they must not depend on the batch.
inline bool has_few_steps(const Question& question) {
  constexpr int kFewSteps = 3;
  return question.p.steps < kFewSteps && !question.batch_invariant();
}

// A state as the caller has it, (B, P) and (B, H), or its gradient; null: 0, or not wanted.
struct GivenState {
  const void *h = nullptr, *c = nullptr;
};
struct LeftState {
  void *h = nullptr, *c = nullptr;
};
// What a direction's sweep begins with and leaves, for ways that take states as the caller has them.
struct SweepEnds {
  GivenState first;  // h0 and c0, or the gradients with respect to h_n and c_n
  const void* c0;    // c before the first step
  LeftState last;    // h_n and c_n, or the gradients with respect to h0 and c0
};

// Some steps of a layer's directions.
template <class T>
struct LayerSweep {
  const LstmProblem& p;
  bool backward;
  StepParams<T>& step;  // the cells of the directions
  Places places;
  bool is_whole;  // the places are all steps of the step's cells
  const SweepEnds* ends =
      nullptr;  // of the directions; null: states are in the cells, as kFirstState leaves them
  // For ways that make W x themselves.
  int layer = 0;
  InputRows<T> input = {};
};

// Who hands dz on in a backward sweep of the whole grid: nobody, the rows of dz, or a ring of the last steps.
enum class Exchange { kNone, kRows, kRing };

// What a way wants of a call's memory and of its first and last launches.
struct WayNeeds {
  bool states_as_given = false;  // it reads and leaves states as the caller has them, and R as it is given
  bool h_of_all_steps = false;   // forward, also without a tape
  bool kept = false;             // zoneout's bits are drawn ahead
  bool carried = false;          // backward: a row of R^T dz
  bool one_step = false;         // of a layer's step it makes all: W x too, and states as the caller has them
  Exchange exchange = Exchange::kNone;
};

// Layers of a stack that overlap on streams of their own: a chunk's start takes as long as `start` steps, and
// chunks have `fewest` steps at least. start = 0: layers do not overlap.
struct StreamChunks {
  double start = 0;
  int fewest = 0;
};

// A way, planned for a call: the constructor says what follows from the problem and the device.
template <class T>
class Way {
 public:
  virtual ~Way() = default;
  const char* refusal = nullptr;  // why the way cannot serve the call; null: it serves it
  bool pays = true;  // whether it is faster than what serves the call after it in the table, as measured
  WayNeeds needs;
  StreamChunks on_streams;
  int pair_steps = 0;  // of the chunks of which one launch sweeps those of two layers; 0: it does not

  // Its sizes, for people: "" or " of ...".
  [[nodiscard]] virtual std::string describe() const { return ""; }
  // Enqueues the sweep; false: the device refuses it, or arrays do not suit it, and nothing has been
  // enqueued.
  virtual bool enqueue(Queue& queue, const LayerSweep<T>& sweep) const = 0;
  // The same of whole sweeps of `count` layers, whose cells are the step's.
  virtual bool enqueue_layers(Queue&, const LayerSweep<T>&, int /*count*/) const { return false; }
};

// Whether rows of h of the first `cells` cells can be read and written by so many bytes at a time. y may lie
// anywhere.
template <class T>
bool has_aligned_h(int cells, const StepParams<T>& step, std::size_t bytes) {
  for (int n = 0; n < cells; ++n) {
    if (!is_aligned(step.cell[n].h_rows, bytes)) return false;
  }
  return true;
}
// Whether their results can be written by words of four 16-bit elements.
template <class T>
bool takes_words(int cells, const StepParams<T>& step) {
  for (int n = 0; n < cells; ++n) {
    if (!is_aligned(step.cell[n].h_all, sizeof(std::uint64_t))) return false;
  }
  return has_aligned_h(cells, step, sizeof(std::uint64_t));
}

}  // namespace warpalign::detail::recurrent
