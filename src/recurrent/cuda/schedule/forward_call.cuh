// A call of the forward pass.
#pragma once

#include "cuda/memory/copy_memory.cuh"
#include "recurrent/cuda/schedule/pass.cuh"

namespace warpalign::detail::recurrent {

template <class T>
class ForwardCall : public SchedulePass<T, ForwardCall<T>> {
  using Base = SchedulePass<T, ForwardCall<T>>;
  friend Base;

 public:
  ForwardCall(const LstmProblem& p, const LstmOutputs& out, const Execution& execution, Workspace workspace)
      : Base(p, execution, workspace, false, out.tape != nullptr), out_(out), memory_(this->memories()) {
    input_ = take_input<T>(p, chunks_.most_rows(), arena_);
    for (std::size_t n = 0; n < memory_.size(); ++n) take_cell(static_cast<int>(n), memory_[n]);
    const bool is_step_in_place = p.steps == 1 && !p.row_starts && p.h0 && out.h_n == p.h0;
    fresh_h_ = take_if<T>(is_step_in_place, arena_, p.layers * CudaSizes<T>(p).batch * p.hidden);
  }

 private:
  using Base::all_;
  using Base::arena_;
  using Base::chunks_;
  using Base::p_;
  using Base::plan_;
  using Base::queue_;

  // Workspace of a direction that all layers use in turn; of a layer, where layers run at once.
  struct Memory {
    CudaCell<T> cell;
    T* h_rows[2];  // without a tape; by layer in turn
    T* gates[2];   // the same; by chunk in turn
  };

  // A chunk's cells: a layer's directions, or `place` of two layers that are swept side by side. Its W x
  // comes first.
  void begin_chunk(int layer, int k, StepParams<T>& parts, std::size_t place) {
    const int directions = directions_of(p_);
    StepParams<T>& all = all_[layer];
    for (int d = 0; d < directions && k == 0; ++d) {
      all.cell[d] = cell(layer, d);
      begin(layer, d, all.cell[d]);
    }
    if (this->on_streams() && layer > 0) this->wave_->wait_for(layer - 1, k);
    const Offset first = chunks_.first_row(k), rows = chunks_.rows(k);
    // Without a tape a layer on a stream has the gates of two chunks.
    const bool takes_turns = this->on_streams() && !out_.tape;
    if (takes_turns && k > 1) this->wave_->wait_for(layer, k - 2);
    const InputRows<T> input = input_of_layer(layer, first, rows);
    chunks_.write_lengths(queue_, k, all.cell[0], this->lengths_of(layer));
    for (int d = 0; d < directions; ++d) {
      CudaCell<T>& part = parts.cell[place + d] = chunks_.part_of(all.cell[d], k, this->lengths_of(layer));
      if (takes_turns) part.gates = first_row_of(memory_[layer].gates[k % 2], first);
      multiply_input(queue_, p_, p_.weights[this->index_of(layer, d)], part, input, input_of(p_, layer),
                     this->on_streams() ? first : 0, rows);
    }
  }
  // What a chunk has left becomes what the next one starts from; the tape gets c of it, too, where it is all
  // that a tape is.
  void end_chunk(int layer, int k, StepParams<T>& parts, std::size_t place) {
    if (k == chunks_.last()) {
      for (int d = 0; d < directions_of(p_); ++d) end(layer, d, parts.cell[place + d]);
      return;
    }
    const CudaCell<T>& part = parts.cell[place];
    const CudaSizes<T> s(p_);
    Sum<T>* const kept =
        this->remakes() ? chunks_.kept_c(all_[layer].cell[0], k + 1) : const_cast<Sum<T>*>(part.c0);
    queue_.for_each(s.batch * std::max(s.output_stride, s.hidden), kFirstState<T>,
                    StateParams<T>{part, nullptr, nullptr, true, kept});
  }
  void finish() {
    for (int layer = 0; layer < p_.layers && this->on_streams(); ++layer) end(layer, 0, all_[layer].cell[0]);
    replace_h();
  }

