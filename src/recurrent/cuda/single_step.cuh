// One step without a tape, as streams take it: a launch for each layer. Products with W and with R, gates,
// the cell and the results are in one kernel, which reads the weights, x and the states as they are given.
#pragma once

#include "cuda/dependent.cuh"
#include "recurrent/cuda/single_params.cuh"

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

// A unit's 4 rows of weights times kRows rows of the batch, by the lanes of a warp.
template <class T, int kRows>
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
#pragma unroll
    for (int w = 0; w < kGroupRows; ++w) weights[w] = from + (static_cast<Offset>(w) * step + unit) * depth;
  }
  __device__ __forceinline__ int piece_at(int k) const { return pieces.begin + lane + k * cuda::kWarpSize; }
  __device__ __forceinline__ static const Piece<T>& piece_of(const T* row, int piece) {
    return *reinterpret_cast<const Piece<T>*>(row + static_cast<Offset>(piece) * kSize);
  }
  __device__ __forceinline__ void read_ahead(int first) {
#pragma unroll
    for (int k = 0; k < kAhead; ++k) {
#pragma unroll
      for (int w = 0; w < kGroupRows; ++w) {
        if (piece_at(first + k) < pieces.end) ahead[k][w] = piece_of(weights[w], piece_at(first + k));
      }
    }
  }
  // sums[kRows w + r] += weights[w] times row r, of `count` rows from `rows` on. read_ahead(0) has been
  // called.
  __device__ __forceinline__ void add(const T* rows, Offset stride, int count,
                                      Sum<T> (&sums)[kGroupRows * kRows]) {
#pragma unroll 1
    for (int first = 0; piece_at(first) - lane < pieces.end; first += kAhead) {
      if (first > 0) read_ahead(first);
#pragma unroll
      for (int k = 0; k < kAhead; ++k) {
        const int piece = piece_at(first + k);
        if (piece >= pieces.end) continue;
#pragma unroll
        for (int r = 0; r < kRows; ++r) {
          if (r >= count) continue;  // the same for all lanes
          const Piece<T> row = piece_of(rows + r * stride, piece);
#pragma unroll
          for (int e = 0; e < kSize; ++e) {
            const Sum<T> entry = cuda::widen(row.entries[e]);
#pragma unroll
            for (int w = 0; w < kGroupRows; ++w) {
              sums[w * kRows + r] += cuda::widen(ahead[k][w].entries[e]) * entry;
            }
          }
        }
      }
    }
  }
};

// Which sum over all lanes a lane gets; the first 4 kRows lanes get one each.
template <class Real, int kSums>
__device__ __forceinline__ Real own_sum(Real (&sums)[kSums], int lane) {
  if constexpr (kSums == cuda::kWarpSize) {
    return sum_for_lane(sums, lane);
  } else {
    Real own = 0;
#pragma unroll
    for (int k = 0; k < kSums; ++k) {
      const Real sum = cuda::reduce_sum(sums[k]);
      if (lane == k) own = sum;
    }
    return own;
  }
}

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

// What does not depend on the layer below is done while that one still runs: R h0, and reading W and c0.
// kRows: of the batch, of a block.
template <class T, int kRows>
__global__ void __launch_bounds__(kTileThreads, 2) single_step_kernel(SingleStepParams<T> p) {
  constexpr int kParts = 2, kUnits = kTileWarps / kParts, kSums = kGroupRows * kRows;
  __shared__ Sum<T> parts[kTileWarps][kSums];
  const CudaCell<T>& cell = p.cell;
  cuda::let_next_launch_begin();
  const int block = static_cast<int>(blockIdx.x), thread = static_cast<int>(threadIdx.x);
  const int first_row = block % p.tiles * kRows, first_unit = block / p.tiles * kUnits;
  const int warp = thread / cuda::kWarpSize, lane = thread % cuda::kWarpSize, part = warp % kParts;
  const int count = cell.at.batch - first_row;
  const int own = thread / kRows, r = thread % kRows, own_unit = first_unit + own, b = first_row + r;
  const bool finishes = own < kUnits && own_unit < cell.hidden && b < cell.at.batch;
  const Offset index = static_cast<Offset>(b) * cell.hidden + own_unit;
  Sum<T> z[4] = {}, before = 0;
  if (finishes) {
#pragma unroll
    for (int gate = 0; gate < 4; ++gate) z[gate] = bias_of(cell, gate * cell.hidden + own_unit);
    if (p.c0) before = cell.read_cell(p.c0, index);
  }
  Sum<T> sums[kSums] = {};
  const int unit = min(first_unit + warp / kParts, cell.hidden - 1);
  if (p.h0) {
    UnitProduct<T, kRows> of_h(p.hh, unit, cell.hidden, cell.hidden, part, kParts);
    of_h.read_ahead(0);
    of_h.add(p.h0 + static_cast<Offset>(first_row) * cell.hidden, cell.hidden, count, sums);
  }
  UnitProduct<T, kRows> of_x(p.ih, unit, cell.hidden, p.input, part, kParts);
  of_x.read_ahead(0);
  cuda::wait_for_launch_before();
  of_x.add(p.x + first_row * p.x_stride, p.x_stride, count, sums);
  const Sum<T> sum = own_sum(sums, lane);
  if (lane < kSums) parts[warp][lane] = sum;
  __syncthreads();
  if (!finishes) return;
#pragma unroll
  for (int gate = 0; gate < 4; ++gate) {
#pragma unroll
    for (int k = 0; k < kParts; ++k) z[gate] += parts[own * kParts + k][gate * kRows + r];
  }
  finish_single_step(p, z, before, b, own_unit);
}
template <class T, int kRows>
inline const cuda::Kernel kSingleStep{kKernels, kRows == 1 ? "single step of a row" : "single step",
                                      cuda::type_name<T>(), single_step_kernel<T, kRows>};
template <int kRows, class T>
void launch_single_lanes(Queue& queue, const LstmProblem& p, SingleStepParams<T> step,
                         cuda::LaunchConfig config) {
  constexpr int kUnits = kTileWarps / 2;
  step.tiles = cuda::div_up(p.batch, kRows);
  config.blocks = cuda::div_up(p.hidden, kUnits) * step.tiles;
  queue.launch(kSingleStep<T, kRows>, config, step);
}

}  // namespace warpalign::detail::recurrent
