// Elements of series that a panel's kernels read without conversion: float32, or one of the half types.
//
// Four neighbouring features are copied to a slot of 16 bytes in shared memory. Features of a half type use
// its first 8 bytes, and are converted to float32 when they are read from there.
#pragma once

#include <cstdint>

#include "cuda/memory/copy_async.cuh"
#include "cuda/numbers/half.cuh"

namespace warpalign::detail::soft_dtw {

// 16 bits of a half type, which is known at run time.
struct AnyHalf {
  std::uint16_t bits;
};

__device__ __forceinline__ float widened(float v, bool) { return v; }
__device__ __forceinline__ float widened(AnyHalf v, bool is_bfloat16) {
  return is_bfloat16 ? cuda::widen(BFloat16{v.bits}) : cuda::widen(Float16{v.bits});
}

__device__ __forceinline__ float loaded(const float* at, bool) { return __ldg(at); }
__device__ __forceinline__ float loaded(const AnyHalf* at, bool is_bfloat16) {
  return widened(AnyHalf{__ldg(&at->bits)}, is_bfloat16);
}

// Starts the copy of four features, aligned to four times their size, to a slot.
__device__ __forceinline__ void copy_four(float* slot, const float* from) {
  cuda::copy_async_l2(reinterpret_cast<float4*>(slot), reinterpret_cast<const float4*>(from));
}
__device__ __forceinline__ void copy_four(float* slot, const AnyHalf* from) {
  cuda::copy_async(reinterpret_cast<int2*>(slot), reinterpret_cast<const int2*>(from));
}
// Starts the copy of one feature. Half types are copied synchronously.
__device__ __forceinline__ void copy_one(float* to, const float* from) { cuda::copy_async(to, from); }
__device__ __forceinline__ void copy_one(AnyHalf* to, const AnyHalf* from) { *to = *from; }

// The features of a slot, and one of them.
template <class Element>
__device__ __forceinline__ float4 four_in(const float* slot, bool is_bfloat16) {
  if constexpr (sizeof(Element) == sizeof(float)) {
    return *reinterpret_cast<const float4*>(slot);
  } else {
    const int2 both = *reinterpret_cast<const int2*>(slot);
    const auto first = static_cast<std::uint32_t>(both.x), second = static_cast<std::uint32_t>(both.y);
    float4 v;
    if (is_bfloat16) {
      cuda::widen_pair<BFloat16>(first, v.x, v.y);
      cuda::widen_pair<BFloat16>(second, v.z, v.w);
    } else {
      cuda::widen_pair<Float16>(first, v.x, v.y);
      cuda::widen_pair<Float16>(second, v.z, v.w);
    }
    return v;
  }
}
template <class Element>
__device__ __forceinline__ float one_in(const float* slot, int k, bool is_bfloat16) {
  return widened(reinterpret_cast<const Element*>(slot)[k], is_bfloat16);
}

}  // namespace warpalign::detail::soft_dtw
