// The forward sweep over one tile, anti-diagonal by anti-diagonal.
//
// Three buffers rotate; slot r + 1 of a buffer is the tile's row r, so that on anti-diagonal d the cell in
// row r has its predecessors at up = previous[r], left = previous[r + 1], diagonal = before_previous[r]. Slot
// 0 is the tile's upper border and slot d + 2 its left border. All vectors of an anti-diagonal are
// independent of each other. Lanes past its end compute with neighbouring elements, and their results are not
// used.
namespace WARPALIGN_SIMD_NAMESPACE {

WARPALIGN_INLINE int smaller(int a, int b) { return a < b ? a : b; }
WARPALIGN_INLINE int larger(int a, int b) { return a > b ? a : b; }

// The rows low <= r <= high of an anti-diagonal in a tile; low = high + 1 if there is none.
struct Rows {
  int low;
  int high;
};

// The slots that an anti-diagonal takes in the weights, which are stored anti-diagonal after anti-diagonal.
template <class Cell>
WARPALIGN_INLINE int slots_of(Rows rows) {
  return (rows.high - rows.low + Cell::kLanes) / Cell::kLanes * Cell::kLanes;
}

template <class Cell>
struct Border {
  typename Cell::Real* mantissa = nullptr;
  typename Cell::Exponent* exponent = nullptr;

  WARPALIGN_INLINE Border operator+(Index n) const { return {mantissa + n, exponent + n}; }
  WARPALIGN_INLINE void set(Index k, typename Cell::Real m, typename Cell::Exponent e) const {
    mantissa[k] = m;
    exponent[k] = e;
  }
  WARPALIGN_INLINE void set_dead(Index k) const { set(k, Cell::kDeadMantissa, Cell::kDead); }
  WARPALIGN_INLINE void copy(Index k, Border from, Index source) const {
    mantissa[k] = from.mantissa[source];
    exponent[k] = from.exponent[source];
  }
};

template <class Cell>
struct Tile {
  int row0, column0;     // the tile's first row and column in the pair
  int h, w;              // rows, columns
  Border<Cell> top;      // in: [0] is the corner, [1 + c] is above column c
  Border<Cell> left;     // in: [r]; null if the tile begins at column 0
  Border<Cell> bottom;   // out: laid out like top, may be the same memory, may be null
  Border<Cell> columns;  // out: the last column of every `tile` columns, [k * n + row0 + r]; may be null
  bool goes_on =
      false;  // there is a tile to the right: the last column of this one is written to `columns` too
  // For a tile that is a whole strip: CpuPair::reached of the strip above, where that strip ends as a column
  // of this one, and this strip's own. Null: the row above is complete, or no strip waits for this one.
  const std::int32_t* above = nullptr;
  int above_end = 0;
  std::int32_t* reached = nullptr;
};

WARPALIGN_INLINE int wait_for(const std::int32_t* reached, int columns) {
  for (int turn = 0;; ++turn) {
    const std::int32_t now = __atomic_load_n(reached, __ATOMIC_ACQUIRE);
    if (now >= columns) return now;
    cpu::pause(turn);
  }
}
WARPALIGN_INLINE void tell(std::int32_t* reached, int columns) {
  __atomic_store_n(reached, columns, __ATOMIC_RELEASE);
}

// How much of the row above a strip is written.
template <class Cell>
class Above {
 public:
  explicit Above(const Tile<Cell>& t) : t_(t), ready_(t.above ? 0 : CpuSweep::kEnd) {}
  WARPALIGN_INLINE void need(int columns) {
    if (columns > ready_) wait(columns);
  }

 private:
  void wait(int columns) {
    const int last = smaller(columns, t_.above_end);  // complete_row_above() has written the columns after it
    const int now = wait_for(t_.above, t_.column0 + last);
    ready_ = last < columns || now == CpuSweep::kEnd ? CpuSweep::kEnd : now - t_.column0;
  }

