// A call of the backward pass: from the last layer and the last chunk of steps on.
#pragma once

#include "recurrent/cuda/schedule/pass.cuh"
#include "recurrent/cuda/schedule/remake.cuh"
#include "recurrent/cuda/schedule/weight_gradients.cuh"

namespace warpalign::detail::recurrent {

template <class T>
class BackwardCall : public SchedulePass<T, BackwardCall<T>> {
  using Base = SchedulePass<T, BackwardCall<T>>;
  friend Base;

 public:
  BackwardCall(const LstmProblem& p, const LstmKept& kept, const LstmIncoming& incoming,
               const LstmGradients& gradients, const Execution& execution, Workspace workspace)
      : Base(p, execution, workspace, true, true),
        kept_(kept),
        in_(incoming),
        out_(gradients),
        memory_(this->memories()) {
    const CudaSizes<T> s(p);
    input_ = take_input<T>(p, rows_of_sums(), arena_);
    for (T*& dx : dx_) dx = take_if<T>(p.layers > 1, arena_, s.rows * s.output * directions_of(p));
    h_before_ = take_if<T>(!has_every_row(p), arena_, rows_of_sums() * s.output);
    parts_ = arena_.template take<Sum<T>>(kSumParts * 4 * s.hidden);
    for (CudaCell<T>& cell : memory_) take_cell(cell);
  }

 private:
  using Base::all_;
  using Base::arena_;
  using Base::chunks_;
  using Base::p_;
  using Base::plan_;
  using Base::queue_;

  bool steps_at_once(int) const { return false; }
  // Sums by weights are of all rows, or without a tape of a chunk's.
  [[nodiscard]] Offset rows_of_sums() const { return p_.recompute ? chunks_.most_rows() : rows_of(p_); }

