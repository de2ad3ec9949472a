// A call of the forward pass: layer after layer, the directions of a layer in the same launches, or layers at
// once, or two layers at a time.
#pragma once

#include "cuda/copy_memory.cuh"
#include "recurrent/cuda/block_call.h"
#include "recurrent/cuda/chunks.cuh"
#include "recurrent/cuda/single_params.cuh"
#include "recurrent/cuda/tiled_steps.cuh"
#include "recurrent/cuda/two_layers.cuh"
#include "recurrent/cuda/wavefront.cuh"

namespace warpalign::detail::recurrent {

template <class T>
class ForwardCall {
 public:
  ForwardCall(const LstmProblem& p, const LstmOutputs& out, const Execution& execution, Workspace workspace)
      : p_(p),
        out_(out),
        queue_(execution),
        arena_(workspace.data),
        chunk_(steps_of_chunk<T>(queue_, p, false)),
        two_chunk_(chunk_ > 0 ? 0 : steps_of_two_layers<T>(queue_, p, false)),
        chunks_(two_chunk_ > 0 ? StepChunks(p, two_chunk_, out.tape != nullptr) : StepChunks(p)),
        remakes_(p.recompute && out.tape),
        in_blocks_(sweeps_in_blocks<T>(p)),
        cells_(chunk_ > 0       ? p.layers
               : two_chunk_ > 0 ? 2
                                : directions_of(p)) {
    const bool by_chunks = remakes_ || two_chunk_ > 0;
    input_ = take_input<T>(p, by_chunks ? chunks_.most_rows() : rows_of(p), arena_);
    for (std::int32_t*& lengths : lengths_) {
      lengths = take_if<std::int32_t>(by_chunks && chunks_.has_lengths(), arena_, p.batch);
    }
    for (std::size_t n = 0; n < cells_.size(); ++n) take_cell(static_cast<int>(n), cells_[n]);
    const bool is_step_in_place = p.steps == 1 && !p.row_starts && p.h0 && out.h_n == p.h0;
    fresh_h_ = take_if<T>(is_step_in_place, arena_, p.layers * CudaSizes<T>(p).batch * p.hidden);
  }

  [[nodiscard]] std::size_t bytes() const { return arena_.used(); }

  Status run() {
    if (remakes_) return run_by_chunks();
    if (chunk_ > 0) return run_at_once();
    if (two_chunk_ > 0) return run_two_at_a_time();
    const T* below[2] = {};
    std::vector<int> stepped_at_once;
    for (int layer = 0; layer < p_.layers; ++layer) {
      const InputRows<T> input = layer_input(queue_, p_, layer, below, input_, 0, rows_of(p_));
      if (step_at_once(layer, input, below[0])) {
        if (fresh_h_) stepped_at_once.push_back(layer);
        continue;
      }
      StepParams<T> params{};
      for (int d = 0; d < directions_of(p_); ++d) {
        params.cell[d] = cell(layer, d);
        begin(layer, d, params.cell[d]);
        multiply_input(layer, params.cell[d], input, 0, rows_of(p_));
      }
      if (rows_of(p_) > 0) sweep(queue_, params, {0, p_.steps}, layer);
      for (int d = 0; d < directions_of(p_); ++d) {
        end(layer, d, params.cell[d]);
        below[d] = params.cell[d].h_rows;
      }
    }
    replace_h(stepped_at_once);
    return queue_.status();
  }

 private:
  // Workspace of a direction that all layers use in turn; of a layer, where layers run at once.
  struct Memory {
    CudaCell<T> cell;
    T* h_rows[2];  // without a tape; by layer in turn
    T* gates[2];   // the same; by chunk in turn
  };

  // The tape gets c before each chunk, and only a chunk's gates have a place.
  Status run_by_chunks() {
    const T* below[2] = {};
    for (int layer = 0; layer < p_.layers; ++layer) {
      StepParams<T> all{}, part{};
      for (int d = 0; d < directions_of(p_); ++d) {
        all.cell[d] = cell(layer, d);
        begin(layer, d, all.cell[d]);
      }
      for (int k = 0; k < chunks_.count(); ++k) {
        const Offset first = chunks_.first_row(k), rows = chunks_.rows(k);
        const InputRows<T> input = layer_input(queue_, p_, layer, below, input_, first, rows);
        chunks_.write_lengths(queue_, k, all.cell[0], lengths_[0]);
        for (int d = 0; d < directions_of(p_); ++d) {
          part.cell[d] = chunks_.part_of(all.cell[d], k, lengths_[0]);
          multiply_input(layer, part.cell[d], input, 0, rows);
        }
        if (rows > 0) sweep(queue_, part, {0, part.cell[0].at.steps});
        if (k == chunks_.last()) break;
        go_on(part.cell[0], chunks_.kept_c(all.cell[0], k + 1));
      }
      for (int d = 0; d < directions_of(p_); ++d) {
        end(layer, d, part.cell[d]);
        below[d] = all.cell[d].h_rows;
      }
    }
    return queue_.status();
  }

