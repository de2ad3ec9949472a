// Stands in for src/cuda/memory/streaming.cuh: plain accesses.
#pragma once

#include <cstdint>

namespace warpalign::cuda {

struct alignas(16) Bits128 {
  std::uint32_t words[4];
};

template <class T>
T load_streaming(const T* p) {
  return *p;
}
template <class T>
void store_streaming(T* p, T v) {
  *p = v;
}

}  // namespace warpalign::cuda
