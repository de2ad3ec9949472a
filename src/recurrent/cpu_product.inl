// The matrix product: tiles of up to 6 rows, whose sums stay in registers.

namespace WARPALIGN_SIMD_NAMESPACE {

constexpr int kTileRows = 6;
// Vectors of a tile: kTileRows of each, a row of b and one entry of a fit into 32 or 16 registers.
constexpr int kTileVectors = WARPALIGN_SIMD_BYTES == 64 ? 4 : 2;
// One row alone: as many independent sums as hide the latency of a multiply-add.
constexpr int kRowVectors = 8;

// Terms begin <= k < end of rows `row` ... and columns `column` ... .
template <int kRows, int kVectors, class Real>
WARPALIGN_INLINE void tile(const CpuProduct<Real>& p, Index row, Index column, Index begin, Index end) {
  using V = typename VectorOf<Real>::Type;
  V sum[kRows][kVectors] = {};
  const Real* a = p.a + row * p.a_row + begin * p.a_column;
  const Real* b = p.b + begin * p.b_row + column;
  for (Index k = begin; k < end; ++k) {
    V terms[kVectors];
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) terms[v] = load(b + v * kLanes<Real>);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const Real factor = a[r * p.a_row];
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) sum[r][v] += factor * terms[v];
    }
    a += p.a_column;
    b += p.b_row;
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    Real* const c = p.c + (row + r) * p.c_row + column;
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      Real* const to = c + v * kLanes<Real>;
      if (p.add || begin > 0) {
        sum[r][v] += load(to);
      } else if (p.start) {
        sum[r][v] += load(p.start + column + v * kLanes<Real>);
      }
      store(to, sum[r][v]);
    }
  }
}

template <int kRows, int kVectors, class Real>
WARPALIGN_INLINE void columns(const CpuProduct<Real>& p, Index row, Index begin, Index end) {
  Index column = 0;
  for (; column + kVectors * kLanes<Real> <= p.columns; column += kVectors * kLanes<Real>) {
    tile<kRows, kVectors>(p, row, column, begin, end);
  }
  for (; column < p.columns; column += kLanes<Real>) tile<kRows, 1>(p, row, column, begin, end);
}

template <class Real>
void product(const CpuProduct<Real>& p) {
  Index begin = 0;
  do {  // once even for no terms: the start is written
    const Index end = begin + kDepthBlock < p.depth ? begin + kDepthBlock : p.depth;
    // As few tiles as hold the rows, of nearly equal numbers: one of few rows would wait for b.
    Index row = 0;
    for (Index tiles = (p.rows + kTileRows - 1) / kTileRows; tiles > 0; --tiles) {
      const Index count = (p.rows - row + tiles - 1) / tiles;
      switch (count) {
        case 6:
          columns<6, kTileVectors>(p, row, begin, end);
          break;
        case 5:
          columns<5, kTileVectors>(p, row, begin, end);
          break;
        case 4:
          columns<4, kTileVectors>(p, row, begin, end);
          break;
        case 3:
          columns<3, kTileVectors>(p, row, begin, end);
          break;
        case 2:
          columns<2, kTileVectors>(p, row, begin, end);
          break;
        default:
          columns<1, (kPanel < kRowVectors * kLanes<Real> ? kPanel / kLanes<Real> : kRowVectors)>(p, row,
                                                                                                  begin, end);
          break;
      }
      row += count;
    }
    begin = end;
  } while (begin < p.depth);
}

}  // namespace WARPALIGN_SIMD_NAMESPACE
