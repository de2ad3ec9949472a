// Rows of logits: log sum exp, and the gradient. A row is cut into vectors from its first column on, whatever
// its address, so that its bits depend on nothing but its numbers.
namespace WARPALIGN_SIMD_NAMESPACE {

// NOLINTBEGIN(modernize-use-using)
typedef __UINT16_TYPE__ U16 __attribute__((vector_size(WARPALIGN_SIMD_BYTES / 2)));
typedef __UINT16_TYPE__ U16Unaligned
    __attribute__((vector_size(WARPALIGN_SIMD_BYTES / 2), aligned(2), may_alias));
typedef short S16 __attribute__((vector_size(WARPALIGN_SIMD_BYTES / 2)));
typedef short S16Whole __attribute__((vector_size(WARPALIGN_SIMD_BYTES)));
typedef short S16WholeUnaligned __attribute__((vector_size(WARPALIGN_SIMD_BYTES), aligned(2), may_alias));
// NOLINTEND(modernize-use-using)

// How a storage type is read and written, a vector or two at a time. V's lanes are Real.
template <class T>
struct WideStorage {  // float and double
  using Element = T;
  using Real = T;
  using V = typename VectorOf<T>::Type;
  static WARPALIGN_INLINE V read(const Element* from) { return load(from); }
  static WARPALIGN_INLINE void write(Element* to, V v) { store(to, v); }
  static WARPALIGN_INLINE void write(Element* to, V a, V b) {
    store(to, a);
    store(to + WARPALIGN_SIMD_BYTES / static_cast<int>(sizeof(T)), b);
  }
};

// Bits of 16-bit numbers, each in 32 bits and back. GCC would take a vector of 64 bytes apart.
WARPALIGN_INLINE U16 load_u16(const __UINT16_TYPE__* from) {
  return *reinterpret_cast<const U16Unaligned*>(from);
}
#if WARPALIGN_SIMD_BYTES == 64 && !defined(__clang__)
WARPALIGN_INLINE I32 widened(U16 v) {
  return __builtin_ia32_pmovzxwd512_mask(reinterpret_cast<S16>(v), I32{}, -1);
}
WARPALIGN_INLINE void store_low_halves(__UINT16_TYPE__* to, I32 v) {
  *reinterpret_cast<U16Unaligned*>(to) = reinterpret_cast<U16>(__builtin_ia32_pmovdw512_mask(v, S16{}, -1));
}
#else
WARPALIGN_INLINE I32 widened(U16 v) { return __builtin_convertvector(v, I32); }
WARPALIGN_INLINE void store_low_halves(__UINT16_TYPE__* to, I32 v) {
  *reinterpret_cast<U16Unaligned*>(to) = __builtin_convertvector(v & 0xffff, U16);
}
#endif

// What the two 16-bit types have in common.
template <class Format>
struct ShortStorage {
  using Element = __UINT16_TYPE__;
  using Real = float;
  using V = F32;
  static WARPALIGN_INLINE V read(const Element* from) { return Format::from_bits(load_u16(from)); }
  static WARPALIGN_INLINE void write(Element* to, V v) { Format::to_memory(to, v); }
  static WARPALIGN_INLINE void write(Element* to, V a, V b) { Format::to_memory(to, a, b); }
};

struct Half16 {  // binary16; core/half.h has the conversions with reasons
#if WARPALIGN_SIMD_BYTES == 64
  static WARPALIGN_INLINE F32 from_bits(U16 bits) {
    return __builtin_ia32_vcvtph2ps512_mask(reinterpret_cast<S16>(bits), F32{}, -1, 4);
  }
  static WARPALIGN_INLINE void to_memory(__UINT16_TYPE__* to, F32 v) {  // to nearest, ties to even
    *reinterpret_cast<U16Unaligned*>(to) =
        reinterpret_cast<U16>(__builtin_ia32_vcvtps2ph512_mask(v, 0, S16{}, -1));
  }
#elif WARPALIGN_SIMD_BYTES == 32
  static WARPALIGN_INLINE F32 from_bits(U16 bits) {
    return __builtin_ia32_vcvtph2ps256(reinterpret_cast<S16>(bits));
  }
  static WARPALIGN_INLINE void to_memory(__UINT16_TYPE__* to, F32 v) {
    *reinterpret_cast<U16Unaligned*>(to) = reinterpret_cast<U16>(__builtin_ia32_vcvtps2ph256(v, 0));
  }
#else
  static WARPALIGN_INLINE F32 from_bits(U16 bits) {
    const I32 all = widened(bits);
    const I32 sign = (all & 0x8000) << 16;
    const I32 magnitude = all & 0x7fff;
    // The exponent's bias changes from 15 to 127 by a product, which is exact for subnormal numbers too.
    const F32 scaled = WARPALIGN_SIMD_NAMESPACE::from_bits(magnitude << 13) * 0x1p112f;
    const I32 special = magnitude >= 0x7c00;
    return WARPALIGN_SIMD_NAMESPACE::from_bits(
        ((bits_of(scaled) & ~special) | ((0x7f800000 | (magnitude << 13)) & special)) | sign);
  }
  static WARPALIGN_INLINE void to_memory(__UINT16_TYPE__* to, F32 v) {
    const I32 all = bits_of(v);
    const I32 sign = (all >> 16) & 0x8000;
    const I32 magnitude = all & 0x7fffffff;
    const I32 small = bits_of(WARPALIGN_SIMD_NAMESPACE::from_bits(magnitude) + 0.5f) - 0x3f000000;
    const I32 normal = ((magnitude + 0xfff + ((magnitude >> 13) & 1)) >> 13) - (112 << 10);
    I32 result = magnitude < 0x38800000 ? small : normal;
    result = magnitude >= 0x47800000 ? splat(0x7c00) : result;
    result = magnitude > 0x7f800000 ? splat(0x7e00) : result;
    store_low_halves(to, result | sign);
  }
#endif
  static WARPALIGN_INLINE void to_memory(__UINT16_TYPE__* to, F32 a, F32 b) {
    to_memory(to, a);
    to_memory(to + WARPALIGN_SIMD_BYTES / 4, b);
  }
};

struct BFloat16 {
  static WARPALIGN_INLINE F32 from_bits(U16 bits) {
    return WARPALIGN_SIMD_NAMESPACE::from_bits(widened(bits) << 16);
  }
  // Rounded in the upper half of each lane.
  static WARPALIGN_INLINE I32 rounded(F32 v) {
    const I32 all = bits_of(v);
    return v != v ? all | 0x400000 : all + 0x7fff + ((all >> 16) & 1);
  }
  static WARPALIGN_INLINE void to_memory(__UINT16_TYPE__* to, F32 v) {
    store_low_halves(to, rounded(v) >> 16);
  }
  static WARPALIGN_INLINE void to_memory(__UINT16_TYPE__* to, F32 a, F32 b) {
#if WARPALIGN_SIMD_BYTES == 64 && !defined(__clang__)
    S16Whole odd;
    for (int k = 0; k < 32; ++k) odd[k] = static_cast<short>(2 * k + 1);
    *reinterpret_cast<S16WholeUnaligned*>(to) = __builtin_ia32_vpermt2varhi512_mask(
        odd, reinterpret_cast<S16Whole>(rounded(a)), reinterpret_cast<S16Whole>(rounded(b)), -1);
#else
    to_memory(to, a);
    to_memory(to + WARPALIGN_SIMD_BYTES / 4, b);
#endif
  }
};
using Half16Storage = ShortStorage<Half16>;
using BFloat16Storage = ShortStorage<BFloat16>;

template <class V>
constexpr int kLanesOf = 0;
template <>
inline constexpr int kLanesOf<F32> = WARPALIGN_SIMD_BYTES / 4;
template <>
inline constexpr int kLanesOf<F64> = WARPALIGN_SIMD_BYTES / 8;

// e^v for v <= some 80; exactly 0 from e^-88.1 on down (float64: e^-709.2), NaN for NaN.
WARPALIGN_INLINE F32 exp_of(F32 v) {
  constexpr float kRound = 12582912.0f + 127;  // 1.5 * 2^23, and the exponent's bias
  v = max(splat(-127.0f / kLog2E<float>), v);
  const F32 rounded = v * kLog2E<float> + kRound;
  const F32 power = exp2_negated((rounded - kRound) - v * kLog2E<float>);
  return power * from_bits(bits_of(rounded) << 23);  // 1.5 * 2^23 has no bit below the tenth
}
WARPALIGN_INLINE F64 exp_of(F64 v) {
  constexpr double kRound = 6755399441055744.0 + 1023;  // 1.5 * 2^52
  v = max(splat(-1023.0 / kLog2E<double>), v);
  const F64 rounded = v * kLog2E<double> + kRound;
  const F64 power = exp2_negated((rounded - kRound) - v * kLog2E<double> - v * 2.0355273740931033e-17);
  return power * from_bits(bits_of(rounded) << 52);
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

// The largest number of a row; NaN is passed over, and -inf stands for none.
template <class Storage>
WARPALIGN_INLINE typename Storage::Real row_largest(const typename Storage::Element* row,
                                                    std::int32_t columns) {
  using V = typename Storage::V;
  using Real = typename Storage::Real;
  constexpr int kLanes = kLanesOf<V>;
  const V lowest = splat(static_cast<Real>(-__builtin_inf()));
  V largest[kChains] = {lowest, lowest, lowest, lowest};
  std::int32_t k = 0;
  for (; k + kChains * kLanes <= columns; k += kChains * kLanes) {
    for (int c = 0; c < kChains; ++c) largest[c] = max(Storage::read(row + k + c * kLanes), largest[c]);
  }
  for (; k + kLanes <= columns; k += kLanes) largest[0] = max(Storage::read(row + k), largest[0]);
  if (k < columns) largest[1] = max(read_tail<Storage>(row, columns), largest[1]);
  const V all = max(max(largest[0], largest[1]), max(largest[2], largest[3]));
  Real top = all[0];
  for (int lane = 1; lane < kLanes; ++lane) top = all[lane] > top ? all[lane] : top;
  return top;
}

// The sum of e^(x - shift) over a row.
template <class Storage>
WARPALIGN_INLINE double row_sum(const typename Storage::Element* row, std::int32_t columns,
                                typename Storage::Real shift) {
  using V = typename Storage::V;
  constexpr int kLanes = kLanesOf<V>;
  const auto power = [shift](V x) { return exp_of(x - shift); };
  V sum[kChains] = {};
  std::int32_t k = 0;
  for (; k + kChains * kLanes <= columns; k += kChains * kLanes) {
    for (int c = 0; c < kChains; ++c) sum[c] += power(Storage::read(row + k + c * kLanes));
  }
  for (; k + kLanes <= columns; k += kLanes) sum[0] += power(Storage::read(row + k));
  if (k < columns) sum[1] += power(read_tail<Storage>(row, columns));
  const V total = (sum[0] + sum[1]) + (sum[2] + sum[3]);
  double lane[kLanes];
  for (int i = 0; i < kLanes; ++i) lane[i] = static_cast<double>(total[i]);
  for (int half = kLanes / 2; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) lane[i] += lane[i + half];
  }
  return lane[0];
}

// The shift is the largest number: where one share is nearly 1, its exponential is exact, and p S - g has the
// digits of the others.
template <class Storage>
double row_lse(const void* data, std::int32_t columns) {
  using Real = typename Storage::Real;
  const auto* const row = static_cast<const typename Storage::Element*>(data);
  const Real top = row_largest<Storage>(row, columns);
  // Without a finite number e^(x - 0) is 0 for -inf, and NaN for NaN. +inf: NaN.
  const Real shift = top > -__builtin_inf() ? top : Real(0);
  return static_cast<double>(shift) + __builtin_log(row_sum<Storage>(row, columns, shift));  // log 0 = -inf
}

// The columns that no arc names: G clip(p_k S). out may be x.
template <class Storage, bool kClips>
WARPALIGN_INLINE void common_gradient(const typename Storage::Element* x, typename Storage::Element* out,
                                      std::int32_t columns, const CpuRowGradient<typename Storage::Real>& r) {
  using V = typename Storage::V;
  constexpr int kLanes = kLanesOf<V>;
  // Copies, which stores to out cannot change.
  const V lse = splat(r.lse), scored = splat(kClips ? r.scored : r.scored * r.upstream);
  const V upstream = splat(r.upstream), clip = splat(r.clip);
  const auto at = [=](const typename Storage::Element* from) -> V {
    const V share = exp_of(Storage::read(from) - lse) * scored;
    return kClips ? min(clip, share) * upstream : share;
  };
  if (columns < kLanes) {
    typename Storage::Element row[kLanes] = {};
    for (std::int32_t k = 0; k < columns; ++k) row[k] = x[k];
    write_first<Storage>(out, columns, at(row));
    return;
  }
  // The last vector overlaps the one before, and is read before that one may be overwritten.
  const V last = at(x + columns - kLanes);
  std::int32_t k = 0;
  for (; k + 2 * kLanes <= columns; k += 2 * kLanes) {
    const V a = at(x + k), b = at(x + k + kLanes);
    Storage::write(out + k, a, b);
  }
  if (k + kLanes <= columns) Storage::write(out + k, at(x + k));
  Storage::write(out + columns - kLanes, last);
}

template <class Storage>
void row_gradient(const void* from, void* to, std::int32_t columns,
                  const CpuRowGradient<typename Storage::Real>& r) {
  using V = typename Storage::V;
  using Element = typename Storage::Element;
  constexpr int kLanes = kLanesOf<V>;
  const auto* const x = static_cast<const Element*>(from);
  auto* const out = static_cast<Element*>(to);

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
    const V v = r.log_probs ? -g : exp_of(Storage::read(picked) - r.lse) * r.scored - g;
    write_first<Storage>(mended + c, count, min(splat(r.clip), max(splat(-r.clip), v)) * r.upstream);
  }
  if (r.log_probs) {
    for (std::int32_t k = 0; k < columns; ++k) out[k] = Element(0);
  } else if (r.clip < __builtin_inf()) {
    common_gradient<Storage, true>(x, out, columns, r);
  } else {
    common_gradient<Storage, false>(x, out, columns, r);
  }
  for (int c = 0; c < r.columns; ++c) out[r.column[c]] = mended[c];
}

}  // namespace WARPALIGN_SIMD_NAMESPACE
