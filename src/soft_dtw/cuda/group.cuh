// One group of kGroup steps of a warp: the recursion itself.
#pragma once

#include "cuda/warp.cuh"
#include "soft_dtw/cuda/dual.cuh"
#include "soft_dtw/cuda/layout.h"

namespace warpalign::detail::soft_dtw {

// What lies above and to the left of a lane's next row: Z of the row before in each of its W columns, and in
// the last column of the lane on its left, one row further up.
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

// Where paths begin, if not at the sweep's very first step: in this group, and in this lane at this step and
// column of it; -1: in none.
struct Start {
  int group;
  int step;
  int column;
};

// What kernels with options need besides.
template <class Cell>
struct StepOptions {
  typename Cell::Penalty penalty;
  int start;  // the step at which this lane is at row 0, if paths may begin in any column of it; else -1
};

// source.cost(q, k): of step q, column k; source.forbids(q, k): no path may use it. border[q]: Z left of the
// strip, for lane 0. out gets the last column's values. Nothing is stored in memory between the steps, so
// that loads can run ahead. note(q, k, state): sees every cell.
//
// Within a group mantissas drift, by less than 2^(2.1 W kGroup); so do those of the border, which may come as
// they are where both together stay far from overflow. kStarts: paths begin in this group, at `first`.
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
