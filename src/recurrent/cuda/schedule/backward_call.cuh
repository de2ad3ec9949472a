// A call of the backward pass: one turn of its schedule after the other, from the last layer and the last
// chunk of steps on.
#pragma once

#include "recurrent/cuda/schedule/remake.cuh"
#include "recurrent/cuda/schedule/sweep.cuh"
#include "recurrent/cuda/schedule/wavefront.cuh"
#include "recurrent/cuda/schedule/weight_gradients.cuh"

namespace warpalign::detail::recurrent {

template <class T>
class BackwardCall {
 public:
  BackwardCall(const LstmProblem& p, const LstmKept& kept, const LstmIncoming& incoming,
               const LstmGradients& gradients, const Execution& execution, Workspace workspace)
      : p_(p),
        kept_(kept),
        in_(incoming),
        out_(gradients),
        queue_(execution),
        arena_(workspace.data),
        plan_(queue_, p, true),
        chunks_(p, plan_.overlap(), plan_.chunk_steps(), true),
        overlap_(plan_.overlap()),
        cells_(overlap_ == Overlap::kStreams ? p.layers
               : overlap_ == Overlap::kPairs ? 2
                                             : directions_of(p)),
        all_(p.layers) {
    const CudaSizes<T> s(p);
    input_ = take_input<T>(p, rows_of_sums(), arena_);
    for (std::int32_t*& lengths : lengths_) {
      lengths = take_if<std::int32_t>(chunks_.has_lengths(), arena_, p.batch);
    }
    for (T*& dx : dx_) dx = take_if<T>(p.layers > 1, arena_, s.rows * s.output * directions_of(p));
    h_before_ = take_if<T>(!has_every_row(p), arena_, rows_of_sums() * s.output);
    parts_ = arena_.take<Sum<T>>(kSumParts * 4 * s.hidden);
    for (CudaCell<T>& cell : cells_) take_cell(cell);
  }

  [[nodiscard]] std::size_t bytes() const { return arena_.used(); }

  Status run() {
    if (overlap_ == Overlap::kStreams) wave_.emplace(queue_, p_);
    for_turns(overlap_, p_.layers, chunks_.count(), [&](const LayerChunk* list, int count) {
      StepParams<T> parts{};
      for (int n = 0; n < count; ++n) begin_chunk(layer_of(list[n]), list[n].k, parts, n);
      const int layer = layer_of(list[0]);
      if (overlap_ == Overlap::kPairs) {
        sweep_pair(parts, count);
      } else {
        Queue& queue = overlap_ == Overlap::kStreams ? wave_->start(layer) : queue_;
        if (chunks_.rows(in_time(list[0].k)) > 0) sweep_chunk(queue, parts, layer, list[0].k);
        if (overlap_ == Overlap::kStreams) wave_->end(layer, list[0].k);
      }
      for (int n = 0; n < count; ++n) end_chunk(layer_of(list[n]), list[n].k, parts, n);
    });
    if (overlap_ == Overlap::kStreams) end_streams();
    return queue_.status();
  }

 private:
  [[nodiscard]] int layer_of(const LayerChunk& chunk) const { return p_.layers - 1 - chunk.n; }
  // The number in time of the k-th chunk to begin. With streams chunks are counted from the last step on.
  [[nodiscard]] int in_time(int k) const { return overlap_ == Overlap::kStreams ? k : chunks_.last() - k; }
  // Sums by weights are of all rows, or without a tape of a chunk's.
  [[nodiscard]] Offset rows_of_sums() const { return p_.recompute ? chunks_.most_rows() : rows_of(p_); }

