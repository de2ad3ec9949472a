// Accesses to global memory that is read or written once. They are marked for early eviction, so that the
// caches hold data that is used again.
#pragma once

#include <cstdint>

namespace warpalign::cuda {

// The widest access of a thread.
struct alignas(16) Bits128 {
  std::uint32_t words[4];
};

// T is a number of 2, 4 or 8 bytes, or Bits128. Addresses are multiples of its size.
template <class T>
__device__ __forceinline__ T load_streaming(const T* p) {
  return __ldcs(p);
}
template <class T>
__device__ __forceinline__ void store_streaming(T* p, T v) {
  __stcs(p, v);
}

template <>
__device__ __forceinline__ Bits128 load_streaming<Bits128>(const Bits128* p) {
  const uint4 v = __ldcs(reinterpret_cast<const uint4*>(p));
  return {{v.x, v.y, v.z, v.w}};
}
template <>
__device__ __forceinline__ void store_streaming<Bits128>(Bits128* p, Bits128 v) {
  __stcs(reinterpret_cast<uint4*>(p), make_uint4(v.words[0], v.words[1], v.words[2], v.words[3]));
}

}  // namespace warpalign::cuda
