// A call of the forward pass: layer after layer, the directions of a layer in the same launches.
#pragma once

#include "recurrent/cuda/cluster_call.cuh"
#include "recurrent/cuda/resident_call.cuh"
#include "recurrent/cuda/single_step.cuh"

namespace warpalign::detail::recurrent {

template <class T>
class ForwardCall {
 public:
  ForwardCall(const LstmProblem& p, const LstmOutputs& out, const Execution& execution, Workspace workspace)
      : p_(p), out_(out), queue_(execution), arena_(workspace.data) {
    input_ = take_input<T>(p, arena_);
    for (int d = 0; d < directions_of(p); ++d) take_cell(cells_[d], h_rows_[d]);
  }

  [[nodiscard]] std::size_t bytes() const { return arena_.used(); }

  Status run() {
    const T* below[2] = {};
    for (int layer = 0; layer < p_.layers; ++layer) {
      const InputRows<T> input = layer_input(queue_, p_, layer, below, input_);
      if (step_at_once(layer, input, below[0])) continue;
      StepParams<T> params{};
      for (int d = 0; d < directions_of(p_); ++d) {
        params.cell[d] = cell(layer, d);
        begin(layer, d, params.cell[d], input);
      }
      if (rows_of(p_) > 0) sweep(params);
      for (int d = 0; d < directions_of(p_); ++d) {
        end(layer, d, params.cell[d]);
        below[d] = params.cell[d].tape_h;
      }
    }
    return queue_.status();
  }

 private:
  // What all layers use in turn.
  void take_cell(CudaCell<T>& cell, T* (&h_rows)[2]) {
    const CudaSizes<T> s(p_);
    if (!p_.packed_weights) take_packed(p_, cell, arena_);
    for (T*& h : cell.h) h = arena_.take<T>(s.batch * s.output_stride);
    cell.h0 = arena_.take<T>(s.batch * s.output_stride);
    cell.c = arena_.take<Sum<T>>(s.batch * s.hidden);
    cell.c0 = arena_.take<Sum<T>>(s.batch * s.hidden);
    cell.raw = take_if<Sum<T>>(p_.layer_norm, arena_, s.batch * 4 * s.hidden);
    cell.cells = take_if<Sum<T>>(p_.layer_norm, arena_, s.batch * s.hidden);
    cell.m = take_if<T>(p_.projection > 0, arena_, s.batch * s.hidden_stride);
    if (out_.tape) return;
    cell.gates = arena_.take<T>(s.rows * 4 * s.hidden);
    cell.norm_x = take_if<T>(p_.layer_norm, arena_, s.rows * 4 * s.hidden);
    cell.norm_h = take_if<T>(p_.layer_norm, arena_, s.rows * 4 * s.hidden);
    cell.norm_c = take_if<T>(p_.layer_norm, arena_, s.rows * s.hidden);
    cell.scales = take_if<Sum<T>>(p_.layer_norm, arena_, s.rows * 3);
    for (T*& rows : h_rows) rows = take_if<T>(keeps_h(), arena_, s.rows * s.output);
  }

  // Without a tape: whether h of all steps is needed, by the layer above or by the blocks of a resident
  // sweep.
  [[nodiscard]] bool keeps_h() const { return p_.layers > 1 || may_be_resident<T>(p_); }

