// Stands in for src/cuda/products/wgmma.cuh: the same products in float32. A product has ended when the call
// returns.
#pragma once

#include <cstdint>

#include "core/half.h"
#include "cuda/numbers/math.cuh"
#include "cuda/products/mma.cuh"
#include "simt.h"

namespace warpalign::cuda {

struct SharedTile {
  const void* data;
  int depth_step;
  int across_step;
};

inline void wgmma_fence() {}
inline void wgmma_commit() {}
// A product takes all 128 threads: when one of them knows that it has ended, all have come.
template <int kLeft>
void wgmma_wait() {
  struct Group {
    int arrived, meetings;
  };
  static thread_local Group groups[8];  // per block, which is a thread of the operating system
  Group& group = groups[simt::thread_index().x / 128];
  const int meeting = group.meetings;
  if (++group.arrived == 128) {
    group.arrived = 0;
    ++group.meetings;
  }
  while (group.meetings == meeting) simt::yield();
}

template <class Half, int kColumns, bool kATransposed, bool kBTransposed>
void wgmma(float (&sum)[kColumns / 2], const SharedTile& a_tile, const SharedTile& b_tile, bool adds) {
  constexpr int kDepth = 16;
  // 16 elements of row (column) n of a factor, along the depth.
  const auto read = [](const SharedTile& tile, int n, bool transposed, float* to) {
    for (int k = 0; k < kDepth; ++k) {
      const char* const piece =
          static_cast<const char*>(tile.data) + n / 8 * tile.across_step + k / 8 * tile.depth_step;
      const int at = transposed ? k % 8 * 8 + n % 8 : n % 8 * 8 + k % 8;
      to[k] = static_cast<float>(reinterpret_cast<const Half*>(piece)[at]);
    }
  };
  const int thread = static_cast<int>(simt::thread_index().x) % 128;
  const int row = thread / 32 * 16 + thread % 32 / 4, pair = thread % 4 * 2;
  float a[2][kDepth], b[kDepth];
  for (int i = 0; i < 2; ++i) read(a_tile, row + 8 * i, kATransposed, a[i]);
  for (int j = 0; j < kColumns / 8; ++j) {
    for (int k = 0; k < 2; ++k) {
      read(b_tile, 8 * j + pair + k, kBTransposed, b);
      for (int i = 0; i < 2; ++i) {
        float& to = sum[4 * j + 2 * i + k];
        float total = adds ? to : 0;
        for (int d = 0; d < kDepth; ++d) total += a[i][d] * b[d];
        to = total;
      }
    }
  }
}

inline void wgmma_pin(float (&)[32]) {}
template <class Half>
void wgmma_64(float (&sum)[32], const std::uint32_t (&a)[4], const SharedTile& b_tile) {
  // A piece of 8 columns after the other, as a lane of mma_half() has them.
  const int g = simt::lane() / 4, t = simt::lane() % 4;
  for (int j = 0; j < 8; ++j) {
    std::uint32_t b[2];
    for (int half = 0; half < 2; ++half) {
      const char* const piece =
          static_cast<const char*>(b_tile.data) + j * b_tile.across_step + half * b_tile.depth_step;
      b[half] = reinterpret_cast<const std::uint32_t*>(piece)[g * 4 + t];
    }
    float product[4];
    for (int i = 0; i < 4; ++i) product[i] = sum[4 * j + i];
    mma_half<Half>(product, a, b);
    for (int i = 0; i < 4; ++i) sum[4 * j + i] = product[i];
  }
}

}  // namespace warpalign::cuda
