// The pointwise steps of the cell, forward and backward, for one panel of units.

namespace WARPALIGN_SIMD_NAMESPACE {

template <class Real>
constexpr int kLanes = WARPALIGN_SIMD_BYTES / static_cast<int>(sizeof(Real));

template <class Real>
struct Exponential;  // what 2^k 2^r needs
template <>
struct Exponential<float> {
  static constexpr float kLog2e = 1.44269502162933349609375f;
  static constexpr float kLog2eRest = 1.92596299112661746887e-8f;  // log2(e) - kLog2e
  static constexpr float kRound = 12582912.0f;                     // 1.5 2^23
  static constexpr float kLimit = 126.0f;                          // of |k|: 2^k is a normal number
  static constexpr int kMantissa = 23, kBias = 127;
};
template <>
struct Exponential<double> {
  static constexpr double kLog2e = 1.442695040888963387;
  static constexpr double kLog2eRest = 2.0355273740931033e-17;
  static constexpr double kRound = 6755399441055744.0;  // 1.5 2^52
  static constexpr double kLimit = 1022.0;
  static constexpr int kMantissa = 52, kBias = 1023;
};

// exp(x) = scale + rest with scale = 2^k: rest = scale (2^r - 1), |r| <= 1/2. Beyond the limit of k the
// exponential is taken at the limit. NaN stays NaN.
template <class V>
struct Power {
  V scale, rest;
};
template <class Real, class V>
WARPALIGN_INLINE Power<V> power_of_e(V x) {
  using E = Exponential<Real>;
  constexpr Real kMost = E::kLimit / E::kLog2e;
  x = min(splat(kMost), max(splat(-kMost), x));
  const V shifted = x * E::kLog2e + E::kRound;
  const V k = shifted - E::kRound;
  // k - x log2(e), in two pieces.
  const V negated = subtract_product(subtract_product(k, x, splat(E::kLog2e)), x, splat(E::kLog2eRest));
  const auto exponent = bits_of(shifted) - bits_of(splat(E::kRound)) + E::kBias;
  const V scale = from_bits(exponent << E::kMantissa);
  return {scale, scale * exp2_negated_less_1(negated)};
}

template <class Real, class V>
WARPALIGN_INLINE V logistic(V z) {
  const Power<V> power = power_of_e<Real>(-z);
  return Real(1) / (Real(1) + (power.scale + power.rest));
}

// With e = exp(-2|x|) - 1, tanh |x| = -e / (2 + e): exact to rounding near 0 too.
template <class Real, class V>
WARPALIGN_INLINE V hyperbolic_tangent(V x) {
  const V magnitude = x < V{} ? -x : x;
  const Power<V> power = power_of_e<Real>(Real(-2) * magnitude);
  const V e = (power.scale - Real(1)) + power.rest;
  const V value = -e / (Real(2) + e);
  return x < V{} ? -value : value;
}

// Strictly inside the rails the value must not round onto them: the derivative is taken from it.
template <class Real, class V>
WARPALIGN_INLINE V hard_gate(const CpuCell<Real>& p, V z) {
  constexpr bool kIsFloat = sizeof(Real) == 4;
  constexpr Real kAboveZero = kIsFloat ? Real(1.17549435082228750797e-38) : Real(2.2250738585072014e-308);
  constexpr Real kBelowOne = kIsFloat ? Real(0.999999940395355224609375) : Real(0.99999999999999988898);
  const V line = z * p.slope + p.offset;
  const V railed = min(splat(Real(1)), max(splat(Real(0)), line));
  const V inner = min(splat(kBelowOne), max(splat(kAboveZero), line));
  return ((z > p.low) & (z < p.high)) ? inner : railed;
}

template <class Real, class V>
WARPALIGN_INLINE V squash(bool hard, V x) {
  return hard ? min(splat(Real(1)), max(splat(Real(-1)), x)) : hyperbolic_tangent<Real>(x);
}

// s' and u' from their values.
template <class Real, class V>
WARPALIGN_INLINE V gate_slope(bool hard, Real slope, V s) {
  if (!hard) return s * (Real(1) - s);
  // NaN is on no rail.
  return ((s == splat(Real(0))) | (s == splat(Real(1)))) ? V{} : splat(slope);
}
template <class Real, class V>
WARPALIGN_INLINE V squash_slope(bool hard, V u) {
  if (!hard) return (Real(1) - u) * (Real(1) + u);
  return ((u == splat(Real(-1))) | (u == splat(Real(1)))) ? V{} : splat(Real(1));
}

template <class V>
WARPALIGN_INLINE V new_cell(V i, V f, V g, V c_before) {
  return f * c_before + i * g;
}

template <bool kHard, class Real>
WARPALIGN_INLINE void cell_of(const CpuCell<Real>& p) {
  using V = typename VectorOf<Real>::Type;
  for (Index row = 0; row < p.rows; ++row) {
    Real* const gates = p.gates + row * p.gates_row;
    for (int u = 0; u < kUnits; u += kLanes<Real>) {
      V gate[4];
#pragma GCC unroll 4
      for (int k = 0; k < 4; ++k) {
        const V z = load(gates + k * kUnits + u);
        gate[k] = k == 2 ? squash<Real>(kHard, z) : kHard ? hard_gate(p, z) : logistic<Real>(z);
        store(gates + k * kUnits + u, gate[k]);
      }
      const V c_before = load(p.c_before + row * p.c_before_row + u);
      store(p.cell + row * p.cell_row + u, new_cell(gate[0], gate[1], gate[2], c_before));
    }
  }
}
template <class Real>
void cell(const CpuCell<Real>& p) {
  return p.hard ? cell_of<true>(p) : cell_of<false>(p);
}

template <class Real>
void cell_again(const CpuCell<Real>& p) {
  for (Index row = 0; row < p.rows; ++row) {
    const Real* const gates = p.gates + row * p.gates_row;
    for (int u = 0; u < kUnits; u += kLanes<Real>) {
      store(p.cell + row * p.cell_row + u,
            new_cell(load(gates + u), load(gates + kUnits + u), load(gates + 2 * kUnits + u),
                     load(p.c_before + row * p.c_before_row + u)));
    }
  }
}

template <class Real>
void output(const CpuOutput<Real>& p) {
  for (Index row = 0; row < p.rows; ++row) {
    for (int u = 0; u < kUnits; u += kLanes<Real>) {
      const auto o = load(p.gates + row * p.gates_row + 3 * kUnits + u);
      store(p.m + row * p.m_row + u, o * squash<Real>(p.hard, load(p.v + row * p.v_row + u)));
    }
  }
}

template <class Real>
void output_backward(const CpuOutputBackward<Real>& p) {
  using V = typename VectorOf<Real>::Type;
  for (Index row = 0; row < p.rows; ++row) {
    for (int u = 0; u < kUnits; u += kLanes<Real>) {
      const V o = load(p.gates + row * p.gates_row + 3 * kUnits + u);
      const V squashed = squash<Real>(p.hard, load(p.v + row * p.v_row + u));
      const V dm = load(p.dm + row * p.dm_row + u);
      store(p.dz + row * p.dz_row + 3 * kUnits + u, dm * squashed * gate_slope(p.hard, p.slope, o));
      store(p.dv + row * p.dv_row + u, dm * o * squash_slope<Real>(p.hard, squashed));
    }
  }
}

template <class Real>
void cell_backward(const CpuCellBackward<Real>& p) {
  using V = typename VectorOf<Real>::Type;
  for (Index row = 0; row < p.rows; ++row) {
    const Real* const gates = p.gates + row * p.gates_row;
    Real* const dz = p.dz + row * p.dz_row;
    for (int u = 0; u < kUnits; u += kLanes<Real>) {
      const V i = load(gates + u), f = load(gates + kUnits + u), g = load(gates + 2 * kUnits + u);
      const V dcell = load(p.dcell + row * p.dcell_row + u);
      const V c_before = load(p.c_before + row * p.c_before_row + u);
      store(dz + u, dcell * g * gate_slope(p.hard, p.slope, i));
      store(dz + kUnits + u, dcell * c_before * gate_slope(p.hard, p.slope, f));
      store(dz + 2 * kUnits + u, dcell * i * squash_slope<Real>(p.hard, g));
      Real* const dc_before = p.dc_before + row * p.dc_before_row + u;
      store(dc_before, p.keep ? load(dc_before) + dcell * f : dcell * f);
    }
  }
}

}  // namespace WARPALIGN_SIMD_NAMESPACE
