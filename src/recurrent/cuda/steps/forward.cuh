// The forward sweep's steps: what one thread does with one unit of one row, and the kernels' tasks.
#pragma once

#include "recurrent/cuda/steps/norm.cuh"
#include "recurrent/cuda/steps/tile.cuh"

namespace warpalign::detail::recurrent {

// What the sweep leaves of c[t] for the row of (t, b), and the state before the next step.
template <class T>
__device__ __forceinline__ void put_cell(const CudaCell<T>& cell, int place, int t, int b, int unit,
                                         Sum<T> c) {
  const Offset row = (cell.at.first(t) + b) * cell.hidden + unit;
  const Offset state = static_cast<Offset>(b) * cell.hidden + unit;
  if (cell.tape_c) cell.tape_c[row] = cuda::narrow<T>(c);
  if (cell.c_all) cell.write_cell(cell.c_all, row, c);
  const int next = cell.step_at(place + 1);
  cell.c[state] = cell.at.holds(next, b) && cell.at.resets_at(next, b) ? cell.c0[state] : c;
}

// The same for an entry of h, which is rounded already.
template <class T>
__device__ __forceinline__ void put_hidden(const CudaCell<T>& cell, int place, int t, int b, int unit, T h) {
  const Offset row = cell.at.first(t) + b, state = static_cast<Offset>(b) * cell.output_stride + unit;
  if (cell.h_rows) cell.h_rows[row * cell.h_stride + unit] = h;
  if (cell.h_all) cell.h_all[row * cell.output + unit] = h;
  const int next = cell.step_at(place + 1);
  const bool resets = cell.at.holds(next, b) && cell.at.resets_at(next, b);
  h_before(cell, place + 1)[state] = resets ? cell.h0[state] : h;
}

// A row that has no step t keeps its state, and gets zeros where there is place for (t, b).
template <class T>
__device__ __forceinline__ void skip_cell(const CudaCell<T>& cell, int t, int b, int unit) {
  if (!cell.at.has_row(t, b)) return;
  const Offset row = (cell.at.first(t) + b) * cell.hidden + unit;
  if (cell.tape_c) cell.tape_c[row] = cuda::narrow<T>(0);
  if (cell.c_all) cell.write_cell(cell.c_all, row, 0);
}
template <class T>
__device__ __forceinline__ void skip_hidden(const CudaCell<T>& cell, int place, int t, int b, int unit) {
  const Offset state = static_cast<Offset>(b) * cell.output_stride + unit;
  h_before(cell, place + 1)[state] = h_before(cell, place)[state];
  if (!cell.at.has_row(t, b)) return;
  const Offset row = cell.at.first(t) + b;
  const T zero = cuda::narrow<T>(0);
  if (cell.h_rows) cell.h_rows[row * cell.h_stride + unit] = zero;
  if (cell.h_all) cell.h_all[row * cell.output + unit] = zero;
}

// From h~ to h[t].
template <class T>
__device__ __forceinline__ void finish_hidden(const CudaCell<T>& cell, int place, int t, int b, int unit,
                                              Sum<T> fresh) {
  const Sum<T> keep = cell.zoneout_hidden.share(cell.masks, MaskKind::kHidden, t, b, unit);
  if (keep != 0) {
    const T before = h_before(cell, place)[static_cast<Offset>(b) * cell.output_stride + unit];
    fresh = keep * cuda::widen(before) + (1 - keep) * fresh;
  }
  put_hidden(cell, place, t, b, unit, cuda::narrow<T>(fresh));
}

// o u(v), the output of a unit: on its way to the projection, or h~.
template <class T>
__device__ __forceinline__ void put_output(const CudaCell<T>& cell, int place, int t, int b, int unit,
                                           Sum<T> m) {
  if (cell.projects) {
    cell.m[static_cast<Offset>(b) * cell.hidden_stride + unit] = cuda::narrow<T>(m);
  } else {
    finish_hidden(cell, place, t, b, unit, m);
  }
}

template <class T>
__device__ __forceinline__ Sum<T> bias_of(const CudaCell<T>& cell, int row) {
  Sum<T> bias = 0;
  if (cell.bias_ih) bias += cuda::widen(cell.bias_ih[row]);
  if (cell.bias_hh) bias += cuda::widen(cell.bias_hh[row]);
  return bias;
}

// Stores i, f, g, o, and returns o and c~. before: c of the step before.
template <class Real>
struct NewCell {
  Real o, cell;
};
template <class T>
__device__ __forceinline__ NewCell<Sum<T>> put_gates(const CudaCell<T>& cell, Offset row, int unit,
                                                     const Sum<T> (&values)[4], Sum<T> before) {
  unroll<4>([&](int k) { cell.gates[(row * 4 + k) * cell.hidden + unit] = cuda::narrow<T>(values[k]); });
  return {values[3], values[1] * before + values[0] * values[2]};
}
// The same from z.
template <class T>
__device__ __forceinline__ NewCell<Sum<T>> new_cell(const CudaCell<T>& cell, Offset row, int unit,
                                                    const Sum<T> (&z)[4], Sum<T> before) {
  Sum<T> values[4];
  cell.activation.gates(z, values);
  return put_gates(cell, row, unit, values, before);
}

template <class T>
__device__ __forceinline__ void finish_cell(const CudaCell<T>& cell, int place, int t, int b, int unit,
                                            Sum<T> fresh) {
  const Sum<T> keep = cell.zoneout_cell.share(cell.masks, MaskKind::kCell, t, b, unit);
  if (keep != 0) {
    fresh = keep * cell.c[static_cast<Offset>(b) * cell.hidden + unit] + (1 - keep) * fresh;
  }
  put_cell(cell, place, t, b, unit, fresh);
}

// Tasks of step_kernel() and unit_step_kernel().

// R h and the cell at once: rows of weights are the four gates of a unit, then those of the next one. With
// layer norm R h alone, which normalised_cell_kernel() takes up.
template <class T>
struct CellTask {
  static constexpr const char* kName = "cell";
  static constexpr bool kIsCell = true, kIsBack = false;
  static constexpr int kSplits = 2, kRows = 4;
  __host__ __device__ static int rows(const CudaCell<T>& cell) { return 4 * cell.hidden; }
  __device__ static bool skips(const CudaCell<T>&, int) { return false; }
  __host__ __device__ static int depth(const CudaCell<T>& cell) { return cell.output_stride; }
  __device__ static const T* weight(const CudaCell<T>& cell, int row) {
    return cell.hh + (static_cast<Offset>(row % 4) * cell.hidden + row / 4) * cell.output_stride;
  }
  __device__ static const T* factor(const CudaCell<T>& cell, int place, int b) {
    return h_before(cell, place) + static_cast<Offset>(b) * cell.output_stride;
  }
  struct Ahead {
    Sum<T> z[4];  // W x + b
    Sum<T> c;     // c of the step before
  };
  __device__ static void ask(const CudaCell<T>& cell, int place, int b, int unit, Ahead& to) {
    const int t = cell.step_at(place);
    if (cell.layer_norm || !cell.at.holds(t, b)) return;
    const Offset row = cell.at.first(t) + b;
    unroll<4>([&](int gate) {
      const int entry = gate * cell.hidden + unit;
      to.z[gate] = cuda::widen(cell.gates[row * 4 * cell.hidden + entry]) + bias_of(cell, entry);
    });
  }
  __device__ static void ask_state(const CudaCell<T>& cell, int, int b, int unit, Ahead& to) {
    to.c = cell.c[static_cast<Offset>(b) * cell.hidden + unit];
  }
  __device__ static void finish(const CudaCell<T>& cell, int place, int b, int unit, Sum<T> (&z)[4],
                                const Ahead& ahead) {
    if (cell.layer_norm) {
      Sum<T>* const raw = cell.raw + static_cast<Offset>(b) * 4 * cell.hidden + unit;
      unroll<4>([&](int gate) { raw[static_cast<Offset>(gate) * cell.hidden] = z[gate]; });
      return;
    }
    const int t = cell.step_at(place);
    if (!cell.at.holds(t, b)) {
      skip_cell(cell, t, b, unit);
      if (!cell.projects) skip_hidden(cell, place, t, b, unit);
      return;
    }
    const Offset row = cell.at.first(t) + b;
    unroll<4>([&](int gate) { z[gate] += ahead.z[gate]; });
    const auto fresh = new_cell(cell, row, unit, z, ahead.c);
    put_output(cell, place, t, b, unit, fresh.o * cell.activation.squash(fresh.cell));
    finish_cell(cell, place, t, b, unit, fresh.cell);
  }
  // The same where W x's place has R h, too.
  __device__ static void finish(const CudaCell<T>& cell, int place, int b, int unit) {
    Ahead ahead{};
    ask(cell, place, b, unit, ahead);
    ask_state(cell, place, b, unit, ahead);
    Sum<T> nothing_more[4] = {};
    finish(cell, place, b, unit, nothing_more, ahead);
  }
};

// From R h to the cell with layer norm: a block per row of the batch.
template <class T>
__global__ void __launch_bounds__(kNormThreads) normalised_cell_kernel(StepParams<T> p) {
  const int block = static_cast<int>(blockIdx.x);
  const CudaCell<T>& cell = p.cell[block / p.blocks_of_direction];
  const int b = block % p.blocks_of_direction, hidden = cell.hidden, t = cell.step_at(p.place);
  const int thread = static_cast<int>(threadIdx.x);
  if (!cell.at.holds(t, b)) {
    const Offset row = cell.at.has_row(t, b) ? cell.at.first(t) + b : -1;
    for (int unit = thread; unit < hidden; unit += kNormThreads) {
      skip_cell(cell, t, b, unit);
      if (!cell.projects) skip_hidden(cell, p.place, t, b, unit);
      if (row < 0) continue;
      // Gradients with respect to gamma are sums over all rows.
      cell.norm_c[row * hidden + unit] = cuda::narrow<T>(0);
      for (int gate = 0; gate < 4; ++gate) {
        cell.norm_h[(row * 4 + gate) * hidden + unit] = cuda::narrow<T>(0);
      }
    }
    return;
  }
  const Offset row = cell.at.first(t) + b;
  const Sum<T>* const raw = cell.raw + static_cast<Offset>(b) * 4 * hidden;
  const auto of_raw = normal_form(4 * hidden, cell.eps, [&](int k) { return raw[k]; });
  Sum<T>* const cells = cell.cells + static_cast<Offset>(b) * hidden;
  for (int unit = thread; unit < hidden; unit += kNormThreads) {
    Sum<T> z[4];
    unroll<4>([&](int gate) {
      const int entry = gate * hidden + unit;
      const Offset place = row * 4 * hidden + entry;
      const Sum<T> normal = of_raw(raw[entry]);
      cell.norm_h[place] = cuda::narrow<T>(normal);
      z[gate] = cuda::widen(cell.ln_ih[entry]) * cuda::widen(cell.norm_x[place]) +
                cuda::widen(cell.ln_hh[entry]) * normal + bias_of(cell, entry);
    });
    cells[unit] = new_cell(cell, row, unit, z, cell.c[static_cast<Offset>(b) * hidden + unit]).cell;
  }
  // A thread reads only what itself has written.
  const auto of_cell = normal_form(hidden, cell.eps, [&](int k) { return cells[k]; });
  for (int unit = thread; unit < hidden; unit += kNormThreads) {
    const Sum<T> normal = of_cell(cells[unit]);
    cell.norm_c[row * hidden + unit] = cuda::narrow<T>(normal);
    const Sum<T> v = cuda::widen(cell.ln_cell[unit]) * normal + cuda::widen(cell.ln_cell_bias[unit]);
    const Sum<T> o = cuda::widen(cell.gates[(row * 4 + 3) * hidden + unit]);
    put_output(cell, p.place, t, b, unit, o * cell.activation.squash(v));
    finish_cell(cell, p.place, t, b, unit, cells[unit]);
  }
  if (thread == 0) {
    cell.scales[row * 3 + 1] = of_raw.scale;
    cell.scales[row * 3 + 2] = of_cell.scale;
  }
}

}  // namespace warpalign::detail::recurrent
