// What the backward sweeps of pairs of tiles do with a thread's unit and row at the end of a step.
#pragma once

#include "recurrent/cuda/grid/resident.cuh"

namespace warpalign::detail::recurrent {

// dz handed to other blocks where it belongs: rows that start as all one-bits.
template <class T>
class WholeRows {
 public:
  // As a GradientRing. lane: where the lane's words lie in a row
  __device__ __forceinline__ WholeRows(const CudaCell<T>& cell, Offset lane, int /*group*/, int /*blocks*/)
      : cell_(cell), dz_of_lane_(cell.dz + lane) {}

  // Row `row` of all steps, which is row b of the batch at the step `place`.
  __device__ __forceinline__ const T* at(int /*place*/, int /*b*/, Offset row) const {
    return cell_.dz + row * cell_.gates_stride;
  }
  // The lane's word of it. exists: the lane has a unit of row b.   has_row: at this step, too
  __device__ __forceinline__ void put(int /*place*/, int /*b*/, bool /*exists*/, bool has_row, Offset row,
                                      Word word) const {
    if (has_row) cuda::store_relaxed(reinterpret_cast<Word*>(dz_of_lane_ + row * cell_.gates_stride), word);
  }
  __device__ __forceinline__ void meet(int /*place*/) const {}

 private:
  const CudaCell<T>& cell_;
  T* dz_of_lane_;
};

// Where a lane's words lie in a row of gates: of four neighbouring units each lane has one gate of them.
template <class T>
__device__ __forceinline__ Offset words_of_lane(const CudaCell<T>& cell, const PairPlace& at) {
  const UnitLanes<2, 4> lanes;
  return static_cast<Offset>(lanes.unit) * cell.hidden + at.unit - lanes.unit;
}

// Exchange: WholeRows or GradientRing.
template <class T, bool kPlain, class Exchange>
class PairGradient {
 public:
  using Rows = std::decay_t<decltype(rows_of<kPlain>(StepRows{}))>;

  // What the end of a step reads from memory. It is asked for before a wait, which hides the way.
  struct Asked {
    Offset row, index;
    Word gates;  // one of the lane's four units'
    T before, dy;
    float first_before, all_dh, all_dc;
    bool has_row, holds, resets;
  };

  __device__ __forceinline__ PairGradient(const CudaCell<T>& cell, const Rows& rows, const PairPlace& at,
                                          const Exchange& exchange)
      : cell_(cell),
        rows_(rows),
        at_(at),
        exchange_(exchange),
        has_unit_(at.unit < cell.hidden),
        gates_of_lane_(cell.gates + words_of_lane(cell, at)) {}

  // dh and dc that the sweep begins with.
  __device__ __forceinline__ OwnState first(int pair) const {
    const int b = at_.batch_row(2 * pair, at_.row);
    if (!has_unit_ || b == at_.kNoRow) return {0, 0};
    const Offset index = static_cast<Offset>(b) * cell_.hidden + at_.unit;
    return {cell_.dh[index], cell_.dc[index]};
  }

  __device__ __forceinline__ Asked ask(int place, int pair) const {
    const int t = cell_.step_back_at(place), b = at_.batch_row(2 * pair, at_.row), hidden = cell_.hidden;
    Asked a{};
    a.index = static_cast<Offset>(b) * hidden + at_.unit;
    a.has_row = has_unit_ && rows_.has_row(t, b), a.holds = a.has_row && rows_.holds(t, b);
    a.row = a.has_row ? rows_.first(t) + b : 0;
    if (!a.holds) return a;
    a.gates = *reinterpret_cast<const Word*>(gates_of_lane_ + 4 * a.row * hidden);
    a.resets = rows_.resets_at(t, b);
    const int last = cell_.reverse ? t + 1 : t - 1;
    if (a.resets || !rows_.holds(last, b)) {
      a.first_before = cell_.c0[a.index];
    } else {
      a.before = cell_.tape_c[(rows_.first(last) + b) * hidden + at_.unit];
    }
    if (cell_.dy) a.dy = cell_.dy[a.row * cell_.dy_stride + at_.unit];
    if (cell_.dh_all) a.all_dh = cuda::widen(cell_.dh_all[a.row * hidden + at_.unit]);
    if (cell_.dc_all) a.all_dc = cell_.read_cell(cell_.dc_all, a.row * hidden + at_.unit);
    return a;
  }

