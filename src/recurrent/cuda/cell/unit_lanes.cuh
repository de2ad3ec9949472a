// Words of four 16-bit elements that four neighbouring units share, and lanes that hand such elements over.
#pragma once

#include "cuda/memory/remote_access.cuh"
#include "cuda/numbers/half.cuh"
#include "cuda/threads/warp.cuh"

namespace warpalign::detail::recurrent {

// Four lanes whose numbers differ in the bits kFirst and kSecond have the units of a word for the same row.
template <int kFirst, int kSecond>
struct UnitLanes {
  int unit;  // 0 ... 3: of this lane

  __device__ __forceinline__ UnitLanes() {
    const int lane = static_cast<int>(threadIdx.x) % cuda::kWarpSize;
    unit = (lane & kFirst ? 1 : 0) + (lane & kSecond ? 2 : 0);
  }
  // What the lane of the unit beside has: 0 and 1, 2 and 3.
  __device__ __forceinline__ unsigned neighbour(unsigned v) const { return cuda::shuffle_xor(v, kFirst); }
  // All four lanes get the words of their elements. Elements of two arrays come in a pair.
  __device__ __forceinline__ void join(std::uint32_t both, cuda::Word& lower, cuda::Word& upper) const {
    const std::uint32_t other = cuda::shuffle_xor(both, kFirst);
    const std::uint32_t even = unit % 2 ? other : both, odd = unit % 2 ? both : other;
    lower = join_pairs((even & 0xffffu) | odd << 16);
    upper = join_pairs(even >> 16 | (odd & 0xffff0000u));
  }
  // Element k of lane n's word becomes element n of lane k's.
  __device__ __forceinline__ cuda::Word transpose(cuda::Word word) const {
    const auto low = static_cast<std::uint32_t>(word), high = static_cast<std::uint32_t>(word >> 32);
    const std::uint32_t far = cuda::shuffle_xor(unit / 2 ? low : high, kSecond);
    const std::uint32_t a = unit / 2 ? far : low, b = unit / 2 ? high : far;
    const std::uint32_t evens = (a & 0xffffu) | b << 16, odds = a >> 16 | (b & 0xffff0000u);
    const std::uint32_t near = cuda::shuffle_xor(unit % 2 ? evens : odds, kFirst);
    const std::uint32_t even = unit % 2 ? near : evens, odd = unit % 2 ? odds : near;
    const std::uint32_t first = (even & 0xffffu) | odd << 16, second = even >> 16 | (odd & 0xffff0000u);
    return first | static_cast<cuda::Word>(second) << 32;
  }

 private:
  __device__ __forceinline__ cuda::Word join_pairs(std::uint32_t pair) const {
    const std::uint32_t far = cuda::shuffle_xor(pair, kSecond);
    return unit / 2 ? far | static_cast<cuda::Word>(pair) << 32 : pair | static_cast<cuda::Word>(far) << 32;
  }
};
template <class T>
__device__ __forceinline__ void widen_word(cuda::Word word, float (&to)[4]) {
  cuda::widen_pair<T>(static_cast<std::uint32_t>(word), to[0], to[1]);
  cuda::widen_pair<T>(static_cast<std::uint32_t>(word >> 32), to[2], to[3]);
}
template <class T>
__device__ __forceinline__ T first_of(std::uint32_t pair) {
  return {static_cast<std::uint16_t>(pair)};
}
template <class T>
__device__ __forceinline__ cuda::Word narrow_word(const float (&v)[4]) {
  return cuda::narrow_pair<T>(v[0], v[1]) | static_cast<cuda::Word>(cuda::narrow_pair<T>(v[2], v[3])) << 32;
}

}  // namespace warpalign::detail::recurrent
