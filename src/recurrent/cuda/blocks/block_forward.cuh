// The forward sweep of a layer whose R one block holds.
#pragma once

#include "recurrent/cuda/blocks/block_lanes.cuh"
#include "recurrent/cuda/blocks/block_units.cuh"
#include "recurrent/cuda/steps/forward.cuh"

namespace warpalign::detail::recurrent {

// The four gates of a thread's unit and row, from those of the threads that share them.
template <class Real, int kRows>
__device__ __forceinline__ void gather_gates(const Real (&own)[kRows], Real (&gates)[4]) {
  const int lane = static_cast<int>(threadIdx.x) % cuda::kWarpSize;
  unroll<4>([&](int gate) {
    const int from = lane / (4 / kRows) * (4 / kRows) + gate / kRows;
    gates[gate] = kRows == 4 ? own[gate % kRows] : cuda::shuffle(own[gate % kRows], from);
  });
}

// kDepth: at least H. kRows: of the batch, of a block. kPlain: rows have every step, and nothing is kept.
template <class T, int kDepth, int kRows, bool kPlain>
__global__ void __launch_bounds__(kUnitThreads* kDepth, kBlocksAtOnce<T, kDepth>)
    block_forward_kernel(const __grid_constant__ BlockParams<T> p) {
  using Real = Sum<T>;
  using Product =
      std::conditional_t<sizeof(T) == 2, UnitProduct<T, kDepth, kRows>, LaneProduct<T, kDepth, kRows, false>>;
  constexpr int kAhead = kRows == 1 && kPlain ? 4 : 2;  // steps whose W x is asked for; even
  __shared__ __align__(16) T states[2][kRows][kDepth + kBlockRowPad];
  const BlockPlace<kRows> at(p.slices);
  const CudaCell<T> cell = cell_of(p.cell, at.direction);
  const BlockEnds<T> ends = at.direction == 1 ? p.ends[1] : p.ends[0];
  const int hidden = cell.hidden, b = at.b, unit = at.unit, begin = p.places.begin, end = p.places.end;
  const bool has_unit = unit < hidden, is_own = has_unit && b < cell.at.batch, is_first = at.is_first();
  const Offset h_index = static_cast<Offset>(b) * ends.h_stride + unit;
  const Offset c_index = static_cast<Offset>(b) * hidden + unit;

  Product product(cell, at);
  // This thread has kRows gates, from this one on.
  const int first_gate = at.part * kRows % 4;
  Real bias[kRows];
  unroll<kRows>(
      [&](int k) { bias[k] = has_unit ? bias_of(cell, (first_gate + k) * hidden + unit) : Real(0); });
  Real c = is_own ? read_end<T>(ends.c, ends.wide, c_index) : Real(0);
  T h = is_own && ends.h ? static_cast<const T*>(ends.h)[h_index] : T{};
  const Real c0 = !kPlain && is_own ? read_end<T>(ends.c0, ends.wide, c_index) : Real(0);
  const T h0 = !kPlain && is_own && ends.h0 ? static_cast<const T*>(ends.h0)[h_index] : T{};
  for (int n = static_cast<int>(threadIdx.x); n < kRows * kDepth; n += static_cast<int>(blockDim.x)) {
    if (n % kDepth >= hidden) states[0][n / kDepth][n % kDepth] = states[1][n / kDepth][n % kDepth] = T{};
  }
  if (has_unit && is_first) states[0][at.row][unit] = h;
  __syncthreads();

  BlockWalk walk(cell, begin - 1, false, b, unit, cell.h_stride);      // at the step before
  Offset last_row = 0;                                                 // the same with options
  T* const own_gates = cell.gates + (first_gate * hidden - 3 * unit);  // entry e of a row has 4 e here
  const bool has_states = cell.h_all || cell.c_all, is_writer = is_own && is_first;
  const bool writes_gates = is_own && cell.tape_c, writes_c = is_writer && cell.tape_c;
  const bool writes_h = is_writer && cell.h_rows;
  struct Asked {
    T gates[kRows];
    AskedOptions options;
  };
  Asked asked[kAhead] = {};
  const auto ask = [&](int place, int ahead, Asked& to) {
    if constexpr (!kPlain) {  // the step after these places may begin with a reset, too
      to.options = asked_options(cell, cell.step_at(place), b, unit);
      if (!to.options.holds) return;
    }
    if (place >= end || !is_own) return;
    const Offset entry = kPlain ? walk.entry(ahead) : to.options.row * hidden + unit;
    unroll<kRows>([&](int k) { to.gates[k] = own_gates[4 * entry + static_cast<Offset>(k) * hidden]; });
  };
  unroll<kAhead>([&](int n) { ask(begin + n, n + 1, asked[n]); });
  product.ask(states[0]);  // here and after each barrier before everything else

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
    unroll<kRows>([&](int k) {
      if (!writes_gates || !holds) return;
      own_gates[4 * entry + static_cast<Offset>(k) * hidden] = cuda::narrow<T>(own[k]);
    });
    if (writes_c && exists) cell.tape_c[entry] = cuda::narrow<T>(out_c);
    if (writes_h && exists) cell.h_rows[h_entry] = out_h;
  };