  // A chunk's cells: a layer's directions, or `place` of two layers that are swept side by side.
  void begin_chunk(int layer, int k, StepParams<T>& parts, int place) {
    StepParams<T>& all = all_[layer];
    for (int d = 0; d < directions_of(p_) && k == 0; ++d) {
      all.cell[d] = cell(layer, d);
      begin(layer, d, all.cell[d]);
    }
    if (overlap_ == Overlap::kStreams) {
      if (layer + 1 < p_.layers) multiply_back_of_layer_above(layer + 1, k);
      parts.cell[0] = all.cell[0];
      return;
    }
    const int chunk = in_time(k);
    const Offset first = chunks_.first_row(chunk), rows = chunks_.rows(chunk);
    std::int32_t* const lengths = lengths_[overlap_ == Overlap::kPairs ? layer % 2 : 0];
    chunks_.write_lengths(queue_, chunk, all.cell[0], lengths);
    for (int d = 0; d < directions_of(p_); ++d) {
      CudaCell<T>& part = parts.cell[place + d] = chunks_.part_of(all.cell[d], chunk, lengths);
      if (overlap_ == Overlap::kPairs) {
        take_first_c(layer, chunk, all.cell[d]);
      } else if (chunk > 0) {
        part.c0 = chunks_.kept_c(all.cell[d], chunk);
      }
      if (p_.recompute && rows > 0) {
        if (d == 0) chunk_input_ = input_of_layer(layer, first, rows);
        remake(layer, d, all.cell[d], part, chunk_input_, first, rows);
      }
    }
  }
  // dx of the layer above, which this layer's chunk waits for.
  void multiply_back_of_layer_above(int above, int k) {
    const CudaCell<T>& cell = all_[above].cell[0];
    const Places places = chunks_.places(k, cell.at);
    wave_->wait_for(above, k);
    const Offset first = static_cast<Offset>(p_.steps - places.end) * p_.batch;
    multiply_back(above, cell, cell.dz_x + first * cell.gates_stride, first,
                  static_cast<Offset>(places.end - places.begin) * p_.batch);
  }

  void sweep_chunk(Queue& queue, StepParams<T>& parts, int layer, int k) {
    const Places places = chunks_.places(k, parts.cell[0].at);
    if (plan_.way() == Way::kBlocks) return sweep_in_blocks(queue, parts, places, layer);
    sweep<T>(queue, {p_, plan_, parts, places, overlap_ != Overlap::kStreams});
  }
  // Where two layers find no place side by side, each is swept alone.
  void sweep_pair(StepParams<T>& parts, int count) {
    if (run_resident(queue_, p_, plan_.grid_of_two(), parts, true, count)) return;
    for (int n = 0; n < count; ++n) {
      StepParams<T> alone{};
      alone.cell[0] = parts.cell[n];
      sweep<T>(queue_, {p_, plan_, alone, {0, alone.cell[0].at.steps}, true});
    }
  }

  // Products of the chunk's rows, and behind the last chunk those of all rows.
  void end_chunk(int layer, int k, StepParams<T>& parts, int place) {
    if (overlap_ == Overlap::kStreams) return;  // others are still under way
    const int chunk = in_time(k);
    const bool is_last = k == chunks_.last();
    const Offset first = chunks_.first_row(chunk), rows = chunks_.rows(chunk);
    for (int d = 0; d < directions_of(p_); ++d) {
      const CudaCell<T>& part = parts.cell[place + d];
      if (p_.layer_norm) normalise_back(queue_, part, false);
      multiply_back(layer, part, part.dz_x, first, rows);
    }
    if (p_.recompute) {
      if (rows == 0) chunk_input_ = input_of_layer(layer, first, rows);
      add_weight_gradients(layer, parts, chunk_input_, {first, rows, chunk < chunks_.last()});
    } else if (is_last) {
      add_weight_gradients(layer, all_[layer], input_of_layer(layer, 0, rows_of(p_)),
                           {0, rows_of(p_), false});
    }
    for (int d = 0; d < directions_of(p_) && is_last; ++d) end(layer, d, all_[layer].cell[d]);
  }
  void end_streams() {
    wave_->join(chunks_.count());
    const Offset rows = rows_of(p_);
    multiply_back(0, all_[0].cell[0], all_[0].cell[0].dz_x, 0, rows);
    for (int layer = p_.layers - 1; layer >= 0; --layer) {
      add_weight_gradients(layer, all_[layer], input_of_layer(layer, 0, rows), {0, rows, false});
      end(layer, 0, all_[layer].cell[0]);
    }
  }

  void remake(int layer, int d, const CudaCell<T>& cell, const CudaCell<T>& part, const InputRows<T>& input,
              Offset first, Offset rows) {
    const std::size_t index = layer * directions_of(p_) + d;
    const LstmWeights& w = p_.weights[index];
    const T* const hh = drops_weights(p_) ? cell.hh : static_cast<const T*>(w.hh);
    const Offset stride = drops_weights(p_) ? cell.output_stride : cell.output;
    const T* const h0 = part_of<T>(p_.h0, index * p_.batch * cell.output);
    recurrent::remake(queue_, p_, w, cell, part, input, input_of(p_, layer), hh, stride, h0, first, rows,
                      h_before_);
  }

