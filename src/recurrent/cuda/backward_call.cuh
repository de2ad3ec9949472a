// A call of the backward pass: layer after layer from the last one, the directions in the same launches, or
// layers at once, or two layers at a time. Without a tape a layer goes by chunks of steps, from the last one.
#pragma once

#include "recurrent/cuda/block_call.h"
#include "recurrent/cuda/remake.cuh"
#include "recurrent/cuda/two_layers.cuh"
#include "recurrent/cuda/wavefront.cuh"
#include "recurrent/cuda/weight_gradients.cuh"

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
        chunk_(steps_of_chunk<T>(queue_, p, true)),
        two_chunk_(chunk_ > 0 ? 0 : steps_of_two_layers<T>(queue_, p, true)),
        chunks_(p),
        two_chunks_(p, two_chunk_ > 0 ? two_chunk_ : p.steps, true),
        in_blocks_(sweeps_in_blocks<T>(p)),
        cells_(chunk_ > 0       ? p.layers
               : two_chunk_ > 0 ? 2
                                : directions_of(p)) {
    const CudaSizes<T> s(p);
    input_ = take_input<T>(p, chunks_.most_rows(), arena_);
    for (std::int32_t*& lengths : lengths_) {
      lengths = take_if<std::int32_t>(chunks_.has_lengths() || two_chunks_.has_lengths(), arena_, p.batch);
    }
    for (T*& dx : dx_) dx = take_if<T>(p.layers > 1, arena_, s.rows * s.output * directions_of(p));
    h_before_ = take_if<T>(!has_every_row(p), arena_, chunks_.most_rows() * s.output);
    parts_ = arena_.take<Sum<T>>(kSumParts * 4 * s.hidden);
    for (CudaCell<T>& cell : cells_) take_cell(cell);
  }

  [[nodiscard]] std::size_t bytes() const { return arena_.used(); }

  Status run() {
    if (chunk_ > 0) return run_at_once();
    if (two_chunk_ > 0) return run_two_at_a_time();
    for (int layer = p_.layers - 1; layer >= 0; --layer) {
      StepParams<T> all{};
      for (int d = 0; d < directions_of(p_); ++d) {
        all.cell[d] = cell(layer, d);
        begin(layer, d, all.cell[d]);
      }
      for (int k = chunks_.last(); k >= 0; --k) run_chunk(layer, k, all);
      for (int d = 0; d < directions_of(p_); ++d) end(layer, d, all.cell[d]);
    }
    return queue_.status();
  }

 private:
  // A layer's chunk k of steps, which are all steps where there is a tape.
  void run_chunk(int layer, int k, const StepParams<T>& all) {
    const Offset first = chunks_.first_row(k), rows = chunks_.rows(k);
    const InputRows<T> input = input_of_layer(layer, first, rows);
    chunks_.write_lengths(queue_, k, all.cell[0], lengths_[0]);
    StepParams<T> part{};
    for (int d = 0; d < directions_of(p_); ++d) {
      part.cell[d] = chunks_.part_of(all.cell[d], k, lengths_[0]);
      if (k > 0) part.cell[d].c0 = chunks_.kept_c(all.cell[d], k);
      if (p_.recompute && rows > 0) remake(layer, d, all.cell[d], part.cell[d], input, first, rows);
    }
    if (rows > 0) sweep(queue_, part, {0, part.cell[0].at.steps}, layer);
    for (int d = 0; d < directions_of(p_); ++d) {
      if (p_.layer_norm) normalise_back(queue_, part.cell[d], false);
      multiply_back(layer, part.cell[d], part.cell[d].dz_x, first, rows);
      add_weight_gradients(layer, d, all.cell[d], part.cell[d], input, {first, rows, k < chunks_.last()});
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

  // A launch has chunks of two layers, the lower one's behind the upper one's.
  Status run_two_at_a_time() {
    // The cells of the two layers that are under way. A layer of an even number has the first place.
    CudaCell<T> all[2];
    const auto layer_of = [&](const LayerChunk& begun) { return p_.layers - 1 - begun.n; };
    const auto chunk_of = [&](const LayerChunk& begun) { return two_chunks_.last() - begun.chunk; };
    for_two_layers(p_.layers, two_chunks_.count(), [&](const LayerChunk* list, int count) {
      StepParams<T> part{};
      for (int n = 0; n < count; ++n) {
        const int layer = layer_of(list[n]), k = chunk_of(list[n]);
        CudaCell<T>& of_layer = all[layer % 2];
        if (k == two_chunks_.last()) {
          of_layer = cell(layer, 0);
          begin(layer, 0, of_layer);
        }
        two_chunks_.write_lengths(queue_, k, of_layer, lengths_[layer % 2]);
        part.cell[n] = two_chunks_.part_of(of_layer, k, lengths_[layer % 2]);
        take_first_c(layer, k, of_layer);
      }
      sweep_beside(queue_, p_, part, count, true, [&](StepParams<T>& alone) {
        sweep(queue_, alone, {0, alone.cell[0].at.steps});
      });
      for (int n = 0; n < count; ++n) {
        const int layer = layer_of(list[n]), k = chunk_of(list[n]);
        const CudaCell<T>& of_layer = all[layer % 2];
        multiply_back(layer, part.cell[n], part.cell[n].dz_x, two_chunks_.first_row(k), two_chunks_.rows(k));
        if (k > 0) continue;
        const Offset rows = rows_of(p_);
        add_weight_gradients(layer, 0, of_layer, of_layer, input_of_layer(layer, 0, rows), {0, rows, false});
        end(layer, 0, of_layer);
      }
    });
    return queue_.status();
  }
  // c before chunk k, in the place of c0.
  void take_first_c(int layer, int k, CudaCell<T> cell) {
    const CudaSizes<T> s(p_);
    const void* c = bytes_at(p_.c0, layer * s.batch * s.hidden, size_of(p_.cell_dtype));
    if (k > 0) {
      c = cell.tape_c + (two_chunks_.first_row(k) - p_.batch) * p_.hidden;
      cell.wide_cells = false;  // as the tape has it
    }
    cell.c = const_cast<Sum<T>*>(cell.c0);
    cell.output_stride = 0;  // nothing of h
    queue_.for_each(s.batch * s.hidden, kFirstState<T>, StateParams<T>{cell, nullptr, c});
  }

  // Each layer on a chunk of steps behind the one of the layer above.
  Status run_at_once() {
    const int chunks = cuda::div_up(p_.steps, chunk_), last = p_.layers - 1;
    Wavefront wave(queue_, p_);
    std::vector<StepParams<T>> params(p_.layers);
    for (int layer = 0; layer < p_.layers; ++layer) {
      params[layer].cell[0] = cell(layer, 0);
      begin(layer, 0, params[layer].cell[0]);
    }
    for_chunks(p_.layers, chunks, [&](int n, int chunk) {
      const int layer = last - n;
      const Places places{chunk * chunk_, std::min((chunk + 1) * chunk_, p_.steps)};
      if (layer < last) {
        wave.wait_for(layer + 1, chunk);
        const CudaCell<T>& above = params[layer + 1].cell[0];
        const Offset first = static_cast<Offset>(p_.steps - places.end) * p_.batch;
        multiply_back(layer + 1, above, above.dz_x + first * above.gates_stride, first,
                      static_cast<Offset>(places.end - places.begin) * p_.batch);
      }
      sweep(wave.start(layer), params[layer], places);
      wave.end(layer, chunk);
    });
    wave.join(chunks);
    const Offset rows = rows_of(p_);
    multiply_back(0, params[0].cell[0], params[0].cell[0].dz_x, 0, rows);
    for (int layer = last; layer >= 0; --layer) {
      const CudaCell<T>& own = params[layer].cell[0];
      add_weight_gradients(layer, 0, own, own, input_of_layer(layer, 0, rows), {0, rows, false});
      end(layer, 0, own);
    }
    return queue_.status();
  }

  InputRows<T> input_of_layer(int layer, Offset first, Offset rows) {
    const T* below[2] = {};
    for (int d = 0; d < directions_of(p_) && layer > 0; ++d) below[d] = taped(layer - 1, d).h_rows;
    return layer_input(queue_, p_, layer, below, input_, first, rows);
  }

  void take_cell(CudaCell<T>& cell) {
    const CudaSizes<T> s(p_);
    const bool projects = p_.projection > 0;
    const std::size_t rows = chunks_.most_rows();
    if (p_.recompute) take_steps(p_, rows, true, cell, arena_);
    const bool keeps_hh = in_blocks_ || (p_.recompute && drops_weights(p_));
    cell.hh = take_if<T>(keeps_hh, arena_, 4 * s.hidden * s.output_stride);
    cell.hh_across = take_if<T>(!in_blocks_, arena_, s.output * s.gates_stride);
    cell.hr_across = take_if<T>(projects, arena_, s.hidden * s.output_stride);
    cell.c0 = arena_.take<Sum<T>>(s.batch * s.hidden);
    cell.dh = arena_.take<Sum<T>>(s.batch * s.output);
    cell.dh0 = arena_.take<Sum<T>>(s.batch * s.output);
    cell.dc = arena_.take<Sum<T>>(s.batch * s.hidden);
    cell.dc0 = arena_.take<Sum<T>>(s.batch * s.hidden);
    cell.dm = take_if<Sum<T>>(p_.layer_norm, arena_, s.batch * s.hidden);
    const SweptCells cells = two_chunk_ > 0 ? SweptCells{2, 2} : directions_at_once(p_);
    const Exchange exchange = in_blocks_ || chunk_ > 0 ? Exchange::kNone : exchange_of<T>(queue_, p_, cells);
    in_place_ = (out_.spent_tape || p_.recompute) && !p_.layer_norm && exchange != Exchange::kWholeRows &&
                (in_blocks_ || s.gates_stride == 4 * s.hidden);
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
    if (in_blocks_) cell.gates_stride = 4 * cell.hidden;  // their own products read dz elsewhere
    const CudaCell<T>& own = cells_[chunk_ > 0 ? layer : two_chunk_ > 0 ? layer % 2 : d];
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
    const std::size_t rows = chunks_.most_rows();
    const LstmWeights& w = p_.weights[index];
    if (in_blocks_) {
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
    return in_blocks_ && chunk_ == 0 && !p_.recompute && rows_of(p_) > 0;
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

  void sweep(Queue& queue, StepParams<T>& params, Places places, int layer = 0) {
    const int directions = directions_of(p_);
    if (in_blocks_) return sweep_in_blocks(queue, params, places, layer);
    if (!plan_) plan_ = has_few_steps(queue, p_) ? ClusterPlan<T>{} : plan_clusters<T>(p_, true);
    if (run_on_clusters(queue, p_, *plan_, params, true, places)) return;
    if (chunk_ == 0 && run_resident(queue, p_, params, true, directions_at_once(p_))) return;
    if constexpr (sizeof(T) == 2) {
      if (chunk_ == 0 && takes_projected_products(queue, p_, params)) {
        return sweep_back_by_projected_products(queue, p_, params);
      }
    }
    if (p_.projection == 0 && takes_products<T>(queue, p_) && gains_by_products<T>(queue, p_)) {
      return sweep_back_by_products(queue, p_, params, places);
    }
    for (params.place = places.begin; params.place < places.end; ++params.place) {
      queue.template step<CarryTask<T>>(params, directions, params.place > places.begin);
      if (p_.projection > 0) queue.template step<ProjectionTask<T>>(params, directions, true);
      if (p_.layer_norm) queue.rows_of_step(kNormalisedBackward<T>, params, directions);
    }
    if (places.end == params.cell[0].at.steps) queue.template step<CarryTask<T>>(params, directions, true);
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

  void add_weight_gradients(int layer, int d, const CudaCell<T>& cell, const CudaCell<T>& part,
                            const InputRows<T>& input, const RowsOfSum& rows) {
    if (!out_.weights) return;
    const std::size_t index = layer * directions_of(p_) + d;
    const T* const h0 = part_of<T>(p_.h0, index * p_.batch * cell.output);
    WeightGradients<T>(queue_, p_, out_.weights[index], h_before_, parts_)
        .add(cell, part, input, input_of(p_, layer), h0, rows);
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
  int chunk_;      // steps, where layers run at once; else 0
  int two_chunk_;  // steps, where two layers run at a time; else 0
  StepChunks chunks_, two_chunks_;
  bool in_blocks_;         // layers sweep in single blocks
  bool in_place_ = false;  // dz takes the gates' place
  std::vector<CudaCell<T>> cells_;
  T* input_;
  T* dx_[2];  // gradients by the inputs of layers that take turns
  T* h_before_;
  Sum<T>* parts_;
  std::int32_t* lengths_[2];            // rows' lengths within a chunk, of even and of odd layers
  std::optional<ClusterPlan<T>> plan_;  // made by the first sweep
};

}  // namespace warpalign::detail::recurrent