  [[nodiscard]] SweepEnds ends_of(int layer, int d) const {
    const std::size_t h = this->state_of(layer, d, output_of(p_)), c = this->state_of(layer, d, p_.hidden);
    const std::size_t cell_size = size_of(p_.cell_dtype);
    return {{part_of<T>(p_.h0, h), bytes_at(p_.c0, c, cell_size)},
            bytes_at(p_.c0, c, cell_size),
            {part_of<T>(out_.h_n, h), bytes_at(out_.c_n, c, cell_size)}};
  }
  InputRows<T> input_of_layer(int layer, Offset first, Offset rows) {
    const T* below[2] = {};
    for (int d = 0; d < directions_of(p_) && layer > 0; ++d) below[d] = all_[layer - 1].cell[d].h_rows;
    return layer_input(queue_, p_, layer, below, input_, first, rows);
  }
  // Where row 0 of gates would be whose row `first` is at `gates`.
  T* first_row_of(T* gates, Offset first) const {
    const auto address = reinterpret_cast<std::uintptr_t>(gates);
    return reinterpret_cast<T*>(address - first * 4 * p_.hidden * sizeof(T));
  }

  // n: the layer, where layers run at once; its number mod 2, where two do at a time.
  void take_cell(int n, Memory& own) {
    const CudaSizes<T> s(p_);
    const WayNeeds needs = plan_.needs();
    CudaCell<T>& cell = own.cell;
    if (!p_.packed_weights) take_packed(p_, cell, arena_);
    for (T*& h : cell.h) h = arena_.template take<T>(s.batch * s.output_stride);
    cell.h0 = arena_.template take<T>(s.batch * s.output_stride);
    cell.c = arena_.template take<Sum<T>>(s.batch * s.hidden);
    cell.c0 = arena_.template take<Sum<T>>(s.batch * s.hidden);
    cell.raw = take_if<Sum<T>>(p_.layer_norm, arena_, s.batch * 4 * s.hidden);
    cell.cells = take_if<Sum<T>>(p_.layer_norm, arena_, s.batch * s.hidden);
    cell.m = take_if<T>(p_.projection > 0, arena_, s.batch * s.hidden_stride);
    cell.kept = take_if<std::uint8_t>(needs.kept && draws_zoneout(p_), arena_,
                                      chunks_.most_rows() * kept_words(p_.hidden));
    if (this->remakes()) return take_steps(p_, chunks_.most_rows(), false, cell, arena_);
    if (out_.tape) return;
    if (this->on_streams()) {  // a sweep looks a step ahead
      for (T*& gates : own.gates)
        gates = arena_.template take<T>((chunks_.steps() + 1) * s.batch * 4 * s.hidden);
    } else {
      take_steps(p_, chunks_.most_rows(), false, cell, arena_);
    }
    for (int turn = 0; turn < 2; ++turn) {
      // Each of two layers at a time has its own, and so has each layer on a stream.
      const int layer = this->on_streams() ? n : turn;
      if (this->on_streams() ? turn > 0 : this->in_pairs() && turn != n) continue;
      own.h_rows[turn] = take_if<T>(keeps_h(layer), arena_, s.rows * s.output);
    }
    if (this->on_streams()) own.h_rows[1] = own.h_rows[0];
  }
  // Without a tape: whether h of all steps needs memory, for the layer above or for the sweep.
  [[nodiscard]] bool keeps_h(int layer) const {
    if (!is_last(p_, layer)) return layer < p_.layers;
    return !out_.y && plan_.needs().h_of_all_steps;
  }

