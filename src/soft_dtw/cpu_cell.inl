// One step of the recursion, for a vector of cells of one anti-diagonal. Z = 2^(-R log2(e)/gamma) is a
// mantissa in [1, 2) and an exponent of its own. cuda/sweep/cell.cuh has the same number format, with the
// reasons for it.
namespace WARPALIGN_SIMD_NAMESPACE {

template <class Mantissa, class Exponent>
struct StateOf {
  Mantissa mantissa;
  Exponent exponent;
};

// How a cell's E is divided among its three predecessors. `up` gets E * up, `left` gets E * left but at most
// the rest, and `diagonal` gets the remainder. So the shares sum to E exactly, and none is negative.
template <class V>
struct WeightsOf {
  V up;
  V left;
};

// A diagonal share below `negligible` is smaller than the rounding of the other two. It is dropped by giving
// `left` all that `up` leaves. So a predecessor that no path may use gets exactly 0.
template <class V, class Real>
WARPALIGN_INLINE WeightsOf<V> normalized(V up, V left, V diagonal, V sum, Real negligible) {
  const V reciprocal = Real(1) / sum;
  const V none{};
  const V all = none + Real(1);
  const auto no_diagonal = diagonal <= sum * negligible;
  return {(no_diagonal & (left == none)) ? all : up * reciprocal, no_diagonal ? all : left * reciprocal};
}

// float32 mantissa, int32 exponent; exact for the pairs that certified() in cpu.cpp admits.
struct Cell32 {
  using Real = float;
  using Exponent = __INT32_TYPE__;
  using V = F32;
  using State = StateOf<F32, I32>;
  using Weights = WeightsOf<F32>;
  using Pair = CpuPair32;
  static constexpr int kLanes = sizeof(F32) / sizeof(float);
  static constexpr Exponent kDead = -(1 << 30);  // exponent of an unreachable cell; exponents saturate here
  static constexpr float kNegligible = 0x1p-25f;
  static constexpr bool kHasExponent = true;
  static constexpr Real kStart = 1;         // mantissa of the corner that paths start from
  static constexpr Real kDeadMantissa = 1;  // mantissa of an unreachable cell

  // A predecessor with the penalty of a step that is not diagonal.
  static WARPALIGN_INLINE State penalized(State state, Real mantissa, Exponent exponent) {
    return {state.mantissa * mantissa, state.exponent - exponent};
  }

  // The largest |c| as bits: NaN above inf above all numbers.
  struct Range {
    I32 bits{};
    WARPALIGN_INLINE F32 note(F32 c) {
      bits = max(bits, bits_of(c) & 0x7fffffff);
      return c;
    }
  };

  // 2^(exponent - largest), or exactly 0 when that is below 2^-126.
  static WARPALIGN_INLINE F32 aligned(F32 mantissa, I32 exponent, I32 bias) {
    return mantissa * from_bits(max(exponent + bias, I32{}) << 23);
  }

  template <bool kWantWeights>
  static WARPALIGN_INLINE State advance(F32 c, State up, State left, State diagonal, Weights* weights) {
    // Adding 1.5 * 2^23 rounds the cost to an integer, and leaves that integer in the low bits.
    constexpr float kRound = 12582912.0f;
    constexpr int kRoundBits = 0x4B400000;
    const F32 rounded = c + kRound;
    const F32 power = exp2_negated(c - (rounded - kRound));
    const I32 largest = max(max(up.exponent, left.exponent), diagonal.exponent);
    const I32 bias = 127 - largest;
    const F32 z_up = aligned(up.mantissa, up.exponent, bias);
    const F32 z_left = aligned(left.mantissa, left.exponent, bias);
    const F32 z_diagonal = aligned(diagonal.mantissa, diagonal.exponent, bias);
    const F32 sum = z_up + z_left + z_diagonal;
    if constexpr (kWantWeights) *weights = normalized(z_up, z_left, z_diagonal, sum, kNegligible);
    const I32 bits = bits_of(sum * power);
    const I32 shift = (bits >> 23) - bits_of(rounded) + (kRoundBits - 127);
    return {from_bits((bits & 0x007fffff) | 0x3f800000), max(largest + shift, splat(kDead))};
  }
};

// float64 mantissa; the exponent is a double that holds an integer. It is exact below 2^53 and loses digits
// beyond: no magnitude of cost can overflow it.
struct Cell64 {
  using Real = double;
  using Exponent = double;
  using V = F64;
  using State = StateOf<F64, F64>;
  using Weights = WeightsOf<F64>;
  using Pair = CpuPair64;
  static constexpr int kLanes = sizeof(F64) / sizeof(double);
  static constexpr Exponent kDead = -1e300;
  static constexpr double kNegligible = 0x1p-54;
  static constexpr bool kHasExponent = true;
  static constexpr Real kStart = 1;         // mantissa of the corner that paths start from
  static constexpr Real kDeadMantissa = 1;  // mantissa of an unreachable cell

