// The backward sweep of a layer whose R one block holds.
#pragma once

#include "recurrent/cuda/backward.cuh"
#include "recurrent/cuda/block_sweep.cuh"

namespace warpalign::detail::recurrent {

// kDepth, kRows, kPlain: as block_forward_kernel() has them.
template <class T, int kDepth, int kRows, bool kPlain>
__global__ void __launch_bounds__(kUnitThreads* kDepth, kBlocksAtOnce<T, kDepth>)
    block_backward_kernel(const __grid_constant__ BlockParams<T, BackwardEnds> p) {
  constexpr int kLanes = 16, kOutputs = 4, kLaneUnits = kDepth / kLanes;
  constexpr int kSize = Piece<T>::kSize;
  constexpr int kAhead = 2;  // steps whose tape is asked for; even
  __shared__ __align__(16) T gradients[2][kRows][4 * kDepth + kBlockRowPad];
  const BlockPlace<kRows> at(p.slices);
  const CudaCell<T> cell = cell_of(p.cell, at.direction);
  const BackwardEnds<T> ends = at.direction == 1 ? p.ends[1] : p.ends[0];
  const auto rows = rows_of<kPlain>(cell.at);
  const int hidden = cell.hidden, b = at.b, unit = at.unit, begin = p.places.begin, end = p.places.end;
  const int thread = static_cast<int>(threadIdx.x), lane = thread % kLanes;
  const bool has_unit = unit < hidden, is_own = has_unit && b < cell.at.batch;
  const Offset index = static_cast<Offset>(b) * hidden + unit;

  // Of R's columns of the four units of these lanes, the rows of every 16th unit.
  T weights[kOutputs][4 * kLaneUnits];
#pragma unroll
  for (int n = 0; n < kLaneUnits; ++n) {
    const int from_unit = n * kLanes + lane;
#pragma unroll
    for (int gate = 0; gate < 4; ++gate) {
      const T* const from = cell.hh + (static_cast<Offset>(gate) * hidden + from_unit) * cell.output_stride;
#pragma unroll
      for (int k = 0; k < kOutputs / kSize; ++k) {
        const int piece = thread / kLanes * (kOutputs / kSize) + k;
        const bool is_there = from_unit < hidden && piece * kSize < hidden;
        const Piece<T> read = is_there ? read_piece(from, piece) : Piece<T>{};
#pragma unroll
        for (int e = 0; e < kSize; ++e) weights[k * kSize + e][n * 4 + gate] = read.entries[e];
      }
    }
  }
  for (int n = thread; n < 2 * kRows * 4 * kDepth; n += static_cast<int>(blockDim.x)) {
    gradients[n / (kRows * 4 * kDepth)][n / (4 * kDepth) % kRows][n % (4 * kDepth)] = 0;
  }
  T dc = is_own && ends.dc ? ends.dc[index] : T(0);
  T carried = is_own && ends.dh ? ends.dh[index] : T(0);  // beside what dz gives
  const T c0 = is_own && ends.c0 ? ends.c0[index] : T(0);
  T reset_dh = 0, reset_dc = 0;
  bool was_reset = false;
  __syncthreads();

  BlockWalk<kPlain> walk(cell, begin - 1, true, b, unit, cell.dy_stride);  // at the step before
  const int first_gate = at.part * kRows % 4;
  const bool has_more = cell.dh_all || cell.dc_all || cell.dropout.factor != 0;
  struct Asked {
    T gates[4], before, dy;
  };
  Asked asked[kAhead] = {};
  const auto ask = [&](int place, int ahead, Asked& to) {
    if (place >= end || !is_own) return;
    const int t = cell.step_back_at(place), last = cell.reverse ? t + 1 : t - 1;
    if (!kPlain && !rows.holds(t, b)) return;
    const T* const from = cell.gates + (4 * walk.entry(place, ahead) - 3 * unit);
#pragma unroll
    for (int gate = 0; gate < 4; ++gate) to.gates[gate] = from[static_cast<Offset>(gate) * hidden];
    if (cell.dy) to.dy = cell.dy[walk.other(place, ahead)];
    const bool goes_on = kPlain ? place + 1 < rows.steps : rows.holds(last, b) && !rows.resets_at(t, b);
    to.before = goes_on ? cell.tape_c[walk.entry(place + 1, ahead + 1)] : c0;
  };
#pragma unroll
  for (int n = 0; n < kAhead; ++n) ask(begin + n, n + 1, asked[n]);
  // The first row of dz is asked for before everything else behind a barrier.
  constexpr int kPieces = 4 * kLaneUnits / kSize;
  Piece<T> operands[kPieces];
  const auto read_row = [&](int buffer, int r, Piece<T>(&to)[kPieces]) {
#pragma unroll
    for (int k = 0; k < kPieces; ++k) {
      to[k] =
          read_piece(gradients[buffer][r], (k * kSize / 4 * kLanes + lane) * (4 / kSize) + k % (4 / kSize));
    }
  };
  read_row(0, 0, operands);

  // What a step leaves is written in the next one, among work that others wait for. exists: it has a place.
  // Rows of dz are 4 H long, so that entry e of a row has 4 e here.
  T* const own_dz = cell.dz + (first_gate * hidden - 3 * unit);
  T dz[kRows] = {};  // of this thread's gates
  bool exists = false;

  for (int first = begin; first <= end; first += kAhead) {
#pragma unroll
    for (int n = 0; n < kAhead; ++n) {
      const int place = first + n, t = cell.step_back_at(place);
      if (place > end) break;
      const Offset entry = walk.entry(place - 1, 0);
      const Activation<T>& a = cell.activation;
      const T i = asked[n].gates[0], f = asked[n].gates[1], g = asked[n].gates[2], o = asked[n].gates[3];
      const T before = asked[n].before;
      T dy = asked[n].dy;
      const bool holds = place < end && is_own && (kPlain || rows.holds(t, b));
      T dc_in = dc;
      if (has_more && holds) {
        const Offset here = walk.entry(place, 1);
        if (cell.dropout.factor != 0) dy *= cell.dropout.of(cell.masks, t, b, unit);
        if (cell.dh_all) dy += cell.dh_all[here];
        if (cell.dc_all) dc_in += static_cast<const T*>(cell.dc_all)[here];
      }
      T sums[kOutputs * kRows] = {};
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        if (r > 0) read_row(n % 2, r, operands);
#pragma unroll
        for (int k = 0; k < kPieces; ++k) {
#pragma unroll
          for (int e = 0; e < kSize; ++e) {
#pragma unroll
            for (int to = 0; to < kOutputs; ++to) {
              sums[to * kRows + r] += weights[to][k * kSize + e] * operands[k].entries[e];
            }
          }
        }
      }
      const T squashed = a.gate(fma(f, before, i * g), true);
      const T to_cell = o * a.slope_of(squashed, true);
      T factors[kRows];  // of this thread's gates
#pragma unroll
      for (int k = 0; k < kRows; ++k) {
        const int gate = first_gate + k;
        const T value = gate == 0 ? i : gate == 1 ? f : gate == 2 ? g : o;
        const T beside = gate == 0 ? g : gate == 1 ? before : gate == 2 ? i : squashed;
        factors[k] = beside * a.slope_of(value, gate == 2);
      }
#pragma unroll
      for (int k = 0; k < kRows; ++k) {
        if (exists) own_dz[4 * entry + static_cast<Offset>(k) * hidden] = dz[k];
      }
      ask(place + kAhead, kAhead + 1, asked[n]);
      walk.go_on();
      share_sums<kLanes, kOutputs * kRows>(sums);
      T dh = carried + sums[0];
      if constexpr (!kPlain) {
        if (was_reset) reset_dh += dh, dh = 0;
        was_reset = false;
      }
      carried = 0;
      if (place == end) {
        carried = dh;
        break;
      }
      T dm = dh + dy, dcell = 0, keep_c = 0;
      if constexpr (!kPlain) {
        if (holds) {
          const T keep_h = cell.zoneout_hidden.share(cell.masks, MaskKind::kHidden, t, b, unit);
          keep_c = cell.zoneout_cell.share(cell.masks, MaskKind::kCell, t, b, unit);
          carried = keep_h * dm, dm = (1 - keep_h) * dm;
        } else {
          carried = dh;
        }
      }
      dcell = fma(dm, to_cell, kPlain ? dc_in : (1 - keep_c) * dc_in);
#pragma unroll
      for (int k = 0; k < kRows; ++k) {
        const int gate = first_gate + k;
        dz[k] = holds ? (gate == 3 ? dm : dcell) * factors[k] : T(0);
        gradients[1 - n % 2][at.row][unit * 4 + gate] = dz[k];
      }
      exists = is_own && (kPlain || rows.has_row(t, b));
      if (holds) {
        dc = kPlain ? dcell * f : fma(dcell, f, keep_c * dc_in);
        if constexpr (!kPlain) {
          was_reset = rows.resets_at(t, b);
          if (was_reset) reset_dc += dc, dc = 0;
        }
      }
      __syncthreads();
      read_row(1 - n % 2, 0, operands);
    }
  }
  if (!is_own || !at.is_first()) return;
  if (ends.dh0) {
    ends.dh0[index] += reset_dh, ends.dc0[index] += reset_dc;
  } else {
    carried += reset_dh, dc += reset_dc;
  }
  if (ends.dh_last) ends.dh_last[index] = carried;
  if (ends.dc_last) ends.dc_last[index] = dc;
}

}  // namespace warpalign::detail::recurrent
