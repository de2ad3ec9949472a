// A call of the backward pass: layer after layer from the last one, the directions in the same launches, or
// layers at once.
#pragma once

#include "recurrent/cuda/wavefront.cuh"

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
        chunk_(steps_of_chunk<T>(p, true)),
        cells_(chunk_ > 0 ? p.layers : directions_of(p)) {
    const CudaSizes<T> s(p);
    input_ = take_input<T>(p, arena_);
    for (T*& dx : dx_) dx = take_if<T>(p.layers > 1, arena_, s.rows * s.output * directions_of(p));
    h_before_ = take_if<T>(!has_every_row(p), arena_, s.rows * s.output);
    parts_ = arena_.take<Sum<T>>(kSumParts * 4 * s.hidden);
    for (CudaCell<T>& cell : cells_) take_cell(cell);
  }

  [[nodiscard]] std::size_t bytes() const { return arena_.used(); }

  Status run() {
    if (chunk_ > 0) return run_at_once();
    for (int layer = p_.layers - 1; layer >= 0; --layer) {
      const InputRows<T> input = input_of_layer(layer);
      StepParams<T> params{};
      for (int d = 0; d < directions_of(p_); ++d) {
        params.cell[d] = cell(layer, d);
        begin(layer, d, params.cell[d]);
      }
      if (rows_of(p_) > 0) sweep(queue_, params, {0, p_.steps});
      for (int d = 0; d < directions_of(p_); ++d) {
        multiply_back(layer, params.cell[d], 0, rows_of(p_));
        end(layer, d, params.cell[d], input);
      }
    }
    return queue_.status();
  }

 private:
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
        multiply_back(layer + 1, params[layer + 1].cell[0],
                      static_cast<Offset>(p_.steps - places.end) * p_.batch,
                      static_cast<Offset>(places.end - places.begin) * p_.batch);
      }
      sweep(wave.start(layer), params[layer], places);
      wave.end(layer, chunk);
    });
    wave.join(chunks);
    multiply_back(0, params[0].cell[0], 0, rows_of(p_));
    for (int layer = last; layer >= 0; --layer) {
      end(layer, 0, params[layer].cell[0], input_of_layer(layer));
    }
    return queue_.status();
  }

  InputRows<T> input_of_layer(int layer) {
    const T* below[2] = {};
    for (int d = 0; d < directions_of(p_) && layer > 0; ++d) below[d] = taped(layer - 1, d).h_rows;
    return layer_input(queue_, p_, layer, below, input_, 0, rows_of(p_));
  }

  void take_cell(CudaCell<T>& cell) {
    const CudaSizes<T> s(p_);
    const bool projects = p_.projection > 0;
    cell.hh_across = arena_.take<T>(s.output * s.gates_stride);
    cell.hr_across = take_if<T>(projects, arena_, s.hidden * s.output_stride);
    cell.c0 = arena_.take<Sum<T>>(s.batch * s.hidden);
    cell.dh = arena_.take<Sum<T>>(s.batch * s.output);
    cell.dh0 = arena_.take<Sum<T>>(s.batch * s.output);
    cell.dc = arena_.take<Sum<T>>(s.batch * s.hidden);
    cell.dc0 = arena_.take<Sum<T>>(s.batch * s.hidden);
    cell.dm = take_if<Sum<T>>(p_.layer_norm, arena_, s.batch * s.hidden);
    const Exchange exchange = chunk_ > 0 ? Exchange::kNone : exchange_of<T>(queue_, p_);
    in_place_ = out_.spent_tape && !p_.layer_norm && exchange != Exchange::kWholeRows &&
                s.gates_stride == 4 * s.hidden;
    cell.dz = take_if<T>(!in_place_, arena_, s.rows * s.gates_stride);
    cell.dz_ring = take_if<T>(exchange == Exchange::kRing, arena_, ring_entries<T>(p_));
    cell.ring_arrivals = take_if<int>(exchange == Exchange::kRing, arena_, most_groups(p_));
    cell.dz_x = p_.layer_norm ? arena_.take<T>(s.rows * s.gates_stride) : cell.dz;
    cell.dz_h = p_.layer_norm ? arena_.take<T>(s.rows * s.gates_stride) : cell.dz;
    cell.carried = take_if<T>(may_take_products<T>(p_), arena_, s.batch * s.hidden);
    cell.dh_new = take_if<T>(projects, arena_, s.rows * s.output_stride);
    cell.dv = take_if<T>(p_.layer_norm, arena_, s.rows * s.hidden);
    cell.m_rows = take_if<T>(projects, arena_, s.rows * s.hidden);
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
    const CudaCell<T>& own = cells_[chunk_ > 0 ? layer : d];
    cell.hh_across = own.hh_across, cell.hr_across = own.hr_across;
    cell.c0 = own.c0, cell.dh = own.dh, cell.dh0 = own.dh0, cell.dc = own.dc, cell.dc0 = own.dc0;
    cell.dm = own.dm, cell.dz = own.dz, cell.dz_x = own.dz_x, cell.dz_h = own.dz_h;
    if (in_place_) cell.dz = cell.dz_x = cell.dz_h = cell.gates;
    cell.carried = own.carried, cell.dz_ring = own.dz_ring, cell.ring_arrivals = own.ring_arrivals;
    cell.dh_new = own.dh_new, cell.dv = own.dv, cell.m_rows = own.m_rows;
    cell.dy = is_last(p_, layer) ? part_of<T>(in_.y, d * s.output) : dx_[(layer + 1) % 2] + d * s.output;
    cell.dy_stride = static_cast<Offset>(directions_of(p_) * s.output);
    cell.dh_all = part_of<T>(in_.h_all, index * s.rows * s.output);
    cell.dc_all = bytes_at(in_.c_all, index * s.rows * s.hidden, size_of(p_.cell_dtype));
    return cell;
  }

  void begin(int layer, int d, const CudaCell<T>& cell) {
    const CudaSizes<T> s(p_);
    const std::size_t index = layer * directions_of(p_) + d, cell_size = size_of(p_.cell_dtype);
    const LstmWeights& w = p_.weights[index];
    pack_matrix(queue_, p_, cell.masks, w.hh, cell.output, 4 * p_.hidden, true, drops_weights(p_),
                cell.hh_across);
    if (cell.projects) {
      pack_matrix(queue_, p_, cell.masks, w.hr, p_.hidden, cell.output, true, false, cell.hr_across);
      if (s.output_stride != s.output) queue_.clear(cell.dh_new, s.rows * s.output_stride * sizeof(T));
    }
    if (s.gates_stride != 4 * s.hidden) {  // what pads dz
      queue_.clear(cell.dz, s.rows * s.gates_stride * sizeof(T));
      if (p_.layer_norm) queue_.clear(cell.dz_h, s.rows * s.gates_stride * sizeof(T));
    }
    const StateParams<T> state{cell, part_of<T>(in_.h_n, index * s.batch * s.output),
                               bytes_at(in_.c_n, index * s.batch * s.hidden, cell_size)};
    queue_.for_each(s.batch * std::max(s.output, s.hidden), kFirstGradient<T>, state,
                    bytes_at(p_.c0, index * s.batch * s.hidden, cell_size));
  }

  void sweep(Queue& queue, StepParams<T>& params, Places places) {
    const int directions = directions_of(p_);
    if (!plan_) plan_ = has_few_steps(queue, p_) ? ClusterPlan<T>{} : plan_clusters<T>(p_, true);
    if (run_on_clusters(queue, p_, *plan_, params, places)) return;
    if (chunk_ == 0 && run_resident(queue, p_, params, true)) return;
    if constexpr (sizeof(T) == 2) {
      if (chunk_ == 0 && takes_projected_products(queue, p_, params)) {
        return sweep_back_by_projected_products(queue, p_, params);
      }
    }
    if constexpr (sizeof(T) < 8) {
      if (chunk_ == 0 && p_.projection == 0 && takes_products<T>(queue, p_) &&
          gains_by_products<T>(queue, p_)) {
        return sweep_back_by_products(queue, p_, params);
      }
    }
    for (params.place = places.begin; params.place < places.end; ++params.place) {
      queue.template step<CarryTask<T>>(params, directions, params.place > places.begin);
      if (p_.projection > 0) queue.template step<PullTask<T>>(params, directions, true);
      if (p_.layer_norm) queue.rows_of_step(kNormalisedBackward<T>, params, directions);
    }
    if (places.end == p_.steps) queue.template step<CarryTask<T>>(params, directions, true);
  }

  // dx of `count` rows from row `first` on; the directions' are added.
  void multiply_back(int layer, const CudaCell<T>& cell, Offset first, Offset count) {
    T* const dx = layer > 0 ? dx_[layer % 2] : static_cast<T*>(out_.x);
    if (!dx) return;
    const Offset width = input_of(p_, layer), gates = 4 * static_cast<Offset>(p_.hidden);
    const Offset stride = static_cast<Offset>(cell.gates_stride);
    queue_.multiply({p_.dtype,
                     count,
                     width,
                     gates,
                     cell.dz_x + first * stride,
                     {stride, 1},
                     p_.weights[layer * directions_of(p_) + (cell.reverse ? 1 : 0)].ih,
                     {width, 1},
                     dx + first * width,
                     width,
                     cell.reverse});
  }

  // Behind the sweep: gradients by the states and the weights.
  void end(int layer, int d, const CudaCell<T>& cell, const InputRows<T>& input) {
    const CudaSizes<T> s(p_);
    const std::size_t index = layer * directions_of(p_) + d;
    const Offset rows = static_cast<Offset>(s.rows), width = input_of(p_, layer);
    const Offset gates = 4 * static_cast<Offset>(s.hidden), output = static_cast<Offset>(s.output);
    const Offset stride = static_cast<Offset>(s.gates_stride);
    queue_.for_each(s.batch * std::max(s.output, s.hidden), kLastGradient<T>, cell,
                    part_of<T>(out_.h0, index * s.batch * s.output),
                    bytes_at(out_.c0, index * s.batch * s.hidden, size_of(p_.cell_dtype)));
    if (!out_.weights) return;
    const LstmWeightGradients& to = out_.weights[index];
    if (to.ih) {
      queue_.multiply({p_.dtype,
                       gates,
                       width,
                       rows,
                       cell.dz_x,
                       {1, stride},
                       input.data,
                       {input.stride, 1},
                       to.ih,
                       width,
                       false});
    }
    if (to.hh) {
      multiply_states(cell, part_of<T>(p_.h0, index * s.batch * s.output), to.hh);
      if (drops_weights(p_)) {
        PackParams<T> params{};
        params.to = static_cast<T*>(to.hh);
        params.rows = static_cast<int>(gates), params.columns = cell.output;
        params.masks = cell.masks;
        params.threshold = philox_threshold(p_.weight_dropout);
        params.factor = static_cast<Sum<T>>(1 / (1 - p_.weight_dropout));
        queue_.for_each(static_cast<std::size_t>(gates * output), kDrop<T>, params);
      }
    }
    if (to.hr) {
      queue_.multiply({p_.dtype,
                       output,
                       p_.hidden,
                       rows,
                       cell.dh_new,
                       {1, cell.output_stride},
                       cell.m_rows,
                       {p_.hidden, 1},
                       to.hr,
                       p_.hidden,
                       false});
    }
    sum_columns(cell.dz, stride, nullptr, 0, gates, to.bias);
    if (!p_.layer_norm) return;
    sum_columns(cell.dz, stride, cell.norm_x, gates, gates, to.ln_ih);
    sum_columns(cell.dz, stride, cell.norm_h, gates, gates, to.ln_hh);
    sum_columns(cell.dv, p_.hidden, cell.norm_c, p_.hidden, p_.hidden, to.ln_cell);
    sum_columns(cell.dv, p_.hidden, nullptr, 0, p_.hidden, to.ln_cell_bias);
  }

  // The gradient by R: the sum of dz times h before each step.
  void multiply_states(const CudaCell<T>& cell, const T* h0, void* to) {
    const Offset gates = 4 * static_cast<Offset>(p_.hidden), output = cell.output, stride = cell.gates_stride;
    const auto add = [&](Offset first, Offset rows, const T* h, Offset h_stride, bool adds) {
      queue_.multiply({p_.dtype,
                       gates,
                       output,
                       rows,
                       cell.dz_h + first * stride,
                       {1, stride},
                       h,
                       {h_stride, 1},
                       to,
                       output,
                       adds});
    };
    const Offset rows = rows_of(p_), batch = p_.batch;
    if (!has_every_row(p_)) {
      queue_.for_each(static_cast<std::size_t>(rows * output), kHBefore<T>, cell, h0, h_before_);
      return add(0, rows, h_before_, output, false);
    }
    // h before a step is that of the step before.
    if (rows == 0) return add(0, 0, cell.h_rows, output, false);
    const T* const first = cell.h_rows + (cell.reverse ? batch * cell.h_stride : 0);
    add(cell.reverse ? 0 : batch, rows - batch, first, cell.h_stride, false);
    if (h0) add(cell.reverse ? rows - batch : 0, batch, h0, output, true);
  }

  void sum_columns(const T* a, Offset a_stride, const T* b, Offset b_stride, Offset columns, void* to) {
    if (!to) return;
    const ColumnSumParams<T> params{
        a, a_stride, b, b_stride, rows_of(p_), static_cast<int>(columns), parts_, static_cast<T*>(to)};
    queue_.for_each(static_cast<std::size_t>(columns) * kSumParts, kPartSums<T>, params);
    queue_.for_each(static_cast<std::size_t>(columns), kColumnSums<T>, params);
  }

  const LstmProblem& p_;
  const LstmKept& kept_;
  const LstmIncoming& in_;
  const LstmGradients& out_;
  Queue queue_;
  Arena arena_;
  int chunk_;              // steps; 0: layers run in turn
  bool in_place_ = false;  // dz takes the gates' place
  std::vector<CudaCell<T>> cells_;
  T* input_;
  T* dx_[2];  // gradients by the inputs of layers that take turns
  T* h_before_;
  Sum<T>* parts_;
  std::optional<ClusterPlan<T>> plan_;  // made by the first sweep
};

}  // namespace warpalign::detail::recurrent
