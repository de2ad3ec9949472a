// The LSTM's CPU path, backward: layer after layer from the last one, the directions of a layer at once.
#include <algorithm>
#include <cstddef>

#include "recurrent/cpu_backward.h"
#include "recurrent/cpu_call.h"
#include "recurrent/cpu_chunks.h"
#include "recurrent/cpu_reduce.h"

namespace warpalign::detail::recurrent {
namespace {

template <class Real>
class Backward {
 public:
  Backward(const LstmProblem& p, const LstmKept& kept, const LstmIncoming& incoming,
           const LstmGradients& gradients, const Execution& execution, Workspace workspace)
      : p_(p),
        kept_(kept),
        in_(incoming),
        out_(gradients),
        execution_(execution),
        teams_(p, execution, kReduceScratch<Real>),
        arena_(workspace.data ? Arena(static_cast<std::byte*>(workspace.data) + teams_.bytes()) : Arena()),
        workspace_(workspace),
        x_(take<Real>(arena_, input_elements())) {
    for (auto& layer : dx_) {
      for (int d = 0; d < directions_of(p); ++d) layer[d] = take<Real>(arena_, input_elements());
    }
  }

  [[nodiscard]] std::size_t bytes() const {
    std::size_t most = 0;
    for (int layer = 0; layer < std::min(p_.layers, 2); ++layer) {
      Arena arena = arena_;
      for (int d = 0; d < directions_of(p_); ++d) [[maybe_unused]] const CellMemory memory(p_, layer, arena);
      most = std::max(most, arena.used());
    }
    return teams_.bytes() + most;
  }

  void run() {
    for (int layer = p_.layers - 1; layer >= 0; --layer) {
      cpu::run_team(teams_.layer, workspace_, execution_, [&](int, const cpu::ItemMemory& memory) {
        const Real* below[2] = {};
        if (layer > 0) below[0] = tape_of_cell(layer - 1, 0).h;
        if (layer > 0 && p_.bidirectional) below[1] = tape_of_cell(layer - 1, 1).h;
        load_input(p_, layer, below, Loops(memory), x_);
      });
      cpu::run_team(teams_.cells, workspace_, execution_,
                    [&](int d, const cpu::ItemMemory& memory) { cell(layer, d, Loops(memory)); });
    }
    if (!out_.x) return;
    cpu::run_team(teams_.layer, workspace_, execution_,
                  [&](int, const cpu::ItemMemory& memory) { write_input_gradient(Loops(memory)); });
  }

 private:
  struct CellMemory {
    CellWeights<Real> weights;
    BackwardRows<Real> rows;
    BackwardState<Real> state;
    Real* sums;  // a gradient with respect to weights that cannot be summed where it lies

    CellMemory(const LstmProblem& p, int layer, Arena& arena) : CellMemory(p, CellSizes(p, layer), arena) {}
    CellMemory(const LstmProblem& p, const CellSizes& s, Arena& arena)
        : weights(p, s, form_of(p, s), arena), rows(p, s, arena), state(s, arena) {
      const Index widths[] = {written_at_once(p, s.input) ? 0 : s.ip,
                              written_at_once(p, s.output) && !weights.drops(p) ? 0 : s.pp,
                              p.projection > 0 ? s.hp : 0};
      sums = take<Real>(arena, s.gates() * *std::max_element(widths, widths + 3));
    }
  };

  static WeightForm form_of(const LstmProblem& p, const CellSizes& s) {
    const bool fits = s.input == s.ip && s.output == s.pp && (p.projection == 0 || s.hidden == s.hp);
    return p.steps == 1 && p.dtype == kTypeOf<Real> && fits ? WeightForm::kAsGiven : WeightForm::kByColumn;
  }
  // Whether sums of so many columns may be made where a gradient lies.
  static bool written_at_once(const LstmProblem& p, Index columns) {
    return p.dtype == kTypeOf<Real> && columns == padded(columns);
  }

  [[nodiscard]] Index input_elements() const { return rows_of(p_) * widest_input(p_); }
  [[nodiscard]] CellRows<Real> tape_of_cell(int layer, int d) const {
    return tape_of<Real>(p_, layer, d, const_cast<void*>(kept_.tape));  // only read
  }
  [[nodiscard]] LstmWeightGradients wanted(int cell) const {
    return out_.weights ? out_.weights[cell] : LstmWeightGradients{};
  }

