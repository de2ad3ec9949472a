// How rows of logits are read and written: float, double, binary16, bfloat16.
namespace WARPALIGN_SIMD_NAMESPACE {

// NOLINTBEGIN(modernize-use-using)
typedef __UINT16_TYPE__ U16 __attribute__((vector_size(WARPALIGN_SIMD_BYTES / 2)));
typedef __UINT16_TYPE__ U16Unaligned
    __attribute__((vector_size(WARPALIGN_SIMD_BYTES / 2), aligned(2), may_alias));
typedef short S16 __attribute__((vector_size(WARPALIGN_SIMD_BYTES / 2)));
typedef __UINT32_TYPE__ U32 __attribute__((vector_size(WARPALIGN_SIMD_BYTES)));
typedef __INT32_TYPE__ I32OfShorts __attribute__((vector_size(WARPALIGN_SIMD_BYTES), aligned(2), may_alias));
// Vectors of 16-bit integers, signed and unsigned.
typedef short S16Whole __attribute__((vector_size(WARPALIGN_SIMD_BYTES)));
typedef short S16WholeUnaligned __attribute__((vector_size(WARPALIGN_SIMD_BYTES), aligned(2), may_alias));
typedef __UINT16_TYPE__ U16Whole __attribute__((vector_size(WARPALIGN_SIMD_BYTES)));
// NOLINTEND(modernize-use-using)

// The numbers of two vectors of a row. The storage type decides which of them are in a.
template <class V>
struct Pair {
  V a, b;
};

// How a storage type is read and written, a vector or two at a time. V's lanes are Real.
template <class T>
struct WideStorage {  // float and double
  using Element = T;
  using Real = T;
  using V = typename VectorOf<T>::Type;
  using SumPowers = WidePowers<V>;
  using GradientPowers = WidePowers<V>;
  static WARPALIGN_INLINE V read(const Element* from) { return load(from); }
  static WARPALIGN_INLINE void write(Element* to, V v) { store(to, v); }
  static constexpr int kLanes = WARPALIGN_SIMD_BYTES / static_cast<int>(sizeof(T));
  static WARPALIGN_INLINE Pair<V> read_pair(const Element* from) { return {load(from), load(from + kLanes)}; }
  static WARPALIGN_INLINE void write_pair(Element* to, Pair<V> v) {
    store(to, v.a);
    store(to + kLanes, v.b);
  }
};

// Loads 16-bit numbers into lanes of 32 bits, and stores them. Intrinsics, because GCC splits a conversion of
// 64 bytes.
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

// The common part of both 16-bit types.
template <class Format>
struct ShortStorage {
  using Element = __UINT16_TYPE__;
  using Real = float;
  using V = F32;
  using SumPowers = ShortPowers<5>;
  using GradientPowers = ShortPowers<4>;
  static WARPALIGN_INLINE V read(const Element* from) { return Format::from_bits(load_u16(from)); }
  static WARPALIGN_INLINE void write(Element* to, V v) { Format::to_memory(to, v); }
  static WARPALIGN_INLINE Pair<V> read_pair(const Element* from) { return Format::pair_from(from); }
  static WARPALIGN_INLINE void write_pair(Element* to, Pair<V> v) { Format::pair_to(to, v); }
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
    // A product changes the exponent's bias from 15 to 127, exactly, also for subnormal numbers.
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
  static WARPALIGN_INLINE Pair<F32> pair_from(const __UINT16_TYPE__* from) {
    return {from_bits(load_u16(from)), from_bits(load_u16(from + WARPALIGN_SIMD_BYTES / 4))};
  }
  static WARPALIGN_INLINE void pair_to(__UINT16_TYPE__* to, Pair<F32> v) {
    to_memory(to, v.a);
    to_memory(to + WARPALIGN_SIMD_BYTES / 4, v.b);
  }
};

struct BFloat16 {
  static WARPALIGN_INLINE F32 from_bits(U16 bits) {
    return WARPALIGN_SIMD_NAMESPACE::from_bits(widened(bits) << 16);
  }
  // Rounded to nearest, ties to even; the result is in the upper half of each lane. A NaN must have no
  // payload.
  static WARPALIGN_INLINE I32 rounded(F32 v) {
    const I32 all = bits_of(v);
    return all + 0x7fff + ((all >> 16) & 1);
  }
  static WARPALIGN_INLINE void to_memory(__UINT16_TYPE__* to, F32 v) {
    store_low_halves(to, rounded(v) >> 16);
  }
  // a has the even columns and b the odd ones: reading them needs no instruction that crosses lanes.
  static WARPALIGN_INLINE Pair<F32> pair_from(const __UINT16_TYPE__* from) {
    const I32 both = *reinterpret_cast<const I32OfShorts*>(from);
    return {WARPALIGN_SIMD_NAMESPACE::from_bits(both << 16),
            WARPALIGN_SIMD_NAMESPACE::from_bits(both & static_cast<int>(0xffff0000))};
  }
  static WARPALIGN_INLINE void pair_to(__UINT16_TYPE__* to, Pair<F32> v) {
    const I32 even = reinterpret_cast<I32>(reinterpret_cast<U32>(rounded(v.a)) >> 16);
    *reinterpret_cast<I32OfShorts*>(to) = even | (rounded(v.b) & static_cast<int>(0xffff0000));
  }
};
using Half16Storage = ShortStorage<Half16>;
using BFloat16Storage = ShortStorage<BFloat16>;

}  // namespace WARPALIGN_SIMD_NAMESPACE
