// A call of the forward pass: one turn of its schedule after the other.
#pragma once

#include "cuda/memory/copy_memory.cuh"
#include "recurrent/cuda/schedule/chunks.cuh"
#include "recurrent/cuda/schedule/sweep.cuh"
#include "recurrent/cuda/schedule/wavefront.cuh"
#include "recurrent/cuda/stream/single_params.cuh"

namespace warpalign::detail::recurrent {

template <class T>
class ForwardCall {
 public:
  ForwardCall(const LstmProblem& p, const LstmOutputs& out, const Execution& execution, Workspace workspace)
      : p_(p),
        out_(out),
        queue_(execution),
        arena_(workspace.data),
        plan_(queue_, p, false),
        chunks_(p, plan_.overlap(), plan_.chunk_steps(), out.tape != nullptr),
        remakes_(p.recompute && out.tape),
        overlap_(plan_.overlap()),
        cells_(overlap_ == Overlap::kStreams ? p.layers
               : overlap_ == Overlap::kPairs ? 2
                                             : directions_of(p)),
        all_(p.layers) {
    if (p.recompute && !remakes_) chunks_ = StepChunks::of_all(p);  // nobody makes a tape again
    input_ = take_input<T>(p, chunks_.most_rows(), arena_);
    for (std::int32_t*& lengths : lengths_) {
      lengths = take_if<std::int32_t>(chunks_.has_lengths(), arena_, p.batch);
    }
    for (std::size_t n = 0; n < cells_.size(); ++n) take_cell(static_cast<int>(n), cells_[n]);
    const bool is_step_in_place = p.steps == 1 && !p.row_starts && p.h0 && out.h_n == p.h0;
    fresh_h_ = take_if<T>(is_step_in_place, arena_, p.layers * CudaSizes<T>(p).batch * p.hidden);
  }

  [[nodiscard]] std::size_t bytes() const { return arena_.used(); }

  Status run() {
    if (overlap_ == Overlap::kStreams) wave_.emplace(queue_, p_);
    for_turns(overlap_, p_.layers, chunks_.count(), [&](const LayerChunk* list, int count) {
      StepParams<T> parts{};
      if (steps_at_once(list[0].n)) return;
      for (int n = 0; n < count; ++n) begin_chunk(list[n], parts, n);
      if (overlap_ == Overlap::kPairs) {
        sweep_pair(parts, count);
      } else {
        Queue& queue = overlap_ == Overlap::kStreams ? wave_->start(list[0].n) : queue_;
        if (chunks_.rows(list[0].k) > 0) sweep_chunk(queue, parts, list[0]);
        if (overlap_ == Overlap::kStreams) wave_->end(list[0].n, list[0].k);
      }
      for (int n = 0; n < count; ++n) end_chunk(list[n], parts, n);
    });
    if (overlap_ == Overlap::kStreams) {
      wave_->join(chunks_.count());
      for (int layer = 0; layer < p_.layers; ++layer) end(layer, 0, all_[layer].cell[0]);
    }
    replace_h();
    return queue_.status();
  }

 private:
  // Workspace of a direction that all layers use in turn; of a layer, where layers run at once.
  struct Memory {
    CudaCell<T> cell;
    T* h_rows[2];  // without a tape; by layer in turn
    T* gates[2];   // the same; by chunk in turn
  };

  // A chunk's cells: a layer's directions, or `place` of two layers that are swept side by side. Its W x
  // comes first.
  void begin_chunk(const LayerChunk& chunk, StepParams<T>& parts, int place) {
    const int layer = chunk.n, k = chunk.k, directions = directions_of(p_);
    StepParams<T>& all = all_[layer];
    for (int d = 0; d < directions && k == 0; ++d) {
      all.cell[d] = cell(layer, d);
      begin(layer, d, all.cell[d]);
    }
    const bool on_streams = overlap_ == Overlap::kStreams;
    if (on_streams && layer > 0) wave_->wait_for(layer - 1, k);
    const Offset first = chunks_.first_row(k), rows = chunks_.rows(k);
    const T* below[2] = {};
    for (int d = 0; d < directions && layer > 0; ++d) below[d] = all_[layer - 1].cell[d].h_rows;
    // Without a tape a layer on a stream has the gates of two chunks.
    const bool takes_turns = on_streams && !out_.tape;
    if (takes_turns && k > 1) wave_->wait_for(layer, k - 2);
    const InputRows<T> input = layer_input(queue_, p_, layer, below, input_, first, rows);
    std::int32_t* const lengths = lengths_[overlap_ == Overlap::kPairs ? layer % 2 : 0];
    chunks_.write_lengths(queue_, k, all.cell[0], lengths);
    for (int d = 0; d < directions; ++d) {
      CudaCell<T>& part = parts.cell[place + d] = chunks_.part_of(all.cell[d], k, lengths);
      if (takes_turns) part.gates = first_row_of(cells_[layer].gates[k % 2], first);
      multiply_input(layer, part, input, on_streams ? first : 0, rows);
    }
  }

