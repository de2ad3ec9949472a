// The forward sweep of a layer whose R one block holds.
#pragma once

#include "recurrent/cuda/block_lanes.cuh"
#include "recurrent/cuda/block_units.cuh"
#include "recurrent/cuda/forward.cuh"

namespace warpalign::detail::recurrent {

// The four gates of a thread's unit and row, from those of the threads that share them.
template <class Real, int kRows>
__device__ __forceinline__ void gather_gates(const Real (&own)[kRows], Real (&gates)[4]) {
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
  using Real = Sum<T>;
  using Product =
      std::conditional_t<sizeof(T) == 2, UnitProduct<T, kDepth, kRows>, LaneProduct<T, kDepth, kRows>>;
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

  Product product(cell, at);
  // This thread has kRows gates, from this one on.
  const int first_gate = at.part * kRows % 4;
  Real bias[kRows];
#pragma unroll
  for (int k = 0; k < kRows; ++k) {
    bias[k] = has_unit ? bias_of(cell, (first_gate + k) * hidden + unit) : Real(0);
  }
  Real c = is_own ? read_end<T>(ends.c, ends.wide, c_index) : Real(0);
  T h = is_own && ends.h ? ends.h[h_index] : T{};
  for (int n = static_cast<int>(threadIdx.x); n < kRows * kDepth; n += static_cast<int>(blockDim.x)) {
    if (n % kDepth >= hidden) states[0][n / kDepth][n % kDepth] = states[1][n / kDepth][n % kDepth] = T{};
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
  product.ask(states[0]);  // here and behind each barrier before everything else

  // What a step leaves is written in the next one, among work that others wait for. exists: it has a place.
  Real own[kRows] = {}, out_c = 0;
  T out_h{};
  bool exists = false, holds = false;
  const auto write_states = [&](Offset entry) {
    if (!exists || !is_writer) return;
    if (cell.h_all) cell.h_all[entry] = out_h;
    if (cell.c_all) cell.write_cell(cell.c_all, entry, out_c);
  };
  const auto write = [&](Offset entry, Offset h_entry) {
#pragma unroll
    for (int k = 0; k < kRows; ++k) {
      if (!writes_gates || !holds) continue;
      own_gates[4 * entry + static_cast<Offset>(k) * hidden] = cuda::narrow<T>(own[k]);
    }
    if (writes_c && exists) cell.tape_c[entry] = cuda::narrow<T>(out_c);
    if (writes_h && exists) cell.h_rows[h_entry] = out_h;
  };

  for (int first = begin; first < end; first += kAhead) {
#pragma unroll
    for (int n = 0; n < kAhead; ++n) {
      const int place = first + n, t = cell.step_at(place);
      if (place >= end) break;
      const Offset entry = walk.entry(place - 1, 0);
      if (has_states) write_states(entry);
      product.multiply(states[n % 2]);
      Real sums[kRows];
      product.finish(sums);
      write(entry, walk.other(place - 1, 0));
#pragma unroll
      for (int k = 0; k < kRows; ++k) {
        const Real z = sums[k] + (cuda::widen(asked[n][k]) + bias[k]);
        own[k] = cell.activation.gate(z, (first_gate + k) % 4 == 2);
      }
      ask(place + kAhead, walk.entry(place + kAhead, kAhead + 1), asked[n]);
      walk.go_on();
      Real gates[4];
      gather_gates(own, gates);
      exists = kPlain || rows.has_row(t, b), holds = kPlain || rows.holds(t, b);
      out_c = fma(gates[1], c, gates[0] * gates[2]);
      Real fresh = gates[3] * cell.activation.flat_squash(out_c);
      if constexpr (kPlain) {
        h = out_h = cuda::narrow<T>(fresh), c = out_c;
      } else if (holds) {
        const Real keep_h = cell.zoneout_hidden.share(cell.masks, MaskKind::kHidden, t, b, unit);
        const Real keep_c = cell.zoneout_cell.share(cell.masks, MaskKind::kCell, t, b, unit);
        if (keep_h != 0) fresh = fma(keep_h, cuda::widen(h), (1 - keep_h) * fresh);
        if (keep_c != 0) out_c = fma(keep_c, c, (1 - keep_c) * out_c);
        h = out_h = cuda::narrow<T>(fresh), c = out_c;
        const int next = cell.step_at(place + 1);
        if (rows.holds(next, b) && rows.resets_at(next, b)) {
          h = is_own && ends.h0 ? ends.h0[h_index] : T{};
          c = is_own ? read_end<T>(ends.c0, ends.wide, c_index) : Real(0);
        }
      } else {
        out_h = T{}, out_c = 0;
      }
      if (has_unit && is_first) states[1 - n % 2][at.row][unit] = h;
      __syncthreads();
      product.ask(states[1 - n % 2]);
    }
  }
  const Offset entry = walk.entry(end - 1, 0);
  write_states(entry);
  write(entry, walk.other(end - 1, 0));
  if (!is_writer) return;
  if (ends.h_last) ends.h_last[h_index] = h;
  write_end<T>(ends.c_last, ends.wide, c_index, c);
}

}  // namespace warpalign::detail::recurrent