  // c before chunk k, in the place of c0.
  void take_first_c(int layer, int k, CudaCell<T> cell) {
    const CudaSizes<T> s(p_);
    const void* c = bytes_at(p_.c0, layer * s.batch * s.hidden, size_of(p_.cell_dtype));
    if (k > 0) {
      c = cell.tape_c + (chunks_.first_row(k) - p_.batch) * p_.hidden;
      cell.wide_cells = false;  // as the tape has it
    }
    cell.c = const_cast<Sum<T>*>(cell.c0);
    cell.output_stride = 0;  // nothing of h
    queue_.for_each(s.batch * s.hidden, kFirstState<T>, StateParams<T>{cell, nullptr, c});
  }

  InputRows<T> input_of_layer(int layer, Offset first, Offset rows) {
    const T* below[2] = {};
    for (int d = 0; d < directions_of(p_) && layer > 0; ++d) below[d] = taped(layer - 1, d).h_rows;
    return layer_input(queue_, p_, layer, below, input_, first, rows);
  }

  void take_cell(CudaCell<T>& cell) {
    const CudaSizes<T> s(p_);
    const bool projects = p_.projection > 0;
    const std::size_t rows = rows_of_sums();
    if (p_.recompute) take_steps(p_, rows, true, cell, arena_);
    const bool in_blocks = plan_.way() == Way::kBlocks;
    const bool keeps_hh = in_blocks || (p_.recompute && drops_weights(p_));
    cell.hh = take_if<T>(keeps_hh, arena_, 4 * s.hidden * s.output_stride);
    cell.hh_across = take_if<T>(!in_blocks, arena_, s.output * s.gates_stride);
    cell.hr_across = take_if<T>(projects, arena_, s.hidden * s.output_stride);
    cell.c0 = arena_.take<Sum<T>>(s.batch * s.hidden);
    cell.dh = arena_.take<Sum<T>>(s.batch * s.output);
    cell.dh0 = arena_.take<Sum<T>>(s.batch * s.output);
    cell.dc = arena_.take<Sum<T>>(s.batch * s.hidden);
    cell.dc0 = arena_.take<Sum<T>>(s.batch * s.hidden);
    cell.dm = take_if<Sum<T>>(p_.layer_norm, arena_, s.batch * s.hidden);
    using Exchange = typename SweepPlan<T>::Exchange;
    const Exchange exchange = plan_.exchange();
    in_place_ = (out_.spent_tape || p_.recompute) && !p_.layer_norm && exchange != Exchange::kWholeRows &&
                (in_blocks || s.gates_stride == 4 * s.hidden);
    cell.dz = take_if<T>(!in_place_, arena_, rows * s.gates_stride);
    cell.dz_ring = take_if<T>(exchange == Exchange::kRing, arena_, ring_entries<T>(p_));
    cell.ring_arrivals = take_if<int>(exchange == Exchange::kRing, arena_, most_groups(p_));
    cell.dz_x = p_.layer_norm ? arena_.take<T>(rows * s.gates_stride) : cell.dz;
    cell.dz_h = p_.layer_norm ? arena_.take<T>(rows * s.gates_stride) : cell.dz;
    cell.kept = take_kept<T>(p_, rows, arena_);
    cell.carried = take_if<T>(may_take_products<T>(p_), arena_, s.batch * s.hidden);
    cell.dh_new = take_if<T>(projects, arena_, rows * s.output_stride);
    cell.dv = take_if<T>(p_.layer_norm, arena_, rows * s.hidden);
    cell.m_rows = take_if<T>(projects, arena_, rows * s.hidden);
  }

  [[nodiscard]] CudaCell<T> taped(int layer, int d) const {
    CudaCell<T> cell = plain_cell<T>(p_, layer, d);
    Arena arena = tape_of_cell<T>(p_, kept_.tape, layer, d);
    take_tape(p_, layer, cell, arena);
    // Backward passes only read.
    if (is_last(p_, layer)) place_h_in_y(p_, d, static_cast<T*>(const_cast<void*>(kept_.y)), cell);
    return cell;
  }