  void sweep_chunk(Queue& queue, StepParams<T>& parts, const LayerChunk& chunk) {
    const Places places = chunks_.places(chunk.k, parts.cell[0].at);
    if (plan_.way() == Way::kBlocks) return sweep_in_blocks(queue, parts, places, chunk.n);
    sweep<T>(queue, {p_, plan_, parts, places, overlap_ != Overlap::kStreams});
  }
  // Where two layers find no place side by side, each is swept alone.
  void sweep_pair(StepParams<T>& parts, int count) {
    if (run_resident(queue_, p_, plan_.grid_of_two(), parts, false, count)) return;
    for (int n = 0; n < count; ++n) {
      StepParams<T> alone{};
      alone.cell[0] = parts.cell[n];
      sweep<T>(queue_, {p_, plan_, alone, {0, alone.cell[0].at.steps}, true});
    }
  }

  // What a chunk has left becomes what the next one starts from; the tape gets c of it, too, where it is all
  // that a tape is.
  void end_chunk(const LayerChunk& chunk, StepParams<T>& parts, int place) {
    if (overlap_ == Overlap::kStreams) return;  // states stay in their places, and others are still under way
    if (chunk.k == chunks_.last()) {
      for (int d = 0; d < directions_of(p_); ++d) end(chunk.n, d, parts.cell[place + d]);
      return;
    }
    const CudaCell<T>& part = parts.cell[place];
    const CudaSizes<T> s(p_);
    Sum<T>* const kept =
        remakes_ ? chunks_.kept_c(all_[chunk.n].cell[0], chunk.k + 1) : const_cast<Sum<T>*>(part.c0);
    queue_.for_each(s.batch * std::max(s.output_stride, s.hidden), kFirstState<T>,
                    StateParams<T>{part, nullptr, nullptr, true, kept});
  }

  // Where row 0 of gates would be whose row `first` is at `gates`.
  T* first_row_of(T* gates, Offset first) const {
    const auto address = reinterpret_cast<std::uintptr_t>(gates);
    return reinterpret_cast<T*>(address - first * 4 * p_.hidden * sizeof(T));
  }

  // n: the layer, where layers run at once; its number mod 2, where two do at a time.
  void take_cell(int n, Memory& own) {
    const CudaSizes<T> s(p_);
    CudaCell<T>& cell = own.cell;
    if (!p_.packed_weights) take_packed(p_, cell, arena_);
    for (T*& h : cell.h) h = arena_.take<T>(s.batch * s.output_stride);
    cell.h0 = arena_.take<T>(s.batch * s.output_stride);
    cell.c = arena_.take<Sum<T>>(s.batch * s.hidden);
    cell.c0 = arena_.take<Sum<T>>(s.batch * s.hidden);
    cell.raw = take_if<Sum<T>>(p_.layer_norm, arena_, s.batch * 4 * s.hidden);
    cell.cells = take_if<Sum<T>>(p_.layer_norm, arena_, s.batch * s.hidden);
    cell.m = take_if<T>(p_.projection > 0, arena_, s.batch * s.hidden_stride);
    cell.kept = take_kept<T>(p_, chunks_.most_rows(), arena_);
    if (remakes_) return take_steps(p_, chunks_.most_rows(), false, cell, arena_);
    if (out_.tape) return;
    if (overlap_ == Overlap::kStreams) {  // a sweep looks a step ahead
      for (T*& gates : own.gates) gates = arena_.take<T>((chunks_.steps() + 1) * s.batch * 4 * s.hidden);
      own.h_rows[0] = own.h_rows[1] = take_if<T>(keeps_h(n), arena_, s.rows * s.output);
      return;
    }
    take_steps(p_, chunks_.most_rows(), false, cell, arena_);
    for (int turn = 0; turn < 2; ++turn) {
      if (overlap_ == Overlap::kPairs && turn != n) continue;
      own.h_rows[turn] = take_if<T>(keeps_h(turn), arena_, s.rows * s.output);
    }
  }