  // A predecessor with the penalty of a step that is not diagonal.
  static WARPALIGN_INLINE State penalized(State state, Real mantissa, Exponent exponent) {
    return {state.mantissa * mantissa, state.exponent - exponent};
  }
  static constexpr double kForbidden = 1e299;  // cost of a cell that no path may use

  // All ones, which is a NaN, in a lane that has seen a NaN. Any other cost is in range.
  struct Range {
    I64 bits{};
    WARPALIGN_INLINE F64 note(F64 c) {
      bits |= c != c;
      return max(min(c, splat(kForbidden)), splat(-kForbidden));
    }
  };

  // 2^(exponent - largest). The difference, at least -1023, and the bias are added into the low bits of a
  // double, and shifted to the exponent's bits.
  static WARPALIGN_INLINE F64 aligned(F64 mantissa, F64 exponent, F64 largest) {
    const F64 difference = max(exponent - largest, splat(-1023.0));
    return mantissa * from_bits(bits_of(difference + (kRound + 1023.0)) << 52);
  }

  template <bool kWantWeights>
  static WARPALIGN_INLINE State advance(F64 c, State up, State left, State diagonal, Weights* weights) {
    // From 2^51 on the addition of kRound does not round to integers, but there c has no fraction.
    const F64 magnitude = from_bits(bits_of(c) & 0x7fffffffffffffffLL);
    const F64 whole = magnitude < 0x1p51 ? (c + kRound) - kRound : c;
    const F64 power = exp2_negated(c - whole);
    const F64 largest = max(max(up.exponent, left.exponent), diagonal.exponent);
    const F64 z_up = aligned(up.mantissa, up.exponent, largest);
    const F64 z_left = aligned(left.mantissa, left.exponent, largest);
    const F64 z_diagonal = aligned(diagonal.mantissa, diagonal.exponent, largest);
    const F64 sum = z_up + z_left + z_diagonal;
    if constexpr (kWantWeights) *weights = normalized(z_up, z_left, z_diagonal, sum, kNegligible);
    const I64 bits = bits_of(sum * power);
    // The biased exponent as a double: it is put into the low bits of 2^52.
    const F64 biased =
        from_bits(reinterpret_cast<I64>(reinterpret_cast<U64>(bits) >> 52) | 0x4330000000000000LL);
    const F64 shift = biased - (0x1p52 + 1023.0);
    return {from_bits((bits & 0x000fffffffffffffLL) | 0x3ff0000000000000LL),
            max(largest - whole + shift, splat(kDead))};
  }

 private:
  static constexpr double kRound = 6755399441055744.0;  // 1.5 * 2^52
};

// Hard DTW: R itself in the mantissa's place. The weights, 0 or 1, say which predecessor is the smallest.
// Among equally small ones it is the diagonal one, then the one above.
struct CellHard {
  using Real = double;
  using Exponent = double;
  using V = F64;
  using State = StateOf<F64, F64>;
  using Weights = WeightsOf<F64>;
  using Pair = CpuPair64;
  using Range = Cell64::Range;
  static constexpr int kLanes = Cell64::kLanes;
  static constexpr bool kHasExponent = false;
  static constexpr Real kStart = 0;
  static constexpr Real kDeadMantissa = __builtin_inf();
  static constexpr Exponent kDead = 0;

  static WARPALIGN_INLINE State penalized(State state, Real penalty, Exponent) {
    return {state.mantissa + penalty, state.exponent};
  }

  template <bool kWantWeights>
  static WARPALIGN_INLINE State advance(F64 c, State up, State left, State diagonal, Weights* weights) {
    const F64 a = up.mantissa;
    const F64 b = left.mantissa;
    const F64 d = diagonal.mantissa;
    if constexpr (kWantWeights) {
      const F64 none{};
      const F64 all = none + 1.0;
      *weights = {((a < d) & (a <= b)) ? all : none, ((b < d) & (b < a)) ? all : none};
    }
    return {c + min(min(a, b), d), F64{}};
  }
};

}  // namespace WARPALIGN_SIMD_NAMESPACE
