// The numbers of an utterance's nodes, for the driver and for every instruction set: along anti-diagonals.
// Diagonal d = t + u has positions low(d) .. high(d); a position is t or u, whichever has fewer values.
namespace WARPALIGN_SIMD_NAMESPACE {

struct Diagonals {
  Index frames, states, shorter, longer, count;
  bool by_state;  // position is u, else t

  WARPALIGN_INLINE Diagonals(Index t, Index s)
      : frames(t),
        states(s),
        shorter(t < s ? t : s),
        longer(t < s ? s : t),
        count(t + s - 1),
        by_state(s <= t) {}
  WARPALIGN_INLINE Index low(Index d) const { return d < longer ? 0 : d - longer + 1; }
  WARPALIGN_INLINE Index high(Index d) const { return d < shorter ? d : shorter - 1; }
  WARPALIGN_INLINE Index begin(Index d) const {
    if (d <= shorter) return d * (d + 1) / 2;
    if (d <= longer) return shorter * (shorter + 1) / 2 + (d - shorter) * shorter;
    const Index left = count - d;
    return frames * states - left * (left + 1) / 2;
  }
  // The number that a node at position 0 of diagonal d would have.
  WARPALIGN_INLINE Index origin(Index d) const { return begin(d) - low(d); }
};

}  // namespace WARPALIGN_SIMD_NAMESPACE