  // Without a tape: whether h of all steps needs memory, for the layer above or for the blocks of a resident
  // sweep.
  [[nodiscard]] bool keeps_h(int layer) const {
    if (!is_last(p_, layer)) return layer < p_.layers;
    const bool by_products = p_.projection > 0 && may_take_products<T>(p_);
    return !out_.y && ((may_be_resident<T>(p_) && plan_.way() != Way::kBlocks) || by_products);
  }

  // Layer `layer` in direction d.
  CudaCell<T> cell(int layer, int d) {
    const CudaSizes<T> s(p_);
    const int index = layer * directions_of(p_) + d;
    CudaCell<T> cell = plain_cell<T>(p_, layer, d);
    const Memory& memory = cells_[overlap_ == Overlap::kStreams ? layer
                                  : overlap_ == Overlap::kPairs ? layer % 2
                                                                : d];
    const CudaCell<T>& own = memory.cell;
    cell.hh = own.hh, cell.hr = own.hr;
    if (p_.packed_weights) {
      std::byte* const packed = static_cast<std::byte*>(const_cast<void*>(p_.packed_weights));
      Arena arena(packed + index * packed_cell_bytes<T>(p_));
      take_packed(p_, cell, arena);
    }
    cell.h[0] = own.h[0], cell.h[1] = own.h[1], cell.h0 = own.h0;
    cell.c = own.c, cell.c0 = own.c0, cell.raw = own.raw, cell.cells = own.cells, cell.m = own.m;
    cell.kept = own.kept;
    if (out_.tape) {
      Arena arena = tape_of_cell<T>(p_, out_.tape, layer, d);
      take_tape(p_, layer, cell, arena);
    } else {
      cell.h_rows = memory.h_rows[layer % 2];
    }
    if (remakes_ || !out_.tape) {
      cell.gates = own.gates, cell.scales = own.scales;
      cell.norm_x = own.norm_x, cell.norm_h = own.norm_h, cell.norm_c = own.norm_c;
    }
    if (is_last(p_, layer) && out_.y) place_h_in_y(p_, d, static_cast<T*>(out_.y), cell);
    cell.h_all = part_of<T>(out_.h_all, index * s.rows * s.output);
    cell.c_all = bytes_at(out_.c_all, index * s.rows * s.hidden, size_of(p_.cell_dtype));
    return cell;
  }

  // A layer of a single step in one launch; false: the layer has to run in another way.
  bool steps_at_once(int layer) {
    if (p_.steps != 1 || out_.tape || overlap_ != Overlap::kNone) return false;
    const T* const below[2] = {layer > 0 ? all_[layer - 1].cell[0].h_rows : nullptr};
    const InputRows<T> input = layer_input(queue_, p_, layer, below, input_, 0, rows_of(p_));
    const std::size_t states = static_cast<std::size_t>(p_.batch) * p_.hidden;
    const LstmWeights& w = p_.weights[layer];
    SingleStepParams<T> step{};
    step.cell = cell(layer, 0);
    step.x = input.data, step.x_stride = input.stride;
    step.input = static_cast<int>(input_of(p_, layer));
    step.ih = static_cast<const T*>(w.ih), step.hh = static_cast<const T*>(w.hh);
    step.h0 = part_of<T>(p_.h0, layer * states);
    step.c0 = bytes_at(p_.c0, layer * states, size_of(p_.cell_dtype));
    step.h_n = part_of<T>(fresh_h_ ? fresh_h_ : out_.h_n, layer * states);
    step.c_n = bytes_at(out_.c_n, layer * states, size_of(p_.cell_dtype));
    if (!run_single_step(queue_, p_, step, out_.tape != nullptr, layer > 0)) return false;
    all_[layer].cell[0] = step.cell;
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
    const std::size_t index = layer * directions_of(p_) + d;
    const LstmWeights& w = p_.weights[index];
    if (!p_.packed_weights) pack_or_take(queue_, p_, cell, w, drops_weights(p_));
    if (takes_ends()) return;
    const StateParams<T> state{cell, part_of<T>(p_.h0, index * s.batch * s.output),
                               bytes_at(p_.c0, index * s.batch * s.hidden, size_of(p_.cell_dtype))};
    queue_.for_each(s.batch * std::max(s.output_stride, s.hidden), kFirstState<T>, state);
    if (cell.m) queue_.clear(cell.m, s.batch * s.hidden_stride * sizeof(T));
  }

