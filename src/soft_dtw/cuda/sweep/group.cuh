// One group of kGroup steps of a warp: the recursion itself.
#pragma once

#include "cuda/threads/warp.cuh"
#include "soft_dtw/cuda/call/layout.h"
#include "soft_dtw/cuda/second_order/dual.cuh"

namespace warpalign::detail::soft_dtw {

// The states that a lane needs for its next row. above: Z of the previous row, in each of the lane's W
// columns. corner: Z of the previous row in the last column of the lane on the left.
template <class Cell, int W>
struct Lane {
  typename Cell::State above[W];
  typename Cell::State corner;

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int k = 0; k < W; ++k) above[k] = Cell::dead();
    corner = Cell::dead();
  }
};

template <class Cell, int W>
using GroupWeights = Weights<typename Cell::Real>[kGroup][W];

// The cell in which paths begin: the group, the step of the group in this lane (-1: another lane), and the
// lane's column. group is -1 if paths begin at the sweep's first step.
struct Start {
  int group;
  int step;
  int column;
};

// Arguments that only kernels with options use.
template <class Cell>
struct StepOptions {
  typename Cell::Penalty penalty;
  int start;  // for subsequences, the step of the group at which this lane is at row 0; otherwise -1
};

// Advances the warp by one group of steps.
//
// source.cost(q, k) is the cost of step q, column k. source.forbids(q, k) says that no path may use the cell.
// border[q] is Z left of the strip, for lane 0. out[q] becomes Z in the lane's last column. note(q, k, state)
// is called for every cell. With kStarts, paths begin in this group, at `first`. No step writes to memory, so
// that the compiler can move loads ahead.
//
// Within a group mantissas change by a factor of less than 2^(2.1 W kGroup), and so do those of the border.
// With W <= 2 both together stay far from overflow, and the border is not normalised.
template <bool kWantWeights, bool kStarts, class Source, class Cell, int W, class Note>
__device__ __forceinline__ void run_group(int lane, const Source& source, const StepOptions<Cell>& options,
                                          const Start& first, const typename Cell::State* border,
                                          Lane<Cell, W>& z, typename Cell::State (&out)[kGroup],
                                          GroupWeights<Cell, W>& weights, const Note& note) {
  using State = typename Cell::State;
  constexpr bool kOptions = Source::kOptions != Options::kNone;
  static_assert(Source::kOptions != Options::kAll || W == 1);
#pragma unroll
  for (int k = 0; k < W; ++k) z.above[k] = Cell::normal(z.above[k]);
  z.corner = Cell::normal(z.corner);
#pragma unroll
  for (int q = 0; q < kGroup; ++q) {
    State left = cuda::shuffle_up(z.above[W - 1]);
    if (lane == 0) left = W > 2 ? Cell::normal(border[q]) : border[q];
    State corner = z.corner;
    z.corner = left;
    if (Source::kOptions == Options::kAll && q == options.start) {
      corner = Cell::one();
#pragma unroll
      for (int k = 0; k < W; ++k) z.above[k] = Cell::dead();
    }
#pragma unroll
    for (int k = 0; k < W; ++k) {
      if (kStarts && q == first.step && k == first.column) corner = Cell::one();
      State here = Cell::template advance<kWantWeights, kOptions>(
          source.cost(q, k), source.scale(), options.penalty, z.above[k], left, corner, &weights[q][k]);
      if (kOptions && source.forbids(q, k)) here = Cell::dead();
      corner = z.above[k];
      z.above[k] = here;
      left = here;
      note(q, k, here);
    }
    out[q] = z.above[W - 1];
  }
}

}  // namespace warpalign::detail::soft_dtw
