// A warp's lanes exchange values: shuffles of any plain type, and reductions.
//
// All 32 lanes take part in every function. T is an arithmetic type or a trivially copyable struct of whole
// 4-byte words.
#pragma once

#include <cstring>
#include <type_traits>

namespace warpalign::cuda {

constexpr int kWarpSize = 32;
constexpr unsigned kFullWarp = 0xffffffffu;

// Applies `exchange` to a number, or to each word of a struct.
template <class T, class Exchange>
__device__ __forceinline__ T exchange_words(const T& v, const Exchange& exchange) {
  if constexpr (std::is_arithmetic_v<T>) {
    return exchange(v);
  } else {
    using Word = std::conditional_t<alignof(T) % 8 == 0, unsigned long long, unsigned>;
    static_assert(std::is_trivially_copyable_v<T> && sizeof(T) % sizeof(Word) == 0);
    Word words[sizeof(T) / sizeof(Word)];
    memcpy(words, &v, sizeof(T));
#pragma unroll
    for (Word& word : words) word = exchange(word);
    T result;
    memcpy(&result, words, sizeof(T));
    return result;
  }
}

// The v of lane `from`.
template <class T>
__device__ __forceinline__ T shuffle(const T& v, int from) {
  return exchange_words(v, [from](auto word) { return __shfl_sync(kFullWarp, word, from); });
}
// The v of lane - delta; the first `delta` lanes get their own.
template <class T>
__device__ __forceinline__ T shuffle_up(const T& v, int delta = 1) {
  return exchange_words(v, [delta](auto word) { return __shfl_up_sync(kFullWarp, word, delta); });
}
// The v of lane + delta; the last `delta` lanes get their own.
template <class T>
__device__ __forceinline__ T shuffle_down(const T& v, int delta = 1) {
  return exchange_words(v, [delta](auto word) { return __shfl_down_sync(kFullWarp, word, delta); });
}
// The v of the lane whose number differs in these bits.
template <class T>
__device__ __forceinline__ T shuffle_xor(const T& v, int bits) {
  return exchange_words(v, [bits](auto word) { return __shfl_xor_sync(kFullWarp, word, bits); });
}

// Combines the v of every kLanes neighbouring lanes by a commutative op, as a binary tree: first neighbours,
// then neighbouring pairs, and so on. All of them get the result, bitwise identical.
template <int kLanes = kWarpSize, class T, class Op>
__device__ __forceinline__ T reduce(T v, const Op& op) {
  static_assert(kLanes > 0 && kLanes <= kWarpSize && (kLanes & (kLanes - 1)) == 0);
#pragma unroll
  for (int bit = 1; bit < kLanes; bit *= 2) v = op(v, shuffle_xor(v, bit));
  return v;
}
template <int kLanes = kWarpSize, class T>
__device__ __forceinline__ T reduce_sum(const T& v) {
  return reduce<kLanes>(v, [](const T& a, const T& b) { return a + b; });
}
// NaN is ignored unless all numbers are NaN.
template <int kLanes = kWarpSize, class T>
__device__ __forceinline__ T reduce_max(const T& v) {
  return reduce<kLanes>(v, [](const T& a, const T& b) { return max(a, b); });
}

}  // namespace warpalign::cuda