  void multiply_input(int layer, const CudaCell<T>& cell, const InputRows<T>& input, Offset first,
                      Offset rows) {
    const LstmWeights& w = p_.weights[layer * directions_of(p_) + (cell.reverse ? 1 : 0)];
    recurrent::multiply_input(queue_, p_, w, cell, input, input_of(p_, layer), first, rows);
  }

  // Whether a layer's sweep itself takes the states that are given, and leaves those that are asked for.
  [[nodiscard]] bool takes_ends() const {
    return plan_.way() == Way::kBlocks && overlap_ != Overlap::kStreams && !remakes_ && rows_of(p_) > 0;
  }
  // layer: 0 is as good as any where the sweep has not the states' ends.
  void sweep_in_blocks(Queue& queue, const StepParams<T>& params, Places places, int layer) {
    const CudaSizes<T> s(p_);
    ForwardEnds<T> ends[2] = {};
    for (int d = 0; d < directions_of(p_); ++d) {
      const CudaCell<T>& cell = params.cell[d];
      const std::size_t first =
          (static_cast<std::size_t>(layer) * directions_of(p_) + d) * s.batch * s.hidden;
      const T* const h0 = part_of<T>(p_.h0, first);
      const void* const c0 = bytes_at(p_.c0, first, size_of(p_.cell_dtype));
      ends[d] = {h0,
                 c0,
                 h0,
                 c0,
                 part_of<T>(out_.h_n, first),
                 bytes_at(out_.c_n, first, size_of(p_.cell_dtype)),
                 p_.hidden,
                 cell.wide_cells};
      if (takes_ends()) continue;
      T* const h_last = cell.h[places.end % 2];
      ends[d] = {cell.h[0], cell.c, cell.h0, cell.c0, h_last, cell.c, cell.output_stride, true};
    }
    for (int d = 0; d < directions_of(p_); ++d) draw_kept(queue, params.cell[d], false, places);
    BlockSweeps<T>::forward(queue, p_, params.cell, ends, places);
  }

  void end(int layer, int d, CudaCell<T>& cell) {
    const CudaSizes<T> s(p_);
    const std::size_t index = layer * directions_of(p_) + d;
    if (takes_ends()) return;
    if (rows_of(p_) == 0) cell.h[p_.steps % 2] = cell.h[0];
    queue_.for_each(s.batch * std::max(s.output, s.hidden), kLastState<T>, cell,
                    part_of<T>(out_.h_n, index * s.batch * s.output),
                    bytes_at(out_.c_n, index * s.batch * s.hidden, size_of(p_.cell_dtype)), false);
  }

  const LstmProblem& p_;
  const LstmOutputs& out_;
  Queue queue_;
  Arena arena_;
  SweepPlan<T> plan_;
  StepChunks chunks_;
  bool remakes_;  // the backward pass makes the tape, from what is kept by chunks
  Overlap overlap_;
  std::vector<Memory> cells_;
  T* input_;
  T* fresh_h_;                        // (L, B, H): of steps at once in place; null: of other calls
  std::int32_t* lengths_[2];          // rows' lengths within a chunk, of even and of odd layers
  std::vector<StepParams<T>> all_;    // of each layer that has begun: its cells, of all steps
  std::vector<int> stepped_at_once_;  // layers
  std::optional<Wavefront> wave_;     // of Overlap::kStreams
};

}  // namespace warpalign::detail::recurrent