  [[nodiscard]] CudaCell<T> cell(int layer, int d) const {
    const CudaSizes<T> s(p_);
    const std::size_t index = layer * directions_of(p_) + d;
    CudaCell<T> cell = taped(layer, d);
    if (plan_.way() == Way::kBlocks)
      cell.gates_stride = 4 * cell.hidden;  // their own products read dz elsewhere
    const CudaCell<T>& own = cells_[overlap_ == Overlap::kStreams ? layer
                                    : overlap_ == Overlap::kPairs ? layer % 2
                                                                  : d];
    if (p_.recompute) {
      cell.gates = own.gates, cell.tape_c = own.tape_c, cell.scales = own.scales;
      cell.norm_x = own.norm_x, cell.norm_h = own.norm_h, cell.norm_c = own.norm_c;
    }
    cell.hh = own.hh, cell.hh_across = own.hh_across, cell.hr_across = own.hr_across;
    cell.c0 = own.c0, cell.dh = own.dh, cell.dh0 = own.dh0, cell.dc = own.dc, cell.dc0 = own.dc0;
    cell.dm = own.dm, cell.dz = own.dz, cell.dz_x = own.dz_x, cell.dz_h = own.dz_h;
    if (in_place_) cell.dz = cell.dz_x = cell.dz_h = cell.gates;
    cell.kept = own.kept;
    cell.carried = own.carried, cell.dz_ring = own.dz_ring, cell.ring_arrivals = own.ring_arrivals;
    cell.dh_new = own.dh_new, cell.dv = own.dv, cell.m_rows = own.m_rows;
    cell.dy = is_last(p_, layer) ? part_of<T>(in_.y, d * s.output) : dx_[(layer + 1) % 2] + d * s.output;
    cell.dy_stride = static_cast<Offset>(directions_of(p_) * s.output);
    cell.dh_all = part_of<T>(in_.h_all, index * s.rows * s.output);
    cell.dc_all = bytes_at(in_.c_all, index * s.rows * s.hidden, size_of(p_.cell_dtype));
    return cell;
  }

  void begin(int layer, int d, CudaCell<T>& cell) {
    const CudaSizes<T> s(p_);
    const std::size_t index = layer * directions_of(p_) + d, cell_size = size_of(p_.cell_dtype);
    const std::size_t rows = rows_of_sums();
    const LstmWeights& w = p_.weights[index];
    if (plan_.way() == Way::kBlocks) {
      pack_or_take(queue_, p_, cell, w, drops_weights(p_));
      if (takes_ends()) return;
    } else {
      pack_matrix(queue_, p_, cell.masks, w.hh, cell.output, 4 * p_.hidden, true, drops_weights(p_),
                  cell.hh_across);
      if (cell.hh) {
        pack_matrix(queue_, p_, cell.masks, w.hh, 4 * p_.hidden, cell.output, false, true, cell.hh);
      }
    }
    if (cell.projects) {
      pack_matrix(queue_, p_, cell.masks, w.hr, p_.hidden, cell.output, true, false, cell.hr_across);
      if (s.output_stride != s.output) queue_.clear(cell.dh_new, rows * s.output_stride * sizeof(T));
    }
    if (cell.gates_stride != 4 * p_.hidden) {  // what pads dz
      queue_.clear(cell.dz, rows * s.gates_stride * sizeof(T));
      if (p_.layer_norm) queue_.clear(cell.dz_h, rows * s.gates_stride * sizeof(T));
    }
    StateParams<T> state{cell, part_of<T>(in_.h_n, index * s.batch * s.output),
                         bytes_at(in_.c_n, index * s.batch * s.hidden, cell_size)};
    state.backward = true;
    state.c0 = bytes_at(p_.c0, index * s.batch * s.hidden, cell_size);
    queue_.for_each(s.batch * std::max(s.output, s.hidden), kFirstState<T>, state);
  }

