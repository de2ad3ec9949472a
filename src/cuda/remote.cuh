// Hand-over of small groups of values between blocks, through global memory, without flags and fences: memory
// starts as all one-bits, values are written 8 bytes at a time, and a reader waits until no word is all ones.
// No number that arithmetic makes has these bits.
//
// Waiting cannot hang as long as the writer is running or has run; the caller's order of tasks has to see to
// that.
#pragma once

#include <cstdint>

#include "cuda/remote_access.cuh"
#include "cuda/warp.cuh"

namespace warpalign::cuda {

constexpr Word kNotYet = ~0ull;

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
