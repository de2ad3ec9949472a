// A team of blocks that solve one problem together: its barrier, and reductions over it.
//
// Barriers are between blocks of a cooperative launch, which are all resident. A team of one block needs no
// such launch.
#pragma once

#include <cuda_runtime.h>

#include "cuda/launch/shared.cuh"
#include "cuda/memory/remote_access.cuh"
#include "cuda/threads/warp.cuh"
#include "transport/cuda/solve/layout.h"

namespace warpalign::detail::transport {

// The larger one; NaN if one is NaN.
template <class Real>
__device__ __forceinline__ Real larger(Real a, Real b) {
  return b > a || isnan(b) ? b : a;
}
// The largest value of the warp; NaN if one is NaN. Values must be at least 0, or NaN: their bits without the
// sign have the order of the values, with NaN above all.
__device__ __forceinline__ float largest_in_warp(float v) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  return __uint_as_float(__reduce_max_sync(cuda::kFullWarp, __float_as_uint(v) & 0x7fffffffu));
#else
  return cuda::reduce(v, [](float a, float b) { return larger(a, b); });
#endif
}

class Team {
 public:
  // arrivals: one counter, 0 before the launch. records: (2, blocks, kRecordBytes).
  __device__ __forceinline__ Team(int index, int rank, int blocks, int* arrivals, unsigned char* records)
      : index(index), rank(rank), blocks(blocks), arrivals_(arrivals), records_(records) {}

  const int index;
  const int rank;
  const int blocks;

  // Waits for all threads of the team. Afterwards each of them sees what the others wrote before.
  __device__ __forceinline__ void barrier() {
    __syncthreads();
    if (blocks == 1) return;
    if (threadIdx.x == 0) {
      expected_ += static_cast<unsigned>(blocks);
      cuda::add_release(arrivals_, 1);
      // A difference, because the counter may wrap around.
      while (static_cast<int>(static_cast<unsigned>(cuda::load_acquire(arrivals_)) - expected_) < 0) {
      }
    }
    __syncthreads();
  }

  // Joins a value of all threads of the team, in an order that depends on the team's shape alone, and is a
  // barrier. T has join(const T&).
  template <class T>
  __device__ __attribute__((noinline)) T joined(T mine) {
    static_assert(sizeof(T) <= kRecordBytes);
    mine = joined_in_block(mine);
    if (blocks > 1) {
      unsigned char* const records = records_ + (parity_ ? blocks * kRecordBytes : 0);
      parity_ = !parity_;
      if (threadIdx.x == 0) at<T>(records, rank) = mine;
      barrier();
      mine = T{};
      for (int k = static_cast<int>(threadIdx.x); k < blocks; k += static_cast<int>(blockDim.x)) {
        mine.join(at<T>(records, k));
      }
      mine = joined_in_block(mine);
    }
    return mine;
  }

 private:
  template <class T>
  static __device__ __forceinline__ T& at(unsigned char* records, int k) {
    return *reinterpret_cast<T*>(records + k * kRecordBytes);
  }
  template <class T>
  static __device__ __forceinline__ T joined_in_block(T mine) {
    mine = joined_in_warp(mine);
    unsigned char* const places = cuda::dynamic_shared();
    const int warps = static_cast<int>(blockDim.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
    if (lane == 0) at<T>(places, static_cast<int>(threadIdx.x) / 32) = mine;
    __syncthreads();
    mine = joined_in_warp(lane < warps ? at<T>(places, lane) : T{});
    __syncthreads();  // the next call may overwrite the memory
    return mine;
  }
  template <class T>
  static __device__ __forceinline__ T joined_in_warp(T mine) {
    if constexpr (requires { mine.joined_in_warp(); }) {
      return mine.joined_in_warp();
    } else {
      // Not unrolled: rarely executed code comes from a cold instruction cache.
#pragma unroll 1
      for (int bit = 1; bit < 32; bit *= 2) mine.join(cuda::shuffle_xor(mine, bit));
      return mine;
    }
  }

  int* const arrivals_;
  unsigned char* const records_;
  unsigned expected_ = 0;  // used by thread 0
  bool parity_ = false;
};

}  // namespace warpalign::detail::transport
