// Powers of e, for rows of logits.
namespace WARPALIGN_SIMD_NAMESPACE {

template <class V>
constexpr int kLanesOf = 0;
template <>
inline constexpr int kLanesOf<F32> = WARPALIGN_SIMD_BYTES / 4;
template <>
inline constexpr int kLanesOf<F64> = WARPALIGN_SIMD_BYTES / 8;

// e^v, with `polynomial` for 2^-f, |f| <= 1/2.
template <class Polynomial>
WARPALIGN_INLINE F32 exp_by(F32 v, const Polynomial& polynomial) {
  constexpr float kRound = 12582912.0f + 127;  // 1.5 * 2^23, and the exponent's bias
  v = max(splat(-127.0f / kLog2E<float>), v);
  const F32 rounded = v * kLog2E<float> + kRound;
  const F32 power = polynomial((rounded - kRound) - v * kLog2E<float>);
  return power * from_bits(bits_of(rounded) << 23);  // 1.5 * 2^23 has no bit below the tenth
}
// e^v for v up to about 80; exactly 0 for v below -88.1 (float64: -709.2), NaN for NaN.
WARPALIGN_INLINE F32 exp_of(F32 v) {
  return exp_by(v, [](F32 f) { return exp2_negated(f); });
}
WARPALIGN_INLINE F64 exp_of(F64 v) {
  constexpr double kRound = 6755399441055744.0 + 1023;  // 1.5 * 2^52
  v = max(splat(-1023.0 / kLog2E<double>), v);
  const F64 rounded = v * kLog2E<double> + kRound;
  const F64 power = exp2_negated((rounded - kRound) - v * kLog2E<double> - v * 2.0355273740931033e-17);
  return power * from_bits(bits_of(rounded) << 52);
}

// factor e^v, for float and double.
template <class V>
class WidePowers {
 public:
  template <class Real>
  WARPALIGN_INLINE explicit WidePowers(Real factor) : factor_(splat(factor)) {}
  WARPALIGN_INLINE V operator()(V v) const { return exp_of(v) * factor_; }

 private:
  V factor_;
};

// The same for half types, with the factor multiplied into the coefficients of a minimax polynomial. Its
// largest error relative to 2^-f is 9.1e-8 for degree 5, used for sums in float32, and 2.6e-6 for degree 4,
// used for results that are rounded to a half type. Degree 5 is exact at f = 0.
template <int kDegree>
class ShortPowers {
 public:
  WARPALIGN_INLINE explicit ShortPowers(float factor) {
    static_assert(kDegree == 4 || kDegree == 5);
    constexpr double kTerms[2][6] = {{9.99999261439234e-1, -6.93121814582968e-1, 2.40247448379846e-1,
                                      -5.59178615855329e-2, 9.57010194681193e-3, 0},
                                     {1, -6.93146977597678e-1, 2.40222420831119e-1, -5.55073374447105e-2,
                                      9.67151278577593e-3, -1.32647272526859e-3}};
    for (int k = 0; k <= kDegree; ++k) term_[k] = splat(static_cast<float>(kTerms[kDegree - 4][k] * factor));
  }
  WARPALIGN_INLINE F32 operator()(F32 v) const {
    return exp_by(v, [this](F32 f) {
      F32 p = term_[kDegree];
      for (int k = kDegree - 1; k >= 0; --k) p = p * f + term_[k];
      return p;
    });
  }

 private:
  F32 term_[kDegree + 1];
};

}  // namespace WARPALIGN_SIMD_NAMESPACE