  // Whether a layer's sweep itself takes the gradients by the states that are given, and leaves those that
  // are asked for.
  [[nodiscard]] bool takes_ends() const {
    return plan_.way() == Way::kBlocks && overlap_ != Overlap::kStreams && !p_.recompute && rows_of(p_) > 0;
  }
  // layer: 0 is as good as any where the sweep has not the states' ends.
  void sweep_in_blocks(Queue& queue, const StepParams<T>& params, Places places, int layer) {
    const CudaSizes<T> s(p_);
    BackwardEnds<T> ends[2] = {};
    for (int d = 0; d < directions_of(p_); ++d) {
      const CudaCell<T>& cell = params.cell[d];
      const std::size_t first =
          (static_cast<std::size_t>(layer) * directions_of(p_) + d) * s.batch * s.hidden;
      const std::size_t cell_size = size_of(p_.cell_dtype);
      ends[d] = {part_of<T>(in_.h_n, first),
                 bytes_at(in_.c_n, first, cell_size),
                 bytes_at(p_.c0, first, cell_size),
                 part_of<T>(out_.h0, first),
                 bytes_at(out_.c0, first, cell_size),
                 nullptr,
                 nullptr,
                 false,
                 cell.wide_cells};
      if (takes_ends()) continue;
      ends[d] = {cell.dh, cell.dc, cell.c0, cell.dh, cell.dc, cell.dh0, cell.dc0, true, true};
    }
    for (int d = 0; d < directions_of(p_); ++d) draw_kept(queue, params.cell[d], true, places);
    BlockSweeps<T>::backward(queue, p_, params.cell, ends, places);
  }

  // dx of `count` rows from row `first` on, whose dz is at dz_x; the directions' are added.
  void multiply_back(int layer, const CudaCell<T>& cell, const T* dz_x, Offset first, Offset count) {
    T* const dx = layer > 0 ? dx_[layer % 2] : static_cast<T*>(out_.x);
    if (!dx) return;
    const Offset width = input_of(p_, layer), gates = 4 * static_cast<Offset>(p_.hidden);
    const Offset stride = static_cast<Offset>(cell.gates_stride);
    queue_.multiply({p_.dtype,
                     count,
                     width,
                     gates,
                     dz_x,
                     {stride, 1},
                     p_.weights[layer * directions_of(p_) + (cell.reverse ? 1 : 0)].ih,
                     {width, 1},
                     dx + first * width,
                     width,
                     cell.reverse});
  }

  // parts: the cells of these rows, with their dz.
  void add_weight_gradients(int layer, const StepParams<T>& parts, const InputRows<T>& input,
                            const RowsOfSum& rows) {
    for (int d = 0; d < directions_of(p_) && out_.weights; ++d) {
      const std::size_t index = layer * directions_of(p_) + d;
      const CudaCell<T>& all = all_[layer].cell[d];
      const T* const h0 = part_of<T>(p_.h0, index * p_.batch * all.output);
      WeightGradients<T>(queue_, p_, out_.weights[index], h_before_, parts_)
          .add(all, parts.cell[d], input, input_of(p_, layer), h0, rows);
    }
  }

  // Behind all chunks: gradients by the states, and what is left of those by R.
  void end(int layer, int d, const CudaCell<T>& cell) {
    const CudaSizes<T> s(p_);
    const std::size_t index = layer * directions_of(p_) + d;
    if (!takes_ends()) {
      queue_.for_each(s.batch * std::max(s.output, s.hidden), kLastState<T>, cell,
                      part_of<T>(out_.h0, index * s.batch * s.output),
                      bytes_at(out_.c0, index * s.batch * s.hidden, size_of(p_.cell_dtype)), true);
    }
    if (!out_.weights || !out_.weights[index].hh || !drops_weights(p_)) return;
    T* const hh = static_cast<T*>(out_.weights[index].hh);
    drop_in_place(queue_, p_, cell.masks, hh, 4 * p_.hidden, cell.output);
  }

  const LstmProblem& p_;
  const LstmKept& kept_;
  const LstmIncoming& in_;
  const LstmGradients& out_;
  Queue queue_;
  Arena arena_;
  SweepPlan<T> plan_;
  StepChunks chunks_;
  Overlap overlap_;
  bool in_place_ = false;  // dz takes the gates' place
  std::vector<CudaCell<T>> cells_;
  T* input_;
  T* dx_[2];  // gradients by the inputs of layers that take turns
  T* h_before_;
  Sum<T>* parts_;
  std::int32_t* lengths_[2];        // rows' lengths within a chunk, of even and of odd layers
  std::vector<StepParams<T>> all_;  // of each layer that has begun: its cells, of all steps
  InputRows<T> chunk_input_{};      // of the chunk whose tape is made again
  std::optional<Wavefront> wave_;   // of Overlap::kStreams
};

}  // namespace warpalign::detail::recurrent