  // What chunk `part` has left becomes what the next one starts from, and c goes to `kept`, too.
  void go_on(const CudaCell<T>& part, Sum<T>* kept) {
    const CudaSizes<T> s(p_);
    queue_.for_each(s.batch * std::max(s.output_stride, s.hidden), kFirstState<T>,
                    StateParams<T>{part, nullptr, nullptr, true, kept});
  }

  // A launch has chunks of two layers, the upper one's behind the lower one's.
  Status run_two_at_a_time() {
    // The cells of the two layers that are under way. A layer of an even number has the first place.
    CudaCell<T> all[2];
    for_two_layers(p_.layers, chunks_.count(), [&](const LayerChunk* list, int count) {
      StepParams<T> part{};
      for (int n = 0; n < count; ++n) {
        const int layer = list[n].n, chunk = list[n].chunk;
        CudaCell<T>& of_layer = all[layer % 2];
        if (chunk == 0) {
          of_layer = cell(layer, 0);
          begin(layer, 0, of_layer);
        }
        part.cell[n] = chunk_of(layer, chunk, of_layer);
      }
      sweep_beside(queue_, p_, part, count, false, [&](StepParams<T>& alone) {
        sweep(queue_, alone, {0, alone.cell[0].at.steps});
      });
      for (int n = 0; n < count; ++n) {
        CudaCell<T>& cell = part.cell[n];
        if (list[n].chunk < chunks_.last()) {
          go_on(cell, const_cast<Sum<T>*>(cell.c0));
        } else {
          end(list[n].n, 0, cell);
        }
      }
    });
    return queue_.status();
  }
  // A layer's chunk, with its W x.
  CudaCell<T> chunk_of(int layer, int chunk, const CudaCell<T>& all) {
    const Offset first = chunks_.first_row(chunk), rows = chunks_.rows(chunk);
    const T* const below[2] = {layer > 0 ? cell(layer - 1, 0).h_rows : nullptr};
    chunks_.write_lengths(queue_, chunk, all, lengths_[layer % 2]);
    const CudaCell<T> part = chunks_.part_of(all, chunk, lengths_[layer % 2]);
    multiply_input(layer, part, layer_input(queue_, p_, layer, below, input_, first, rows), 0, rows);
    return part;
  }

  // Each layer on a chunk of steps behind the one of the layer below.
  Status run_at_once() {
    const int chunks = cuda::div_up(p_.steps, chunk_);
    Wavefront wave(queue_, p_);
    std::vector<StepParams<T>> params(p_.layers);
    for (int layer = 0; layer < p_.layers; ++layer) {
      params[layer].cell[0] = cell(layer, 0);
      begin(layer, 0, params[layer].cell[0]);
    }
    for_chunks(p_.layers, chunks, [&](int layer, int chunk) {
      const Places places{chunk * chunk_, std::min((chunk + 1) * chunk_, p_.steps)};
      const Offset first = static_cast<Offset>(places.begin) * p_.batch;
      const Offset rows = static_cast<Offset>(places.end) * p_.batch - first;
      const T* const below[2] = {layer > 0 ? params[layer - 1].cell[0].h_rows : nullptr};
      StepParams<T> step = params[layer];
      if (layer > 0) wave.wait_for(layer - 1, chunk);
      if (!out_.tape) {  // only two chunks' gates have a place
        if (chunk > 1) wave.wait_for(layer, chunk - 2);
        step.cell[0].gates = first_row_of(cells_[layer].gates[chunk % 2], first);
      }
      const InputRows<T> input = layer_input(queue_, p_, layer, below, input_, first, rows);
      multiply_input(layer, step.cell[0], input, first, rows);
      sweep(wave.start(layer), step, places);
      wave.end(layer, chunk);
    });
    wave.join(chunks);
    for (int layer = 0; layer < p_.layers; ++layer) end(layer, 0, params[layer].cell[0]);
    return queue_.status();
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
    if (chunk_ > 0) {  // a sweep looks a step ahead
      for (T*& gates : own.gates) gates = arena_.take<T>((chunk_ + 1) * s.batch * 4 * s.hidden);
      own.h_rows[0] = own.h_rows[1] = take_if<T>(keeps_h(n), arena_, s.rows * s.output);
      return;
    }
    take_steps(p_, two_chunk_ > 0 ? chunks_.most_rows() : s.rows, false, cell, arena_);
    for (int turn = 0; turn < 2; ++turn) {
      if (two_chunk_ > 0 && turn != n) continue;
      own.h_rows[turn] = take_if<T>(keeps_h(turn), arena_, s.rows * s.output);
    }
  }

