// The backward sweep of a layer whose R one block holds.
#pragma once

#include "recurrent/cuda/blocks/block_lanes.cuh"
#include "recurrent/cuda/blocks/block_units.cuh"
#include "recurrent/cuda/steps/backward.cuh"

namespace warpalign::detail::recurrent {

// Neighbouring elements, at once where they are a word.
template <class T, int kCount>
__device__ __forceinline__ void put_gradients(const T (&dz)[kCount], T* to) {
  if constexpr (sizeof(T) == 2 && kCount == 4) {
    cuda::Word word = 0;
    unroll<kCount>([&](int k) { word |= static_cast<cuda::Word>(dz[k].bits) << 16 * k; });
    *reinterpret_cast<cuda::Word*>(to) = word;
  } else {
    unroll<kCount>([&](int k) { to[k] = dz[k]; });
  }
}

// kDepth, kRows, kPlain: as block_forward_kernel() has them.
template <class T, int kDepth, int kRows, bool kPlain>
__global__ void __launch_bounds__(kUnitThreads* kDepth, kBlocksAtOnce<T, kDepth>)
    block_backward_kernel(const __grid_constant__ BlockParams<T> p) {
  using Real = Sum<T>;
  using Product = std::conditional_t<sizeof(T) == 2, UnitProductBack<T, kDepth, kRows>,
                                     LaneProduct<T, kDepth, kRows, true>>;
  constexpr bool kHoldsSums = std::is_same_v<T, Real>;
  constexpr int kAhead = 2;  // steps whose tape is asked for; even
  __shared__ __align__(16) T gradients[2][kRows][4 * kDepth + Product::kRowPad];
  const BlockPlace<kRows> at(p.slices);
  const CudaCell<T> cell = cell_of(p.cell, at.direction);
  const BlockEnds<T> ends = at.direction == 1 ? p.ends[1] : p.ends[0];
  const int hidden = cell.hidden, b = at.b, unit = at.unit, begin = p.places.begin, end = p.places.end;
  const bool has_unit = unit < hidden, is_own = has_unit && b < cell.at.batch;
  const Offset index = static_cast<Offset>(b) * hidden + unit;

  Product product(cell, at);
  for (int n = static_cast<int>(threadIdx.x); n < 2 * kRows * 4 * kDepth; n += static_cast<int>(blockDim.x)) {
    gradients[n / (kRows * 4 * kDepth)][n / (4 * kDepth) % kRows][n % (4 * kDepth)] = T{};
  }
  Real dc = is_own ? read_end<T>(ends.c, ends.wide, index) : Real(0);
  Real carried = is_own ? read_end<T>(ends.h, ends.wide_h, index) : Real(0);  // beside what dz gives
  const Real c0 = is_own ? read_end<T>(ends.c0, ends.wide, index) : Real(0);
  Real reset_dh = 0, reset_dc = 0;
  bool was_reset = false;
  __syncthreads();

  BlockWalk walk(cell, begin - 1, true, b, unit, cell.dy_stride);  // at the step before
  Offset last_row = 0;                                             // the same with options
  const int first_gate = at.part * kRows % 4;
  const bool has_more = cell.dh_all || cell.dc_all || cell.dropout.factor != 0;
  struct Asked {
    T gates[4], before, dy;  // c of the step before
    bool begins;             // that is c0, which T may not hold
    AskedOptions options;
  };
  Asked asked[kAhead] = {};
  const auto ask = [&](int place, int ahead, Asked& to) {
    if (place >= end || !is_own) return;
    const int t = cell.step_back_at(place), last = cell.reverse ? t + 1 : t - 1;
    if constexpr (!kPlain) {
      to.options = asked_options(cell, t, b, unit);
      if (!to.options.holds) return;
    }
    const Offset row = to.options.row;
    const T* const from = cell.gates + 4 * (kPlain ? walk.entry(ahead) : row * hidden + unit) - 3 * unit;
    unroll<4>([&](int gate) { to.gates[gate] = from[static_cast<Offset>(gate) * hidden]; });
    if (cell.dy) to.dy = cell.dy[kPlain ? walk.other(ahead) : row * cell.dy_stride + unit];
    const bool goes_on = kPlain ? place + 1 < cell.at.steps : cell.at.holds(last, b) && !to.options.resets;
    to.begins = !goes_on;
    if constexpr (kHoldsSums) to.before = c0;
    if (!goes_on) return;
    to.before = cell.tape_c[kPlain ? walk.entry(ahead + 1) : (cell.at.first(last) + b) * hidden + unit];
  };
  unroll<kAhead>([&](int n) { ask(begin + n, n + 1, asked[n]); });
  product.ask(gradients[0]);  // here and after each barrier before everything else

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
      const Offset entry = kPlain ? walk.entry(0) : last_row * hidden + unit;
      const Activation<T>& a = cell.activation;
      const Real i = cuda::widen(asked[n].gates[0]), f = cuda::widen(asked[n].gates[1]);
      const Real g = cuda::widen(asked[n].gates[2]), o = cuda::widen(asked[n].gates[3]);
      const Real before = !kHoldsSums && asked[n].begins ? c0 : cuda::widen(asked[n].before);
      Real dy = cuda::widen(asked[n].dy);
      [[maybe_unused]] const AskedOptions options = asked[n].options;
      const bool holds = place < end && is_own && (kPlain || options.holds);
      Real dc_in = dc;
      if (has_more && holds) {
        const Offset here = kPlain ? walk.entry(1) : options.row * hidden + unit;
        if (cell.dropout.factor != 0) dy *= cell.dropout.of(cell.masks, t, b, unit);
        if (cell.dh_all) dy += cuda::widen(cell.dh_all[here]);
        if (cell.dc_all) dc_in += cell.read_cell(cell.dc_all, here);
      }
      product.multiply(gradients[n % 2]);
      const Real squashed = a.flat_squash(fma(f, before, i * g));
      const Real to_cell = o * a.slope_of(squashed, true);
      Real factors[kRows];  // of this thread's gates
#pragma unroll
      for (int k = 0; k < kRows; ++k) {
        const int gate = first_gate + k;
        const Real value = gate == 0 ? i : gate == 1 ? f : gate == 2 ? g : o;
        const Real beside = gate == 0 ? g : gate == 1 ? before : gate == 2 ? i : squashed;
        factors[k] = beside * a.slope_of(value, gate == 2);
      }
      unroll<kRows>([&](int k) {
        if (exists) own_dz[4 * entry + static_cast<Offset>(k) * hidden] = dz[k];
      });
      ask(place + kAhead, kAhead + 1, asked[n]);
      walk.go_on(), last_row = options.row;
      Real part[1];
      product.finish(part);
      Real dh = carried + part[0];
      if constexpr (!kPlain) {
        reset_dh += was_reset ? dh : Real(0), dh = was_reset ? Real(0) : dh;
        was_reset = holds && options.resets;
      }
      carried = 0;
      if (place == end) {
        carried = dh;
        break;
      }
      Real dm = dh + dy, dcell = 0, keep_c = 0;
      if constexpr (!kPlain) {
        const KeptShares<Real> keep = kept_shares(cell, options.kept, unit % kKeptUnits);
        keep_c = keep.c;
        carried = holds ? keep.h * dm : dh, dm = (1 - keep.h) * dm;
      }
      dcell = fma(dm, to_cell, kPlain ? dc_in : (1 - keep_c) * dc_in);
      unroll<kRows>([&](int k) {
        const int gate = first_gate + k;
        dz[k] = holds ? cuda::narrow<T>((gate == 3 ? dm : dcell) * factors[k]) : T{};
      });
      put_gradients(dz, &gradients[1 - n % 2][at.row][unit * 4 + first_gate]);
      exists = is_own && (kPlain || options.exists);
      if constexpr (kPlain) {
        if (holds) dc = dcell * f;
      } else {
        const Real dc_before = holds ? fma(dcell, f, keep_c * dc_in) : dc;
        reset_dc += was_reset ? dc_before : Real(0), dc = was_reset ? Real(0) : dc_before;
      }
      __syncthreads();
      product.ask(gradients[1 - n % 2]);
    }
  }
  if (!is_own || !at.is_first()) return;
  const BlockEnds<T>& last = p.ends[at.direction];  // again, so that no register holds it meanwhile
  if (last.dh0) {
    last.dh0[index] += reset_dh, last.dc0[index] += reset_dc;
  } else {
    carried += reset_dh, dc += reset_dc;
  }
  write_end<T>(last.h_last, last.wide_h, index, carried);
  write_end<T>(last.c_last, last.wide, index, dc);
}

}  // namespace warpalign::detail::recurrent
