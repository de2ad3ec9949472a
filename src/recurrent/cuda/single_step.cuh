// One step without a tape, as streams take it: a launch for each layer. Products with W and with R, gates,
// the cell and the results are in one kernel, which reads the weights, x and the states as they are given.
#pragma once

#include "recurrent/cuda/memory.cuh"

namespace warpalign::detail::recurrent {

constexpr int kMostSingleRows = 16;  // more rows are worth a matrix product

template <class T>
struct SingleStepParams {
  CudaCell<T> cell;
  const T* x;  // (B, I), rows of x_stride elements
  Offset x_stride;
  int input;
  const T *ih, *hh;  // (4H, I), (4H, H)
  const T* h0;       // (B, H); null: 0
  const void* c0;    // (B, H); null: 0
  T* h_n;            // (B, H); null: not wanted
  void* c_n;         // (B, H); null: not wanted
  int tiles;         // of 8 rows
};

// Adds this lane's part of the products of a unit's 4 rows of weights with the rows of a tile.
template <class T>
__device__ __forceinline__ void add_gates(const T* weights, int depth, const T* rows, Offset stride,
                                          const CudaCell<T>& cell, int unit, int first_row, int part,
                                          int parts, int lane, Sum<T> (&sums)[32]) {
  const T *of_gate[kGroupRows], *of_row[kTileRows];
  const int batch = cell.at.batch;
#pragma unroll
  for (int gate = 0; gate < kGroupRows; ++gate) {
    of_gate[gate] = weights + (static_cast<Offset>(gate) * cell.hidden + unit) * depth;
  }
#pragma unroll
  for (int r = 0; r < kTileRows; ++r) of_row[r] = rows + min(first_row + r, batch - 1) * stride;
  const int pieces = depth / Piece<T>::kSize;
  add_products<T>(of_gate, of_row, batch - first_row, pieces * part / parts, pieces * (part + 1) / parts,
                  lane, sums);
}

template <class T>
__global__ void __launch_bounds__(kTileThreads) single_step_kernel(SingleStepParams<T> p) {
  constexpr int kParts = 2, kUnits = kTileWarps / kParts;
  __shared__ Sum<T> parts[kTileWarps][32];
  const CudaCell<T>& cell = p.cell;
  const int block = static_cast<int>(blockIdx.x), thread = static_cast<int>(threadIdx.x);
  const int first_row = block % p.tiles * kTileRows, first_unit = block / p.tiles * kUnits;
  const int warp = thread / cuda::kWarpSize, lane = thread % cuda::kWarpSize, part = warp % kParts;
  Sum<T> sums[32] = {};
  if (const int unit = first_unit + warp / kParts; unit < cell.hidden) {
    add_gates(p.ih, p.input, p.x, p.x_stride, cell, unit, first_row, part, kParts, lane, sums);
    if (p.h0)
      add_gates<T>(p.hh, cell.hidden, p.h0, cell.hidden, cell, unit, first_row, part, kParts, lane, sums);
  }
  parts[warp][lane] = sum_for_lane(sums, lane);
  __syncthreads();
  const int own = thread / kTileRows, r = thread % kTileRows, unit = first_unit + own, b = first_row + r;
  if (own >= kUnits || unit >= cell.hidden || b >= cell.at.batch) return;
  Sum<T> z[4], values[4];
#pragma unroll
  for (int gate = 0; gate < 4; ++gate) {
    z[gate] = bias_of(cell, gate * cell.hidden + unit);
#pragma unroll
    for (int k = 0; k < kParts; ++k) z[gate] += parts[own * kParts + k][gate * kTileRows + r];
  }
  cell.activation.gates(z, values);
  const Offset index = static_cast<Offset>(b) * cell.hidden + unit;
  const Sum<T> before = p.c0 ? cell.read_cell(p.c0, index) : Sum<T>(0);
  const Sum<T> c = values[1] * before + values[0] * values[2];
  const T h = cuda::narrow<T>(values[3] * cell.activation.squash(c));
  if (cell.tape_h) cell.tape_h[index] = h;
  if (cell.y) cell.y[b * cell.y_stride + unit] = h;
  if (cell.h_all) cell.h_all[index] = h;
  if (p.h_n) p.h_n[index] = h;
  if (cell.c_all) cell.write_cell(cell.c_all, index, c);
  if (p.c_n) cell.write_cell(p.c_n, index, c);
}
template <class T>
inline const cuda::Kernel kSingleStep{kKernels, "single step", cuda::type_name<T>(), single_step_kernel<T>};

// Enqueues a layer's step; false: it has to run in another way.
template <class T>
bool run_single_step(Queue& queue, const LstmProblem& p, const SingleStepParams<T>& step, bool with_tape) {
  const auto is_whole = [](const void* data, Offset stride) {
    return reinterpret_cast<std::uintptr_t>(data) % sizeof(Piece<T>) == 0 && stride % Piece<T>::kSize == 0;
  };
  if (p.steps != 1 || p.batch > kMostSingleRows || with_tape || p.bidirectional || p.projection > 0 ||
      p.layer_norm || !is_plain(p) || drops_weights(p) || queue.execution().batch_invariant) {
    return false;
  }
  if (!is_whole(step.x, step.x_stride) || !is_whole(step.ih, step.input) || !is_whole(step.hh, p.hidden) ||
      !is_whole(step.h0, p.hidden)) {
    return false;
  }
  constexpr int kUnits = kTileWarps / 2;
  queue.launch(kSingleStep<T>, cuda::div_up(p.hidden, kUnits) * step.tiles, kTileThreads, step);
  return true;
}

}  // namespace warpalign::detail::recurrent
