// Sums of probabilities over paths: a float64 mantissa and an exponent that is an integer in a double. No sum
// overflows, and the error does not grow with the magnitude of the loss.
namespace WARPALIGN_SIMD_NAMESPACE {

constexpr double kMagic = 6755399441055744.0;  // 1.5 * 2^52: adding it rounds to an integer
constexpr double kDead = -1e300;               // exponent of a node that no path reaches
constexpr double kForbidden = -1e299;          // log2 of the weight of an arc that no path may use

// A vector's worth of elements as float64.
WARPALIGN_INLINE F64 read_wide(const double* from) { return load(from); }
WARPALIGN_INLINE F64 read_wide(const float* from) {
  // NOLINTNEXTLINE(modernize-use-using)
  typedef float Narrow __attribute__((vector_size(WARPALIGN_SIMD_BYTES / 2), aligned(4), may_alias));
  return __builtin_convertvector(*reinterpret_cast<const Narrow*>(from), F64);
}
WARPALIGN_INLINE void write_wide(double* to, F64 v) { store(to, v); }
WARPALIGN_INLINE void write_wide(float* to, F64 v) {
  // NOLINTBEGIN(modernize-use-using)
  typedef float Narrow __attribute__((vector_size(WARPALIGN_SIMD_BYTES / 2)));
  typedef float Unaligned __attribute__((vector_size(WARPALIGN_SIMD_BYTES / 2), aligned(4), may_alias));
  // NOLINTEND(modernize-use-using)
  *reinterpret_cast<Unaligned*>(to) = __builtin_convertvector(v, Narrow);
}

// 2^(exponent - largest) times the mantissa; exactly 0 below 2^-1022.
WARPALIGN_INLINE F64 aligned_to(F64 largest, F64 mantissa, F64 exponent) {
  const F64 difference = max(exponent - largest, splat(-1023.0));
  return mantissa * from_bits(bits_of(difference + (kMagic + 1023.0)) << 52);
}

struct Power {
  F64 mantissa;
  F64 exponent;
};

// 2^w, w <= 2^1000. NaN, which memory that belongs to no arc may contain, is treated as forbidden.
WARPALIGN_INLINE Power power_of(F64 w) {
  w = max(w, splat(kForbidden));
  const F64 magnitude = from_bits(bits_of(w) & 0x7fffffffffffffffLL);
  const F64 whole = magnitude < 0x1p51 ? (w + kMagic) - kMagic : w;  // from 2^51 on there is no fraction
  return {exp2_negated(whole - w), whole};
}

WARPALIGN_INLINE Power normalized(F64 mantissa, F64 exponent) {
  const I64 bits = bits_of(mantissa);
  const F64 biased =
      from_bits(reinterpret_cast<I64>(reinterpret_cast<U64>(bits) >> 52) | 0x4330000000000000LL);
  return {from_bits((bits & 0x000fffffffffffffLL) | 0x3ff0000000000000LL),
          max(exponent + (biased - (0x1p52 + 1023.0)), splat(kDead))};
}

}  // namespace WARPALIGN_SIMD_NAMESPACE