  // Layer `layer` in direction d.
  CudaCell<T> cell(int layer, int d) {
    const CudaSizes<T> s(p_);
    const std::size_t index = this->index_of(layer, d);
    const Memory& memory = memory_[this->memory_of(layer, d)];
    CudaCell<T> cell = memory.cell;
    set_plain(p_, layer, d, cell);
    if (p_.packed_weights) {
      std::byte* const packed = static_cast<std::byte*>(const_cast<void*>(p_.packed_weights));
      Arena arena(packed + index * packed_cell_bytes<T>(p_));
      take_packed(p_, cell, arena);
    }
    cell.h_rows = memory.h_rows[layer % 2];
    if (out_.tape) {
      Arena arena = tape_of_cell<T>(p_, out_.tape, layer, d);
      take_tape(p_, layer, cell, arena);
    }
    if (is_last(p_, layer) && out_.y) place_h_in_y(p_, d, static_cast<T*>(out_.y), cell);
    cell.h_all = part_of<T>(out_.h_all, index * s.rows * s.output);
    cell.c_all = bytes_at(out_.c_all, index * s.rows * s.hidden, size_of(p_.cell_dtype));
    return cell;
  }

  // A layer of a single step in one launch; false: the layer has to sweep.
  bool steps_at_once(int layer) {
    if (!plan_.is_one_step()) return false;
    StepParams<T> step{};
    step.cell[0] = cell(layer, 0);
    SweepEnds ends = ends_of(layer, 0);
    if (fresh_h_) ends.last.h = fresh_h_ + this->state_of(layer, 0, p_.hidden);
    const LayerSweep<T> sweep{p_,   false, step,  {0, 1},
                              true, &ends, layer, input_of_layer(layer, 0, rows_of(p_))};
    if (!plan_.enqueue_step(queue_, sweep)) return false;
    all_[layer].cell[0] = step.cell[0];
    if (fresh_h_) stepped_at_once_.push_back(layer);
    return true;
  }
  // A block of a step at once reads h of all units, and writes that of its own. So in place h is written
  // beside the state, and replaces it after the last layer, by one copy of adjacent layers. c needs none: a
  // thread reads what it writes.
  void replace_h() {
    const std::vector<int>& layers = stepped_at_once_;
    const std::size_t states = static_cast<std::size_t>(p_.batch) * p_.hidden;
    for (std::size_t begin = 0, end = 0; begin < layers.size(); begin = end) {
      for (end = begin + 1; end < layers.size() && layers[end] == layers[end - 1] + 1; ++end) {
      }
      const std::size_t first = layers[begin] * states;
      if (!queue_.status().ok()) return;
      queue_.fail(cuda::copy_memory(static_cast<T*>(out_.h_n) + first, fresh_h_ + first,
                                    (end - begin) * states * sizeof(T), queue_.stream()));
    }
  }

  // Weights and states.
  void begin(int layer, int d, CudaCell<T>& cell) {
    const CudaSizes<T> s(p_);
    const LstmWeights& w = p_.weights[this->index_of(layer, d)];
    if (!p_.packed_weights) pack_or_take(queue_, p_, cell, w, drops_weights(p_));
    if (this->takes_ends()) return;
    const GivenState first = ends_of(layer, d).first;
    const StateParams<T> state{cell, static_cast<const T*>(first.h), first.c};
    queue_.for_each(s.batch * std::max(s.output_stride, s.hidden), kFirstState<T>, state);
    if (cell.m) queue_.clear(cell.m, s.batch * s.hidden_stride * sizeof(T));
  }
  void end(int layer, int d, CudaCell<T>& cell) {
    if (this->takes_ends()) return;
    const CudaSizes<T> s(p_);
    if (rows_of(p_) == 0) cell.h[p_.steps % 2] = cell.h[0];
    const LeftState last = ends_of(layer, d).last;
    queue_.for_each(s.batch * std::max(s.output, s.hidden), kLastState<T>, cell, static_cast<T*>(last.h),
                    last.c, false);
  }

  const LstmOutputs& out_;
  std::vector<Memory> memory_;
  T* input_;
  T* fresh_h_;                        // (L, B, H): of steps at once in place; null: of other calls
  std::vector<int> stepped_at_once_;  // layers
};

}  // namespace warpalign::detail::recurrent
