// The lattice of one utterance. Vectors run along anti-diagonals. alpha is a float64 mantissa and an exponent
// that is an integer in a double: no sum overflows, and the error does not grow with the magnitude of the
// loss. The reverse sweep multiplies shares, which are at most 1.
namespace WARPALIGN_SIMD_NAMESPACE {

// An arc's step: it crosses `diagonals` diagonals, and leads to position + `positions`.
struct Step {
  Index diagonals;
  Index positions;
};
template <class Real>
WARPALIGN_INLINE Step step_of(const CpuLattice<Real>& p, bool by_state, Index slot) {
  const Index label = slot >= p.blanks ? 1 : 0;
  const Index frames = p.advance[slot];
  return {frames + label, by_state ? label : frames};
}

constexpr Index kMostSlots = 32;

// A walk along the diagonals: rings of earlier diagonals, and the sources of a diagonal's arcs.
template <class Real>
class Walk {
 protected:
  static constexpr int kLanes = WARPALIGN_SIMD_BYTES / 8;

  struct Source {
    Real* slot;  // its element for a destination at position 0
    const double* mantissa;
    const double* exponent;
    Index low, high;  // range of positions of destinations whose source exists
    Index number;     // number of the slot
  };

  WARPALIGN_INLINE explicit Walk(const CpuLattice<Real>& p) : p_(p), grid_(p.frames, p.states) {
    for (Index slot = 0; slot < p.arcs; ++slot) {
      steps_[slot] = step_of(p, grid_.by_state, slot);
      order_[slot] = slot;
    }
  }

  WARPALIGN_INLINE double* ring(double* rows, Index d) const {
    return rows + d % p_.depth * p_.ring_stride + kCpuPad;
  }
  WARPALIGN_INLINE void fill(double* rows, double value) const {
    for (Index k = 0; k < p_.depth * p_.ring_stride; ++k) rows[k] = value;
  }
  // Clears the values of an earlier diagonal below this one's positions.
  WARPALIGN_INLINE void clear_below(double* row, Index d, double value) const {
    if (d < p_.depth) return;
    for (Index k = grid_.low(d - p_.depth); k < grid_.low(d); ++k) row[k] = value;
  }

  WARPALIGN_INLINE Index gather_sources(Index d) {
    Index count = 0;
    for (Index k = 0; k < p_.arcs; ++k) {
      const Index slot = order_[k];
      const Index from = d - steps_[slot].diagonals, shift = steps_[slot].positions;
      if (from < 0) continue;
      sources_[count++] = {p_.slots + slot * p_.slot_stride + grid_.origin(from) - shift,
                           ring(p_.mantissa, from) - shift,
                           ring(p_.exponent, from) - shift,
                           grid_.low(from) + shift,
                           grid_.high(from) + shift,
                           slot};
    }
    return count;
  }

  // Finds the node whose blank of `slot` ends all paths, and its place in a ring. Returns false if there is
  // none.
  WARPALIGN_INLINE bool find_end(Index slot, Index* diagonal, Index* position) const {
    const Index t = grid_.frames - p_.advance[slot], u = grid_.states - 1;
    *diagonal = t + u;
    *position = grid_.by_state ? u : t;
    return t >= 0;
  }
  WARPALIGN_INLINE double weight_of_end(Index slot, Index diagonal, Index position) const {
    return static_cast<double>(p_.slots[slot * p_.slot_stride + grid_.origin(diagonal) + position]);
  }

  const CpuLattice<Real>& p_;
  const Diagonals grid_;
  Step steps_[kMostSlots];
  Index order_[kMostSlots];  // order of arcs
  Source sources_[kMostSlots];
};

template <class Real, Index kArcs>
class Sweep : Walk<Real> {
 public:
  WARPALIGN_INLINE explicit Sweep(const CpuLattice<Real>& p) : Walk<Real>(p), arcs_(kArcs ? kArcs : p.arcs) {}

  CpuOutcome forward(bool want_shares) {
    fill(p_.mantissa, 1.0);
    fill(p_.exponent, kDead);
    ring(p_.mantissa, 0)[0] = 1;
    ring(p_.exponent, 0)[0] = 0;
    for (Index d = 1; d < grid_.count; ++d) {
      double* const mantissa = ring(p_.mantissa, d);
      double* const exponent = ring(p_.exponent, d);
      const Index low = grid_.low(d), high = grid_.high(d);
      clear_below(exponent, d, kDead);
      const Index sources = gather_sources(d);
      for (Index position = low; position <= high; position += kLanes) {
        const Power alpha = node(position, high, sources, want_shares);
        const I64 inside = position + lanes(F64{}) <= high;
        store(mantissa + position, alpha.mantissa);
        store(exponent + position, inside ? alpha.exponent : splat(kDead));
      }
    }
    return sum_of_ends();
  }

