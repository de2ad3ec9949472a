// The LSTM's CPU path, forward: layer after layer, the directions of a layer at once.
#include <algorithm>
#include <cstddef>
#include <cstring>

#include "recurrent/cpu_call.h"
#include "recurrent/cpu_chunks.h"
#include "recurrent/cpu_forward.h"

namespace warpalign::detail::recurrent {
namespace {

// Bytes of gates that a call without a tape keeps at a time.
constexpr Index kChunkBytes = Index{1} << 20;

template <class Real>
std::size_t packed_cell_bytes(const LstmProblem& p, int layer) {
  Arena arena;
  [[maybe_unused]] const CellWeights<Real> weights(p, CellSizes(p, layer), WeightForm::kByRow, arena);
  return arena.used();
}

// Where the packed weights of a layer and direction are.
template <class Real>
Arena packed_cell(const LstmProblem& p, int layer, int d) {
  if (!p.packed_weights) return {};
  const std::size_t below = layer > 0 ? packed_cell_bytes<Real>(p, 0) * directions_of(p) : 0;
  const std::size_t at = layer > 0 ? static_cast<std::size_t>(layer - 1) * directions_of(p) + d : d;
  // Written by pack() alone.
  std::byte* const packed = static_cast<std::byte*>(const_cast<void*>(p.packed_weights));
  return Arena(packed + below + at * packed_cell_bytes<Real>(p, std::min(layer, 1)));
}

template <class Real>
void pack(const LstmProblem& p) {
  const cpu::ItemMemory memory{};
  const Loops loops(memory);
  for (int layer = 0; layer < p.layers; ++layer) {
    for (int d = 0; d < directions_of(p); ++d) {
      const CellSizes s(p, layer);
      Arena arena = packed_cell<Real>(p, layer, d);
      CellWeights<Real> weights(p, s, WeightForm::kByRow, arena);
      weights.load(p, s, p.weights[layer * directions_of(p) + d], Masks(p, layer, d), loops);
    }
  }
}

template <class Real>
class Forward {
 public:
  Forward(const LstmProblem& p, const LstmOutputs& out, const Execution& execution, Workspace workspace)
      : p_(p),
        out_(without_kept(p, out)),
        kept_(p.recompute ? out.tape : nullptr),
        execution_(execution),
        teams_(p, execution, 0),
        arena_(workspace.data ? Arena(static_cast<std::byte*>(workspace.data) + teams_.bytes()) : Arena()),
        workspace_(workspace),
        most_rows_(most_rows(p, out_)),
        x_(take<Real>(arena_, CellSizes(p, 0).rows * widest_input(p))),
        rows_{rows(0), rows(1), rows(2), rows(3)},
        last_h_{last_h(0), last_h(1)} {}

  [[nodiscard]] std::size_t bytes() const {
    std::size_t most = 0;
    for (int layer = 0; layer < std::min(p_.layers, 2); ++layer) {
      Arena arena = arena_;
      for (int d = 0; d < directions_of(p_); ++d)
        [[maybe_unused]] const CellMemory memory(p_, layer, d, arena);
      most = std::max(most, arena.used());
    }
    return teams_.bytes() + most;
  }

  void run() {
    const Real* below[2] = {};
    if (kept_) std::memset(kept_, 0, kept_state_bytes(p_));  // there may be fewer chunks than places
    for (int layer = 0; layer < p_.layers; ++layer) {
      cpu::run_team(teams_.layer, workspace_, execution_, [&](int, const cpu::ItemMemory& memory) {
        load_input(p_, layer, below, Loops(memory), x_);
      });
      cpu::run_team(teams_.cells, workspace_, execution_,
                    [&](int d, const cpu::ItemMemory& memory) { cell(layer, d, Loops(memory)); });
      for (int d = 0; d < directions_of(p_); ++d) below[d] = rows_of_cell(layer, d).h;
    }
  }

 private:
  // The states before chunks, in the tape's place, are all that a call then leaves.
  static LstmOutputs without_kept(const LstmProblem& p, LstmOutputs out) {
    if (p.recompute) out.tape = nullptr;
    return out;
  }

  struct CellMemory {
    CellWeights<Real> weights;
    ForwardState<Real> state;
    CellMemory(const LstmProblem& p, int layer, int d, Arena& arena)
        : CellMemory(p, layer, arena, packed_cell<Real>(p, layer, d)) {}
    // Weights that have been packed take no memory of the call.
    CellMemory(const LstmProblem& p, int layer, Arena& arena, Arena packed)
        : weights(p, CellSizes(p, layer), form(p), p.packed_weights ? packed : arena),
          state(p, CellSizes(p, layer), arena) {}
  };

  // One step uses every weight once. Half types are made float32 by packing.
  static WeightForm form(const LstmProblem& p) {
    return p.steps == 1 && p.dtype == kTypeOf<Real> && !p.packed_weights ? WeightForm::kAsGiven
                                                                         : WeightForm::kByRow;
  }

  static Index most_rows(const LstmProblem& p, const LstmOutputs& out) {
    const CellSizes s(p, 0);
    if (out.tape) return s.rows;
    const Index fitting = kChunkBytes / (s.gates() * static_cast<Index>(sizeof(Real)));
    return std::min(s.rows, std::max(fitting, s.batch));
  }

