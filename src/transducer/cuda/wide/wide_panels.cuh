// Matrices as products by warpgroups read them, and float32 numbers as sums of bfloat16 parts.
#pragma once

#include <cstdint>
#include <type_traits>

#include "cuda/numbers/half.cuh"

namespace warpalign::detail::transducer {

// A matrix in blocks of kBlock rows, and panels of 8 columns within a block. 8 x 8 elements are 128
// contiguous bytes, and the panels of a block are contiguous. The parts of float32 numbers are matrices one
// after another.
template <class Half, int kBlock = 64>
struct Panels {
  using Element = Half;
  static constexpr int kRows = kBlock;
  Half* data;
  std::int32_t count;        // number of panels
  std::int64_t part_stride;  // elements of a part

  [[nodiscard]] __device__ __forceinline__ Half* at(int row, int column, int part = 0) const {
    const std::int64_t run = static_cast<std::int64_t>(row / kBlock) * count + column / 8;
    return data + part * part_stride + run * (kBlock * 8) + row % kBlock * 8 + column % 8;
  }
};

// What multiplies in place of numbers of type Storage.
template <class Storage>
using WideFactor = std::conditional_t<std::is_same_v<Storage, float>, cuda::BFloat16, Storage>;

// A part of two neighbouring numbers. What is left of them, for the next parts, takes their place: 0 of a
// number of a half type.
template <class Half>
__device__ __forceinline__ std::uint32_t next_part(float& first, float& second) {
  const std::uint32_t part = cuda::narrow_pair<Half>(first, second);
  float low, high;
  cuda::widen_pair<Half>(part, low, high);
  // The parts of -0 are -0.
  if (first != 0) first -= low;
  if (second != 0) second -= high;
  return part;
}

// Two float32 numbers as pairs of the upper and of the lower halves of their bits.
struct SplitPair {
  std::uint32_t upper, lower;

  __device__ __forceinline__ SplitPair(std::uint32_t upper_halves, std::uint32_t lower_halves)
      : upper(upper_halves), lower(lower_halves) {}
  __device__ __forceinline__ SplitPair(float first, float second) {
    const auto a = static_cast<std::uint32_t>(__float_as_int(first)),
               b = static_cast<std::uint32_t>(__float_as_int(second));
    upper = a >> 16 | (b & 0xffff0000u);
    lower = (a & 0xffffu) | b << 16;
  }
  [[nodiscard]] __device__ __forceinline__ float first() const {
    return __int_as_float(static_cast<int>(upper << 16 | (lower & 0xffffu)));
  }
  [[nodiscard]] __device__ __forceinline__ float second() const {
    return __int_as_float(static_cast<int>((upper & 0xffff0000u) | lower >> 16));
  }
};

}  // namespace warpalign::detail::transducer