  // Without a tape: whether h of all steps needs memory, for the layer above or for the blocks of a resident
  // sweep.
  [[nodiscard]] bool keeps_h(int layer) const {
    if (!is_last(p_, layer)) return layer < p_.layers;
    const bool by_products = p_.projection > 0 && may_take_products<T>(p_);
    return !out_.y && ((may_be_resident<T>(p_) && !in_blocks_) || by_products);
  }

  // Layer `layer` in direction d.
  CudaCell<T> cell(int layer, int d) {
    const CudaSizes<T> s(p_);
    const int index = layer * directions_of(p_) + d;
    CudaCell<T> cell = plain_cell<T>(p_, layer, d);
    const Memory& memory = cells_[chunk_ > 0 ? layer : two_chunk_ > 0 ? layer % 2 : d];
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
  bool step_at_once(int layer, const InputRows<T>& input, const T*& output) {
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
    output = step.cell.h_rows;
    return true;
  }

  // A block of a step at once reads h of all units, and writes that of its own. So in place h is written
  // beside the state, and replaces it after the last layer, by one copy of adjacent layers. c needs none: a
  // thread reads what it writes.
  void replace_h(const std::vector<int>& layers) {
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
  [[nodiscard]] bool takes_ends() const { return in_blocks_ && chunk_ == 0 && !remakes_ && rows_of(p_) > 0; }
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

  void sweep(Queue& queue, StepParams<T>& params, Places places, int layer = 0) {
    const int directions = directions_of(p_);
    if (in_blocks_) return sweep_in_blocks(queue, params, places, layer);
    if (!plan_) plan_ = has_few_steps(queue, p_) ? ClusterPlan<T>{} : plan_clusters<T>(p_, false);
    if (run_on_clusters(queue, p_, *plan_, params, false, places)) return;
    if (chunk_ == 0 && run_resident(queue, p_, params, false, directions_at_once(p_))) return;
    if constexpr (sizeof(T) == 2) {
      if (chunk_ == 0 && params.cell[0].h_rows && takes_projected_products(queue, p_, params)) {
        return sweep_by_projected_products(queue, p_, params);
      }
    }
    if constexpr (sizeof(T) == 4) {
      if (takes_tiles<T>(queue, p_)) {
        return queue.by_tf32() ? sweep_by_tiles<1>(queue, p_, params, places)
                               : sweep_by_tiles<3>(queue, p_, params, places);
      }
    }
    if (p_.projection == 0 && takes_products<T>(queue, p_) && gains_by_products<T>(queue, p_)) {
      return sweep_by_products(queue, p_, params, places);
    }
    for (params.place = places.begin; params.place < places.end; ++params.place) {
      const bool follows = params.place > places.begin;
      queue.template step<CellTask<T>>(params, directions, follows);
      if (p_.layer_norm) queue.rows_of_step(kNormalisedCell<T>, params, directions);
      if (p_.projection > 0) queue.template step<ProjectionTask<T>>(params, directions, true);
    }
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
  int chunk_;      // steps, where layers run at once; else 0
  int two_chunk_;  // steps, where two layers run at a time; else 0
  StepChunks chunks_;
  bool remakes_;    // the backward pass makes the tape, from what is kept by chunks
  bool in_blocks_;  // layers sweep in single blocks
  std::vector<Memory> cells_;
  T* input_;
  T* fresh_h_;                          // (L, B, H): of steps at once in place; null: of other calls
  std::int32_t* lengths_[2];            // rows' lengths within a chunk, of even and of odd layers
  std::optional<ClusterPlan<T>> plan_;  // made by the first sweep
};

}  // namespace warpalign::detail::recurrent
