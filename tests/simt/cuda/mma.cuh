// Stands in for src/cuda/mma.cuh: the same products in float32, of as many bits as the GPU sees.
#pragma once

#include <cstdint>

#include "cuda/warp.cuh"
#include "simt.h"

namespace warpalign::cuda {

inline void mma_tf32(float (&sum)[4], const float (&a)[4], const float (&b)[2]) {
  // Lanes show each other their registers, and look until all have looked.
  struct Mine {
    float a[4], b[2];
  } mine;
  const auto seen = [](float v) { return simt::bits_as<float>(simt::bits_as<std::uint32_t>(v) & ~0x1fffu); };
  for (int k = 0; k < 4; ++k) mine.a[k] = seen(a[k]);
  for (int k = 0; k < 2; ++k) mine.b[k] = seen(b[k]);
  const auto* const all =
      simt::meet(simt::Meeting::kShuffle, kFullWarp, reinterpret_cast<std::uint64_t>(&mine));
  const auto at = [&](int lane) { return reinterpret_cast<const Mine*>(all[lane]); };
  const int g = simt::lane() / 4, t = simt::lane() % 4;
  for (int i = 0; i < 4; ++i) {
    const int column = 2 * t + i % 2;
    for (int k = 0; k < 8; ++k) {
      sum[i] += at(g * 4 + k % 4)->a[i / 2 + k / 4 * 2] * at(column * 4 + k % 4)->b[k / 4];
    }
  }
  simt::meet(simt::Meeting::kSync, kFullWarp, 0);
}

}  // namespace warpalign::cuda