  void reverse(const CpuOutcome& outcome) {
    double end_share[kMostSlots];
    for (Index slot = 0; slot < p_.blanks; ++slot) end_share[slot] = share_of_end(slot, outcome);
    fill(p_.mantissa, 0.0);
    for (Index d = grid_.count - 1; d >= 0; --d) {
      double* const flow = ring(p_.mantissa, d);
      const Index low = grid_.low(d), high = grid_.high(d);
      const Index before = d + p_.depth;  // the diagonal that last used this row of the ring
      for (Index k = high + 1; before < grid_.count && k <= grid_.high(before); ++k) flow[k] = 0;
      const Index origin = grid_.origin(d);
      for (Index position = low; position <= high; position += kLanes) {
        const I64 inside = position + lanes(F64{}) <= high;
        F64 sum{};
        for (Index slot = 0; slot < arcs_; ++slot) {
          const Step step = steps_[slot];
          Real* const place = p_.slots + slot * p_.slot_stride + origin + position;
          const F64 share = read_wide(place);
          F64 posterior{};
          if (d + step.diagonals < grid_.count) {
            const F64 after = load(ring(p_.mantissa, d + step.diagonals) + position + step.positions);
            posterior = after > 0.0 ? share * after : F64{};
          }
          sum += posterior;
          write_wide(place, inside ? posterior : share);
        }
        store(flow + position, inside ? sum : F64{});
      }
      for (Index slot = 0; slot < p_.blanks; ++slot) {
        const Index t = grid_.frames - p_.advance[slot];
        if (t < 0 || t + grid_.states - 1 != d) continue;
        const Index position = grid_.by_state ? grid_.states - 1 : t;
        p_.slots[slot * p_.slot_stride + origin + position] = static_cast<Real>(end_share[slot]);
        flow[position] += end_share[slot];
      }
    }
  }

 private:
  using Walk<Real>::p_, Walk<Real>::grid_, Walk<Real>::steps_, Walk<Real>::sources_, Walk<Real>::ring,
      Walk<Real>::fill, Walk<Real>::clear_below, Walk<Real>::gather_sources, Walk<Real>::find_end,
      Walk<Real>::weight_of_end, Walk<Real>::kLanes;
  using typename Walk<Real>::Source;

  WARPALIGN_INLINE Power node(Index position, Index high, Index sources, bool want_shares) {
    F64 mantissa[kMostSlots], exponent[kMostSlots];
    F64 largest = splat(kDead);
    for (Index k = 0; k < sources; ++k) {
      const Source& source = sources_[k];
      const Power weight = power_of(read_wide(source.slot + position));
      mantissa[k] = load(source.mantissa + position) * weight.mantissa;
      exponent[k] = max(load(source.exponent + position) + weight.exponent, splat(kDead));
      largest = max(largest, exponent[k]);
    }
    F64 sum{};
    for (Index k = 0; k < sources; ++k) {
      mantissa[k] = aligned_to(largest, mantissa[k], exponent[k]);
      sum += mantissa[k];
    }
    if (sources == 0) return {splat(1.0), splat(kDead)};
    if (want_shares) {
      const F64 reciprocal = 1.0 / sum;
      for (Index k = 0; k < sources; ++k) {
        const Source& source = sources_[k];
        Real* const place = source.slot + position;
        const F64 share = mantissa[k] * reciprocal;
        if (position >= source.low && position + kLanes - 1 <= source.high && position + kLanes - 1 <= high) {
          write_wide(place, share);
        } else {
          const I64 at = position + lanes(F64{});
          const I64 exists = (at >= source.low) & (at <= source.high) & (at <= high);
          write_wide(place, exists ? share : read_wide(place));
        }
      }
    }
    return normalized(sum, largest);
  }

  // The weight of the blank of `slot` that ends all paths, times alpha. Returns false if there is none.
  WARPALIGN_INLINE bool end_of(Index slot, double* mantissa, double* exponent) const {
    Index diagonal = 0, position = 0;
    if (!find_end(slot, &diagonal, &position)) return false;
    const Power weight = power_of(splat(weight_of_end(slot, diagonal, position)));
    *mantissa = ring(p_.mantissa, diagonal)[position] * weight.mantissa[0];
    *exponent = ring(p_.exponent, diagonal)[position] + weight.exponent[0];
    return true;
  }

  CpuOutcome sum_of_ends() const {
    double largest = kDead, mantissa = 0, exponent = 0, sum = 0;
    for (Index slot = 0; slot < p_.blanks; ++slot) {
      if (end_of(slot, &mantissa, &exponent) && exponent > largest) largest = exponent;
    }
    for (Index slot = 0; slot < p_.blanks; ++slot) {
      if (end_of(slot, &mantissa, &exponent)) sum += power_of_two(mantissa, exponent - largest);
    }
    return {sum, largest};
  }
  double share_of_end(Index slot, const CpuOutcome& outcome) const {
    double mantissa = 0, exponent = 0;
    if (!end_of(slot, &mantissa, &exponent)) return 0;
    return power_of_two(mantissa, exponent - outcome.exponent) / outcome.mantissa;
  }
  static WARPALIGN_INLINE double power_of_two(double mantissa, double exponent) {
    return aligned_to(F64{}, splat(mantissa), splat(exponent))[0];
  }

  const Index arcs_;
};

template <class Real>
CpuOutcome lattice_forward(const CpuLattice<Real>& p, bool want_shares) {
  return p.arcs == 2 ? Sweep<Real, 2>(p).forward(want_shares) : Sweep<Real, 0>(p).forward(want_shares);
}
template <class Real>
void lattice_reverse(const CpuLattice<Real>& p, const CpuOutcome& outcome) {
  p.arcs == 2 ? Sweep<Real, 2>(p).reverse(outcome) : Sweep<Real, 0>(p).reverse(outcome);
}

}  // namespace WARPALIGN_SIMD_NAMESPACE
