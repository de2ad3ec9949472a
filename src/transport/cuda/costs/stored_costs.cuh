// The storage of given costs: a word of shared memory has one cost, or two of binary16.
#pragma once

#include <math_constants.h>

#include <cstdint>

#include "cuda/memory/copy_async.cuh"
#include "cuda/numbers/half.cuh"

namespace warpalign::detail::transport {

template <class Real, class Stored>
struct CostWord {
  using Type = Real;
  static constexpr int kCosts = 1;

  // The word of costs past the end.
  static __device__ __forceinline__ Type none() { return static_cast<Real>(CUDART_INF); }
  // Whether whole words of a row can be copied. from: the first cost of the row.
  static __device__ __forceinline__ bool are_whole(const Stored*, std::int64_t, std::int64_t) { return true; }
  // left: the number of costs that exist from here on. Nothing is copied if it is not positive.
  static __device__ __forceinline__ void copy(Type* to, const Stored* from, std::int64_t, int left, bool) {
    if (left > 0) cuda::copy_async(to, from);
  }
  static __device__ __forceinline__ void widen(Type word, Real* costs) { costs[0] = word; }
};

template <>
struct CostWord<float, cuda::Float16> {
  using Type = std::uint32_t;
  static constexpr int kCosts = 2;
  static constexpr Type kInfinity = 0x7c00;

  static __device__ __forceinline__ Type none() { return kInfinity << 16 | kInfinity; }
  static __device__ __forceinline__ bool are_whole(const cuda::Float16* from, std::int64_t row_stride,
                                                   std::int64_t stride) {
    return stride == 1 && row_stride % 2 == 0 && reinterpret_cast<std::uintptr_t>(from) % sizeof(Type) == 0;
  }
  static __device__ __forceinline__ void copy(Type* to, const cuda::Float16* from, std::int64_t stride,
                                              int left, bool whole) {
    if (left <= 0) return;
    if (whole && left > 1) return cuda::copy_async(to, reinterpret_cast<const Type*>(from));
    *to = from[0].bits | (left > 1 ? Type{from[stride].bits} : kInfinity) << 16;
  }
  static __device__ __forceinline__ void widen(Type word, float* costs) {
    cuda::widen_pair<cuda::Float16>(word, costs[0], costs[1]);
  }
};

}  // namespace warpalign::detail::transport