  // The end of the step at `place`, with `part` = R^T dz of the step swept before; whole warps call it.
  // Others wait for dz alone.
  __device__ __forceinline__ void finish(int place, int pair, const Asked& a, float part,
                                         OwnState& state) const {
    const int t = cell_.step_back_at(place), later = cell_.step_back_at(place - 1);
    const int b = at_.batch_row(2 * pair, at_.row);
    float dh = state.h;
    if (has_unit_ && rows_.holds(later, b)) {
      dh += part;
      if (rows_.resets_at(later, b)) {
        cell_.dh0[a.index] += dh;
        dh = 0;
      }
    }
    if (place == cell_.at.steps) {
      if (has_unit_ && b != at_.kNoRow) cell_.dh[a.index] = dh, cell_.dc[a.index] = state.c;
      return;
    }
    float keep_h = 0, keep_c = 0;
    if (!kPlain && cell_.zoneout_hidden.probability != 0) {
      keep_h = cell_.zoneout_hidden.share(cell_.masks, MaskKind::kHidden, t, b, at_.unit);
    }
    if (!kPlain && cell_.zoneout_cell.probability != 0) {
      keep_c = cell_.zoneout_cell.share(cell_.masks, MaskKind::kCell, t, b, at_.unit);
    }
    const Activation<T>& activation = cell_.activation;
    float gates[4], slopes[4];
    widen_word<T>(lanes_.transpose(a.gates), gates);
    const float i = gates[0], f = gates[1], g = gates[2], o = gates[3];
    activation.slopes(gates, slopes);
    const float before = a.first_before + cuda::widen(a.before);  // one of them is 0
    float dy = cuda::widen(a.dy);
    if (cell_.dropout.factor != 0 && a.holds) dy *= cell_.dropout.of(cell_.masks, t, b, at_.unit);
    dy += a.all_dh;
    const float squashed = activation.squash(f * before + i * g);
    const float all = dh + dy, dm = (1 - keep_h) * all, dc = state.c + a.all_dc;
    const float dcell = (1 - keep_c) * dc + dm * o * activation.squash_slope(squashed);
    float dz[4] = {dcell * g * slopes[0], dcell * before * slopes[1], dcell * i * slopes[2],
                   dm * squashed * slopes[3]};
#pragma unroll
    for (float& v : dz) v = a.holds ? v : 0.0f;
    const Word word = lanes_.transpose(narrow_word<T>(dz));
    exchange_.put(place, b, has_unit_ && b != at_.kNoRow, a.has_row, a.row, word);
    if (a.holds) {
      state = {keep_h * all, keep_c * dc + dcell * f};
      if (a.resets) {
        cell_.dc0[a.index] += state.c;
        state.c = 0;
      }
    } else {
      state.h = dh;
    }
  }

 private:
  const CudaCell<T>& cell_;
  const Rows& rows_;
  const PairPlace& at_;
  const Exchange& exchange_;
  const bool has_unit_;
  const UnitLanes<2, 4> lanes_;
  const T* const gates_of_lane_;
};

// Where this lane's rows of dz begin that the product at `place` reads.
template <class T, class Rows, class Exchange>
__device__ __forceinline__ RowPair<T> rows_of_dz(const CudaCell<T>& cell, const Rows& rows,
                                                 const PairPlace& at, const Exchange& exchange, int place,
                                                 int pair, Offset first_gate) {
  const int later = cell.step_back_at(place - 1), lane = static_cast<int>(threadIdx.x) % cuda::kWarpSize;
  RowPair<T> from{};
  unroll<2>([&](int n) {
    const int source = at.batch_row(2 * pair, 8 * n + lane / 4);
    if (place <= cell.at.steps && rows.has_row(later, source)) {
      from.of[n] = exchange.at(place - 1, source, rows.first(later) + source) + first_gate;
    }
  });
  return from;
}

}  // namespace warpalign::detail::recurrent
