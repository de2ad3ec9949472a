// One pair: the order in which its tiles are swept, and the data stored between them. Included once per
// instruction set, with WARPALIGN_SIMD_NAMESPACE and WARPALIGN_ISA (the name in cpu::Isa) defined.
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

WARPALIGN_INLINE double larger_cost(double a, double b) { return a != a || b <= a ? a : b; }

template <class Cell>
double largest_cost(typename Cell::Range range) {
  double largest = 0;
  const auto magnitudes = from_bits(range.bits);
  for (int k = 0; k < Cell::kLanes; ++k) largest = larger_cost(largest, static_cast<double>(magnitudes[k]));
  return largest;
}

// Takes the next of `strips` strips; -1 if none is left.
WARPALIGN_INLINE int take_strip(CpuSweep& sweep, int strips) {
  // Reads before it increments: repeated calls of idle helpers must not overflow the counter.
  if (__atomic_load_n(&sweep.taken, __ATOMIC_RELAXED) >= strips) return -1;
  const int taken = __atomic_fetch_add(&sweep.taken, 1, __ATOMIC_ACQ_REL);
  return taken < strips ? taken : -1;
}

inline void note_largest(CpuSweep& sweep, double cost) {
  std::int64_t bits;
  __builtin_memcpy(&bits, &cost, sizeof(bits));
  bits &= INT64_MAX;  // NaN may have a sign
  std::int64_t known = __atomic_load_n(&sweep.largest_cost, __ATOMIC_RELAXED);
  while (known < bits && !__atomic_compare_exchange_n(&sweep.largest_cost, &known, bits, true,
                                                      __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
  }
}

// The row above a strip.
template <class Cell>
WARPALIGN_INLINE Border<Cell> row_above(const typename Cell::Pair& p, int strip) {
  return Border<Cell>{p.row_mantissa, p.row_exponent} + (strip % p.row_count) * (p.m + Index{1});
}

// Fills the part of the row above a strip that no strip writes: all of it above the first strip, otherwise
// the columns after the end of the previous strip.
template <class Cell>
void complete_row_above(const typename Cell::Pair& p, int strip, Border<Cell> top) {
  int column = 0;
  if (strip > 0) {
    column = p.strips[strip - 1].end;
  } else if (p.start) {
    top.set(0, p.start->mantissa, p.start->exponent);
  } else {
    top.set(0, Cell::kStart, 0);
  }
  for (; column < p.strips[strip].end; ++column) {
    if (strip == 0 && p.start) {
      top.set(column + 1, p.start->mantissa, p.start->exponent);
    } else {
      top.set_dead(column + 1);
    }
  }
}

// One strip, as a single wide tile. With gradients the borders of its tiles are stored; a pair of one tile
// stores its weights directly.
template <class Cell>
void forward_strip(const typename Cell::Pair& p, int k, typename Cell::Range& range) {
  const CpuColumns strip = p.strips[k];
  const int row0 = k * p.tile;
  const Border<Cell> top = row_above<Cell>(p, k);
  const Border<Cell> bottom = row_above<Cell>(p, k + 1);
  complete_row_above<Cell>(p, k, top);
  bottom.set_dead(strip.begin);  // only the corner above the first row is reachable
  Tile<Cell> t{row0,
               strip.begin,
               smaller(p.tile, p.n - row0),
               strip.end - strip.begin,
               top + strip.begin,
               {},
               bottom + strip.begin,
               {}};
  t.reached = p.reached + k;
  if (k > 0) {
    t.above = p.reached + (k - 1);
    t.above_end = p.strips[k - 1].end - strip.begin;
  }
  if (p.want_gradient && is_one_tile<Cell>(p)) {
    forward_any_cost<Cell, true>(p, t, range);
  } else {
    if (p.want_gradient) t.columns = {p.column_mantissa, p.column_exponent};
    forward_any_cost<Cell, false>(p, t, range);
  }
}

template <class Cell>
void forward_sweep(const typename Cell::Pair& p, CpuSweep& sweep) {
  const FlushToZero flush;
  typename Cell::Range range;
  const int strips = tiles(p.n, p.tile);
  for (int k = 0; (k = take_strip(sweep, strips)) >= 0;) forward_strip<Cell>(p, k, range);
  note_largest(sweep, largest_cost<Cell>(range));
}

template <class Real>
bool all_zero(const Real* v, int count) {
  bool any = false;
  for (int k = 0; k < count; ++k) any |= v[k] != 0;
  return !any;
}

template <class Cell>
void reverse_any_cost(const typename Cell::Pair& p, const Tile<Cell>& t,
                      const Flows<typename Cell::Real>& flows, const TileGradients<Cell>& gradients) {
  const bool want_series = p.grad_x != nullptr;
  if (!want_series || p.buffered || p.entropy) {
    if (p.entropy) {
      reverse_tile<Cell, 0, true, true>(p, t, flows, gradients);
    } else {
      reverse_tile<Cell, 0, true, false>(p, t, flows, gradients);
    }
    if (want_series) stored_gradient<Cell>(p, t, gradients);
    return;
  }
  with_features(p.dim, [&](auto features) {
    constexpr int kDim = decltype(features)::value;
    if (p.alignment) {
      reverse_tile<Cell, kDim, true, false>(p, t, flows, gradients);
    } else {
      reverse_tile<Cell, kDim, false, false>(p, t, flows, gradients);
    }
  });
}

// Writes a tile's E to the caller's alignment, if that is not null. e null: zeros.
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

// One tile of the reverse sweep. A tile into which no E flows is skipped.
template <class Cell>
void reverse_one(const typename Cell::Pair& p, const Tile<Cell>& t, const Flows<typename Cell::Real>& flows) {
  if (all_zero(flows.below, t.w) && all_zero(flows.right, t.h)) return put_alignment<Cell>(p, t, nullptr);
  if (!is_one_tile<Cell>(p)) {
    typename Cell::Range ignored;
    forward_any_cost<Cell, true>(p, t, ignored);
  }
  const TileGradients<Cell> gradients = gradients_of<Cell>(p, t);
  const bool copied = p.grad_x && p.tile_grad_x;
  if (copied) copy_gradients<Cell>(t, p.dim, gradients_in_place<Cell>(p, t), gradients);
  reverse_any_cost<Cell>(p, t, flows, gradients);
  if (copied) copy_gradients<Cell>(t, p.dim, gradients, gradients_in_place<Cell>(p, t));
  put_alignment<Cell>(p, t, p.weight_up);
}

// The row of E that flows into strip number `turn` of the reverse sweep; number 0 is the last strip.
template <class Cell>
WARPALIGN_INLINE typename Cell::Real* flow_below(const typename Cell::Pair& p, int turn) {
  return p.flow_below + (turn % p.flow_count) * (p.m + Index{1});
}

template <class Cell>
void reverse_strip(const typename Cell::Pair& p, int turn) {
  using Real = typename Cell::Real;
  const int s = tiles(p.n, p.tile) - 1 - turn;
  const CpuColumns strip = p.strips[s];
  const int first = strip.begin / p.tile;
  const int row0 = s * p.tile;
  const int h = smaller(p.tile, p.n - row0);
  Real* const below = flow_below<Cell>(p, turn);
  Real* const above = flow_below<Cell>(p, turn + 1);
  if (turn == 0) {
    for (int j = 0; j < p.m; ++j) below[j] = 0;
    below[p.m] = 1;
    for (int j = 0; p.inflow && j < p.m; ++j) below[j + 1] = p.inflow[j];
  }
  for (int j = 0; j <= p.m; ++j) above[j] = 0;
  Real* right = p.flow_right;
  Real* left = p.flow_right + smaller(p.tile, p.n);
  for (int r = 0; r < h; ++r) right[r] = 0;
  for (int k = tiles(strip.end, p.tile) - 1; k >= first; --k) {
    const int column0 = k * p.tile;
    const int w = smaller(p.tile, strip.end - column0);
    for (int r = 0; r < h; ++r) left[r] = 0;
    Tile<Cell> t{row0, column0, h, w, row_above<Cell>(p, s) + column0, {}, {}, {}};
    if (k > first) {
      t.left = Border<Cell>{p.column_mantissa, p.column_exponent} + (static_cast<Index>(k) * p.n + row0);
    }
    if (turn > 0) wait_for(p.reached + s + 1, p.m - column0);
    reverse_one<Cell>(p, t, {below + column0 + 1, right, above + column0, left});
    tell(p.reached + s, p.m - column0);
    Real* const swap = right;
    right = left;
    left = swap;
  }
  tell(p.reached + s, CpuSweep::kEnd);
}

template <class Cell>
void reverse_sweep(const typename Cell::Pair& p, CpuSweep& sweep) {
  const FlushToZero flush;
  const int strips = tiles(p.n, p.tile);
  for (int turn = 0; (turn = take_strip(sweep, strips)) >= 0;) reverse_strip<Cell>(p, turn);
}

}  // namespace WARPALIGN_SIMD_NAMESPACE

#include "soft_dtw/cpu_jvp.inl"

namespace warpalign::detail::soft_dtw {

const CpuKernels& kernels_for(cpu::IsaTag<cpu::Isa::WARPALIGN_ISA>) {
  namespace isa = WARPALIGN_SIMD_NAMESPACE;
  static constexpr CpuKernels kKernels{&isa::forward_sweep<isa::Cell32>,
                                       &isa::reverse_sweep<isa::Cell32>,
                                       &isa::forward_sweep<isa::Cell64>,
                                       &isa::reverse_sweep<isa::Cell64>,
                                       &isa::forward_sweep<isa::CellHard>,
                                       &isa::reverse_sweep<isa::CellHard>,
                                       &isa::forward_jvp,
                                       &isa::reverse_jvp};
  return kKernels;
}

}  // namespace warpalign::detail::soft_dtw
