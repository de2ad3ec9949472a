// Hand-over of small groups of values between blocks, through global memory, without flags or fences. The
// memory starts as all one-bits. Values are written 8 bytes at a time. A reader waits until no word is all
// ones. No number that arithmetic makes has these bits.
//
// Waiting ends if the writer is running or has run. The caller's order of tasks ensures that.
#pragma once

#include <cstdint>

#include "cuda/memory/remote_access.cuh"
#include "cuda/threads/warp.cuh"

namespace warpalign::cuda {

constexpr Word kNotYet = ~0ull;

// Copies kWords words from shared memory to where another block reads them. The warp's first lanes do.
template <int kWords>
__device__ __forceinline__ void send_words(void* to, const void* from, int lane) {
  static_assert(kWords <= kWarpSize);
  if (lane < kWords) store_relaxed(static_cast<Word*>(to) + lane, static_cast<const Word*>(from)[lane]);
}

// Reads groups of kWords words: ask() for the next group, work on the one before, then receive().
template <int kWords>
class RemoteReader {
  static_assert(kWords <= kWarpSize);

 public:
  __device__ __forceinline__ void ask(const void* from, int lane) {
    from_ = static_cast<const Word*>(from) + lane;
    word_ = lane < kWords ? load_relaxed(from_) : 0;
  }
  // Waits for what was asked for, and puts it into shared memory for the whole warp.
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
