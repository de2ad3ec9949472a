// One pair: which tiles are swept in which order, and what is kept between them. Included once per
// instruction set, with WARPALIGN_SIMD_NAMESPACE and WARPALIGN_CPU_KERNELS (the name of its table) defined.
#include "cpu/simd.h"
#include "soft_dtw/cpu_kernel.h"

// clang-format off: in this order
#include "soft_dtw/cpu_cell.inl"
#include "soft_dtw/cpu_cost.inl"
#include "soft_dtw/cpu_forward.inl"
#include "soft_dtw/cpu_reverse.inl"
#include "soft_dtw/cpu_tangent.inl"
// clang-format on

namespace WARPALIGN_SIMD_NAMESPACE {

WARPALIGN_INLINE int tiles(int length, int tile) { return (length + tile - 1) / tile; }

// Calls body(Features<dim>{}), for few features.
template <int kDim>
struct Features {
  static constexpr int value = kDim;
};
template <class Body>
WARPALIGN_INLINE void with_features(int dim, Body body) {
  static_assert(kCpuFewFeatures == 4);
  switch (dim) {
    case 1:
      return body(Features<1>{});
    case 2:
      return body(Features<2>{});
    case 3:
      return body(Features<3>{});
    default:
      return body(Features<4>{});
  }
}

template <class Cell, bool kWantWeights>
void forward_any_cost(const typename Cell::Pair& p, const Tile<Cell>& t, typename Cell::Range& range) {
  if (p.dim == 0) {
    forward_tile<Cell, kWantWeights>(p, t, MatrixCost<Cell>(p, t.row0, t.column0, t.h), range);
  } else if (p.buffered) {
    forward_tile<Cell, kWantWeights>(p, t, BufferedCost<Cell>(p, t.row0, t.column0, t.h), range);
  } else {
    with_features(p.dim, [&](auto features) {
      using Cost = SeriesCost<Cell, decltype(features)::value>;
      forward_tile<Cell, kWantWeights>(p, t, Cost(p, t.row0, t.column0, t.h), range);
    });
  }
}

template <class Cell>
bool is_one_tile(const typename Cell::Pair& p) {
  return p.n <= p.tile && p.m <= p.tile;
}

template <class Cell>
CpuOutcome outcome_of(Border<Cell> last_row, int m, typename Cell::Range range) {
  double largest = 0;
  const auto magnitudes = from_bits(range.bits);
  for (int k = 0; k < Cell::kLanes; ++k) {
    const double c = static_cast<double>(magnitudes[k]);
    if (!(c <= largest)) largest = c;
    if (c != c) break;
  }
  return {static_cast<double>(last_row.mantissa[m]), static_cast<double>(last_row.exponent[m]), largest};
}

// Strips of a tile's rows and all columns that the band leaves them; with gradient their borders are kept,
// and a pair of one tile keeps its weights right away.
template <class Cell>
CpuOutcome forward_pair(const typename Cell::Pair& p) {
  const FlushToZero flush;
  Border<Cell> top{p.row_mantissa, p.row_exponent};
  top.mantissa[0] = Cell::kStart;
  top.exponent[0] = 0;
  if (p.start) top.set(0, p.start->mantissa, p.start->exponent);

  typename Cell::Range range;
  const Index step = p.want_gradient ? p.m + 1 : 0;
  int end = 0;  // of what has been written in the row at the top
  for (int k = 0; k < tiles(p.n, p.tile); ++k) {
    const CpuColumns strip = p.strips[k];
    for (; end < strip.end; ++end) {
      if (p.start && k == 0) {
        top.set(end + 1, p.start->mantissa, p.start->exponent);
      } else {
        top.set_dead(end + 1);
      }
    }
    const int row0 = k * p.tile;
    Tile<Cell> t{row0,
                 strip.begin,
                 smaller(p.tile, p.n - row0),
                 strip.end - strip.begin,
                 top + strip.begin,
                 {},
                 top + step + strip.begin,
                 {}};
    if (p.want_gradient && is_one_tile<Cell>(p)) {
      forward_any_cost<Cell, true>(p, t, range);
    } else {
      if (p.want_gradient) t.columns = {p.column_mantissa, p.column_exponent};
      forward_any_cost<Cell, false>(p, t, range);
    }
    top = top + step;
    top.set_dead(strip.begin);  // only above the first row is the corner in reach
  }
  return outcome_of<Cell>(top, p.m, range);
}

template <class Real>
bool all_zero(const Real* v, int count) {
  bool any = false;
  for (int k = 0; k < count; ++k) any |= v[k] != 0;
  return !any;
}

template <class Cell>
void reverse_any_cost(const typename Cell::Pair& p, const Tile<Cell>& t,
                      const Flows<typename Cell::Real>& flows) {
  const bool want_series = p.grad_x != nullptr;
  if (!want_series || p.buffered || p.entropy) {
    if (p.entropy) {
      reverse_tile<Cell, 0, true, true>(p, t, flows);
    } else {
      reverse_tile<Cell, 0, true, false>(p, t, flows);
    }
    if (want_series) stored_gradient<Cell>(p, t);
    return;
  }
  with_features(p.dim, [&](auto features) {
    constexpr int kDim = decltype(features)::value;
    if (p.alignment) {
      reverse_tile<Cell, kDim, true, false>(p, t, flows);
    } else {
      reverse_tile<Cell, kDim, false, false>(p, t, flows);
    }
  });
}

// Into the caller's matrix, if it is wanted; null for e: zeros.
template <class Cell>
void put_alignment(const typename Cell::Pair& p, const Tile<Cell>& t, const typename Cell::Real* e) {
  if (!p.alignment) return;
  if (p.float_storage) {
    float* const to = static_cast<float*>(p.alignment);
    e ? write_alignment<Cell>(p, t, e, to) : zero_alignment<Cell>(p, t, to);
  } else {
    double* const to = static_cast<double*>(p.alignment);
    e ? write_alignment<Cell>(p, t, e, to) : zero_alignment<Cell>(p, t, to);
  }
}

// One tile on the way back: nothing to do where no E flows in.
template <class Cell>
void reverse_one(const typename Cell::Pair& p, const Tile<Cell>& t, const Flows<typename Cell::Real>& flows) {
  if (all_zero(flows.below, t.w) && all_zero(flows.right, t.h)) return put_alignment<Cell>(p, t, nullptr);
  if (!is_one_tile<Cell>(p)) {
    typename Cell::Range ignored;
    forward_any_cost<Cell, true>(p, t, ignored);
  }
  reverse_any_cost<Cell>(p, t, flows);
  put_alignment<Cell>(p, t, p.weight_up);
}

template <class Cell>
void reverse_pair(const typename Cell::Pair& p) {
  using Real = typename Cell::Real;
  const FlushToZero flush;
  const Border<Cell> rows{p.row_mantissa, p.row_exponent};
  const Border<Cell> columns{p.column_mantissa, p.column_exponent};
  Real* below = p.flow_below;
  Real* above = p.flow_below + p.m + 1;
  for (int j = 0; j < p.m; ++j) below[j] = 0;
  below[p.m] = 1;
  for (int j = 0; p.inflow && j < p.m; ++j) below[j + 1] = p.inflow[j];
  for (int s = tiles(p.n, p.tile) - 1; s >= 0; --s) {
    const CpuColumns strip = p.strips[s];
    const int first = strip.begin / p.tile;
    const int row0 = s * p.tile;
    const int h = smaller(p.tile, p.n - row0);
    Real* right = p.flow_right;
    Real* left = p.flow_right + smaller(p.tile, p.n);
    for (int r = 0; r < h; ++r) right[r] = 0;
    for (int j = 0; j <= p.m; ++j) above[j] = 0;
    for (int k = tiles(strip.end, p.tile) - 1; k >= first; --k) {
      const int column0 = k * p.tile;
      const int w = smaller(p.tile, strip.end - column0);
      for (int r = 0; r < h; ++r) left[r] = 0;
      Tile<Cell> t{row0, column0, h, w, rows + (s * (p.m + Index{1}) + column0), {}, {}, {}};
      if (k > first) t.left = columns + (static_cast<Index>(k) * p.n + row0);
      reverse_one<Cell>(p, t, {below + column0 + 1, right, above + column0, left});
      Real* const swap = right;
      right = left;
      left = swap;
    }
    Real* const swap = below;
    below = above;
    above = swap;
  }
}

}  // namespace WARPALIGN_SIMD_NAMESPACE

#include "soft_dtw/cpu_jvp.inl"

namespace warpalign::detail {

const CpuKernels& WARPALIGN_CPU_KERNELS() {
  namespace isa = WARPALIGN_SIMD_NAMESPACE;
  static constexpr CpuKernels kKernels{&isa::forward_pair<isa::Cell32>,
                                       &isa::reverse_pair<isa::Cell32>,
                                       &isa::forward_pair<isa::Cell64>,
                                       &isa::reverse_pair<isa::Cell64>,
                                       &isa::forward_pair<isa::CellHard>,
                                       &isa::reverse_pair<isa::CellHard>,
                                       &isa::forward_jvp,
                                       &isa::reverse_jvp};
  return kKernels;
}

}  // namespace warpalign::detail