  // Without a tape the layers take turns in two sets of rows, one for each direction.
  CellRows<Real> rows(int index) {
    const bool wanted = !out_.tape && index % 2 < directions_of(p_);
    return {p_, CellSizes(p_, 0), wanted ? most_rows_ : 0, out_.c_all != nullptr, true, arena_};
  }
  [[nodiscard]] CellRows<Real> rows_of_cell(int layer, int d) const {
    if (!out_.tape) return rows_[layer % 2 * 2 + d];
    CellRows<Real> rows = tape_of<Real>(p_, layer, d, out_.tape);
    if (is_last(p_, layer)) rows.h = last_h_[d];
    return rows;
  }
  // h of the last layer, which the tape does not have.
  Real* last_h(int d) {
    const CellSizes s(p_, 0);
    return take<Real>(arena_, s.rows * s.pp, out_.tape && d < directions_of(p_));
  }

  void cell(int layer, int d, const Loops& loops) {
    Arena arena = arena_;
    if (d == 1) [[maybe_unused]]
      const CellMemory first(p_, layer, 0, arena);
    const CellMemory memory(p_, layer, d, arena);
    const CellSizes s(p_, layer);
    CellWeights<Real> weights = memory.weights;
    if (!p_.packed_weights) {
      weights.load(p_, s, p_.weights[layer * directions_of(p_) + d], Masks(p_, layer, d), loops);
    }
    CellRows<Real> rows = rows_of_cell(layer, d);
    if (kept_) rows.kept = KeptStates<Real>(p_, layer * directions_of(p_) + d, kept_);
    ForwardSweep<Real>(p_, layer, d, selected_kernels<Real>(), x_, weights, rows, most_rows_, memory.state,
                       loops)
        .run();
    write(layer, d, s, rows, memory.state, loops);
  }

  void write(int layer, int d, const CellSizes& s, const CellRows<Real>& rows,
             const ForwardState<Real>& state, const Loops& loops) const {
    const Index cell = layer * directions_of(p_) + d, directions = directions_of(p_);
    for (Index b = 0; b < s.batch; ++b) {
      const Index row = cell * s.batch + b;
      if (out_.h_n) write_entries(p_.dtype, state.h + b * s.pp, s.output, out_.h_n, row * s.output);
      if (out_.c_n) write_entries(p_.cell_dtype, state.c + b * s.hp, s.hidden, out_.c_n, row * s.hidden);
    }
    loops.run((s.rows + kRowBlock - 1) / kRowBlock, [&](Index block, void*) {
      const Index end = std::min((block + 1) * kRowBlock, s.rows);
      for (Index row = block * kRowBlock; row < end; ++row) {
        const Real* const h = rows.h + row * s.pp;
        if (is_last(p_, layer) && out_.y) {
          write_entries(p_.dtype, h, s.output, out_.y, (row * directions + d) * s.output);
        }
        if (out_.h_all) write_entries(p_.dtype, h, s.output, out_.h_all, (cell * s.rows + row) * s.output);
        if (out_.c_all) {
          write_entries(p_.cell_dtype, rows.c + row * s.hp, s.hidden, out_.c_all,
                        (cell * s.rows + row) * s.hidden);
        }
      }
    });
  }

  const LstmProblem& p_;
  const LstmOutputs out_;
  void* const kept_;
  const Execution& execution_;
  const Teams teams_;
  Arena arena_;
  const Workspace workspace_;
  const Index most_rows_;
  Real* const x_;
  const CellRows<Real> rows_[4];
  Real* const last_h_[2];
};

}  // namespace

std::size_t tape_bytes_cpu(const LstmProblem& p) {
  if (p.recompute) return kept_state_bytes(p);
  const int last = p.layers - 1;
  const auto bytes = [&](auto real) {
    using Real = decltype(real);
    return tape_bytes_below<Real>(p, last) + directions_of(p) * cell_tape_bytes<Real>(p, last);
  };
  return p.dtype == DType::kFloat64 ? bytes(double{}) : bytes(float{});
}

std::size_t packed_bytes_cpu(const LstmProblem& p) {
  const auto bytes = [&](auto real) {
    using Real = decltype(real);
    const std::size_t above = p.layers > 1 ? packed_cell_bytes<Real>(p, 1) * (p.layers - 1) : 0;
    return (packed_cell_bytes<Real>(p, 0) + above) * directions_of(p);
  };
  return p.dtype == DType::kFloat64 ? bytes(double{}) : bytes(float{});
}

void pack_cpu(const LstmProblem& p, void* packed) {
  LstmProblem problem = p;
  problem.packed_weights = packed;
  problem.training = false;
  p.dtype == DType::kFloat64 ? pack<double>(problem) : pack<float>(problem);
}

std::size_t workspace_bytes_cpu(const LstmProblem& p, const LstmOutputs& out, const Execution& execution) {
  if (p.dtype == DType::kFloat64) return Forward<double>(p, out, execution, {}).bytes();
  return Forward<float>(p, out, execution, {}).bytes();
}

Status forward_cpu(const LstmProblem& p, const LstmOutputs& out, Workspace workspace,
                   const Execution& execution) {
  if (p.dtype == DType::kFloat64) {
    Forward<double>(p, out, execution, workspace).run();
  } else {
    Forward<float>(p, out, execution, workspace).run();
  }
  return {};
}

}  // namespace warpalign::detail::recurrent