  // A chunk's cells: a layer's directions, or `place` of two layers that are swept side by side.
  void begin_chunk(int layer, int k, StepParams<T>& parts, std::size_t place) {
    StepParams<T>& all = all_[layer];
    for (int d = 0; d < directions_of(p_) && k == 0; ++d) {
      all.cell[d] = cell(layer, d);
      begin(layer, d, all.cell[d]);
    }
    if (this->on_streams()) {
      if (layer + 1 < p_.layers) multiply_back_of_layer_above(layer + 1, k);
      parts.cell[0] = all.cell[0];
      return;
    }
    const int chunk = this->in_time(k);
    const Offset first = chunks_.first_row(chunk), rows = chunks_.rows(chunk);
    chunks_.write_lengths(queue_, chunk, all.cell[0], this->lengths_of(layer));
    for (int d = 0; d < directions_of(p_); ++d) {
      CudaCell<T>& part = parts.cell[place + d] =
          chunks_.part_of(all.cell[d], chunk, this->lengths_of(layer));
      if (this->in_pairs()) {
        take_first_c(layer, chunk, all.cell[d]);
      } else if (chunk > 0) {
        part.c0 = chunks_.kept_c(all.cell[d], chunk);
      }
      if (p_.recompute && rows > 0) {
        if (d == 0) chunk_input_ = input_of_layer(layer, first, rows);
        remake(layer, d, all.cell[d], part, first, rows);
      }
    }
  }
  // dx of the layer above, which this layer's chunk waits for.
  void multiply_back_of_layer_above(int above, int k) {
    const CudaCell<T>& cell = all_[above].cell[0];
    const Places places = chunks_.places(k, cell.at);
    this->wave_->wait_for(above, k);
    const Offset first = static_cast<Offset>(p_.steps - places.end) * p_.batch;
    multiply_back(above, cell, cell.dz_x + first * cell.gates_stride, first,
                  static_cast<Offset>(places.end - places.begin) * p_.batch);
  }
  // Products of the chunk's rows, and after the last chunk those of all rows.
  void end_chunk(int layer, int k, StepParams<T>& parts, std::size_t place) {
    const int chunk = this->in_time(k);
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
  void finish() {
    if (!this->on_streams()) return;
    const Offset rows = rows_of(p_);
    multiply_back(0, all_[0].cell[0], all_[0].cell[0].dz_x, 0, rows);
    for (int layer = p_.layers - 1; layer >= 0; --layer) {
      add_weight_gradients(layer, all_[layer], input_of_layer(layer, 0, rows), {0, rows, false});
      end(layer, 0, all_[layer].cell[0]);
    }
  }

  [[nodiscard]] SweepEnds ends_of(int layer, int d) const {
    const std::size_t h = this->state_of(layer, d, output_of(p_)), c = this->state_of(layer, d, p_.hidden);
    const std::size_t cell_size = size_of(p_.cell_dtype);
    return {{part_of<T>(in_.h_n, h), bytes_at(in_.c_n, c, cell_size)},
            bytes_at(p_.c0, c, cell_size),
            {part_of<T>(out_.h0, h), bytes_at(out_.c0, c, cell_size)}};
  }
  // h0 of a layer and direction.
  [[nodiscard]] const T* first_h(int layer, int d) const {
    return part_of<T>(p_.h0, this->state_of(layer, d, output_of(p_)));
  }
  InputRows<T> input_of_layer(int layer, Offset first, Offset rows) {
    const T* below[2] = {};
    for (int d = 0; d < directions_of(p_) && layer > 0; ++d) {
      CudaCell<T> cell = plain_cell<T>(p_, layer - 1, d);
      take_rows(layer - 1, d, cell);
      below[d] = cell.h_rows;
    }
    return layer_input(queue_, p_, layer, below, input_, first, rows);
  }
  void remake(int layer, int d, const CudaCell<T>& cell, const CudaCell<T>& part, Offset first, Offset rows) {
    const LstmWeights& w = p_.weights[this->index_of(layer, d)];
    const bool drops = drops_weights(p_);
    const Factor hh = transposed(drops ? cell.hh : w.hh, drops ? cell.output_stride : cell.output);
    recurrent::remake(queue_, p_, w, cell, part, chunk_input_, input_of(p_, layer), hh, first_h(layer, d),
                      first, rows, h_before_);
  }
  // c before chunk k, in the place of c0.
  void take_first_c(int layer, int k, CudaCell<T> cell) {
    const CudaSizes<T> s(p_);
    const void* c = ends_of(layer, 0).c0;
    if (k > 0) {
      c = cell.tape_c + (chunks_.first_row(k) - p_.batch) * p_.hidden;
      cell.wide_cells = false;  // as the tape has it
    }
    cell.c = const_cast<Sum<T>*>(cell.c0);
    cell.output_stride = 0;  // nothing of h
    queue_.for_each(s.batch * s.hidden, kFirstState<T>, StateParams<T>{cell, nullptr, c});
  }

  void take_cell(CudaCell<T>& cell) {
    const CudaSizes<T> s(p_);
    const WayNeeds needs = plan_.needs();
    const bool projects = p_.projection > 0, takes_ring = needs.exchange == Exchange::kRing;
    const std::size_t rows = rows_of_sums();
    if (p_.recompute) take_steps(p_, rows, true, cell, arena_);
    const bool keeps_hh = needs.states_as_given || (p_.recompute && drops_weights(p_));
    cell.hh = take_if<T>(keeps_hh, arena_, 4 * s.hidden * s.output_stride);
    cell.hh_across = take_if<T>(!needs.states_as_given, arena_, s.output * s.gates_stride);
    cell.hr_across = take_if<T>(projects, arena_, s.hidden * s.output_stride);
    cell.c0 = arena_.template take<Sum<T>>(s.batch * s.hidden);
    cell.dh = arena_.template take<Sum<T>>(s.batch * s.output);
    cell.dh0 = arena_.template take<Sum<T>>(s.batch * s.output);
    cell.dc = arena_.template take<Sum<T>>(s.batch * s.hidden);
    cell.dc0 = arena_.template take<Sum<T>>(s.batch * s.hidden);
    cell.dm = take_if<Sum<T>>(p_.layer_norm, arena_, s.batch * s.hidden);
    in_place_ = (out_.spent_tape || p_.recompute) && !p_.layer_norm && needs.exchange != Exchange::kRows &&
                (needs.states_as_given || s.gates_stride == 4 * s.hidden);
    cell.dz = take_if<T>(!in_place_, arena_, rows * s.gates_stride);
    cell.dz_ring = take_if<T>(takes_ring, arena_, ring_entries<T>(p_));
    cell.ring_arrivals = take_if<int>(takes_ring, arena_, cuda::div_up(p_.batch, 8));
    cell.dz_x = p_.layer_norm ? arena_.template take<T>(rows * s.gates_stride) : cell.dz;
    cell.dz_h = p_.layer_norm ? arena_.template take<T>(rows * s.gates_stride) : cell.dz;
    cell.kept = take_if<std::uint8_t>(needs.kept && draws_zoneout(p_), arena_, rows * kept_words(p_.hidden));
    cell.carried = take_if<T>(needs.carried, arena_, s.batch * s.hidden);
    cell.dh_new = take_if<T>(projects, arena_, rows * s.output_stride);
    cell.dv = take_if<T>(p_.layer_norm, arena_, rows * s.hidden);
    cell.m_rows = take_if<T>(projects, arena_, rows * s.hidden);
  }
  // The rows that the forward pass has left.
  void take_rows(int layer, int d, CudaCell<T>& cell) const {
    Arena arena = tape_of_cell<T>(p_, kept_.tape, layer, d);
    take_tape(p_, layer, cell, arena);
    // Backward passes only read.
    if (is_last(p_, layer)) place_h_in_y(p_, d, static_cast<T*>(const_cast<void*>(kept_.y)), cell);
  }
  [[nodiscard]] CudaCell<T> cell(int layer, int d) const {
    const CudaSizes<T> s(p_);
    const std::size_t index = this->index_of(layer, d);
    CudaCell<T> cell = memory_[this->memory_of(layer, d)];
    set_plain(p_, layer, d, cell);
    take_rows(layer, d, cell);
    // The way's own products read dz elsewhere.
    if (plan_.needs().states_as_given) cell.gates_stride = 4 * cell.hidden;
    if (in_place_) cell.dz = cell.dz_x = cell.dz_h = cell.gates;
    cell.dy = is_last(p_, layer) ? part_of<T>(in_.y, d * s.output) : dx_[(layer + 1) % 2] + d * s.output;
    cell.dy_stride = static_cast<Offset>(directions_of(p_) * s.output);
    cell.dh_all = part_of<T>(in_.h_all, index * s.rows * s.output);
    cell.dc_all = bytes_at(in_.c_all, index * s.rows * s.hidden, size_of(p_.cell_dtype));
    return cell;
  }

  void begin(int layer, int d, CudaCell<T>& cell) {
    const CudaSizes<T> s(p_);
    const std::size_t rows = rows_of_sums();
    const LstmWeights& w = p_.weights[this->index_of(layer, d)];
    if (plan_.needs().states_as_given) {
      pack_or_take(queue_, p_, cell, w, drops_weights(p_));
      if (this->takes_ends()) return;
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
    const SweepEnds ends = ends_of(layer, d);
    StateParams<T> state{cell, static_cast<const T*>(ends.first.h), ends.first.c};
    state.backward = true;
    state.c0 = ends.c0;
    queue_.for_each(s.batch * std::max(s.output, s.hidden), kFirstState<T>, state);
  }
  // After all chunks: gradients with respect to the states, and what is left of those with respect to R.
  void end(int layer, int d, const CudaCell<T>& cell) {
    const CudaSizes<T> s(p_);
    if (!this->takes_ends()) {
      const LeftState last = ends_of(layer, d).last;
      queue_.for_each(s.batch * std::max(s.output, s.hidden), kLastState<T>, cell, static_cast<T*>(last.h),
                      last.c, true);
    }
    const std::size_t index = this->index_of(layer, d);
    if (!out_.weights || !out_.weights[index].hh || !drops_weights(p_)) return;
    drop_in_place(queue_, p_, cell.masks, static_cast<T*>(out_.weights[index].hh), 4 * p_.hidden,
                  cell.output);
  }

  // dx of `count` rows from row `first` on, whose dz is at dz_x; the directions' are added.
  void multiply_back(int layer, const CudaCell<T>& cell, const T* dz_x, Offset first, Offset count) {
    T* const dx = layer > 0 ? dx_[layer % 2] : static_cast<T*>(out_.x);
    if (!dx) return;
    const Offset width = input_of(p_, layer), gates = 4 * static_cast<Offset>(p_.hidden);
    const LstmWeights& w = p_.weights[this->index_of(layer, cell.reverse ? 1 : 0)];
    queue_.multiply(p_.dtype, Extents{count, width, gates}, matrix(dz_x, cell.gates_stride),
                    matrix(w.ih, width), dx + first * width, width, cell.reverse);
  }
  // parts: the cells of these rows, with their dz.
  void add_weight_gradients(int layer, const StepParams<T>& parts, const InputRows<T>& input,
                            const RowsOfSum& rows) {
    for (int d = 0; d < directions_of(p_) && out_.weights; ++d) {
      WeightGradients<T>(queue_, p_, out_.weights[this->index_of(layer, d)], h_before_, parts_)
          .add(all_[layer].cell[d], parts.cell[d], input, input_of(p_, layer), first_h(layer, d), rows);
    }
  }

  const LstmKept& kept_;
  const LstmIncoming& in_;
  const LstmGradients& out_;
  bool in_place_ = false;  // dz takes the gates' place
  std::vector<CudaCell<T>> memory_;
  T* input_;
  T* dx_[2];  // gradients with respect to the inputs of layers that take turns
  T* h_before_;
  Sum<T>* parts_;
  InputRows<T> chunk_input_{};  // of the chunk whose tape is made again
};

}  // namespace warpalign::detail::recurrent
