// The backward sweep's steps: from gradients with respect to h to gradients with respect to z, and on to the
// step before.
#pragma once

#include "recurrent/cuda/steps/norm.cuh"
#include "recurrent/cuda/steps/tile.cuh"

namespace warpalign::detail::recurrent {

// dh with what R^T dz of the step swept before adds. With a reset in between it goes to h0's gradient.
template <class T>
__device__ __forceinline__ Sum<T> carried_hidden(const CudaCell<T>& cell, int place, int b, int unit,
                                                 Sum<T> dh, Sum<T> part) {
  const int t = cell.step_back_at(place - 1);
  if (place == 0 || !cell.at.holds(t, b)) return dh;
  dh += part;
  if (!cell.at.resets_at(t, b)) return dh;
  cell.dh0[static_cast<Offset>(b) * cell.output + unit] += dh;
  return 0;
}

// The gradient with respect to h[t] from outside of the sweep.
template <class T>
__device__ __forceinline__ Sum<T> incoming_hidden(const CudaCell<T>& cell, int t, int b, int unit) {
  const Offset row = cell.at.first(t) + b;
  Sum<T> dh = 0;
  if (cell.dy) {
    dh += cuda::widen(cell.dy[row * cell.dy_stride + unit]) * cell.dropout.of(cell.masks, t, b, unit);
  }
  if (cell.dh_all) dh += cuda::widen(cell.dh_all[row * cell.output + unit]);
  return dh;
}
// From all of the gradient with respect to h[t]: zoneout's share goes to the step before, and the gradient
// with respect to h~ is returned.
template <class T>
__device__ __forceinline__ Sum<T> split_hidden(const CudaCell<T>& cell, int t, int b, int unit, Sum<T> dh) {
  const Sum<T> keep = cell.zoneout_hidden.share(cell.masks, MaskKind::kHidden, t, b, unit);
  cell.dh[static_cast<Offset>(b) * cell.output + unit] = keep * dh;
  return (1 - keep) * dh;
}

// What a unit of a step had, from the tape.
template <class T>
struct Unit {
  Sum<T> i, f, g, o, before;

