// Types shared by the driver of the CPU path (cpu.cpp) and its kernels (cpu_kernel.inl, one copy per
// instruction set). Plain data only: an inline function here would be compiled with several sets of flags,
// and the linker would merge the copies.
//
// Terms. A pair's n x m table is cut into strips, `tile` rows each, and a strip into tiles of `tile` columns.
// A sweep goes over every strip of a pair, forward (R) or reverse (E). Within a tile it goes from
// anti-diagonal to anti-diagonal. A border is the row or column of states between two neighbouring tiles.
#pragma once

#include <cstdint>

#include "cpu/isa.h"
#include "cpu/pause.h"
#include "soft_dtw/metric.h"

namespace warpalign::detail::soft_dtw {

// The number of elements of the largest vector. Arrays that vectors run over have this many more elements.
constexpr int kCpuPad = 16;

// Rows and columns of a tile. A tile's transition weights fit into the second-level cache. Smaller tiles
// leave more tiles without E, which the reverse sweep skips.
constexpr int kCpuTile = 128;
// A pair whose n and m are at most this is one tile: its reverse sweep then needs no second forward sweep.
constexpr int kCpuOneTile = 256;
constexpr int kCpuTileStride = kCpuTile + kCpuPad;
// The most features for which the sweeps' inner loops compute the cost and accumulate the gradient.
constexpr int kCpuFewFeatures = 4;
// With more features, the number of anti-diagonals whose costs are computed together.
constexpr int kCpuCostDiagonals = 8;

// The rows low <= i <= high of an anti-diagonal i + j that a band holds; low = high + 1 if there is none.
// From one anti-diagonal to the next, low and high grow by at most 1.
struct CpuRows {
  std::int32_t low;
  std::int32_t high;
};

// The columns of a strip that are swept: begin <= j < end.
struct CpuColumns {
  std::int32_t begin;
  std::int32_t end;
};

// Z of the row above the first, in a subsequence.
template <class Real, class Exponent>
struct CpuStart {
  Real mantissa;
  Exponent exponent;
};

// One sweep over a pair, by one worker or by several at once. The workers take one strip after another, and
// each strip follows the previous one at a short distance. A worker waits only for a strip that another
// worker has taken.
struct CpuSweep {
  static constexpr std::int32_t kEnd = INT32_MAX;

  std::int32_t taken = 0;  // number of strips that have been taken
  // Forward: the largest |c|, as the bits of a double. The bits order NaN above inf above all numbers.
  std::int64_t largest_cost = 0;
};

// One pair. Exponent is std::int32_t where Real is float, and double where Real is double. The copies that
// several workers of a pair have differ in their scratch memory only.
template <class Real, class Exponent>
struct CpuPair {
  int n = 0;
  int m = 0;
  int dim = 0;     // 0: from a cost matrix
  int tile = 0;    // rows and columns of a tile
  Real scale = 0;  // of costs: log2(e) / gamma; 1 for hard DTW
  Metric metric = Metric::kSquared;
  // Costs are computed into buffers, and gradients from the stored E, whatever dim is.
  bool buffered = false;

  // 2^-penalty, the factor of a step that is not diagonal. Hard DTW has the penalty itself in
  // `penalty_mantissa`.
  bool penalized = false;
  Real penalty_mantissa = 1;
  Exponent penalty_exponent = 0;

  const CpuColumns* strips = nullptr;  // [strip]; with gradients `begin` is a multiple of `tile`
  // [strip]: the number of columns of the border to the next strip that the current sweep has written, in its
  // direction. 0 before the sweep; CpuSweep::kEnd: all columns.
  std::int32_t* reached = nullptr;
  const CpuRows* band = nullptr;  // (n + m - 1); null: no band

  // Series, one row of x_stride (y_stride) elements per feature, padded with copies of the last element. y is
  // preceded by kCpuPad arbitrary elements. y is stored in reverse, so that both series are read forward
  // along an anti-diagonal.
  const Real* x = nullptr;
  const Real* y = nullptr;
  std::int64_t x_stride = 0;
  std::int64_t y_stride = 0;
  // Laid out like a feature: 0 where the step is missing, else 1. Both or neither are null.
  const Real* x_weight = nullptr;
  const Real* y_weight = nullptr;

