// The backward sweep of a layer on the whole grid, two tiles of rows at once.
#pragma once

#include "recurrent/cuda/resident_pairs.cuh"

namespace warpalign::detail::recurrent {

template <class T, int kSteps, bool kShares, bool kPlain>
__global__ void __launch_bounds__(kResidentThreads, 1) pair_backward_kernel(ResidentParams<T> p) {
  const PairPlace at(p);
  const CudaCell<T> cell = cell_of(p.cell, at.direction);
  const auto rows = rows_of<kPlain>(cell.at);
  const int hidden = cell.hidden, steps = cell.at.steps, depth = cell.gates_stride;
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32;
  const bool has_unit = at.unit < hidden;
  float* const partials = reinterpret_cast<float*>(cuda::dynamic_shared());
  Weights16* const more = reinterpret_cast<Weights16*>(partials + 2 * partials_of_turn(1));
  OwnState* const own = reinterpret_cast<OwnState*>(more + p.shared_steps * kResidentThreads);
  using Weights = PairWeights<T, 1, kSteps, kShares>;
  Weights weights(more, p.shared_steps, depth);
  weights.load(reinterpret_cast<Weights16*>(partials), [&](int, int r) -> const T* {
    const int unit = at.rank * kOwnUnits + r;
    return unit < hidden ? cell.hh_across + static_cast<Offset>(unit) * depth : nullptr;
  });
  __syncthreads();  // the places become those of sums
  for (int tile = 0; tile < p.tiles; tile += 2) {
    const int b = at.batch_row(tile, at.row);
    const bool is_own = has_unit && b != at.kNoRow;
    const Offset index = static_cast<Offset>(b) * hidden + at.unit;
    own[tile / 2 * kResidentThreads + thread] = {is_own ? cell.dh[index] : 0.0f,
                                                 is_own ? cell.dc[index] : 0.0f};
  }
  // Lanes of four neighbouring units each have one gate of them.
  const UnitLanes<2, 4> lanes;
  const Offset lane_offset = static_cast<Offset>(lanes.unit) * hidden + at.unit - lanes.unit;
  const T* const gates_of_lane = cell.gates + lane_offset;
  T* const dz_of_lane = cell.dz + lane_offset;
  int turn = 0;
  for (int place = 0; place <= steps; ++place) {
    const int t = cell.step_back_at(place), later = cell.step_back_at(place - 1);
    for (int tile = 0; tile < p.tiles; tile += 2, ++turn) {
      const int b = at.batch_row(tile, at.row);
      const bool has_row = has_unit && rows.has_row(t, b), holds = has_row && rows.holds(t, b);
      const Offset row = has_row ? rows.first(t) + b : 0;
      const Offset index = static_cast<Offset>(b) * hidden + at.unit;
      OwnState& state = own[tile / 2 * kResidentThreads + thread];  // dh and dc
      // Before the wait, so that it hides the way to memory.
      Word asked = 0;
      T asked_before{}, asked_dy{};
      float first_before = 0, all_dh = 0, dc = state.c;
      bool resets = false;
      if (holds) {
        asked = *reinterpret_cast<const Word*>(gates_of_lane + 4 * row * hidden);
        resets = rows.resets_at(t, b);
        const int last = cell.reverse ? t + 1 : t - 1;
        if (resets || !rows.holds(last, b)) {
          first_before = cell.c0[index];
        } else {
          asked_before = cell.tape_c[(rows.first(last) + b) * hidden + at.unit];
        }
        if (cell.dy) asked_dy = cell.dy[row * cell.dy_stride + at.unit];
        if (cell.dh_all) all_dh = cuda::widen(cell.dh_all[row * hidden + at.unit]);
        if (cell.dc_all) dc += cell.read_cell(cell.dc_all, row * hidden + at.unit);
      }
      const bool carries = has_unit && rows.holds(later, b);
      const bool carries_to_start = carries && rows.resets_at(later, b);
      const bool two = tile + 1 < p.tiles;
      const auto dz_later = [&](int r) -> const T* {
        const int source = at.batch_row(tile, r);
        return rows.has_row(later, source) ? cell.dz + (rows.first(later) + source) * depth : nullptr;
      };
      typename Weights::Sums sums[2] = {};
      const T* const from[2] = {dz_later(lane / 4), dz_later(8 + lane / 4)};
      weights.multiply(from, two, sums);
      float totals[1];
      join_pair_sums(sums, two, partials, turn, totals);
      float dh = carries ? state.h + totals[0] : state.h;
      if (carries_to_start) {
        cell.dh0[index] += dh;
        dh = 0;
      }
      if (place == steps) {
        if (has_unit && b != at.kNoRow) cell.dh[index] = dh, cell.dc[index] = state.c;
        continue;  // every thread does
      }
      float keep_h = 0, keep_c = 0;
      if (!kPlain && cell.zoneout_hidden.probability != 0) {
        keep_h = cell.zoneout_hidden.share(cell.masks, MaskKind::kHidden, t, b, at.unit);
      }
      if (!kPlain && cell.zoneout_cell.probability != 0) {
        keep_c = cell.zoneout_cell.share(cell.masks, MaskKind::kCell, t, b, at.unit);
      }
      const Activation<T>& a = cell.activation;
      float gates[4], slopes[4];
      widen_word<T>(lanes.transpose(asked), gates);
      const float i = gates[0], f = gates[1], g = gates[2], o = gates[3];
      a.slopes(gates, slopes);
      const float before = first_before + cuda::widen(asked_before);  // one of them is 0
      float dy = cuda::widen(asked_dy);
      if (cell.dropout.factor != 0 && holds) dy *= cell.dropout.of(cell.masks, t, b, at.unit);
      dy += all_dh;
      const float squashed = a.squash(f * before + i * g);
      const float all = dh + dy, dm = (1 - keep_h) * all;
      const float dcell = (1 - keep_c) * dc + dm * o * a.squash_slope(squashed);
      const float dz[4] = {holds ? dcell * g * slopes[0] : 0.0f, holds ? dcell * before * slopes[1] : 0.0f,
                           holds ? dcell * i * slopes[2] : 0.0f, holds ? dm * squashed * slopes[3] : 0.0f};
      const Word word = lanes.transpose(narrow_word<T>(dz));
      if (has_row) cuda::store_relaxed(reinterpret_cast<Word*>(dz_of_lane + row * depth), word);
      if (holds) {
        state = {keep_h * all, keep_c * dc + dcell * f};
        if (resets) {
          cell.dc0[index] += state.c;
          state.c = 0;
        }
      } else {
        state.h = dh;
      }
    }
  }
}

}  // namespace warpalign::detail::recurrent
