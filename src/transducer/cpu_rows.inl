// Rows of logits: log sum exp, and the gradient. A row is cut into vectors from its first column on, whatever
// its address, so that its bits depend on nothing but its numbers.
namespace WARPALIGN_SIMD_NAMESPACE {

// NOLINTBEGIN(modernize-use-using)
typedef __UINT16_TYPE__ U16 __attribute__((vector_size(WARPALIGN_SIMD_BYTES / 2)));
typedef __UINT16_TYPE__ U16Unaligned
    __attribute__((vector_size(WARPALIGN_SIMD_BYTES / 2), aligned(2), may_alias));
// NOLINTEND(modernize-use-using)

// How a storage type is read and written, a vector at a time. V's lanes are Real.
template <class T>
struct WideStorage {  // float and double
  using Element = T;
  using Real = T;
  using V = typename VectorOf<T>::Type;
  static WARPALIGN_INLINE V read(const Element* from) { return load(from); }
  static WARPALIGN_INLINE void write(Element* to, V v) { store(to, v); }
};

struct Half16Storage {  // binary16; core/half.h has the conversions with reasons
  using Element = __UINT16_TYPE__;
  using Real = float;
  using V = F32;
#if WARPALIGN_SIMD_BYTES == 64
  // NOLINTNEXTLINE(modernize-use-using)
  typedef short Signed __attribute__((vector_size(32)));
  static WARPALIGN_INLINE V read(const Element* from) {
    const U16 bits = *reinterpret_cast<const U16Unaligned*>(from);
    return __builtin_ia32_vcvtph2ps512_mask(reinterpret_cast<Signed>(bits), F32{}, -1, 4);
  }
  static WARPALIGN_INLINE void write(Element* to, V v) {
    const Signed bits = __builtin_ia32_vcvtps2ph512_mask(v, 0, Signed{}, -1);  // to nearest, ties to even
    *reinterpret_cast<U16Unaligned*>(to) = reinterpret_cast<U16>(bits);
  }
#else
  static WARPALIGN_INLINE V read(const Element* from) {
    const I32 all = __builtin_convertvector(*reinterpret_cast<const U16Unaligned*>(from), I32);
    const I32 sign = (all & 0x8000) << 16;
    const I32 magnitude = all & 0x7fff;
    // The exponent's bias changes from 15 to 127 by a product, which is exact for subnormal numbers too.
    const F32 scaled = from_bits(magnitude << 13) * 0x1p112f;
    const I32 special = magnitude >= 0x7c00;
    return from_bits(((bits_of(scaled) & ~special) | ((0x7f800000 | (magnitude << 13)) & special)) | sign);
  }
  static WARPALIGN_INLINE void write(Element* to, V v) {
    const I32 all = bits_of(v);
    const I32 sign = (all >> 16) & 0x8000;
    const I32 magnitude = all & 0x7fffffff;
    const I32 small = bits_of(from_bits(magnitude) + 0.5f) - 0x3f000000;
    const I32 normal = ((magnitude + 0xfff + ((magnitude >> 13) & 1)) >> 13) - (112 << 10);
    I32 result = magnitude < 0x38800000 ? small : normal;
    result = magnitude >= 0x47800000 ? splat(0x7c00) : result;
    result = magnitude > 0x7f800000 ? splat(0x7e00) : result;
    *reinterpret_cast<U16Unaligned*>(to) = __builtin_convertvector(result | sign, U16);
  }
#endif
};

struct BFloat16Storage {
  using Element = __UINT16_TYPE__;
  using Real = float;
  using V = F32;
  static WARPALIGN_INLINE V read(const Element* from) {
    return from_bits(__builtin_convertvector(*reinterpret_cast<const U16Unaligned*>(from), I32) << 16);
  }
  static WARPALIGN_INLINE void write(Element* to, V v) {
    const I32 all = bits_of(v);
    const I32 rounded = (all + 0x7fff + ((all >> 16) & 1)) >> 16;
    const I32 is_nan = (all & 0x7fffffff) > 0x7f800000;
    const I32 result = is_nan ? ((all >> 16) | 0x40) : rounded;
    *reinterpret_cast<U16Unaligned*>(to) = __builtin_convertvector(result & 0xffff, U16);
  }
};

template <class V>
constexpr int kLanesOf = 0;
template <>
inline constexpr int kLanesOf<F32> = WARPALIGN_SIMD_BYTES / 4;
template <>
inline constexpr int kLanesOf<F64> = WARPALIGN_SIMD_BYTES / 8;

// e^v for v <= some 80; exactly 0 from e^-88.1 on down (float64: e^-709.2), NaN for NaN.
WARPALIGN_INLINE F32 exp_of(F32 v) {
  constexpr float kRound = 12582912.0f;  // 1.5 * 2^23
  v = max(splat(-127.0f / kLog2E<float>), v);
  const F32 rounded = v * kLog2E<float> + kRound;
  const F32 power = exp2_negated((rounded - kRound) - v * kLog2E<float>);
  return power * from_bits((bits_of(rounded) + (127 - 0x4B400000)) << 23);
}
WARPALIGN_INLINE F64 exp_of(F64 v) {
  constexpr double kRound = 6755399441055744.0;  // 1.5 * 2^52
  v = max(splat(-1023.0 / kLog2E<double>), v);
  const F64 rounded = v * kLog2E<double> + kRound;
  const F64 power = exp2_negated((rounded - kRound) - v * kLog2E<double> - v * 2.0355273740931033e-17);
  return power * from_bits((bits_of(rounded) + (1023 - 0x4338000000000000LL)) << 52);
}

// The columns of a row behind its last whole vector, in the last lanes; the other lanes are -inf.
template <class Storage>
WARPALIGN_INLINE typename Storage::V read_tail(const typename Storage::Element* row, int columns) {
  using V = typename Storage::V;
  using Real = typename Storage::Real;
  constexpr int kLanes = kLanesOf<V>;
  const int count = columns % kLanes;
  const V lowest = splat(static_cast<Real>(-__builtin_inf()));
  if (columns >= kLanes) {
    return lanes(V{}) >= kLanes - count ? Storage::read(row + columns - kLanes) : lowest;
  }
  typename Storage::Element buffer[kLanes] = {};
  for (int k = 0; k < count; ++k) buffer[kLanes - count + k] = row[k];
  return lanes(V{}) >= kLanes - count ? Storage::read(buffer) : lowest;
}
// The first lanes of a vector.
template <class Storage>
WARPALIGN_INLINE void write_first(typename Storage::Element* to, int count, typename Storage::V v) {
  typename Storage::Element buffer[kLanesOf<typename Storage::V>];
  Storage::write(buffer, v);
  for (int k = 0; k < count; ++k) to[k] = buffer[k];
}

// Four chains, so that sums do not wait for each other.
constexpr int kChains = 4;

template <class Storage>
double row_lse(const void* data, std::int32_t columns) {
  using V = typename Storage::V;
  using Real = typename Storage::Real;
  constexpr int kLanes = kLanesOf<V>;
  const auto* const row = static_cast<const typename Storage::Element*>(data);
  const V lowest = splat(static_cast<Real>(-__builtin_inf()));
  V largest[kChains] = {lowest, lowest, lowest, lowest};
  int k = 0;
  for (; k + kChains * kLanes <= columns; k += kChains * kLanes) {
    for (int c = 0; c < kChains; ++c) largest[c] = max(Storage::read(row + k + c * kLanes), largest[c]);
  }
  for (; k + kLanes <= columns; k += kLanes) largest[0] = max(Storage::read(row + k), largest[0]);
  const int full = k;
  const V tail = full < columns ? read_tail<Storage>(row, columns) : lowest;
  const V all = max(max(tail, largest[0]), max(max(largest[1], largest[2]), largest[3]));
  Real top = all[0];
  for (int lane = 1; lane < kLanes; ++lane) top = all[lane] > top ? all[lane] : top;
  // Without a finite number e^(x - 0) is 0 for -inf, and NaN for NaN.
  const Real shift = top > -__builtin_inf() ? top : 0;

  V sum[kChains] = {};
  for (k = 0; k + kChains * kLanes <= columns; k += kChains * kLanes) {
    for (int c = 0; c < kChains; ++c) sum[c] += exp_of(Storage::read(row + k + c * kLanes) - shift);
  }
  for (; k + kLanes <= columns; k += kLanes) sum[0] += exp_of(Storage::read(row + k) - shift);
  if (full < columns) sum[1] += exp_of(tail - shift);
  const V total = (sum[0] + sum[1]) + (sum[2] + sum[3]);
  double result = 0;
  for (int lane = 0; lane < kLanes; ++lane) result += static_cast<double>(total[lane]);
  return static_cast<double>(shift) + __builtin_log(result);  // log 0 = -inf
}

template <class Storage>
void row_gradient(const void* from, void* to, std::int32_t columns,
                  const CpuRowGradient<typename Storage::Real>& r) {
  using V = typename Storage::V;
  using Element = typename Storage::Element;
  constexpr int kLanes = kLanesOf<V>;
  const auto* const x = static_cast<const Element*>(from);
  auto* const out = static_cast<Element*>(to);
  const auto finished = [&](V v) { return min(max(v, splat(-r.clip)), splat(r.clip)) * r.upstream; };
  const auto of_logits = [&](V v) { return exp_of(v - r.lse) * r.scored; };

  // The arcs' columns, before the row may be overwritten.
  Element mended[kCpuColumns];
  static_assert(kCpuColumns % kLanes == 0 || kLanes % kCpuColumns == 0);
  for (int c = 0; c < r.columns; c += kLanes) {
    const int count = r.columns - c < kLanes ? r.columns - c : kLanes;
    Element picked[kLanes] = {};
    V g{};
    for (int k = 0; k < count; ++k) {
      picked[k] = x[r.column[c + k]];
      g[k] = r.g[c + k];
    }
    const V v = r.log_probs ? -g : of_logits(Storage::read(picked)) - g;
    write_first<Storage>(mended + c, count, finished(v));
  }
  if (r.log_probs) {
    for (std::int32_t k = 0; k < columns; ++k) out[k] = Element(0);
  } else if (columns < kLanes) {
    Element row[kLanes] = {};
    for (std::int32_t k = 0; k < columns; ++k) row[k] = x[k];
    write_first<Storage>(out, columns, finished(of_logits(Storage::read(row))));
  } else {
    // The last vector overlaps the one before, and is read before that one may be overwritten.
    const V last = finished(of_logits(Storage::read(x + columns - kLanes)));
    std::int32_t k = 0;
    for (; k + 2 * kLanes <= columns; k += 2 * kLanes) {
      const V a = finished(of_logits(Storage::read(x + k)));
      const V b = finished(of_logits(Storage::read(x + k + kLanes)));
      Storage::write(out + k, a);
      Storage::write(out + k + kLanes, b);
    }
    if (k + kLanes <= columns) Storage::write(out + k, finished(of_logits(Storage::read(x + k))));
    Storage::write(out + columns - kLanes, last);
  }
  for (int c = 0; c < r.columns; ++c) out[r.column[c]] = mended[c];
}

}  // namespace WARPALIGN_SIMD_NAMESPACE
