// What the forward and the backward pass of a call have in common: one turn of the schedule after the other.
#pragma once

#include <optional>
#include <vector>

#include "recurrent/cuda/schedule/chunks.cuh"
#include "recurrent/cuda/schedule/plan.cuh"
#include "recurrent/cuda/schedule/wavefront.cuh"

namespace warpalign::detail::recurrent {

// Pass: ForwardCall or BackwardCall. It has begin_chunk(), end_chunk(), ends_of() and finish().
template <class T, class Pass>
class SchedulePass {
 public:
  // Of the workspace.
  [[nodiscard]] std::size_t bytes() const { return arena_.used(); }

  Status run() {
    if (PlanLog* const log = PlanLog::current()) {
      log->begin(backward_ ? "lstm_backward" : "lstm", cuda::name_of_device(queue_.execution().cuda_device));
      plan_.describe(*log);
      log->memory("workspace", bytes());
    }
    if (queue_.status().ok()) queue_.fail(plan_.status());
    if (!queue_.status().ok()) return queue_.status();
    if (overlap_ == Overlap::kStreams) wave_.emplace(queue_, p_);
    for_turns(overlap_, p_.layers, chunks_.count(),
              [&](std::span<const LayerChunk> turn) { run_turn(turn); });
    if (overlap_ == Overlap::kStreams) wave_->join(chunks_.count());
    pass().finish();
    return queue_.status();
  }

 protected:
  // has_tape: gates, c and dz are those of all steps, and not of a chunk.
  SchedulePass(const LstmProblem& p, const Execution& execution, Workspace workspace, bool backward,
               bool has_tape)
      : p_(p),
        backward_(backward),
        has_tape_(has_tape),
        queue_(execution),
        arena_(workspace.data),
        plan_(plan_of_call<T>(queue_, p, backward, has_tape)),
        overlap_(plan_.overlap()),
        chunks_(p, overlap_, plan_.chunk_steps(), has_tape),
        all_(p.layers) {
    // Without a tape in the forward pass nobody makes one again.
    if (p.recompute && !has_tape) chunks_ = StepChunks::of_all(p);
    for (std::int32_t*& lengths : lengths_) {
      lengths = take_if<std::int32_t>(chunks_.has_lengths(), arena_, p.batch);
    }
  }

  [[nodiscard]] int layer_of(const LayerChunk& chunk) const {
    return backward_ ? p_.layers - 1 - chunk.n : chunk.n;
  }
  [[nodiscard]] bool on_streams() const { return overlap_ == Overlap::kStreams; }
  [[nodiscard]] bool in_pairs() const { return overlap_ == Overlap::kPairs; }
  // The number in time of the k-th chunk to begin. On streams a backward pass counts chunks from the last
  // step on.
  [[nodiscard]] int in_time(int k) const { return backward_ && !on_streams() ? chunks_.last() - k : k; }
  // Cells whose memory a call has: of all layers, of two layers that take turns, or of a layer's directions.
  [[nodiscard]] std::size_t memories() const {
    return on_streams() ? p_.layers : in_pairs() ? 2 : directions_of(p_);
  }
  [[nodiscard]] std::size_t memory_of(int layer, int d) const {
    return on_streams() ? layer : in_pairs() ? layer % 2 : d;
  }
  // Of a layer and direction among all.
  [[nodiscard]] std::size_t index_of(int layer, int d) const {
    return static_cast<std::size_t>(layer) * directions_of(p_) + d;
  }
  // A chunk's lengths, which two layers may have at once.
  [[nodiscard]] std::int32_t* lengths_of(int layer) const { return lengths_[in_pairs() ? layer % 2 : 0]; }
  // A layer's part of arrays of states, of H or P entries.
  [[nodiscard]] std::size_t state_of(int layer, int d, std::int64_t width) const {
    return index_of(layer, d) * p_.batch * width;
  }
  // Whether a layer's sweep itself takes the states that are given, and leaves those that are asked for.
  [[nodiscard]] bool takes_ends() const {
    return plan_.needs().states_as_given && !on_streams() && !remakes() && rows_of(p_) > 0;
  }
  // Whether a call keeps no tape that a backward pass needs, and makes it again.
  [[nodiscard]] bool remakes() const { return p_.recompute && has_tape_; }

  const LstmProblem& p_;
  const bool backward_, has_tape_;
  Queue queue_;
  Arena arena_;
  SweepPlan<T> plan_;
  Overlap overlap_;
  StepChunks chunks_;
  std::int32_t* lengths_[2];        // rows' lengths within a chunk, of even and of odd layers
  std::vector<StepParams<T>> all_;  // of each layer that has begun: its cells, of all steps
  std::optional<Wavefront> wave_;   // of Overlap::kStreams

 private:
  Pass& pass() { return static_cast<Pass&>(*this); }

  void run_turn(std::span<const LayerChunk> turn) {
    StepParams<T> parts{};
    const int layer = layer_of(turn[0]), k = turn[0].k;
    if (pass().steps_at_once(layer)) return;
    for (std::size_t n = 0; n < turn.size(); ++n) pass().begin_chunk(layer_of(turn[n]), turn[n].k, parts, n);
    if (in_pairs()) {
      plan_.enqueue_layers(queue_, LayerSweep<T>{p_, backward_, parts, {0, 0}, true},
                           static_cast<int>(turn.size()));
    } else {
      Queue& queue = on_streams() ? wave_->start(layer) : queue_;
      if (chunks_.rows(in_time(k)) > 0) sweep_chunk(queue, parts, layer, k);
      if (on_streams()) return wave_->end(layer, k);  // others are still under way
    }
    for (std::size_t n = 0; n < turn.size(); ++n) pass().end_chunk(layer_of(turn[n]), turn[n].k, parts, n);
  }
  void sweep_chunk(Queue& queue, StepParams<T>& parts, int layer, int k) {
    SweepEnds ends[2] = {};
    for (int d = 0; d < directions_of(p_); ++d) ends[d] = pass().ends_of(layer, d);
    LayerSweep<T> sweep{p_, backward_, parts, chunks_.places(k, parts.cell[0].at), !on_streams()};
    if (takes_ends()) sweep.ends = ends;
    plan_.enqueue(queue, sweep);
  }
};

}  // namespace warpalign::detail::recurrent
