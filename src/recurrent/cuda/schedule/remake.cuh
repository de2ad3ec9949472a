// What a tape would have of a chunk's steps, made again from h of all steps and c before the chunk: z of all
// rows by two products, and c by a walk along the steps, where each unit of a row is a thread's.
#pragma once

#include "recurrent/cuda/schedule/chunks.cuh"
#include "recurrent/cuda/steps/forward.cuh"

namespace warpalign::detail::recurrent {

constexpr int kWalkThreads = 64;
constexpr int kWalkAhead = 8;  // steps whose gates are made at once

// The gates of the cell hold W x + R h, or with layer norm the norm rows hold both parts, normalised. kPlain:
// all rows have every step, and there are no resets, no zoneout and no layer norm.
template <class T, bool kPlain>
__global__ void __launch_bounds__(kWalkThreads) walk_kernel(CudaCell<T> cell) {
  const Offset states = static_cast<Offset>(cell.at.batch) * cell.hidden;
  const Offset state = static_cast<Offset>(blockIdx.x) * kWalkThreads + threadIdx.x;
  if (state >= states) return;
  const int b = static_cast<int>(state / cell.hidden), unit = static_cast<int>(state % cell.hidden);
  const bool layer_norm = !kPlain && cell.layer_norm;
  const auto at = rows_of<kPlain>(cell.at);
  Sum<T> bias[4], scale_x[4] = {1, 1, 1, 1}, scale_h[4] = {};
  unroll<4>([&](int gate) {
    const int entry = gate * cell.hidden + unit;
    bias[gate] = bias_of(cell, entry);
    if (!layer_norm) return;
    scale_x[gate] = cuda::widen(cell.ln_ih[entry]);
    scale_h[gate] = cuda::widen(cell.ln_hh[entry]);
  });
  const T* const z_rows = layer_norm ? cell.norm_x : cell.gates;
  // What steps begin ... begin + kWalkAhead - 1 need; steps after the last one are that one again.
  T asked[kWalkAhead][4], asked_h[kWalkAhead][4];
  const auto ask = [&](int begin) {
    unroll<kWalkAhead>([&](int k) {
      const int t = cell.step_at(min(begin + k, at.steps - 1));
      const Offset row = at.has_row(t, b) ? at.first(t) + b : 0;
      unroll<4>([&](int gate) {
        const Offset entry = (row * 4 + gate) * cell.hidden + unit;
        asked[k][gate] = z_rows[entry];
        if (layer_norm) asked_h[k][gate] = cell.norm_h[entry];
      });
    });
  };
  ask(0);
  Sum<T> c = cell.c0[state];
  for (int begin = 0; begin < at.steps; begin += kWalkAhead) {
    // Gates need no c. Those of all these steps are made side by side, without a branch for a step.
    Sum<T> z[kWalkAhead][4], gates[kWalkAhead][4];
    unroll<kWalkAhead>([&](int k) {
      unroll<4>([&](int gate) {
        z[k][gate] = scale_x[gate] * cuda::widen(asked[k][gate]) + bias[gate];
        if (layer_norm) z[k][gate] += scale_h[gate] * cuda::widen(asked_h[k][gate]);
      });
    });
    ask(begin + kWalkAhead);
    cell.activation.gates(z, gates);
    unroll<kWalkAhead>([&](int k) {
      const int t = cell.step_at(begin + k);
      if (!at.has_row(t, b)) return;
      const Offset row = at.first(t) + b, entry = row * cell.hidden + unit;
      if (!at.holds(t, b)) {
        cell.tape_c[entry] = cuda::narrow<T>(0);
        if (layer_norm) cell.norm_c[entry] = cuda::narrow<T>(0);
        return;
      }
      if (at.resets_at(t, b)) c = cell.c0[state];
      Sum<T> fresh = put_gates(cell, row, unit, gates[k], c).cell;
      if (layer_norm) cell.norm_c[entry] = cuda::narrow<T>(fresh);
      if constexpr (!kPlain) {
        const Sum<T> keep = cell.zoneout_cell.share(cell.masks, MaskKind::kCell, t, b, unit);
        fresh = keep * c + (1 - keep) * fresh;
      }
      c = fresh;
      cell.tape_c[entry] = cuda::narrow<T>(c);
    });
  }
}
template <class T, bool kPlain>
inline const cuda::Kernel kWalk{kKernels, kPlain ? "walk" : "walk, options", cuda::type_name<T>(),
                                walk_kernel<T, kPlain>};

// Makes rows first ... first + rows - 1 again. cell: of all steps. part: of the chunk. hh: R transposed, with
// its dropout. h_before: see for_states_before().
template <class T>
void remake(Queue& queue, const LstmProblem& p, const LstmWeights& w, const CudaCell<T>& cell,
            const CudaCell<T>& part, const InputRows<T>& input, Offset width, const Factor& hh, const T* h0,
            Offset first, Offset rows, T* h_before) {
  const Offset gates = 4 * static_cast<Offset>(p.hidden);
  multiply_input(queue, p, w, part, input, width, 0, rows);
  T* const to = p.layer_norm ? part.norm_h : part.gates;
  if (p.layer_norm) queue.clear(to, static_cast<std::size_t>(rows * gates) * sizeof(T));
  for_states_before(queue, p, cell, h0, first, rows, h_before,
                    [&](Offset row, Offset count, const T* h, Offset stride) {
                      queue.multiply(p.dtype, Extents{count, gates, cell.output}, matrix(h, stride), hh,
                                     to + row * gates, gates, true);
                    });
  if (p.layer_norm) normalise<T>(queue, {to, rows, static_cast<int>(gates), part.eps, part.scales + 1});
  const Offset states = static_cast<Offset>(p.batch) * p.hidden;
  const int blocks = static_cast<int>(cuda::div_up(states, kWalkThreads));
  if constexpr (sizeof(T) == 2) {
    const bool plain = is_plain(p) && !p.layer_norm;
    queue.launch(plain ? kWalk<T, true> : kWalk<T, false>, blocks, kWalkThreads, part);
  } else {
    queue.launch(kWalk<T, false>, blocks, kWalkThreads, part);
  }
  if (p.layer_norm) normalise<T>(queue, {part.norm_c, rows, p.hidden, part.eps, part.scales + 2});
}

}  // namespace warpalign::detail::recurrent
