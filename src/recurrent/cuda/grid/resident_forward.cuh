// The forward sweep of a layer on the whole grid: pairs of tiles of rows, or one tile for each group, as
// small batches have it. Of a tile alone two threads finish a unit of a row, and share the writing.
#pragma once

#include "recurrent/cuda/grid/resident.cuh"

namespace warpalign::detail::recurrent {

// kRows: tiles that are worked on together.
template <class T, int kSteps, bool kShares, bool kPlain, int kRows>
__global__ void __launch_bounds__(kResidentThreads, 1) resident_forward_kernel(ResidentParams<T> p) {
  const GridPlace<kRows> at(p);
  const CudaCell<T> cell = cell_of(p.cell, at.cell);
  const auto rows = rows_of<kPlain>(cell.at);
  const int hidden = cell.hidden, steps = cell.at.steps, tiles = kRows == 1 ? 1 : p.tiles;
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32;
  const bool has_unit = at.unit < hidden, hands_on = kRows == 2 || at.half == 0;
  float* const partials = reinterpret_cast<float*>(cuda::dynamic_shared());
  Weights16* const more = reinterpret_cast<Weights16*>(partials + partials_of_pair(4));
  OwnState alone;  // of a tile alone, in registers
  OwnState* const own =
      kRows == 1 ? &alone
                 : reinterpret_cast<OwnState*>(more + 4 * p.shared_steps * kResidentThreads) + thread;
  using Weights = RowWeights<T, 4, kSteps, kShares, kRows>;
  Weights weights(more, p.shared_steps, hidden);
  weights.load(reinterpret_cast<Weights16*>(partials),
               [&](int gate, int r) { return row_of_gate(cell, at.rank, gate, r); });
  __syncthreads();  // the places become those of sums
  float bias[4];
  unroll<4>([&](int gate) { bias[gate] = has_unit ? bias_of(cell, gate * hidden + at.unit) : 0.0f; });
  for (int tile = 0; tile < tiles; tile += 2) {
    const int b = at.batch_row(tile, at.row);
    const bool is_own = has_unit && b != at.kNoRow;
    own[tile / 2 * kResidentThreads] = {
        is_own ? cuda::widen(cell.h0[static_cast<Offset>(b) * cell.output_stride + at.unit]) : 0.0f,
        is_own ? cell.c[static_cast<Offset>(b) * hidden + at.unit] : 0.0f};
  }
  // Lanes of four neighbouring units each have one gate of them, and one array that gets h or c.
  const UnitLanes<2, 4> lanes;
  const int first_unit = at.unit - lanes.unit;
  const GateRows<T, UnitLanes<2, 4>> gate_rows(cell.gates, lanes, at.unit, hidden);
  T* array = lanes.unit == 0   ? cell.h_rows
             : lanes.unit == 1 ? cell.h_all
             : lanes.unit == 2 ? cell.tape_c
                               : nullptr;
  if (array) array += first_unit;
  const auto rows_before = [&](int of_place, int tile) {
    RowPair<T> from{};
    if (of_place == steps) return from;
    const int t = cell.step_at(of_place);
    unroll<kRows>([&](int n) {
      from.of[n] = state_before(cell, rows, of_place, t, at.batch_row(tile, 8 * n + lane / 4));
    });
    return from;
  };
  const bool asks_early = kShares && tiles > 2;  // the next pair's rows are there when a pair's step ends
  RowPair<T> from = rows_before(0, 0);
  typename Weights::Asked words;
  weights.ask(from.of, words);
  for (int place = 0; place < steps; ++place) {
    const int t = cell.step_at(place);
    for (int tile = 0; tile < tiles; tile += 2) {
      const int b = at.batch_row(tile, at.row);
      const bool has_row = has_unit && rows.has_row(t, b), holds = has_row && rows.holds(t, b);
      const Offset row = has_row ? rows.first(t) + b : 0;
      OwnState& state = own[tile / 2 * kResidentThreads];
      // Before the wait, so that it hides the way to memory.
      const Word asked = holds ? gate_rows.read(row * hidden) : 0;
      if (holds && rows.resets_at(t, b)) {
        state = {cuda::widen(cell.h0[static_cast<Offset>(b) * cell.output_stride + at.unit]),
                 cell.c0[static_cast<Offset>(b) * hidden + at.unit]};
      }
      const bool two = tile + 1 < tiles;
      typename Weights::Sums sums[kRows] = {};
      weights.multiply(from.of, two, words, sums);
      const bool is_last = tile + 2 >= tiles;
      from = rows_before(is_last ? place + 1 : place, is_last ? 0 : tile + 2);
      if (asks_early) weights.ask(from.of, words);
      float totals[4], z[4];
      join_sums(sums, partials, place, totals);
      widen_word<T>(lanes.transpose(asked), z);
      unroll<4>([&](int gate) { z[gate] += bias[gate] + totals[gate]; });
      const Activation<T>& a = cell.activation;
      float values[4];
      a.gates(z, values);
      float c = values[1] * state.c + values[0] * values[2], fresh = values[3] * a.squash(c);
      if (!kPlain && cell.zoneout_hidden.probability != 0) {
        const float keep = cell.zoneout_hidden.share(cell.masks, MaskKind::kHidden, t, b, at.unit);
        fresh = keep * state.h + (1 - keep) * fresh;
      }
      if (!kPlain && cell.zoneout_cell.probability != 0) {
        const float keep = cell.zoneout_cell.share(cell.masks, MaskKind::kCell, t, b, at.unit);
        c = keep * state.c + (1 - keep) * c;
      }
      if (!holds) c = 0, fresh = 0;
      const std::uint32_t both = cuda::narrow_pair<T>(fresh, c);
      Word word, cells;
      lanes.join(both, word, cells);
      if (has_row && lanes.unit == 0 && hands_on) {
        cuda::store_relaxed(reinterpret_cast<Word*>(array + row * cell.h_stride), word);
      }
      // Now what nobody waits for.
      const Word gates = lanes.transpose(narrow_word<T>(values));
      if (holds && (kRows == 2 || !hands_on)) gate_rows.write(row * hidden, gates);
      if (has_row && hands_on) {
        if (array && lanes.unit != 0) {
          *reinterpret_cast<Word*>(array + row * hidden) = lanes.unit == 2 ? cells : word;
        }
        if (cell.c_all) cell.write_cell(cell.c_all, row * hidden + at.unit, c);
      }
      if (holds) {
        const T h = first_of<T>(both);
        state = {cuda::widen(h), c};
        if (hands_on && !rows.holds(cell.step_at(place + 1), b)) {
          h_behind(cell)[static_cast<Offset>(b) * cell.output_stride + at.unit] = h;
          cell.c[static_cast<Offset>(b) * hidden + at.unit] = c;
        }
      }
      if (!asks_early) weights.ask(from.of, words);
    }
  }
}

}  // namespace warpalign::detail::recurrent
