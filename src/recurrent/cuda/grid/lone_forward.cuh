// The forward sweep of a layer on the whole grid where each group has one tile of rows, as small batches do:
// two threads finish a unit of a row, where a pair of tiles has one. Rows have every step.
#pragma once

#include "recurrent/cuda/grid/resident.cuh"

namespace warpalign::detail::recurrent {

// The word of four neighbouring units, in each fourth unit's lanes. Lanes of one half exchange with each
// other.
template <class T>
__device__ __forceinline__ Word word_of_units(T v) {
  const std::uint32_t own = v.bits, second = cuda::shuffle_xor(own, 2);
  const Word pair = own | static_cast<Word>(second) << 16, other = cuda::shuffle_xor(pair, 4);
  return pair | other << 32;
}

template <class T, int kSteps, bool kShares>
__global__ void __launch_bounds__(kResidentThreads, 1) lone_forward_kernel(ResidentParams<T> p) {
  const GridPlace<1> at(p);
  const CudaCell<T> cell = cell_of(p.cell, at.cell);
  const auto rows = rows_of<true>(cell.at);
  const int hidden = cell.hidden, steps = cell.at.steps, lane = static_cast<int>(threadIdx.x) % 32;
  const int b = at.batch_row(0, at.row), source = at.batch_row(0, lane / 4);
  const bool has_row = at.unit < hidden && b != at.kNoRow;
  const Offset index = static_cast<Offset>(b) * hidden + at.unit;
  float* const partials = reinterpret_cast<float*>(cuda::dynamic_shared());
  Weights16* const more = reinterpret_cast<Weights16*>(partials + partials_of_pair(4));
  using Weights = RowWeights<T, 4, kSteps, kShares, 1>;
  Weights weights(more, p.shared_steps, hidden);
  weights.load(reinterpret_cast<Weights16*>(partials),
               [&](int gate, int r) { return row_of_gate(cell, at.rank, gate, r); });
  __syncthreads();  // the places become those of sums
  float bias[4], c = has_row ? cell.c[index] : 0.0f;
  unroll<4>([&](int gate) { bias[gate] = at.unit < hidden ? bias_of(cell, gate * hidden + at.unit) : 0.0f; });
  for (int place = 0; place < steps; ++place) {
    const int t = cell.step_at(place);
    const Offset row = has_row ? rows.first(t) + b : 0;
    // Before the wait, so that it hides the way to memory.
    T asked[4] = {};
    if (has_row) {
      unroll<4>([&](int gate) { asked[gate] = cell.gates[(row * 4 + gate) * hidden + at.unit]; });
    }
    const RowPair<T> from{{state_before(cell, rows, place, t, source), nullptr}};
    typename Weights::Sums sums[1] = {};
    typename Weights::Asked words;
    float totals[4], z[4], values[4];
    weights.ask(from.of, words);
    weights.multiply(from.of, false, words, sums);
    join_sums(sums, partials, place, totals);
    unroll<4>([&](int gate) { z[gate] = cuda::widen(asked[gate]) + bias[gate] + totals[gate]; });
    cell.activation.gates(z, values);
    c = has_row ? values[1] * c + values[0] * values[2] : 0.0f;
    const T h = cuda::narrow<T>(has_row ? values[3] * cell.activation.squash(c) : 0.0f);
    const Word word = word_of_units(h);
    if (!has_row) continue;
    if (lane % 8 == 0) {
      cuda::store_relaxed(reinterpret_cast<Word*>(cell.h_rows + row * cell.h_stride + at.unit), word);
    }
    // Now what nobody waits for.
    unroll<4>([&](int gate) {
      if (gate / 2 == at.half)
        cell.gates[(row * 4 + gate) * hidden + at.unit] = cuda::narrow<T>(values[gate]);
    });
    if (at.half == 0) {
      if (cell.tape_c) cell.tape_c[row * hidden + at.unit] = cuda::narrow<T>(c);
      if (cell.c_all) cell.write_cell(cell.c_all, row * hidden + at.unit, c);
    } else if (cell.h_all) {
      cell.h_all[row * hidden + at.unit] = h;
    }
    if (at.half == 0 && place + 1 == steps) {
      h_behind(cell)[static_cast<Offset>(b) * cell.output_stride + at.unit] = h;
      cell.c[index] = c;
    }
  }
}

}  // namespace warpalign::detail::recurrent
