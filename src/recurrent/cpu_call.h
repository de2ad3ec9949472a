// One call of the CPU path: its team of threads, its memory, and the input rows of its layers.
#pragma once

#include <algorithm>

#include "recurrent/cpu_memory.h"

namespace warpalign::detail::recurrent {

// The workers of a call: for what a whole layer needs, and for its cells, one per direction.
struct Teams {
  // Multiply-adds of a step that are worth another worker.
  static constexpr std::int64_t kWorthAWorker = 1 << 15;

  cpu::Team layer, cells;

  Teams(const LstmProblem& p, const Execution& execution, std::size_t scratch_bytes) {
    const std::int64_t step = 4 * static_cast<std::int64_t>(p.hidden) * output_of(p) * p.batch;
    const auto most = [](std::int64_t work) {
      return static_cast<int>(std::clamp<std::int64_t>(work / kWorthAWorker, 1, 1024));
    };
    layer = cpu::Team::of(1, execution, p.steps == 1 ? 1 : most(step));
    cells = cpu::Team::of(directions_of(p), execution, most(step));
    layer.scratch_bytes = cells.scratch_bytes = cpu::rounded_to_worker(scratch_bytes);
  }

  [[nodiscard]] std::size_t bytes() const {
    return cpu::rounded_to_worker(std::max(layer.bytes(), cells.bytes()));
  }
};

// Rows of layer `layer`'s input, ip entries each: x itself, or what the layer below has put out, with its
// dropout. `below` are that layer's rows, by direction.
template <class Real>
void load_input(const LstmProblem& p, int layer, const Real* const (&below)[2], const Loops& loops,
                Real* to) {
  const CellSizes s(p, layer);
  const Steps steps(p);
  loops.run(p.steps, [&](Index step, void*) {
    const int t = static_cast<int>(step);
    for (Index b = 0; b < steps.count(t); ++b) {
      const Index row = steps.first(t) + b;
      Real* const entries = to + row * s.ip;
      std::fill(entries, entries + s.ip, Real(0));
      if (!steps.holds(t, b)) continue;
      if (layer == 0) {
        const Index at = p.row_starts ? row * p.x.stride[1] : step * p.x.stride[0] + b * p.x.stride[1];
        read_entries(p.dtype, p.x.data, at, p.x.stride[2], s.input, entries);
        continue;
      }
      for (int d = 0; d < directions_of(p); ++d) {
        Real* const part = entries + d * s.output;
        std::copy_n(below[d] + row * s.pp, s.output, part);
        if (p.training && p.dropout > 0) {
          Masks(p, layer - 1, d).drop(MaskKind::kDropout, p.dropout, t, b, 0, s.output, part);
          round_entries(p.dtype, part, s.output);
        }
      }
    }
  });
}

// The most entries of a row of any layer's input.
inline Index widest_input(const LstmProblem& p) {
  return std::max(CellSizes(p, 0).ip, p.layers > 1 ? CellSizes(p, 1).ip : 0);
}

inline bool is_last(const LstmProblem& p, int layer) { return layer == p.layers - 1; }

// The tape of a cell, at the arena's place.
template <class Real>
CellRows<Real> take_tape(const LstmProblem& p, int layer, Arena& arena) {
  const CellSizes s(p, layer);
  return {p, s, s.rows, true, !is_last(p, layer), arena};
}
template <class Real>
std::size_t cell_tape_bytes(const LstmProblem& p, int layer) {
  Arena arena;
  take_tape<Real>(p, layer, arena);
  return arena.used();
}
// Bytes of the tape that the layers below `layer` take.
template <class Real>
std::size_t tape_bytes_below(const LstmProblem& p, int layer) {
  return layer > 0 ? cell_tape_bytes<Real>(p, 0) * layer * directions_of(p) : 0;
}
template <class Real>
CellRows<Real> tape_of(const LstmProblem& p, int layer, int d, void* tape) {
  std::byte* const data = static_cast<std::byte*>(tape);
  Arena arena(data + tape_bytes_below<Real>(p, layer) + d * cell_tape_bytes<Real>(p, layer));
  return take_tape<Real>(p, layer, arena);
}

}  // namespace warpalign::detail::recurrent
