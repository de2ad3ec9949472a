// The kernels of steps whose products are the front end's, for rows that have every step: a thread has four
// neighbouring units of a row, and reads and writes words of four elements: of 8 bytes in 16-bit types, of 16
// in float32.
#pragma once

#include <span>
#include <type_traits>

#include "recurrent/cuda/cell/unit_lanes.cuh"
#include "recurrent/cuda/schedule/queue.cuh"
#include "recurrent/cuda/schedule/rows_call.cuh"

namespace warpalign::detail::recurrent {

constexpr int kWordUnits = 4;
constexpr int kBlockWords = cuda::kWarpSize;           // of each of a block's rows
constexpr int kBlockRows = kRowThreads / kBlockWords;  // of the batch: they share biases

struct alignas(16) FourReals {
  float of[kWordUnits];
};
// Types that have words of four units, and such a word.
template <class T>
constexpr bool kHasWords = sizeof(T) < 8;
template <class T>
using WordOf = std::conditional_t<sizeof(T) == 2, cuda::Word, FourReals>;

// The first of a thread's units, and its row of the batch.
struct WordAt {
  int direction, b, unit;
  bool exists;

  template <class T>
  __device__ __forceinline__ explicit WordAt(const StepParams<T>& p) {
    const int hidden = p.cell[0].hidden,
              columns = (hidden + kBlockWords * kWordUnits - 1) / (kBlockWords * kWordUnits);
    const int block = static_cast<int>(blockIdx.x), thread = static_cast<int>(threadIdx.x);
    const int index = block % p.blocks_of_direction;
    direction = block / p.blocks_of_direction;
    b = index / columns * kBlockRows + thread / kBlockWords;
    unit = (index % columns * kBlockWords + thread % kBlockWords) * kWordUnits;
    exists = unit < hidden && b < p.cell[0].at.batch;
  }
};
// Blocks of a direction.
template <class T>
int blocks_of_words(const CudaCell<T>& cell) {
  return cuda::div_up(cell.hidden, kBlockWords * kWordUnits) * cuda::div_up(cell.at.batch, kBlockRows);
}

template <class T>
__device__ __forceinline__ WordOf<T> read_word(const T* from) {
  return *reinterpret_cast<const WordOf<T>*>(from);
}
template <class T>
__device__ __forceinline__ void widen(const WordOf<T>& word, float (&to)[kWordUnits]) {
  if constexpr (sizeof(T) == 2) {
    widen_word<T>(word, to);
  } else {
    unroll<kWordUnits>([&](int k) { to[k] = word.of[k]; });
  }
}
template <class T>
__device__ __forceinline__ WordOf<T> narrow(const float (&from)[kWordUnits]) {
  if constexpr (sizeof(T) == 2) {
    return narrow_word<T>(from);
  } else {
    return {{from[0], from[1], from[2], from[3]}};
  }
}
template <class T>
__device__ __forceinline__ void widen_at(const T* from, float (&to)[kWordUnits]) {
  widen<T>(read_word(from), to);
}
template <class T>
__device__ __forceinline__ void narrow_to(T* to, const float (&from)[kWordUnits]) {
  *reinterpret_cast<WordOf<T>*>(to) = narrow<T>(from);
}

// The gates hold W x + R h.
template <class T>
__global__ void __launch_bounds__(kRowThreads) cell_by_words_kernel(StepParams<T> p) {
  const WordAt at(p);
  const CudaCell<T> cell = cell_of(p.cell, at.direction);
  const int hidden = cell.hidden;
  float z[4][kWordUnits] = {};
  if (at.exists) {
    unroll<4>([&](int gate) {
      float more[kWordUnits] = {};
      if (cell.bias_ih) widen_at(cell.bias_ih + gate * hidden + at.unit, z[gate]);
      if (cell.bias_hh) widen_at(cell.bias_hh + gate * hidden + at.unit, more);
      unroll<kWordUnits>([&](int k) { z[gate][k] += more[k]; });
    });
  }
  if (!at.exists) return;
  const Offset row = static_cast<Offset>(cell.step_at(p.place)) * cell.at.batch + at.b;
  const Offset state = static_cast<Offset>(at.b) * hidden + at.unit, entry = row * hidden + at.unit;
  T* const gates = cell.gates + row * 4 * hidden + at.unit;
  auto& cells = *reinterpret_cast<FourReals*>(cell.c + state);
  WordOf<T> asked[4];
  unroll<4>([&](int gate) { asked[gate] = read_word(gates + static_cast<Offset>(gate) * hidden); });
  FourReals c = cells;
  unroll<4>([&](int gate) {
    float products[kWordUnits];
    widen<T>(asked[gate], products);
    unroll<kWordUnits>([&](int k) { z[gate][k] += products[k]; });
  });
  float h[kWordUnits];
  unroll<kWordUnits>([&](int k) {
    float values[4];
    cell.activation.gates({z[0][k], z[1][k], z[2][k], z[3][k]}, values);
    c.of[k] = values[1] * c.of[k] + values[0] * values[2];
    h[k] = values[3] * cell.activation.squash(c.of[k]);
    unroll<4>([&](int gate) { z[gate][k] = values[gate]; });
  });
  const WordOf<T> word = narrow<T>(h);
  const auto put = [word](T* to) { *reinterpret_cast<WordOf<T>*>(to) = word; };
  if (cell.projects) {
    put(cell.m + static_cast<Offset>(at.b) * cell.hidden_stride + at.unit);
  } else {
    put((p.place % 2 ? cell.h[0] : cell.h[1]) + static_cast<Offset>(at.b) * cell.output_stride + at.unit);
    if (cell.h_rows) put(cell.h_rows + row * cell.h_stride + at.unit);
    if (cell.h_all) put(cell.h_all + entry);
  }
  cells = c;
  if (cell.tape_c) {  // without a tape nobody reads the gates again
    unroll<4>([&](int gate) { narrow_to(gates + static_cast<Offset>(gate) * hidden, z[gate]); });
    narrow_to(cell.tape_c + entry, c.of);
  }
  unroll<kWordUnits>([&](int k) {
    if (cell.c_all) cell.write_cell(cell.c_all, entry + k, c.of[k]);
  });
}

// A backward step, from R^T dz of the step swept before. dh is read before the first step, and written
// after the last one.
template <class T>
__global__ void __launch_bounds__(kRowThreads) carry_by_words_kernel(StepParams<T> p) {
  const WordAt at(p);
  if (!at.exists) return;
  const CudaCell<T> cell = cell_of(p.cell, at.direction);
  const int hidden = cell.hidden, t = cell.step_back_at(p.place), last = cell.reverse ? t + 1 : t - 1;
  const Offset state = static_cast<Offset>(at.b) * hidden + at.unit;
  FourReals dh{};  // with a projection all of the gradient with respect to o u(c~)
  if (p.place > 0 || cell.projects) widen_at(cell.carried + state, dh.of);
  if (!cell.projects) {
    auto& gradients = *reinterpret_cast<FourReals*>(cell.dh + state);
    if (p.place == 0) dh = gradients;
    if (p.place == cell.at.steps) {
      gradients = dh;
      return;
    }
  }
  const Offset row = static_cast<Offset>(t) * cell.at.batch + at.b, entry = row * hidden + at.unit;
  const T* const gates = cell.gates + row * 4 * hidden + at.unit;
  auto& cells = *reinterpret_cast<FourReals*>(cell.dc + state);
  float values[4][kWordUnits], dy[kWordUnits] = {}, more[kWordUnits] = {};
  FourReals before, dc = cells;
  unroll<4>([&](int gate) { widen_at(gates + static_cast<Offset>(gate) * hidden, values[gate]); });
  if (last >= 0 && last < cell.at.steps) {
    widen_at(cell.tape_c + (static_cast<Offset>(last) * cell.at.batch + at.b) * hidden + at.unit, before.of);
  } else {
    before = *reinterpret_cast<const FourReals*>(cell.c0 + state);
  }
  if (!cell.projects) {
    if (cell.dy) widen_at(cell.dy + row * cell.dy_stride + at.unit, dy);
    if (cell.dh_all) widen_at(cell.dh_all + entry, more);
  }
  float m[kWordUnits];
  unroll<kWordUnits>([&](int k) {
    if (cell.dropout.factor != 0 && !cell.projects)
      dy[k] *= cell.dropout.of(cell.masks, t, at.b, at.unit + k);
    if (cell.dc_all) dc.of[k] += cell.read_cell(cell.dc_all, entry + k);
    const Activation<T>& a = cell.activation;
    const float i = values[0][k], f = values[1][k], g = values[2][k], o = values[3][k];
    float slopes[4];
    a.slopes({i, f, g, o}, slopes);
    const float squashed = a.squash(f * before.of[k] + i * g), dm = dh.of[k] + dy[k] + more[k];
    m[k] = o * squashed;
    const float dcell = dc.of[k] + dm * o * a.squash_slope(squashed);
    values[0][k] = dcell * g * slopes[0];
    values[1][k] = dcell * before.of[k] * slopes[1];
    values[2][k] = dcell * i * slopes[2];
    values[3][k] = dm * squashed * slopes[3];
    dc.of[k] = dcell * f;
  });
  T* const dz = cell.dz + row * cell.gates_stride + at.unit;
  unroll<4>([&](int gate) { narrow_to(dz + static_cast<Offset>(gate) * hidden, values[gate]); });
  if (cell.projects) narrow_to(cell.m_rows + entry, m);
  cells = dc;
}

template <class T>
inline const cuda::Kernel kCellByWords{kKernels, "step by products, words", cuda::type_name<T>(),
                                       cell_by_words_kernel<T>};
template <class T>
inline const cuda::Kernel kCarryByWords{kKernels, "step back by products, words", cuda::type_name<T>(),
                                        carry_by_words_kernel<T>};

// Whether a sweep can have words of four units.
template <class T>
bool has_words(const LstmProblem& p, const StepParams<T>& step) {
  if (!is_plain(p) || p.hidden % kWordUnits != 0) return false;
  for (int d = 0; d < directions_of(p); ++d) {
    const CudaCell<T>& cell = step.cell[d];
    const void* const arrays[] = {cell.bias_ih, cell.bias_hh, cell.h_rows, cell.h_all, cell.dy, cell.dh_all};
    for (const void* data : std::span(arrays, cell.projects ? 2 : 6)) {
      if (reinterpret_cast<std::uintptr_t>(data) % sizeof(WordOf<T>) != 0) return false;
    }
  }
  return true;
}

}  // namespace warpalign::detail::recurrent