  // Layer `layer` in direction d.
  CudaCell<T> cell(int layer, int d) {
    const CudaSizes<T> s(p_);
    const int index = layer * directions_of(p_) + d;
    CudaCell<T> cell = plain_cell<T>(p_, layer, d);
    const CudaCell<T>& own = cells_[d];
    cell.hh = own.hh, cell.hr = own.hr;
    if (p_.packed_weights) {
      std::byte* const packed = static_cast<std::byte*>(const_cast<void*>(p_.packed_weights));
      Arena arena(packed + index * packed_cell_bytes<T>(p_));
      take_packed(p_, cell, arena);
    }
    cell.h[0] = own.h[0], cell.h[1] = own.h[1], cell.h0 = own.h0;
    cell.c = own.c, cell.c0 = own.c0, cell.raw = own.raw, cell.cells = own.cells, cell.m = own.m;
    const bool is_last = layer == p_.layers - 1;
    if (out_.tape) {
      Arena arena = tape_of_cell<T>(p_, out_.tape, index);
      take_tape(p_, cell, arena);
    } else {
      cell.gates = own.gates, cell.scales = own.scales;
      cell.norm_x = own.norm_x, cell.norm_h = own.norm_h, cell.norm_c = own.norm_c;
      cell.tape_h = h_rows_[d][layer % 2];
    }
    if (is_last) cell.y = part_of<T>(out_.y, d * s.output);
    cell.y_stride = static_cast<Offset>(directions_of(p_) * s.output);
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
    step.h_n = part_of<T>(out_.h_n, layer * states);
    step.c_n = bytes_at(out_.c_n, layer * states, size_of(p_.cell_dtype));
    step.tiles = cuda::div_up(p_.batch, kTileRows);
    if (!run_single_step(queue_, p_, step, out_.tape != nullptr)) return false;
    output = step.cell.tape_h;
    return true;
  }

  // Weights and states, and W x of all steps.
  void begin(int layer, int d, const CudaCell<T>& cell, const InputRows<T>& input) {
    const CudaSizes<T> s(p_);
    const std::size_t index = layer * directions_of(p_) + d;
    const LstmWeights& w = p_.weights[index];
    if (!p_.packed_weights) pack_forward(queue_, p_, cell, w, drops_weights(p_));
    const StateParams<T> state{cell, part_of<T>(p_.h0, index * s.batch * s.output),
                               bytes_at(p_.c0, index * s.batch * s.hidden, size_of(p_.cell_dtype))};
    queue_.for_each(s.batch * std::max(s.output_stride, s.hidden), kFirstState<T>, state);
    if (cell.m) queue_.clear(cell.m, s.batch * s.hidden_stride * sizeof(T));
    const Offset width = input_of(p_, layer), gates = 4 * static_cast<Offset>(s.hidden);
    T* const to = p_.layer_norm ? cell.norm_x : cell.gates;
    queue_.multiply({p_.dtype,
                     static_cast<Offset>(s.rows),
                     gates,
                     width,
                     input.data,
                     {input.stride, 1},
                     w.ih,
                     {1, width},
                     to,
                     gates,
                     false});
    if (!p_.layer_norm) return;
    queue_.launch(kNormalise<T>, static_cast<int>(std::min<std::size_t>(s.rows, 1 << 16)), kNormThreads,
                  cell);
  }

  void sweep(StepParams<T>& params) {
    const int directions = directions_of(p_);
    if (run_on_clusters(queue_, p_, params, false) || run_resident(queue_, p_, params, false)) return;
    if constexpr (sizeof(T) == 2) {
      if (takes_products<T>(queue_, p_)) return sweep_by_products(queue_, p_, params);
    }
    for (params.place = 0; params.place < p_.steps; ++params.place) {
      if (p_.layer_norm) {
        queue_.template step<RawTask<T>>(params, directions);
        queue_.rows_of_step(kNormalisedCell<T>, params, directions);
      } else {
        queue_.template step<CellTask<T>>(params, directions);
      }
      if (p_.projection > 0) queue_.template step<ProjectTask<T>>(params, directions);
    }
  }

  void end(int layer, int d, CudaCell<T>& cell) {
    const CudaSizes<T> s(p_);
    const std::size_t index = layer * directions_of(p_) + d;
    if (rows_of(p_) == 0) cell.h[p_.steps % 2] = cell.h[0];
    queue_.for_each(s.batch * std::max(s.output, s.hidden), kLastState<T>, cell,
                    part_of<T>(out_.h_n, index * s.batch * s.output),
                    bytes_at(out_.c_n, index * s.batch * s.hidden, size_of(p_.cell_dtype)));
  }

  const LstmProblem& p_;
  const LstmOutputs& out_;
  Queue queue_;
  Arena arena_;
  T* input_;
  CudaCell<T> cells_[2] = {};
  T* h_rows_[2][2] = {};  // by direction, and by layer in turn; without a tape
};

}  // namespace warpalign::detail::recurrent