  void cell(int layer, int d, const Loops& loops) {
    Arena arena = arena_;
    if (d == 1) [[maybe_unused]]
      const CellMemory first(p_, layer, arena);
    CellMemory memory(p_, layer, arena);
    const CellSizes s(p_, layer);
    const int cell = layer * directions_of(p_) + d;
    const Masks masks(p_, layer, d);
    memory.weights.load(p_, s, p_.weights[cell], masks, loops);
    load_output_gradient(layer, d, s, loops, memory.rows.dy);
    const CellRows<Real> tape = tape_of_cell(layer, d);
    BackwardSweep<Real>(p_, layer, d, selected_kernels<Real>(), in_, memory.weights, tape, kept_.y,
                        memory.rows, memory.state, loops)
        .run();
    for (Index b = 0; b < s.batch; ++b) {
      const Index row = cell * s.batch + b;
      if (out_.h0) write_entries(p_.dtype, memory.state.dh0 + b * s.pp, s.output, out_.h0, row * s.output);
      if (out_.c0)
        write_entries(p_.cell_dtype, memory.state.dc0 + b * s.hp, s.hidden, out_.c0, row * s.hidden);
    }
    if (layer > 0 || out_.x) input_gradient(s, loops, memory, dx_[layer % 2][d]);
    const LstmWeightGradients to = wanted(cell);
    weight_gradients(s, loops, memory, masks, to);
    vector_gradients(s, loops, memory, tape, to);
  }

  // The gradient with respect to this direction's h: from y or from the layer above, with its dropout, and
  // from h_all.
  void load_output_gradient(int layer, int d, const CellSizes& s, const Loops& loops, Real* dy) const {
    const bool is_last = recurrent::is_last(p_, layer);
    const Index cell = layer * directions_of(p_) + d, directions = directions_of(p_);
    const Index above = is_last ? 0 : CellSizes(p_, layer + 1).ip;
    const Steps steps(p_);
    const Masks masks(p_, layer, d);
    loops.run(p_.steps, [&](Index step, void*) {
      const int t = static_cast<int>(step);
      for (Index b = 0; b < steps.count(t); ++b) {
        const Index row = steps.first(t) + b;
        Real* const entries = dy + row * s.pp;
        std::fill(entries, entries + s.pp, Real(0));
        if (is_last && in_.y) {
          add_entries(p_.dtype, in_.y, (row * directions + d) * s.output, s.output, entries);
        }
        for (int from = 0; from < directions && !is_last; ++from) {
          const Real* const part = dx_[(layer + 1) % 2][from] + row * above + d * s.output;
          for (Index k = 0; k < s.output; ++k) entries[k] += part[k];
        }
        if (!is_last && p_.training && p_.dropout > 0) {
          masks.drop(MaskKind::kDropout, p_.dropout, t, b, 0, s.output, entries);
        }
        if (in_.h_all) {
          add_entries(p_.dtype, in_.h_all, (cell * s.rows + row) * s.output, s.output, entries);
        }
      }
    });
  }

  void input_gradient(const CellSizes& s, const Loops& loops, const CellMemory& memory, Real* dx) const {
    const Index blocks = (s.rows + kRowBlock - 1) / kRowBlock;
    loops.run(blocks * panels_of(s.input), [&](Index task, void*) {
      const Index panel = task / blocks, row = task % blocks * kRowBlock;
      multiply_by_column(
          selected_kernels<Real>(),
          panel_product(memory.rows.dz_x + row * s.gates(), s.gates(), memory.weights.ih, s.gates(), panel,
                        dx + row * s.ip, s.ip, std::min(kRowBlock, s.rows - row), s.ip, false),
          memory.weights.given_ih, panel);
    });
  }
  void write_input_gradient(const Loops& loops) const {
    const CellSizes s(p_, 0);
    loops.run((s.rows + kRowBlock - 1) / kRowBlock, [&](Index block, void*) {
      const Index end = std::min((block + 1) * kRowBlock, s.rows);
      for (Index row = block * kRowBlock; row < end; ++row) {
        Real* const sum = dx_[0][0] + row * s.ip;
        for (Index k = 0; k < s.input && p_.bidirectional; ++k) sum[k] += dx_[0][1][row * s.ip + k];
        write_entries(p_.dtype, sum, s.input, out_.x, row * s.input);
      }
    });
  }

