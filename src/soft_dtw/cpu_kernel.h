// What the CPU path's driver (cpu.cpp) and its kernels (cpu_kernel.inl, one copy per instruction set) share.
// Plain data only: no inline function here may be compiled under two sets of flags.
#pragma once

#include <cstdint>

#include "cpu/isa.h"
#include "cpu/pause.h"
#include "soft_dtw/metric.h"

namespace warpalign::detail::soft_dtw {

// Largest vector in elements: every array that vectors run over has so many slots to spare.
constexpr int kCpuPad = 16;

// Tile of the matrix that is processed at once: its transition weights should stay in the second-level cache,
// and small tiles find more of themselves without any E on the way back.
constexpr int kCpuTile = 128;
// A pair up to this long is one tile: on the way back it then needs no second forward sweep.
constexpr int kCpuOneTile = 256;
constexpr int kCpuTileStride = kCpuTile + kCpuPad;
// Up to so many features the cost is computed, and the gradient accumulated, inside the sweeps' inner loops.
constexpr int kCpuFewFeatures = 4;
// With more of them, so many anti-diagonals' costs are computed together.
constexpr int kCpuCostDiagonals = 8;

// Of a band: the rows of anti-diagonal i + j, low = high + 1 if it has none; both grow by at most 1 from one
// anti-diagonal to the next.
struct CpuRows {
  std::int32_t low;
  std::int32_t high;
};

// The columns that a tile's height of rows is swept over: begin <= j < end.
struct CpuColumns {
  std::int32_t begin;
  std::int32_t end;
};

template <class Real, class Exponent>
struct CpuStart {
  Real mantissa;
  Exponent exponent;
};

// One sweep over a pair, by one worker or by several at once: they take its strips, a tile's height of rows
// each, one after the other, and every strip follows closely behind the one before it. A strip that is taken
// has a worker, so that nobody ever waits for what nobody does.
struct CpuSweep {
  static constexpr std::int32_t kEnd = INT32_MAX;

  std::int32_t taken = 0;
  // Forward: the largest |c| as the bits of a double, which order NaN above inf above all numbers.
  std::int64_t largest_cost = 0;
};

// One pair. Exponents are int32 for float, double for double. Its workers differ in their scratch alone.
template <class Real, class Exponent>
struct CpuPair {
  int n = 0;
  int m = 0;
  int dim = 0;     // 0: from a cost matrix
  int tile = 0;    // rows and columns of a tile
  Real scale = 0;  // of costs: log2(e) / gamma; 1 for hard DTW
  Metric metric = Metric::kSquared;
  // Costs by buffers, whatever dim is; gradients from the stored E.
  bool buffered = false;

  // 2^(-penalty) of a step that is not diagonal; for hard DTW the penalty itself is in `penalty_mantissa`.
  bool penalized = false;
  Real penalty_mantissa = 1;
  Exponent penalty_exponent = 0;

  const CpuColumns* strips = nullptr;  // one per `tile` rows; with gradients they begin at a tile's column
  // [strip], of a sweep: columns whose border to the next strip is there, counted in the sweep's direction;
  // CpuSweep::kEnd: all. 0 when it begins.
  std::int32_t* reached = nullptr;
  const CpuRows* band = nullptr;  // (n + m - 1); null: no band

  // Series, one row of x_stride (y_stride) per feature, padded with copies of the last element, and y with
  // kCpuPad arbitrary ones in front. y runs
  // backwards: along an anti-diagonal both series are then read forwards.
  const Real* x = nullptr;
  const Real* y = nullptr;
  std::int64_t x_stride = 0;
  std::int64_t y_stride = 0;
  // Laid out like a feature: 0 where the step is missing, else 1; both or none.
  const Real* x_weight = nullptr;
  const Real* y_weight = nullptr;

  // The caller's cost matrix and alignment, as float or double.
  const void* cost = nullptr;
  std::int64_t cost_stride[2] = {0, 0};
  void* alignment = nullptr;  // null: not wanted
  std::int64_t alignment_stride = 0;
  bool float_storage = true;

  // Of a subsequence: Z of the row above the first, whose cells are entered downwards and diagonally as one
  // start, and E of the last row. Null: paths begin and end in the corners.
  const CpuStart<Real, Exponent>* start = nullptr;
  const Real* inflow = nullptr;

