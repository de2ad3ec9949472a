// Four neighbouring lanes that have four neighbouring units of a row of the batch: how they exchange what
// they have, and how they read and write rows in memory.
#pragma once

#include "cuda/memory/remote_access.cuh"
#include "cuda/numbers/half.cuh"
#include "cuda/threads/warp.cuh"
#include "recurrent/cuda/cell/pieces.cuh"

namespace warpalign::detail::recurrent {

// Four lanes whose numbers differ in the bits kFirst and kSecond have the units of a word for the same row.
template <int kFirst, int kSecond>
struct UnitLanes {
  int unit;  // 0 ... 3: of this lane

  __device__ __forceinline__ UnitLanes() {
    const int lane = static_cast<int>(threadIdx.x) % cuda::kWarpSize;
    unit = (lane & kFirst ? 1 : 0) + (lane & kSecond ? 2 : 0);
  }
  // All four lanes get the words of their elements. Elements of two arrays come in a pair.
  __device__ __forceinline__ void join(std::uint32_t both, cuda::Word& lower, cuda::Word& upper) const {
    const std::uint32_t other = cuda::shuffle_xor(both, kFirst);
    const std::uint32_t even = unit % 2 ? other : both, odd = unit % 2 ? both : other;
    lower = join_pairs((even & 0xffffu) | odd << 16);
    upper = join_pairs(even >> 16 | (odd & 0xffff0000u));
  }
  // All four lanes get their four numbers.
  __device__ __forceinline__ void join(float v, float (&all)[4]) const {
    const float beside = cuda::shuffle_xor(v, kFirst);
    const float even = unit % 2 ? beside : v, odd = unit % 2 ? v : beside;
    const float far_even = cuda::shuffle_xor(even, kSecond), far_odd = cuda::shuffle_xor(odd, kSecond);
    const bool is_upper = unit / 2 == 1;
    all[0] = is_upper ? far_even : even, all[1] = is_upper ? far_odd : odd;
    all[2] = is_upper ? even : far_even, all[3] = is_upper ? odd : far_odd;
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

// Rows of the four gates of H units in memory. In 16-bit types a lane reads and writes one gate of the lanes'
// four units, a word, and the lanes transpose these. In float32 it has the four gates of its own unit.
template <class T, class Lanes>
class GateRows {
 public:
  using Entries = std::conditional_t<sizeof(T) == 2, cuda::Word, Piece<T>>;

  // unit: of this lane
  __device__ __forceinline__ GateRows(T* rows, const Lanes& lanes, int unit, int hidden)
      : of_lane_(rows + (sizeof(T) == 2 ? static_cast<Offset>(lanes.unit) * hidden + unit - lanes.unit
                                        : static_cast<Offset>(unit))),
        hidden_(hidden) {}

  // first: where the row begins among rows of H entries
  __device__ __forceinline__ Entries read(Offset first) const {
    const T* const from = of_lane_ + 4 * first;
    if constexpr (sizeof(T) == 2) {
      return *reinterpret_cast<const cuda::Word*>(from);
    } else {
      return {{from[0], from[hidden_], from[2 * static_cast<Offset>(hidden_)],
               from[3 * static_cast<Offset>(hidden_)]}};
    }
  }
  __device__ __forceinline__ void write(Offset first, const Entries& entries) const {
    T* const to = of_lane_ + 4 * first;
    if constexpr (sizeof(T) == 2) {
      *reinterpret_cast<cuda::Word*>(to) = entries;
    } else {
      unroll<4>([&](int gate) { to[static_cast<Offset>(gate) * hidden_] = entries.entries[gate]; });
    }
  }

 private:
  T* of_lane_;
  int hidden_;
};
// What is read and written, from and to the gates of a lane's unit; all lanes call these.
template <class T, class Lanes>
__device__ __forceinline__ void widen_gates(const Lanes& lanes, const auto& entries, float (&to)[4]) {
  if constexpr (sizeof(T) == 2) {
    widen_word<T>(lanes.transpose(entries), to);
  } else {
    unroll<4>([&](int gate) { to[gate] = entries.entries[gate]; });
  }
}
template <class T, class Lanes>
__device__ __forceinline__ auto narrow_gates(const Lanes& lanes, const float (&from)[4]) {
  if constexpr (sizeof(T) == 2) {
    return lanes.transpose(narrow_word<T>(from));
  } else {
    return Piece<T>{{from[0], from[1], from[2], from[3]}};
  }
}

}  // namespace warpalign::detail::recurrent
