// Hands small groups of values from one block to another through global memory, without flags or fences. The
// memory is initialised to all one-bits, and values are written in words of 8 bytes. A reader waits until no
// word is all ones; the result of an arithmetic operation never has these bits.
//
// The caller's order of tasks must ensure that the writer is running or has run, otherwise the wait does not
// end.
#pragma once

#include <cstdint>

#include "cuda/memory/remote_access.cuh"
#include "cuda/threads/warp.cuh"

namespace warpalign::cuda {

constexpr Word kNotYet = ~0ull;

// Copies kWords words from shared memory to the global memory that another block reads, by the warp's first
// kWords lanes.
template <int kWords>
__device__ __forceinline__ void send_words(void* to, const void* from, int lane) {
  static_assert(kWords <= kWarpSize);
  if (lane < kWords) store_relaxed(static_cast<Word*>(to) + lane, static_cast<const Word*>(from)[lane]);
}

// Reads groups of kWords words. ask() starts the load of a group; the caller works on the previous group
// meanwhile, then calls receive().
template <int kWords>
class RemoteReader {
  static_assert(kWords <= kWarpSize);

 public:
  __device__ __forceinline__ void ask(const void* from, int lane) {
    from_ = static_cast<const Word*>(from) + lane;
    word_ = lane < kWords ? load_relaxed(from_) : 0;
  }
  // Waits for the group, and writes it to shared memory. On return the whole warp sees it.
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