  const Tile<Cell>& t_;
  int ready_;
};

constexpr int kColumnsPerMessage = 64;

// Publishes to the strip below the number of columns written after anti-diagonal d, every kColumnsPerMessage
// columns.
template <class Cell>
WARPALIGN_INLINE void tell_below(const Tile<Cell>& t, int d) {
  const int columns = d - t.h + 2;
  if (columns > 0 && columns % kColumnsPerMessage == 0) tell(t.reached, t.column0 + columns);
}

// The tile's rows within the band on the tile's anti-diagonal d.
template <class Cell>
WARPALIGN_INLINE Rows rows_of(const typename Cell::Pair& p, const Tile<Cell>& t, int d) {
  Rows rows{larger(0, d - t.w + 1), smaller(t.h - 1, d)};
  if (p.band) {
    const CpuRows band = p.band[t.row0 + t.column0 + d];
    rows.low = smaller(larger(rows.low, band.low - t.row0), t.h);
    rows.high = larger(smaller(rows.high, band.high - t.row0), rows.low - 1);
  }
  return rows;
}

// Writes the cells of anti-diagonal d that belong to left borders of other tiles.
template <class Cell>
void save_columns(const typename Cell::Pair& p, const Tile<Cell>& t, int d, Rows rows, Border<Cell> current) {
  const int first = larger(1, (d - smaller(t.h - 1, d) + p.tile) / p.tile);
  for (int k = first; k * p.tile - 1 <= d && k * p.tile < t.w + t.goes_on; ++k) {
    const int r = d - (k * p.tile - 1);
    const Index to = static_cast<Index>(t.column0 / p.tile + k) * p.n + t.row0 + r;
    if (rows.low <= r && r <= rows.high) {
      t.columns.copy(to, current, r + 1);
    } else {
      t.columns.set_dead(to);
    }
  }
}

// Sets the two cells beside the band's part of an anti-diagonal to unreachable, because the next two
// anti-diagonals read them. The left border (row d + 1) is not one of them.
template <class Cell>
WARPALIGN_INLINE void close_band(const typename Cell::Pair& p, const Tile<Cell>& t, int d,
                                 Border<Cell> current) {
  const CpuRows band = p.band[t.row0 + t.column0 + d];
  const int above = band.low - 1 - t.row0;
  const int below = band.high + 1 - t.row0;
  if (0 <= above && above <= t.h) current.set_dead(above + 1);
  if (0 <= below && below <= smaller(d, t.h)) current.set_dead(below + 1);
}

// Copies the borders around anti-diagonal d in, and its cells on borders of other tiles out.
template <class Cell>
WARPALIGN_INLINE void exchange_borders(const typename Cell::Pair& p, const Tile<Cell>& t, int d, Rows rows,
                                       Border<Cell> current) {
  if (d + 1 < t.w) current.copy(0, t.top, d + 2);
  if (d + 1 < t.h) {
    if (t.left.mantissa) {
      current.copy(d + 2, t.left, d + 1);
    } else {
      current.set_dead(d + 2);
    }
  }
  if (p.band) close_band<Cell>(p, t, d, current);
  if (t.bottom.mantissa && d >= t.h - 1) {
    if (rows.low <= t.h - 1 && rows.high == t.h - 1) {
      t.bottom.copy(d - t.h + 2, current, t.h);
    } else {
      t.bottom.set_dead(d - t.h + 2);
    }
  }
  if (t.columns.mantissa) save_columns<Cell>(p, t, d, rows, current);
}

// The vectors of one anti-diagonal.
template <class Cell, bool kWantWeights, bool kPenalized, class Cost>
WARPALIGN_INLINE void forward_diagonal(const typename Cell::Pair& p, Rows rows, const Cost& cost,
                                       Border<Cell> before_previous, Border<Cell> previous,
                                       Border<Cell> current, typename Cell::Real* weight_up,
                                       typename Cell::Real* weight_left, typename Cell::Range& range) {
  using State = typename Cell::State;
  for (int r = rows.low; r <= rows.high; r += Cell::kLanes) {
    const typename Cell::V c = range.note(cost.at(r));
    State up{load(previous.mantissa + r), load(previous.exponent + r)};
    State left{load(previous.mantissa + r + 1), load(previous.exponent + r + 1)};
    const State diagonal{load(before_previous.mantissa + r), load(before_previous.exponent + r)};
    if constexpr (kPenalized) {
      up = Cell::penalized(up, p.penalty_mantissa, p.penalty_exponent);
      left = Cell::penalized(left, p.penalty_mantissa, p.penalty_exponent);
    }
    typename Cell::Weights weights;
    const State here = Cell::template advance<kWantWeights>(c, up, left, diagonal, &weights);
    store(current.mantissa + r + 1, here.mantissa);
    if constexpr (Cell::kHasExponent) store(current.exponent + r + 1, here.exponent);
    if constexpr (kWantWeights) {
      store(weight_up + (r - rows.low), weights.up);
      store(weight_left + (r - rows.low), weights.left);
    }
  }
}

template <class Cell, bool kWantWeights, class Cost>
void forward_tile(const typename Cell::Pair& p, const Tile<Cell>& t, Cost cost, typename Cell::Range& all) {
  const int slots = t.h + 2 * kCpuPad;
  const Border<Cell> buffers{p.diagonal_mantissa, p.diagonal_exponent};
  for (int k = 0; k < 3 * slots; ++k) buffers.set_dead(k);
  Border<Cell> before_previous = buffers;
  Border<Cell> previous = buffers + slots;
  Border<Cell> current = previous + slots;
  Above<Cell> above(t);
  above.need(1);
  before_previous.copy(0, t.top, 0);
  previous.copy(0, t.top, 1);
  if (t.left.mantissa) previous.copy(1, t.left, 0);

  typename Cell::Real* up = p.weight_up;
  typename Cell::Real* left = p.weight_left;
  typename Cell::Range range = all;
  for (int d = 0; d < t.h + t.w - 1; ++d) {
    const Rows rows = rows_of<Cell>(p, t, d);
    if (rows.low <= rows.high) {
      cost.begin_diagonal(d, rows.low, rows.high);
      if (p.penalized) {
        forward_diagonal<Cell, kWantWeights, true>(p, rows, cost, before_previous, previous, current, up,
                                                   left, range);
      } else {
        forward_diagonal<Cell, kWantWeights, false>(p, rows, cost, before_previous, previous, current, up,
                                                    left, range);
      }
    }
    above.need(smaller(d + 2, t.w));
    exchange_borders<Cell>(p, t, d, rows, current);
    if (t.reached) tell_below(t, d);
    if constexpr (kWantWeights) {
      up += slots_of<Cell>(rows);
      left += slots_of<Cell>(rows);
    }
    const Border<Cell> oldest = before_previous;
    before_previous = previous;
    previous = current;
    current = oldest;
  }
  if (t.reached) tell(t.reached, CpuSweep::kEnd);
  all = range;
}

}  // namespace WARPALIGN_SIMD_NAMESPACE
