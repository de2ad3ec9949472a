// SIMD vectors from the compiler's vector extensions: one source for every instruction set. A file that
// includes this header is compiled for one instruction set, and defines WARPALIGN_SIMD_NAMESPACE before, a
// namespace within its operator's. Everything here is in that namespace: the linker merges inline functions
// of the same name, and could select the copy that the processor cannot run. For the same reason this header,
// and .inl files, include no standard header with inline functions.
#pragma once

#ifndef WARPALIGN_SIMD_NAMESPACE
#error "define WARPALIGN_SIMD_NAMESPACE before including cpu/simd.h"
#endif

#if defined(__AVX512F__)
#define WARPALIGN_SIMD_BYTES 64
#elif defined(__AVX2__)
#define WARPALIGN_SIMD_BYTES 32
#else
#define WARPALIGN_SIMD_BYTES 16
#endif

#define WARPALIGN_INLINE __attribute__((always_inline)) inline

namespace WARPALIGN_SIMD_NAMESPACE {

// NOLINTBEGIN(modernize-use-using): attributes of vector types read best in a typedef
typedef __INT64_TYPE__ Index;
typedef float F32 __attribute__((vector_size(WARPALIGN_SIMD_BYTES)));
typedef double F64 __attribute__((vector_size(WARPALIGN_SIMD_BYTES)));
typedef __INT32_TYPE__ I32 __attribute__((vector_size(WARPALIGN_SIMD_BYTES)));
typedef __INT64_TYPE__ I64 __attribute__((vector_size(WARPALIGN_SIMD_BYTES)));
typedef __UINT64_TYPE__ U64 __attribute__((vector_size(WARPALIGN_SIMD_BYTES)));

template <class Scalar>
struct VectorOf;
template <>
struct VectorOf<float> {
  typedef F32 Type;
  typedef float Unaligned __attribute__((vector_size(WARPALIGN_SIMD_BYTES), aligned(4), may_alias));
};
template <>
struct VectorOf<double> {
  typedef F64 Type;
  typedef double Unaligned __attribute__((vector_size(WARPALIGN_SIMD_BYTES), aligned(8), may_alias));
};
template <>
struct VectorOf<__INT32_TYPE__> {
  typedef I32 Type;
  typedef __INT32_TYPE__ Unaligned __attribute__((vector_size(WARPALIGN_SIMD_BYTES), aligned(4), may_alias));
};

// NOLINTEND(modernize-use-using)

template <class Scalar>
WARPALIGN_INLINE typename VectorOf<Scalar>::Type load(const Scalar* from) {
  return *reinterpret_cast<const typename VectorOf<Scalar>::Unaligned*>(from);
}

template <class Scalar>
WARPALIGN_INLINE void store(Scalar* to, typename VectorOf<Scalar>::Type value) {
  *reinterpret_cast<typename VectorOf<Scalar>::Unaligned*>(to) = value;
}

WARPALIGN_INLINE I32 bits_of(F32 v) { return reinterpret_cast<I32>(v); }
WARPALIGN_INLINE I64 bits_of(F64 v) { return reinterpret_cast<I64>(v); }
WARPALIGN_INLINE F32 from_bits(I32 v) { return reinterpret_cast<F32>(v); }
WARPALIGN_INLINE F64 from_bits(I64 v) { return reinterpret_cast<F64>(v); }

// If a or b is NaN the result is b. The compiler generates the right instruction for integers.
template <class V>
WARPALIGN_INLINE V max(V a, V b) {
  return a > b ? a : b;
}
template <class V>
WARPALIGN_INLINE V min(V a, V b) {
  return a < b ? a : b;
}

// One instruction has this result; for floats GCC would generate a comparison and a blend.
#if WARPALIGN_SIMD_BYTES == 64 && !defined(__clang__)
WARPALIGN_INLINE F32 max(F32 a, F32 b) { return __builtin_ia32_maxps512_mask(a, b, F32{}, -1, 4); }
WARPALIGN_INLINE F32 min(F32 a, F32 b) { return __builtin_ia32_minps512_mask(a, b, F32{}, -1, 4); }
WARPALIGN_INLINE F64 max(F64 a, F64 b) { return __builtin_ia32_maxpd512_mask(a, b, F64{}, -1, 4); }
WARPALIGN_INLINE F64 min(F64 a, F64 b) { return __builtin_ia32_minpd512_mask(a, b, F64{}, -1, 4); }
#elif WARPALIGN_SIMD_BYTES == 32
WARPALIGN_INLINE F32 max(F32 a, F32 b) { return __builtin_ia32_maxps256(a, b); }
WARPALIGN_INLINE F32 min(F32 a, F32 b) { return __builtin_ia32_minps256(a, b); }
WARPALIGN_INLINE F64 max(F64 a, F64 b) { return __builtin_ia32_maxpd256(a, b); }
WARPALIGN_INLINE F64 min(F64 a, F64 b) { return __builtin_ia32_minpd256(a, b); }
#endif

// c - a b, rounded once if the instruction set has a fused operation. Code whose accuracy needs it calls this
// function, because whether the compiler fuses a product and a sum depends on its options.
#if WARPALIGN_SIMD_BYTES == 64
WARPALIGN_INLINE F32 subtract_product(F32 c, F32 a, F32 b) {
  return __builtin_ia32_vfmaddps512_mask(-a, b, c, -1, 4);  // every lane, the current rounding mode
}
WARPALIGN_INLINE F64 subtract_product(F64 c, F64 a, F64 b) {
  return __builtin_ia32_vfmaddpd512_mask(-a, b, c, -1, 4);
}
#elif WARPALIGN_SIMD_BYTES == 32
WARPALIGN_INLINE F32 subtract_product(F32 c, F32 a, F32 b) { return __builtin_ia32_vfmaddps256(-a, b, c); }
WARPALIGN_INLINE F64 subtract_product(F64 c, F64 a, F64 b) { return __builtin_ia32_vfmaddpd256(-a, b, c); }
#else
template <class V>
WARPALIGN_INLINE V subtract_product(V c, V a, V b) {
  return c - a * b;
}
#endif

WARPALIGN_INLINE F32 splat(float v) { return F32{} + v; }
WARPALIGN_INLINE F64 splat(double v) { return F64{} + v; }
WARPALIGN_INLINE I32 splat(__INT32_TYPE__ v) { return I32{} + v; }
WARPALIGN_INLINE I64 splat(__INT64_TYPE__ v) { return I64{} + v; }

// Whether any bit of v is set.
template <class V>
WARPALIGN_INLINE bool any_bit(V v) {
  const I64 words = reinterpret_cast<I64>(v);
  Index all = 0;
  for (int k = 0; k < WARPALIGN_SIMD_BYTES / 8; ++k) all |= words[k];
  return all != 0;
}

// 0, 1, 2, ...
WARPALIGN_INLINE I32 lanes(F32) {
  I32 v{};
  for (int k = 0; k < WARPALIGN_SIMD_BYTES / 4; ++k) v[k] = k;
  return v;
}
WARPALIGN_INLINE I64 lanes(F64) {
  I64 v{};
  for (int k = 0; k < WARPALIGN_SIMD_BYTES / 8; ++k) v[k] = k;
  return v;
}

// 2^-f - 1 for |f| <= 1/2: interpolation in Chebyshev nodes. The error relative to 2^-f, before rounding, is
// 2.6e-9 (float32) and 4.3e-18 (float64).
WARPALIGN_INLINE F32 exp2_negated_less_1(F32 f) {
  F32 p = splat(1.54614446985691e-4f);
  p = p * f - 1.34004281776158e-3f;
  p = p * f + 9.61805667852464e-3f;
  p = p * f - 5.55032722667030e-2f;
  p = p * f + 2.40226509222888e-1f;
  p = p * f - 6.93147206702833e-1f;
  return p * f;
}
WARPALIGN_INLINE F64 exp2_negated_less_1(F64 f) {
  F64 p = splat(-4.45581790833606449e-10);
  p = p * f + 7.07419429728852106e-9;
  p = p * f - 1.01780570877339407e-7;
  p = p * f + 1.32154325359123753e-6;
  p = p * f - 1.52527338415567733e-5;
  p = p * f + 1.54035304637243530e-4;
  p = p * f - 1.33335581464064708e-3;
  p = p * f + 9.61812910758725638e-3;
  p = p * f - 5.55041086648216248e-2;
  p = p * f + 2.40226506959101582e-1;
  p = p * f - 6.93147180559945286e-1;
  return p * f;
}

// 2^-f for |f| <= 1/2.
template <class V>
WARPALIGN_INLINE V exp2_negated(V f) {
  return exp2_negated_less_1(f) + 1;
}

// log2 of finite numbers >= 0; the result for 0 is some finite number. With m in [2^-1/2, 2^1/2) and s = (m -
// 1) / (m + 1) it is exponent + 2 log2(e) (s + s^3/3 + s^5/5 + ...), |s| < 0.172: the relative error before
// rounding is 1e-9 (float32) and 1e-17 (float64).
template <int kTerms, class Real, class V>
WARPALIGN_INLINE V log2_of_mantissa(V m) {
  const V s = (m - Real(1)) / (m + Real(1));
  const V square = s * s;
  V p{};
  for (int k = kTerms - 1; k >= 0; --k) p = p * square + Real(1) / Real(2 * k + 1);
  return s * p * Real(2.8853900817779268147);
}
WARPALIGN_INLINE F32 log2_of(F32 v) {
  const I32 shifted = bits_of(v) - 0x3f3504f3;  // 2^-1/2
  const I32 exponent = shifted >> 23;
  const F32 mantissa = from_bits(bits_of(v) - (exponent << 23));
  F32 whole;
  for (int k = 0; k < WARPALIGN_SIMD_BYTES / 4; ++k) whole[k] = static_cast<float>(exponent[k]);
  return whole + log2_of_mantissa<6, float>(mantissa);
}
WARPALIGN_INLINE F64 log2_of(F64 v) {
  const I64 shifted = bits_of(v) - 0x3fe6a09e667f3bcdLL;
  const I64 exponent = shifted >> 52;
  const F64 mantissa = from_bits(bits_of(v) - (exponent << 52));
  F64 whole;
  for (int k = 0; k < WARPALIGN_SIMD_BYTES / 8; ++k) whole[k] = static_cast<double>(exponent[k]);
  return whole + log2_of_mantissa<12, double>(mantissa);
}

// While an object of this class lives, results below the smallest normal number become 0, as on the GPU. A
// transition weight below 2^-126 needs no gradual underflow, which can cost a hundred cycles an operation.
class FlushToZero {
 public:
#if defined(__SSE2__)
  FlushToZero() : saved_(__builtin_ia32_stmxcsr()) { __builtin_ia32_ldmxcsr(saved_ | 0x8000u); }
  ~FlushToZero() { __builtin_ia32_ldmxcsr(saved_); }
  FlushToZero(const FlushToZero&) = delete;
  FlushToZero& operator=(const FlushToZero&) = delete;

 private:
  unsigned saved_;
#else
  FlushToZero() {}
  ~FlushToZero() {}
#endif
};

}  // namespace WARPALIGN_SIMD_NAMESPACE
