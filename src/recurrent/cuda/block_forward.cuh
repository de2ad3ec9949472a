// The forward sweep of a layer whose R one block holds.
#pragma once

#include "recurrent/cuda/block_sweep.cuh"
#include "recurrent/cuda/forward.cuh"

namespace warpalign::detail::recurrent {

// The four gates of a thread's unit and row, from those of the threads that share them.
template <class T, int kRows>
__device__ __forceinline__ void gather_gates(const T (&own)[kRows], T (&gates)[4]) {
  const int lane = static_cast<int>(threadIdx.x) % cuda::kWarpSize;
#pragma unroll
  for (int gate = 0; gate < 4; ++gate) {
    const int from = lane / (4 / kRows) * (4 / kRows) + gate / kRows;
    gates[gate] = kRows == 4 ? own[gate % kRows] : cuda::shuffle(own[gate % kRows], from);
  }
}

// kDepth: at least H. kRows: of the batch, of a block. kPlain: rows have every step, and nothing is kept.
template <class T, int kDepth, int kRows, bool kPlain>
__global__ void __launch_bounds__(kUnitThreads* kDepth, kBlocksAtOnce<T, kDepth>)
    block_forward_kernel(const __grid_constant__ BlockParams<T, ForwardEnds> p) {
  constexpr int kSize = Piece<T>::kSize, kPieces = kDepth / (kUnitThreads * kSize);
  constexpr int kAhead = kRows == 1 ? 4 : 2;  // steps whose W x is asked for; even
  __shared__ __align__(16) T states[2][kRows][kDepth + kBlockRowPad];
  const BlockPlace<kRows> at(p.slices);
  const CudaCell<T> cell = cell_of(p.cell, at.direction);
  const ForwardEnds<T> ends = at.direction == 1 ? p.ends[1] : p.ends[0];
  const auto rows = rows_of<kPlain>(cell.at);
  const int hidden = cell.hidden, b = at.b, unit = at.unit, begin = p.places.begin, end = p.places.end;
  const bool has_unit = unit < hidden, is_own = has_unit && b < cell.at.batch, is_first = at.is_first();
  const Offset h_index = static_cast<Offset>(b) * ends.h_stride + unit;
  const Offset c_index = static_cast<Offset>(b) * hidden + unit;

  T weights[4][kPieces * kSize];
#pragma unroll
  for (int gate = 0; gate < 4; ++gate) {
    const T* const from = cell.hh + (static_cast<Offset>(gate) * hidden + unit) * cell.output_stride;
#pragma unroll
    for (int n = 0; n < kPieces; ++n) {
      const int piece = n * kUnitThreads + at.part;
      const Piece<T> read = has_unit && piece * kSize < hidden ? read_piece(from, piece) : Piece<T>{};
#pragma unroll
      for (int e = 0; e < kSize; ++e) weights[gate][n * kSize + e] = read.entries[e];
    }
  }
  // This thread has kRows gates, from this one on.
  const int first_gate = at.part * kRows % 4;
  T bias[kRows];
#pragma unroll
  for (int k = 0; k < kRows; ++k) bias[k] = has_unit ? bias_of(cell, (first_gate + k) * hidden + unit) : T(0);
  T c = is_own && ends.c ? ends.c[c_index] : T(0), h = is_own && ends.h ? ends.h[h_index] : T(0);
  for (int n = static_cast<int>(threadIdx.x); n < kRows * kDepth; n += static_cast<int>(blockDim.x)) {
    if (n % kDepth >= hidden) states[0][n / kDepth][n % kDepth] = states[1][n / kDepth][n % kDepth] = 0;
  }
  if (has_unit && is_first) states[0][at.row][unit] = h;
  __syncthreads();

  BlockWalk<kPlain> walk(cell, begin - 1, false, b, unit, cell.h_stride);  // at the step before
  T* const own_gates = cell.gates + (first_gate * hidden - 3 * unit);      // entry e of a row has 4 e here
  const bool has_states = cell.h_all || cell.c_all, is_writer = is_own && is_first;
  const bool writes_gates = is_own && cell.tape_c, writes_c = is_writer && cell.tape_c;
  const bool writes_h = is_writer && cell.h_rows;
  T asked[kAhead][kRows] = {};
  const auto ask = [&](int place, Offset entry, T(&to)[kRows]) {
    if (place >= end || !is_own) return;
    if (!kPlain && !rows.holds(cell.step_at(place), b)) return;
#pragma unroll
    for (int k = 0; k < kRows; ++k) to[k] = own_gates[4 * entry + static_cast<Offset>(k) * hidden];
  };
#pragma unroll
  for (int n = 0; n < kAhead; ++n) ask(begin + n, walk.entry(begin + n, n + 1), asked[n]);
  // The first row of h is asked for before everything else behind a barrier.
  Piece<T> operands[kPieces];
  const auto read_row = [&](int buffer, int r, Piece<T>(&to)[kPieces]) {
#pragma unroll
    for (int k = 0; k < kPieces; ++k) to[k] = read_piece(states[buffer][r], k * kUnitThreads + at.part);
  };
  read_row(0, 0, operands);

  // What a step leaves is written in the next one, among work that others wait for. exists: it has a place.
  T own[kRows] = {}, out_c = 0, out_h = 0;
  bool exists = false, holds = false;
  const auto write_states = [&](Offset entry) {
    if (!exists || !is_writer) return;
    if (cell.h_all) cell.h_all[entry] = out_h;
    if (cell.c_all) static_cast<T*>(cell.c_all)[entry] = out_c;
  };
  const auto write = [&](Offset entry, Offset h_entry) {
#pragma unroll
    for (int k = 0; k < kRows; ++k) {
      if (writes_gates && holds) own_gates[4 * entry + static_cast<Offset>(k) * hidden] = own[k];
    }
    if (writes_c && exists) cell.tape_c[entry] = out_c;
    if (writes_h && exists) cell.h_rows[h_entry] = out_h;
  };

  for (int first = begin; first < end; first += kAhead) {
#pragma unroll
    for (int n = 0; n < kAhead; ++n) {
      const int place = first + n, t = cell.step_at(place);
      if (place >= end) break;
      const Offset entry = walk.entry(place - 1, 0);
      if (has_states) write_states(entry);
      T sums[4 * kRows] = {};
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        if (r > 0) read_row(n % 2, r, operands);
#pragma unroll
        for (int k = 0; k < kPieces; ++k) {
#pragma unroll
          for (int e = 0; e < kSize; ++e) {
#pragma unroll
            for (int gate = 0; gate < 4; ++gate) {
              sums[r * 4 + gate] += weights[gate][k * kSize + e] * operands[k].entries[e];
            }
          }
        }
      }
      share_sums<kUnitThreads, 4 * kRows>(sums);
      write(entry, walk.other(place - 1, 0));
#pragma unroll
      for (int k = 0; k < kRows; ++k) {
        own[k] = cell.activation.gate(sums[k] + (asked[n][k] + bias[k]), (first_gate + k) % 4 == 2);
      }
      ask(place + kAhead, walk.entry(place + kAhead, kAhead + 1), asked[n]);
      walk.go_on();
      T gates[4];
      gather_gates(own, gates);
      exists = kPlain || rows.has_row(t, b), holds = kPlain || rows.holds(t, b);
      out_c = fma(gates[1], c, gates[0] * gates[2]);
      out_h = gates[3] * cell.activation.gate(out_c, true);
      if constexpr (kPlain) {
        h = out_h, c = out_c;
      } else if (holds) {
        const T keep_h = cell.zoneout_hidden.share(cell.masks, MaskKind::kHidden, t, b, unit);
        const T keep_c = cell.zoneout_cell.share(cell.masks, MaskKind::kCell, t, b, unit);
        if (keep_h != 0) out_h = fma(keep_h, h, (1 - keep_h) * out_h);
        if (keep_c != 0) out_c = fma(keep_c, c, (1 - keep_c) * out_c);
        h = out_h, c = out_c;
        const int next = cell.step_at(place + 1);
        if (rows.holds(next, b) && rows.resets_at(next, b)) {
          h = is_own && ends.h0 ? ends.h0[h_index] : T(0), c = is_own && ends.c0 ? ends.c0[c_index] : T(0);
        }
      } else {
        out_h = out_c = 0;
      }
      if (has_unit && is_first) states[1 - n % 2][at.row][unit] = h;
      __syncthreads();
      read_row(1 - n % 2, 0, operands);
    }
  }
  const Offset entry = walk.entry(end - 1, 0);
  write_states(entry);
  write(entry, walk.other(end - 1, 0));
  if (!is_writer) return;
  if (ends.h_last) ends.h_last[h_index] = h;
  if (ends.c_last) ends.c_last[c_index] = c;
}

}  // namespace warpalign::detail::recurrent
