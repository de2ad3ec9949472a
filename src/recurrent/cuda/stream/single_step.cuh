// One step without a tape, as streams take it: a launch for each layer. Products with W and with R, gates,
// the cell and the results are in one kernel, which reads the weights, x and the states as they are given.
#pragma once

#include "cuda/launch/dependent.cuh"
#include "recurrent/cuda/steps/forward.cuh"
#include "recurrent/cuda/stream/single_params.cuh"

namespace warpalign::detail::recurrent {

// The pieces of a depth that a part of it has, dealt out to the lanes.
struct PiecesOfPart {
  int begin, end;

  template <class T>
  static __device__ __forceinline__ PiecesOfPart of(int depth, int part, int parts) {
    const int pieces = depth / Piece<T>::kSize;
    return {pieces * part / parts, pieces * (part + 1) / parts};
  }
};

// A unit's 4 rows of weights times a row of the batch, by the lanes of a warp.
template <class T>
struct UnitProduct {
  static constexpr int kSize = Piece<T>::kSize;
  static constexpr int kAhead =
      2;  // pieces of each row of weights that a lane reads before the first product

  const T* weights[kGroupRows];
  PiecesOfPart pieces;
  int lane;
  Piece<T> ahead[kAhead][kGroupRows];

  // The rows lie `step` rows of `depth` elements apart.
  __device__ __forceinline__ UnitProduct(const T* from, int unit, int step, int depth, int part, int parts)
      : pieces(PiecesOfPart::of<T>(depth, part, parts)),
        lane(static_cast<int>(threadIdx.x) % cuda::kWarpSize) {
    unroll<kGroupRows>([&](int w) { weights[w] = from + (static_cast<Offset>(w) * step + unit) * depth; });
  }
  __device__ __forceinline__ int piece_at(int k) const { return pieces.begin + lane + k * cuda::kWarpSize; }
  __device__ __forceinline__ static const Piece<T>& piece_of(const T* row, int piece) {
    return *reinterpret_cast<const Piece<T>*>(row + static_cast<Offset>(piece) * kSize);
  }
  __device__ __forceinline__ void read_ahead(int first) {
    unroll<kAhead>([&](int k) {
      unroll<kGroupRows>([&](int w) {
        if (piece_at(first + k) < pieces.end) ahead[k][w] = piece_of(weights[w], piece_at(first + k));
      });
    });
  }
  // sums[w] += weights[w] times `row`. read_ahead(0) has been called.
  __device__ __forceinline__ void add(const T* row, Sum<T> (&sums)[kGroupRows]) {
#pragma unroll 1
    for (int first = 0; piece_at(first) - lane < pieces.end; first += kAhead) {
      if (first > 0) read_ahead(first);
#pragma unroll
      for (int k = 0; k < kAhead; ++k) {
        const int piece = piece_at(first + k);
        if (piece >= pieces.end) continue;
        const Piece<T> packed = piece_of(row, piece);
        unroll<kSize>([&](int e) {
          const Sum<T> entry = cuda::widen(packed.entries[e]);
          unroll<kGroupRows>([&](int w) { sums[w] += cuda::widen(ahead[k][w].entries[e]) * entry; });
        });
      }
    }
  }
};

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
  const int unit = min(first_unit + warp / kParts, cell.hidden - 1);
  if (p.h0) {
    UnitProduct<T> of_h(p.hh, unit, cell.hidden, cell.hidden, part, kParts);
    of_h.read_ahead(0);
    of_h.add(p.h0, sums);
  }
  UnitProduct<T> of_x(p.ih, unit, cell.hidden, p.input, part, kParts);
  of_x.read_ahead(0);
  cuda::wait_for_launch_before();
  of_x.add(p.x, sums);
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