  Unit() = default;
  __device__ __forceinline__ Unit(const CudaCell<T>& cell, int t, int b, int unit) {
    const T* const gates = cell.gates + (cell.at.first(t) + b) * 4 * cell.hidden + unit;
    i = cuda::widen(gates[0]);
    f = cuda::widen(gates[cell.hidden]);
    g = cuda::widen(gates[2 * static_cast<Offset>(cell.hidden)]);
    o = cuda::widen(gates[3 * static_cast<Offset>(cell.hidden)]);
    const int last = cell.reverse ? t + 1 : t - 1;
    if (cell.at.resets_at(t, b) || !cell.at.holds(last, b)) {
      before = cell.c0[static_cast<Offset>(b) * cell.hidden + unit];
    } else {
      before = cuda::widen(cell.tape_c[(cell.at.first(last) + b) * cell.hidden + unit]);
    }
  }
};

// dz from the gradient with respect to o u(v) and from that with respect to c~ through v; dc of the step
// before. dc: carried here.
template <class T>
__device__ __forceinline__ void finish_unit(const CudaCell<T>& cell, int t, int b, int unit, const Unit<T>& u,
                                            Sum<T> dz_o, Sum<T> dcell, Sum<T> dc) {
  const Offset row = cell.at.first(t) + b, state = static_cast<Offset>(b) * cell.hidden + unit;
  if (cell.dc_all) dc += cell.read_cell(cell.dc_all, row * cell.hidden + unit);
  const Sum<T> keep = cell.zoneout_cell.share(cell.masks, MaskKind::kCell, t, b, unit);
  dcell += (1 - keep) * dc;
  const Activation<T>& a = cell.activation;
  const Sum<T> dz[4] = {dcell * u.g * a.gate_slope(u.i), dcell * u.before * a.gate_slope(u.f),
                        dcell * u.i * a.squash_slope(u.g), dz_o};
  unroll<4>([&](int gate) {
    const Offset entry = static_cast<Offset>(gate) * cell.hidden + unit;
    cell.dz[row * cell.gates_stride + entry] = cuda::narrow<T>(dz[gate]);
  });
  dc = keep * dc + dcell * u.f;
  const bool resets = cell.at.resets_at(t, b);
  if (resets) cell.dc0[state] += dc;
  cell.dc[state] = resets ? Sum<T>(0) : dc;
}

// A unit without layer norm, from the gradient with respect to o u(c~) and the carried dc.
template <class T>
__device__ __forceinline__ void backward_unit(const CudaCell<T>& cell, int t, int b, int unit,
                                              const Unit<T>& u, Sum<T> dm, Sum<T> dc) {
  const Sum<T> squashed = cell.activation.squash(u.f * u.before + u.i * u.g);
  if (cell.projects) {
    cell.m_rows[(cell.at.first(t) + b) * cell.hidden + unit] = cuda::narrow<T>(u.o * squashed);
  }
  finish_unit(cell, t, b, unit, u, dm * squashed * cell.activation.gate_slope(u.o),
              dm * u.o * cell.activation.squash_slope(squashed), dc);
}

// Where (t, b) has a row but no step, gradients are 0.
template <class T>
__device__ __forceinline__ void skip_unit(const CudaCell<T>& cell, int t, int b, int unit) {
  if (!cell.at.has_row(t, b)) return;
  const Offset row = cell.at.first(t) + b;
  const T zero = cuda::narrow<T>(0);
  unroll<4>([&](int gate) {
    const Offset entry = row * cell.gates_stride + static_cast<Offset>(gate) * cell.hidden + unit;
    cell.dz[entry] = zero;
    if (cell.layer_norm) cell.dz_h[entry] = zero;
  });
  if (cell.layer_norm) cell.dv[row * cell.hidden + unit] = zero;
  if (cell.projects) cell.m_rows[row * cell.hidden + unit] = zero;
}

// Tasks of step_kernel() and unit_step_kernel().

// R^T dz of the step swept before, and what becomes of dh. In layers with a projection or layer norm other
// kernels take up the gradient with respect to h~.
template <class T>
struct CarryTask {
  static constexpr const char* kName = "cell";
  static constexpr bool kIsCell = true, kIsBack = true;
  static constexpr int kSplits = 8, kRows = 1;
  __host__ __device__ static int rows(const CudaCell<T>& cell) { return cell.output; }
  __device__ static bool skips(const CudaCell<T>&, int place) { return place == 0; }
  __host__ __device__ static int depth(const CudaCell<T>& cell) { return cell.gates_stride; }
  __device__ static const T* weight(const CudaCell<T>& cell, int row) {
    return cell.hh_across + static_cast<Offset>(row) * cell.gates_stride;
  }
  __device__ static const T* factor(const CudaCell<T>& cell, int place, int b) {
    // Rows that are not there give sums that nobody takes.
    const Offset row = (place > 0 ? cell.at.first(cell.step_back_at(place - 1)) : 0) + b;
    const Offset last = cell.at.rows - 1;
    return cell.dz_h + (row < last ? row : last) * cell.gates_stride;
  }
  struct Ahead {
    Sum<T> incoming, dh, dc;
    Unit<T> unit;  // of cells without projection and layer norm
  };
  __device__ static bool finishes_units(const CudaCell<T>& cell) {
    return !cell.projects && !cell.layer_norm;
  }
  __device__ static void ask(const CudaCell<T>& cell, int place, int b, int unit, Ahead& to) {
    const int t = cell.step_back_at(place);
    if (place == cell.at.steps || !cell.at.holds(t, b)) return;
    to.incoming = incoming_hidden(cell, t, b, unit);
    if (finishes_units(cell)) to.unit = Unit<T>(cell, t, b, unit);
  }
  __device__ static void ask_state(const CudaCell<T>& cell, int, int b, int unit, Ahead& to) {
    to.dh = cell.dh[static_cast<Offset>(b) * cell.output + unit];
    if (finishes_units(cell)) to.dc = cell.dc[static_cast<Offset>(b) * cell.hidden + unit];
  }
  __device__ static void finish(const CudaCell<T>& cell, int place, int b, int unit, Sum<T> (&part)[1],
                                const Ahead& ahead) {
    const int t = cell.step_back_at(place);
    const bool holds = place < cell.at.steps && cell.at.holds(t, b);
    const Sum<T> dh = carried_hidden(cell, place, b, unit, ahead.dh, part[0]);
    Sum<T> fresh = 0;
    if (holds) {
      fresh = split_hidden(cell, t, b, unit, dh + ahead.incoming);
    } else {
      cell.dh[static_cast<Offset>(b) * cell.output + unit] = dh;
    }
    if (place == cell.at.steps) return;
    if (finishes_units(cell)) {
      if (holds) {
        backward_unit(cell, t, b, unit, ahead.unit, fresh, ahead.dc);
      } else {
        skip_unit(cell, t, b, unit);
      }
    } else if (!cell.projects) {
      cell.dm[static_cast<Offset>(b) * cell.hidden + unit] = fresh;
    } else if (cell.at.has_row(t, b)) {
      cell.dh_new[(cell.at.first(t) + b) * cell.output_stride + unit] = cuda::narrow<T>(fresh);
    }
  }
  // A unit from a part that others made.
  __device__ static void finish(const CudaCell<T>& cell, int place, int b, int unit, Sum<T> part) {
    Ahead ahead{};
    ask(cell, place, b, unit, ahead);
    ask_state(cell, place, b, unit, ahead);
    Sum<T> parts[1] = {part};
    finish(cell, place, b, unit, parts, ahead);
  }
};

// Layer norm: from the gradient with respect to o u(v) to dz, and to that with respect to R h; a block per
// row.
template <class T>
__global__ void __launch_bounds__(kNormThreads) normalised_backward_kernel(StepParams<T> p) {
  const int block = static_cast<int>(blockIdx.x);
  const CudaCell<T>& cell = p.cell[block / p.blocks_of_direction];
  const int b = block % p.blocks_of_direction, hidden = cell.hidden, t = cell.step_back_at(p.place);
  const int thread = static_cast<int>(threadIdx.x);
  if (!cell.at.holds(t, b)) {
    for (int unit = thread; unit < hidden; unit += kNormThreads) skip_unit(cell, t, b, unit);
    return;
  }
  const Offset row = cell.at.first(t) + b;
  const auto normal_c = [&](int unit) { return cuda::widen(cell.norm_c[row * hidden + unit]); };
  const auto gamma_c = [&](int unit) { return cuda::widen(cell.ln_cell[unit]); };
  const auto squash = [&](int unit) {
    return cell.activation.squash(gamma_c(unit) * normal_c(unit) + cuda::widen(cell.ln_cell_bias[unit]));
  };
  Sum<T>* const dm = cell.dm + static_cast<Offset>(b) * hidden;
  const auto by_v = [&](int unit) {
    const Sum<T> o = cuda::widen(cell.gates[(row * 4 + 3) * hidden + unit]);
    return dm[unit] * o * cell.activation.squash_slope(squash(unit));
  };
  const auto of_cell = normal_form_gradient(
      hidden, cell.scales[row * 3 + 2], [&](int unit) { return gamma_c(unit) * by_v(unit); }, normal_c);
  for (int unit = thread; unit < hidden; unit += kNormThreads) {
    const Unit<T> u(cell, t, b, unit);
    const Sum<T> squashed = squash(unit), dv = by_v(unit);
    cell.dv[row * hidden + unit] = cuda::narrow<T>(dv);
    if (cell.projects) cell.m_rows[row * hidden + unit] = cuda::narrow<T>(u.o * squashed);
    finish_unit(cell, t, b, unit, u, dm[unit] * squashed * cell.activation.gate_slope(u.o),
                of_cell(gamma_c(unit) * dv, normal_c(unit)), cell.dc[static_cast<Offset>(b) * hidden + unit]);
  }
  __syncthreads();  // dz of other threads
  normalise_back(4 * hidden, cell.scales[row * 3 + 1], cell.dz + row * cell.gates_stride, cell.ln_hh,
                 cell.norm_h + row * 4 * hidden, cell.dz_h + row * cell.gates_stride);
}

}  // namespace warpalign::detail::recurrent
