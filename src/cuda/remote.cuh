// Hand-over of small groups of values between blocks, through global memory, without flags and fences: memory
// starts as all one-bits, values are written 8 bytes at a time, and a reader waits until no word is all ones.
// No number that arithmetic makes has these bits.
//
// Waiting cannot hang as long as the writer is running or has run; the caller's order of tasks has to see to
// that.
#pragma once

#include <cstdint>

#include "cuda/math.cuh"

namespace warpalign::cuda {

using Word = unsigned long long;
constexpr Word kNotYet = ~0ull;

__device__ __forceinline__ Word load_relaxed(const Word* p) {
  Word v;
#if __CUDA_ARCH__ >= 700
  asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(v) : "l"(p) : "memory");
#else
  v = *const_cast<const volatile Word*>(p);
#endif
  return v;
}

__device__ __forceinline__ void store_relaxed(Word* p, Word v) {
  asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(p), "l"(v) : "memory");
}

__device__ __forceinline__ int load_acquire(const int* p) {
  int v;
  asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
  return v;
}

// kWords values by the warp's first lanes, from shared memory.
template <int kWords>
__device__ __forceinline__ void send_words(void* to, const void* from, int lane) {
  static_assert(kWords <= kWarpSize);
  if (lane < kWords) store_relaxed(static_cast<Word*>(to) + lane, static_cast<const Word*>(from)[lane]);
}

// The next group is asked for while this one is worked on.
template <int kWords>
class RemoteReader {
  static_assert(kWords <= kWarpSize);

 public:
  __device__ __forceinline__ void ask(const void* from, int lane) {
    from_ = static_cast<const Word*>(from) + lane;
    word_ = lane < kWords ? load_relaxed(from_) : 0;
  }
  // Puts what was asked for into shared memory, for the whole warp to read.
  __device__ __forceinline__ void receive(void* to, int lane) {
    while (__any_sync(kFullWarp, word_ == kNotYet)) {
      if (word_ == kNotYet) word_ = load_relaxed(from_);
    }
    __syncwarp();
    if (lane < kWords) static_cast<Word*>(to)[lane] = word_;
    __syncwarp();
  }

 private:
  const Word* from_;
  Word word_;
};

}  // namespace warpalign::cuda