  void weight_gradients(const CellSizes& s, const Loops& loops, const CellMemory& memory, const Masks& masks,
                        const LstmWeightGradients& to) const {
    const CpuKernelsOf<Real>& kernels = selected_kernels<Real>();
    const auto gate_rows = [&](const Real* dz, const Real* with, Index stride, Index width, bool is_dropped,
                               void* gradient) {
      const Matrix matrix{nullptr, p_.dtype, 4 * s.hidden, width, true};
      if (written_at_once(p_, width) && !is_dropped) {
        return transposed_product(kernels, loops, s.rows, dz, matrix, with, static_cast<Real*>(gradient));
      }
      transposed_product(kernels, loops, s.rows, dz, {nullptr, p_.dtype, s.gates(), stride, false}, with,
                         memory.sums);
      loops.run(s.gates(), [&](Index column, void*) {
        const Index row = matrix.row_at(column);
        if (row < 0) return;
        Real* const sums = memory.sums + column * stride;
        if (is_dropped) masks.drop(MaskKind::kWeight, p_.weight_dropout, row, 0, 0, width, sums);
        write_entries(p_.dtype, sums, width, gradient, row * width);
      });
    };
    const BackwardRows<Real>& rows = memory.rows;
    if (to.ih) gate_rows(rows.dz_x, x_, s.ip, s.input, false, to.ih);
    if (to.hh) gate_rows(rows.dz_h, rows.h_before, s.pp, s.output, CellWeights<Real>::drops(p_), to.hh);
    if (!to.hr) return;
    transposed_product(kernels, loops, s.rows, rows.dh_new, {nullptr, p_.dtype, s.pp, s.hp, false}, rows.m,
                       memory.sums);
    for (Index row = 0; row < s.output; ++row) {
      write_entries(p_.dtype, memory.sums + row * s.hp, s.hidden, to.hr, row * s.hidden);
    }
  }

  // Gradients with respect to the biases and to layer norm's vectors.
  void vector_gradients(const CellSizes& s, const Loops& loops, const CellMemory& memory,
                        const CellRows<Real>& tape, const LstmWeightGradients& to) const {
    const Matrix gates{nullptr, p_.dtype, 4 * s.hidden, 1, true};
    const auto gate_sums = [&](const Real* with, void* gradient) {
      if (!gradient) return;
      sum_columns(loops, s.rows, s.gates(), memory.rows.dz, with, [&](Index column, Real sum) {
        const Index row = gates.row_at(column);
        if (row >= 0) write_entries(p_.dtype, &sum, 1, gradient, row);
      });
    };
    const auto cell_sums = [&](const Real* with, void* gradient) {
      if (!gradient) return;
      sum_columns(loops, s.rows, s.hp, memory.rows.dv, with, [&](Index column, Real sum) {
        if (column < s.hidden) write_entries(p_.dtype, &sum, 1, gradient, column);
      });
    };
    gate_sums(nullptr, to.bias);
    if (!p_.layer_norm) return;
    gate_sums(tape.norm_x, to.ln_ih);
    gate_sums(tape.norm_h, to.ln_hh);
    cell_sums(tape.norm_c, to.ln_cell);
    cell_sums(nullptr, to.ln_cell_bias);
  }

  const LstmProblem& p_;
  const LstmKept& kept_;
  const LstmIncoming& in_;
  const LstmGradients& out_;
  const Execution& execution_;
  const Teams teams_;
  Arena arena_;
  const Workspace workspace_;
  Real* const x_;
  Real* dx_[2][2] = {};  // the gradients with respect to inputs of layers that take turns, by direction
};

}  // namespace

std::size_t backward_workspace_bytes_cpu(const LstmProblem& p, const LstmGradients& gradients,
                                         const Execution& execution) {
  if (p.recompute) return backward_by_chunks_bytes(p, gradients, execution);
  if (p.dtype == DType::kFloat64) return Backward<double>(p, {}, {}, gradients, execution, {}).bytes();
  return Backward<float>(p, {}, {}, gradients, execution, {}).bytes();
}

Status backward_cpu(const LstmProblem& p, const LstmKept& kept, const LstmIncoming& incoming,
                    const LstmGradients& gradients, Workspace workspace, const Execution& execution) {
  if (p.recompute) return backward_by_chunks(p, kept, incoming, gradients, workspace, execution);
  if (p.dtype == DType::kFloat64) {
    Backward<double>(p, kept, incoming, gradients, execution, workspace).run();
  } else {
    Backward<float>(p, kept, incoming, gradients, execution, workspace).run();
  }
  return {};
}

}  // namespace warpalign::detail::recurrent
