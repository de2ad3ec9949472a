// The forward sweep of a layer on the whole grid: pairs of tiles of rows, or one tile for each group, as
// small batches have it. Of a tile alone two threads finish a unit of a row, and share the writing.
#pragma once

#include "recurrent/cuda/grid/resident.cuh"

namespace warpalign::detail::recurrent {

// A thread's unit of the rows of all its pairs of tiles, before the first step.
template <class T, int kRows>
__device__ __forceinline__ void load_states(const CudaCell<T>& cell, const GridPlace<kRows>& at, int tiles,
                                            OwnState* own) {
  for (int tile = 0; tile < tiles; tile += 2) {
    const int b = at.batch_row(tile, at.row);
    const bool is_own = at.unit < cell.hidden && b != at.kNoRow;
    own[tile / 2 * kResidentThreads] = {
        is_own ? cuda::widen(cell.h0[static_cast<Offset>(b) * cell.output_stride + at.unit]) : 0.0f,
        is_own ? cell.c[static_cast<Offset>(b) * cell.hidden + at.unit] : 0.0f};
  }
}

// The state after a step from W x + R h + b, which becomes the gates. Zoneout keeps shares of the one before.
template <bool kPlain, class T>
__device__ __forceinline__ OwnState next_state(const CudaCell<T>& cell, int t, int b, int unit,
                                               const OwnState& before, float (&z)[4]) {
  const Activation<T>& a = cell.activation;
  float gates[4];
  a.gates(z, gates);
  float c = gates[1] * before.c + gates[0] * gates[2], h = gates[3] * a.squash(c);
  if (!kPlain && cell.zoneout_hidden.probability != 0) {
    const float keep = cell.zoneout_hidden.share(cell.masks, MaskKind::kHidden, t, b, unit);
    h = keep * before.h + (1 - keep) * h;
  }
  if (!kPlain && cell.zoneout_cell.probability != 0) {
    const float keep = cell.zoneout_cell.share(cell.masks, MaskKind::kCell, t, b, unit);
    c = keep * before.c + (1 - keep) * c;
  }
  unroll<4>([&](int gate) { z[gate] = gates[gate]; });
  return {h, c};
}

// The lane's rows of h as factors of the products of place `place`; null after the last one.
template <int kRows, class T, class Rows>
__device__ __forceinline__ RowPair<T> rows_of_h(const CudaCell<T>& cell, const Rows& rows,
                                                const GridPlace<kRows>& at, int place, int tile) {
  RowPair<T> from{};
  if (place == cell.at.steps) return from;
  const int t = cell.step_at(place), lane = static_cast<int>(threadIdx.x) % cuda::kWarpSize;
  unroll<kRows>(
      [&](int n) { from.of[n] = state_before(cell, rows, place, t, at.batch_row(tile, 8 * n + lane / 4)); });
  return from;
}

// Lanes of four neighbouring units each have one array that gets h or c of the four.
template <class T>
class LaneArray {
 public:
  __device__ __forceinline__ LaneArray(const CudaCell<T>& cell, const UnitLanes<2, 4>& lanes, int unit)
      : lane_(lanes.unit),
        hidden_(cell.hidden),
        array_(lane_ == 0   ? cell.h_rows
               : lane_ == 1 ? cell.h_all
               : lane_ == 2 ? cell.tape_c
                            : nullptr) {
    if (array_) array_ += unit - lane_;
  }
  // h, for which other blocks wait.
  __device__ __forceinline__ void hand_on(Offset row, Offset h_stride, cuda::Word h) const {
    if (lane_ == 0) cuda::store_relaxed(reinterpret_cast<cuda::Word*>(array_ + row * h_stride), h);
  }
  // What nobody waits for.
  __device__ __forceinline__ void write(Offset row, cuda::Word h, cuda::Word c) const {
    if (array_ && lane_ != 0) *reinterpret_cast<cuda::Word*>(array_ + row * hidden_) = lane_ == 2 ? c : h;
  }

 private:
  int lane_, hidden_;
  T* array_;
};

// kRows: tiles that are worked on together.
template <class T, int kSteps, bool kShares, bool kPlain, int kRows>
__global__ void __launch_bounds__(kResidentThreads, 1) resident_forward_kernel(ResidentParams<T> p) {
  const GridPlace<kRows> at(p);
  const CudaCell<T> cell = cell_of(p.cell, at.cell);
  const auto rows = rows_of<kPlain>(cell.at);
  const int hidden = cell.hidden, steps = cell.at.steps, tiles = kRows == 1 ? 1 : p.tiles;
  const int thread = static_cast<int>(threadIdx.x);
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
  load_states(cell, at, tiles, own);
  const UnitLanes<2, 4> lanes;
  const GateRows<T, UnitLanes<2, 4>> gate_rows(cell.gates, lanes, at.unit, hidden);
  const LaneArray<T> array(cell, lanes, at.unit);
  const bool asks_early = kShares && tiles > 2;  // the next pair's rows are there when a pair's step ends
  RowPair<T> from = rows_of_h(cell, rows, at, 0, 0);
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
      from = rows_of_h(cell, rows, at, is_last ? place + 1 : place, is_last ? 0 : tile + 2);
      if (asks_early) weights.ask(from.of, words);
      float totals[4], z[4];
      join_sums(sums, partials, place, totals);
      widen_word<T>(lanes.transpose(asked), z);
      unroll<4>([&](int gate) { z[gate] += bias[gate] + totals[gate]; });
      OwnState fresh = next_state<kPlain>(cell, t, b, at.unit, state, z);
      if (!holds) fresh = {0, 0};
      const std::uint32_t both = cuda::narrow_pair<T>(fresh.h, fresh.c);
      Word word, cells;
      lanes.join(both, word, cells);
      if (has_row && hands_on) array.hand_on(row, cell.h_stride, word);
      // Now what nobody waits for.
      const Word gates = lanes.transpose(narrow_word<T>(z));
      if (holds && (kRows == 2 || !hands_on)) gate_rows.write(row * hidden, gates);
      if (has_row && hands_on) {
        array.write(row, word, cells);
        if (cell.c_all) cell.write_cell(cell.c_all, row * hidden + at.unit, fresh.c);
      }
      if (holds) {
        const T h = first_of<T>(both);
        state = {cuda::widen(h), fresh.c};
        if (hands_on && !rows.holds(cell.step_at(place + 1), b)) {
          h_behind(cell)[static_cast<Offset>(b) * cell.output_stride + at.unit] = h;
          cell.c[static_cast<Offset>(b) * hidden + at.unit] = fresh.c;
        }
      }
      if (!asks_early) weights.ask(from.of, words);
    }
  }
}

}  // namespace warpalign::detail::recurrent
