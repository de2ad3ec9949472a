// One step without a tape, as streams take it: a launch for each layer. Products with W and with R, gates,
// the cell and the results are in one kernel, which reads the weights, x and the states as they are given.
#pragma once

#include "cuda/launch/dependent.cuh"
#include "recurrent/cuda/steps/forward.cuh"
#include "recurrent/cuda/stream/single_params.cuh"

namespace warpalign::detail::recurrent {

// The results of a unit of row b. z: of its gates, with biases; before: c0.
template <class T>
__device__ __forceinline__ void finish_single_step(const SingleStepParams<T>& p, const Sum<T> (&z)[4],
                                                   Sum<T> before, int b, int unit) {
  const CudaCell<T>& cell = p.cell;
  const Offset index = static_cast<Offset>(b) * cell.hidden + unit;
  Sum<T> values[4];
  cell.activation.gates(z, values);
  const Sum<T> c = values[1] * before + values[0] * values[2];
  const T h = cuda::narrow<T>(values[3] * cell.activation.squash(c));
  if (cell.h_rows) cell.h_rows[b * cell.h_stride + unit] = h;
  if (cell.h_all) cell.h_all[index] = h;
  if (p.h_n) p.h_n[index] = h;
  if (cell.c_all) cell.write_cell(cell.c_all, index, c);
  if (p.c_n) cell.write_cell(p.c_n, index, c);
}

// A batch of one row. What does not depend on the layer below is done while that one still runs: R h0, and
// reading W and c0.
template <class T>
__global__ void __launch_bounds__(kTileThreads, 2) single_step_kernel(SingleStepParams<T> p) {
  constexpr int kParts = 2, kUnits = kTileWarps / kParts;
  __shared__ Sum<T> parts[kTileWarps][kGroupRows];
  const CudaCell<T>& cell = p.cell;
  cuda::let_next_launch_begin();
  const int thread = static_cast<int>(threadIdx.x), warp = thread / cuda::kWarpSize;
  const int lane = thread % cuda::kWarpSize, part = warp % kParts;
  const int first_unit = static_cast<int>(blockIdx.x) * kUnits, own_unit = first_unit + thread;
  const bool finishes = thread < kUnits && own_unit < cell.hidden;
  Sum<T> z[4] = {}, before = 0;
  if (finishes) {
    unroll<4>([&](int gate) { z[gate] = bias_of(cell, gate * cell.hidden + own_unit); });
    if (p.c0) before = cell.read_cell(p.c0, own_unit);
  }
  Sum<T> sums[kGroupRows] = {};
  const Offset unit = min(first_unit + warp / kParts, cell.hidden - 1);
  const auto product_with = [&](const T* matrix, int depth) {
    const int pieces = depth / Piece<T>::kSize;
    GroupProduct<T> product;
    product.first = pieces * part / kParts + lane, product.end = pieces * (part + 1) / kParts;
    unroll<kGroupRows>(
        [&](int w) { product.weights[w] = matrix + (w * Offset{cell.hidden} + unit) * depth; });
    product.ask(product.first);
    return product;
  };
  if (p.h0) {
    const T* const rows[1] = {p.h0};
    product_with(p.hh, cell.hidden).add(rows, 1, sums);
  }
  const T* const rows[1] = {p.x};
  GroupProduct<T> of_x = product_with(p.ih, p.input);
  cuda::wait_for_launch_before();
  of_x.add(rows, 1, sums);
  unroll<kGroupRows>([&](int w) {
    const Sum<T> sum = cuda::reduce_sum(sums[w]);
    if (lane == w) parts[warp][w] = sum;
  });
  __syncthreads();
  if (!finishes) return;
  unroll<4>([&](int gate) { unroll<kParts>([&](int k) { z[gate] += parts[thread * kParts + k][gate]; }); });
  finish_single_step(p, z, before, 0, own_unit);
}
template <class T>
inline const cuda::Kernel kSingleStep{kKernels, "single step of a row", cuda::type_name<T>(),
                                      single_step_kernel<T>};
template <class T>
void launch_single_lanes(Queue& queue, const SingleStepParams<T>& step, cuda::LaunchConfig config) {
  config.blocks = cuda::div_up(step.cell.hidden, kTileWarps / 2);
  queue.launch(kSingleStep<T>, config, step);
}

}  // namespace warpalign::detail::recurrent
