// Stands in for src/cuda/memory/remote_access.cuh.
#pragma once

#include "cuda_runtime.h"

namespace warpalign::cuda {

using Word = unsigned long long;

inline Word load_relaxed(const Word* p) {
  simt::yield();
  return __atomic_load_n(p, __ATOMIC_RELAXED);
}
inline void store_relaxed(Word* p, Word v) { __atomic_store_n(p, v, __ATOMIC_RELAXED); }
inline int load_acquire(const int* p) {
  simt::yield();
  return __atomic_load_n(p, __ATOMIC_ACQUIRE);
}
inline void add_release(int* p, int v) { __atomic_fetch_add(p, v, __ATOMIC_RELEASE); }

}  // namespace warpalign::cuda
