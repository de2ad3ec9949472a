// Packing a panel: a transposition, in squares of as many rows and columns as a vector has lanes.

namespace WARPALIGN_SIMD_NAMESPACE {

template <int... kLane>
struct LaneList {};
template <int kCount>
struct AllLanes;
template <>
struct AllLanes<2> {
  using List = LaneList<0, 1>;
};
template <>
struct AllLanes<4> {
  using List = LaneList<0, 1, 2, 3>;
};
template <>
struct AllLanes<8> {
  using List = LaneList<0, 1, 2, 3, 4, 5, 6, 7>;
};
template <>
struct AllLanes<16> {
  using List = LaneList<0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15>;
};

// Lanes first, first + 1, ... of a and b in turn.
template <int kFirst, class V, int... kLane>
WARPALIGN_INLINE V interleaved(V a, V b, LaneList<kLane...>) {
  return __builtin_shufflevector(a, b,
                                 (kFirst + kLane / 2 + kLane % 2 * static_cast<int>(sizeof...(kLane)))...);
}

// Rows i and i + half are interleaved, log2(lanes) times: each time the rows' and columns' bits rotate by
// one.
template <class Real>
WARPALIGN_INLINE void transpose(typename VectorOf<Real>::Type (&rows)[kLanes<Real>]) {
  constexpr int kCount = kLanes<Real>, kHalf = kCount / 2;
  constexpr typename AllLanes<kCount>::List kAll;
#pragma GCC unroll 4
  for (int stage = 1; stage < kCount; stage *= 2) {
    typename VectorOf<Real>::Type next[kCount];
#pragma GCC unroll 16
    for (int i = 0; i < kHalf; ++i) {
      next[2 * i] = interleaved<0>(rows[i], rows[i + kHalf], kAll);
      next[2 * i + 1] = interleaved<kHalf>(rows[i], rows[i + kHalf], kAll);
    }
#pragma GCC unroll 16
    for (int i = 0; i < kCount; ++i) rows[i] = next[i];
  }
}

template <class Real>
void pack_panel(const Real* const* base, Index depth, Real* to) {
  constexpr int kCount = kLanes<Real>;
  for (int first = 0; first < kPanel; first += kCount) {
    bool is_whole = true;
    for (int j = 0; j < kCount; ++j) is_whole &= base[first + j] != nullptr;
    Index k = 0;
    for (; is_whole && k + kCount <= depth; k += kCount) {
      typename VectorOf<Real>::Type rows[kCount];
#pragma GCC unroll 16
      for (int j = 0; j < kCount; ++j) rows[j] = load(base[first + j] + k);
      transpose<Real>(rows);
#pragma GCC unroll 16
      for (int j = 0; j < kCount; ++j) store(to + (k + j) * kPanel + first, rows[j]);
    }
    for (; k < depth; ++k) {
      for (int j = first; j < first + kCount; ++j) to[k * kPanel + j] = base[j] ? base[j][k] : Real(0);
    }
  }
}

}  // namespace WARPALIGN_SIMD_NAMESPACE
