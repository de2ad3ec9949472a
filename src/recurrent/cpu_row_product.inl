// The matrix product with a matrix as it is given: entries of c are dot products of its rows.

namespace WARPALIGN_SIMD_NAMESPACE {

// Dot products that are summed side by side: so many rows of the matrix, with so many rows of a.
constexpr int kDotColumns = 4;
constexpr int kDotRows = WARPALIGN_SIMD_BYTES == 64 ? 4 : 2;

// Pieces of 16 bytes, in which sums over lanes are cheap.
template <class Real>
struct PieceOf {
  typedef Real Type __attribute__((vector_size(16)));  // NOLINT(modernize-use-using)
  static constexpr int kLanes = 16 / static_cast<int>(sizeof(Real));
};

// The sum of a vector's pieces.
template <class Real>
WARPALIGN_INLINE typename PieceOf<Real>::Type sum_of_pieces(typename VectorOf<Real>::Type v) {
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
  const auto a = sum_of_pieces<float>(sum[0]), b = sum_of_pieces<float>(sum[1]);
  const auto c = sum_of_pieces<float>(sum[2]), d = sum_of_pieces<float>(sum[3]);
  const auto ac = __builtin_shufflevector(a, c, 0, 4, 1, 5) + __builtin_shufflevector(a, c, 2, 6, 3, 7);
  const auto bd = __builtin_shufflevector(b, d, 0, 4, 1, 5) + __builtin_shufflevector(b, d, 2, 6, 3, 7);
  return __builtin_shufflevector(ac, bd, 0, 4, 1, 5) + __builtin_shufflevector(ac, bd, 2, 6, 3, 7);
}
WARPALIGN_INLINE PieceOf<double>::Type sums_of_lanes(const F64* sum) {
  const auto a = sum_of_pieces<double>(sum[0]), b = sum_of_pieces<double>(sum[1]);
  return __builtin_shufflevector(a, b, 0, 2) + __builtin_shufflevector(a, b, 1, 3);
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