  for (int first = begin; first < end; first += kAhead) {
#pragma unroll
    for (int n = 0; n < kAhead; ++n) {
      const int place = first + n;
      if (place >= end) break;
      const Offset entry = kPlain ? walk.entry(0) : last_row * hidden + unit;
      if (has_states) write_states(entry);
      product.multiply(states[n % 2]);
      Real sums[kRows];
      product.finish(sums);
      write(entry, kPlain ? walk.other(0) : last_row * cell.h_stride + unit);
      unroll<kRows>([&](int k) {
        const Real z = sums[k] + (cuda::widen(asked[n].gates[k]) + bias[k]);
        own[k] = cell.activation.gate(z, (first_gate + k) % 4 == 2);
      });
      [[maybe_unused]] const AskedOptions options = asked[n].options;
      ask(place + kAhead, kAhead + 1, asked[n]);
      walk.go_on(), last_row = options.row;
      Real gates[4];
      gather_gates(own, gates);
      exists = kPlain || options.exists, holds = kPlain || options.holds;
      out_c = fma(gates[1], c, gates[0] * gates[2]);
      Real fresh = gates[3] * cell.activation.flat_squash(out_c);
      if constexpr (kPlain) {
        h = out_h = cuda::narrow<T>(fresh), c = out_c;
      } else {
        const KeptShares<Real> keep = kept_shares(cell, options.kept, unit % kKeptUnits);
        fresh = keep.h != 0 ? fma(keep.h, cuda::widen(h), (1 - keep.h) * fresh) : fresh;
        out_c = keep.c != 0 ? fma(keep.c, c, (1 - keep.c) * out_c) : out_c;
        out_h = holds ? cuda::narrow<T>(fresh) : T{}, out_c = holds ? out_c : Real(0);
        const bool resets = asked[(n + 1) % kAhead].options.resets;
        h = !holds ? h : resets ? h0 : out_h;
        c = !holds ? c : resets ? c0 : out_c;
      }
      if (has_unit && is_first) states[1 - n % 2][at.row][unit] = h;
      __syncthreads();
      product.ask(states[1 - n % 2]);
    }
  }
  const Offset entry = kPlain ? walk.entry(0) : last_row * hidden + unit;
  write_states(entry);
  write(entry, kPlain ? walk.other(0) : last_row * cell.h_stride + unit);
  if (!is_writer) return;
  const BlockEnds<T>& last = p.ends[at.direction];  // again, so that no register holds it meanwhile
  if (last.h_last) static_cast<T*>(last.h_last)[h_index] = h;
  write_end<T>(last.c_last, last.wide, c_index, c);
}

}  // namespace warpalign::detail::recurrent