  double* entropy = nullptr;  // [strip] in bits, of the distribution of paths; null: not wanted

  // Sums of E times the derivative of the metric, laid out like x and y; null: not wanted.
  Real* grad_x = nullptr;
  Real* grad_y = nullptr;

  // Borders between tiles: rows (m + 1), with the column left of the matrix in front; columns (tile columns,
  // n). Without gradient there are no columns, and row k is in the place of row k - row_count: one more than
  // strips can be worked on at once.
  bool want_gradient = false;
  int row_count = 0;
  Real* row_mantissa = nullptr;
  Exponent* row_exponent = nullptr;
  Real* column_mantissa = nullptr;
  Exponent* column_exponent = nullptr;

  // Gradient: E that flows from strip to strip, rows of m + 1 that follow each other as those above.
  int flow_count = 0;
  Real* flow_below = nullptr;

  // A worker's scratch: E that flows from tile to tile (two columns), anti-diagonals, the transition weights,
  // and where several workers share a pair, a tile's gradients.
  Real* flow_right = nullptr;
  Real* diagonal_mantissa = nullptr;  // 3 (rows + padding)
  Exponent* diagonal_exponent = nullptr;
  Real* diagonal_flow = nullptr;  // 4 (rows + padding)
  Real* diagonal_cost = nullptr;  // kCpuCostDiagonals (rows + padding)
  Real* weight_up = nullptr;
  Real* weight_left = nullptr;
  Real* tile_grad_x = nullptr;  // rows of kCpuTileStride per feature; null: added up in place
  Real* tile_grad_y = nullptr;
};

using CpuPair32 = CpuPair<float, std::int32_t>;
using CpuPair64 = CpuPair<double, double>;

// Tangents of one pair's inputs, states and results; each is laid out like its namesake in CpuPair64. All are
// in units of the cost, not scaled by gamma.
struct CpuTangents {
  double inverse_gamma = 0;
  double cost_factor = 1;  // of the sums of the metric's slopes times tangents: 2 for squares, else 1

  const double* x = nullptr;
  const double* y = nullptr;
  const void* cost = nullptr;  // null: all 0
  std::int64_t cost_stride[2] = {0, 0};

  bool want_gradient = false;  // else the value's tangent alone; E's goes to CpuPair64::alignment
  double* grad_x = nullptr;
  double* grad_y = nullptr;

  double* row = nullptr;  // of R; the last one is the value's
  double* column = nullptr;
  double* flow_below = nullptr;
  double* flow_right = nullptr;
  double* diagonal = nullptr;  // 3 (rows + padding)
  double* diagonal_flow = nullptr;
  double* diagonal_cost = nullptr;     // kCpuCostDiagonals (rows + padding)
  double* diagonal_inverse = nullptr;  // the same, of kNorm 1 / C
  double* weight_up = nullptr;
  double* weight_left = nullptr;
};

// log2 Z[n-1, m-1] = exponent + log2(mantissa), for hard DTW R[n-1, m-1] = mantissa; and the largest |c|,
// with NaN above inf above all numbers.
struct CpuOutcome {
  double mantissa;
  double exponent;
  double largest_cost;
};

template <class Pair>
using CpuSweepKernel = void (*)(const Pair&, CpuSweep&);

// The kernels of one instruction set. reverse follows forward on the same pair.
struct CpuKernels {
  CpuSweepKernel<CpuPair32> forward32;
  CpuSweepKernel<CpuPair32> reverse32;
  CpuSweepKernel<CpuPair64> forward64;
  CpuSweepKernel<CpuPair64> reverse64;
  CpuSweepKernel<CpuPair64> forward_hard;
  CpuSweepKernel<CpuPair64> reverse_hard;
  // With CpuPair64::want_gradient; its gradients, if laid out, are computed besides.
  CpuOutcome (*forward_jvp)(const CpuPair64&, const CpuTangents&);
  void (*reverse_jvp)(const CpuPair64&, const CpuTangents&);
};

const CpuKernels& kernels_for(cpu::IsaTag<cpu::Isa::kBaseline>);
const CpuKernels& kernels_for(cpu::IsaTag<cpu::Isa::kAvx2>);
const CpuKernels& kernels_for(cpu::IsaTag<cpu::Isa::kAvx512>);

}  // namespace warpalign::detail::soft_dtw