  // The caller's cost matrix and alignment, as float or double.
  const void* cost = nullptr;
  std::int64_t cost_stride[2] = {0, 0};
  void* alignment = nullptr;  // may be null
  std::int64_t alignment_stride = 0;
  bool float_storage = true;

  // Subsequence only; null: paths begin and end in the corners. `start` is Z of the row above the first; a
  // cell is entered from it downwards and diagonally, and both steps together are one start. `inflow` is E of
  // the last row.
  const CpuStart<Real, Exponent>* start = nullptr;
  const Real* inflow = nullptr;

  double* entropy =
      nullptr;  // [strip]: its part of the entropy of the distribution of paths, in bits; may be null

  // Sums of E times the derivative of the metric, laid out like x and y; may be null.
  Real* grad_x = nullptr;
  Real* grad_y = nullptr;

  // Borders between tiles. Rows have m + 1 elements; the first is the column left of the matrix. Columns are
  // (tile columns, n), stored only with want_gradient. Border row k is stored at k modulo row_count: all rows
  // with want_gradient, otherwise one more than the number of strips in work at the same time.
  bool want_gradient = false;
  int row_count = 0;
  Real* row_mantissa = nullptr;
  Exponent* row_exponent = nullptr;
  Real* column_mantissa = nullptr;
  Exponent* column_exponent = nullptr;

  // E that flows from strip to strip in the reverse sweep: rows of m + 1 elements, row k at k modulo
  // flow_count.
  int flow_count = 0;
  Real* flow_below = nullptr;

  // A worker's scratch: E that flows from tile to tile (two columns), three or four anti-diagonals, the
  // transition weights, and, where several workers share a pair, a tile's gradients.
  Real* flow_right = nullptr;
  Real* diagonal_mantissa = nullptr;  // 3 (rows + padding)
  Exponent* diagonal_exponent = nullptr;
  Real* diagonal_flow = nullptr;  // 4 (rows + padding)
  Real* diagonal_cost = nullptr;  // kCpuCostDiagonals (rows + padding)
  Real* weight_up = nullptr;
  Real* weight_left = nullptr;
  Real* tile_grad_x = nullptr;  // rows of kCpuTileStride per feature; null: gradients are added in place
  Real* tile_grad_y = nullptr;
};

using CpuPair32 = CpuPair<float, std::int32_t>;
using CpuPair64 = CpuPair<double, double>;

// Tangents of one pair's inputs, states and results. Each is laid out like the member of the same name in
// CpuPair64. Tangents of costs and of R are in units of the cost, not scaled by gamma.
struct CpuTangents {
  double inverse_gamma = 0;
  double cost_factor = 1;  // factor of the sums of the metric's slopes times tangents: 2 for squares, else 1

  const double* x = nullptr;
  const double* y = nullptr;
  const void* cost = nullptr;  // null: all 0
  std::int64_t cost_stride[2] = {0, 0};

  bool want_gradient = false;  // otherwise only the value's tangent, and E's tangent in CpuPair64::alignment
  double* grad_x = nullptr;
  double* grad_y = nullptr;

  double* row = nullptr;  // of R; the last row's last element is the value's tangent
  double* column = nullptr;
  double* flow_below = nullptr;
  double* flow_right = nullptr;
  double* diagonal = nullptr;  // 3 (rows + padding)
  double* diagonal_flow = nullptr;
  double* diagonal_cost = nullptr;     // kCpuCostDiagonals (rows + padding)
  double* diagonal_inverse = nullptr;  // the same size; 1 / C for Metric::kNorm
  double* weight_up = nullptr;
  double* weight_left = nullptr;
};

// A forward sweep's result: log2 Z[n-1, m-1] = exponent + log2(mantissa), or, for hard DTW, R[n-1, m-1] =
// mantissa; and the largest |c|, where NaN is larger than inf.
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
  // The pair has want_gradient. Gradients whose memory is not null are computed as well.
  CpuOutcome (*forward_jvp)(const CpuPair64&, const CpuTangents&);
  void (*reverse_jvp)(const CpuPair64&, const CpuTangents&);
};

const CpuKernels& kernels_for(cpu::IsaTag<cpu::Isa::kBaseline>);
const CpuKernels& kernels_for(cpu::IsaTag<cpu::Isa::kAvx2>);
const CpuKernels& kernels_for(cpu::IsaTag<cpu::Isa::kAvx512>);

}  // namespace warpalign::detail::soft_dtw
