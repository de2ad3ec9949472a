// The matrix product with a matrix as it is given: entries of c are dot products of its rows.

namespace WARPALIGN_SIMD_NAMESPACE {

// Dot products that are summed side by side: so many rows of the matrix, with so many rows of a.
constexpr int kDotColumns = 4;
constexpr int kDotRows = WARPALIGN_SIMD_BYTES == 64 ? 4 : 2;

// A vector consists of pieces of 16 bytes, within which lanes change places at the least cost.
template <class Real>
struct PieceOf {
  typedef Real Type __attribute__((vector_size(16)));  // NOLINT(modernize-use-using)
  static constexpr int kLanes = 16 / static_cast<int>(sizeof(Real));
};

// Of every piece, half of a's lanes and half of b's in turn, from lane kFirst on.
template <int kFirst, int kPiece, class V, int... kLane>
WARPALIGN_INLINE V halves(V a, V b, LaneList<kLane...>) {
  return __builtin_shufflevector(a, b,
                                 (kFirst + kLane / kPiece * kPiece + kLane % kPiece / 2 +
                                  kLane % 2 * static_cast<int>(sizeof...(kLane)))...);
}

// a and b side by side in every piece, each with half as many terms.
template <class Real, class V>
WARPALIGN_INLINE V half_sums(V a, V b) {
  constexpr int kPiece = PieceOf<Real>::kLanes;
  constexpr typename AllLanes<kLanes<Real>>::List kAll;
  return halves<0, kPiece>(a, b, kAll) + halves<kPiece / 2, kPiece>(a, b, kAll);
}

template <class Real, class V>
WARPALIGN_INLINE typename PieceOf<Real>::Type sum_of_pieces(V v) {
  typename PieceOf<Real>::Type pieces[WARPALIGN_SIMD_BYTES / 16];
  __builtin_memcpy(pieces, &v, sizeof(v));
  if constexpr (WARPALIGN_SIMD_BYTES == 64) {
    return (pieces[0] + pieces[2]) + (pieces[1] + pieces[3]);
  } else if constexpr (WARPALIGN_SIMD_BYTES == 32) {
    return pieces[0] + pieces[1];
  } else {
    return pieces[0];
  }
}

// Lane n: the sum of all lanes of sum[n].
WARPALIGN_INLINE PieceOf<float>::Type sums_of_lanes(const F32* sum) {
  const F32 even = half_sums<float>(sum[0], sum[2]), odd = half_sums<float>(sum[1], sum[3]);
  return sum_of_pieces<float>(half_sums<float>(even, odd));
}
WARPALIGN_INLINE PieceOf<double>::Type sums_of_lanes(const F64* sum) {
  return sum_of_pieces<double>(half_sums<double>(sum[0], sum[1]));
}

// Rows row ... row + kRows - 1 of a with w[0] ... w[count - 1], into columns `column` ... of c.
template <int kRows, class Real>
WARPALIGN_INLINE void dots(const CpuProduct<Real>& p, const Real* const (&w)[kDotColumns], int count,
                           Index row, Index column) {
  using V = typename VectorOf<Real>::Type;
  V sum[kRows][kDotColumns] = {};
  const Real* const a = p.a + row * p.a_row;
  Index k = 0;
  for (; k + kLanes<Real> <= p.depth; k += kLanes<Real>) {
    V terms[kDotColumns];
#pragma GCC unroll 4
    for (int n = 0; n < kDotColumns; ++n) terms[n] = load(w[n] + k);
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      const V factors = load(a + r * p.a_row + k);
#pragma GCC unroll 4
      for (int n = 0; n < kDotColumns; ++n) sum[r][n] += factors * terms[n];
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
    Real dot[kDotColumns];
    constexpr int kPiece = PieceOf<Real>::kLanes;
#pragma GCC unroll 2
    for (int n = 0; n < kDotColumns; n += kPiece) {
      const auto sums = sums_of_lanes(sum[r] + n);
      __builtin_memcpy(dot + n, &sums, sizeof(sums));
    }
    Real* const c = p.c + (row + r) * p.c_row + column;
    for (int n = 0; n < count; ++n) {
      for (Index tail = k; tail < p.depth; ++tail) dot[n] += a[r * p.a_row + tail] * w[n][tail];
      c[n] = (p.add ? c[n] : p.start ? p.start[column + n] : Real(0)) + dot[n];
    }
  }
}

template <class Real>
void row_product(const CpuProduct<Real>& p, const Real* const* base) {
  for (Index column = 0; column < p.columns; column += kDotColumns) {
    // Those that there are come before those that there are not, in whose place the first one is read.
    const Real* w[kDotColumns];
    int count = 0;
    for (int n = 0; n < kDotColumns; ++n) {
      count += base[column + n] ? 1 : 0;
      w[n] = base[column + n] ? base[column + n] : base[column];
    }
    for (Index row = 0; count < kDotColumns && !p.add && row < p.rows; ++row) {
      for (int n = count; n < kDotColumns; ++n) p.c[row * p.c_row + column + n] = Real(0);
    }
    if (count == 0) continue;
    Index row = 0;
    for (; row + kDotRows <= p.rows; row += kDotRows) dots<kDotRows>(p, w, count, row, column);
    switch (p.rows - row) {
      case 3:
        if constexpr (kDotRows > 3) dots<3>(p, w, count, row, column);
        break;
      case 2:
        if constexpr (kDotRows > 2) dots<2>(p, w, count, row, column);
        break;
      case 1:
        dots<1>(p, w, count, row, column);
        break;
      default:
        break;
    }
  }
}

}  // namespace WARPALIGN_SIMD_NAMESPACE
