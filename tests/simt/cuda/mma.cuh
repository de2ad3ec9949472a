// Stands in for src/cuda/mma.cuh: the same products in float32, of as many bits as the GPU sees.
#pragma once

#include <cstdint>

#include "core/half.h"
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

template <class Half>
void mma_half(float (&sum)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2]) {
  struct Mine {
    std::uint32_t a[4], b[2];
  } mine;
  for (int k = 0; k < 4; ++k) mine.a[k] = a[k];
  for (int k = 0; k < 2; ++k) mine.b[k] = b[k];
  const auto* const all =
      simt::meet(simt::Meeting::kShuffle, kFullWarp, reinterpret_cast<std::uint64_t>(&mine));
  const auto at = [&](int lane) { return reinterpret_cast<const Mine*>(all[lane]); };
  const auto element = [](std::uint32_t pair, int k) {
    return static_cast<float>(Half{static_cast<std::uint16_t>(pair >> 16 * (k % 2))});
  };
  const int g = simt::lane() / 4, t = simt::lane() % 4;
  for (int i = 0; i < 4; ++i) {
    const int column = 2 * t + i % 2;
    for (int k = 0; k < 16; ++k) {
      const int from = k % 8 / 2;
      sum[i] +=
          element(at(g * 4 + from)->a[i / 2 + k / 8 * 2], k) * element(at(column * 4 + from)->b[k / 8], k);
    }
  }
  simt::meet(simt::Meeting::kSync, kFullWarp, 0);
}

template <class Half>
void mma_half_product(float (&product)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2]) {
  for (float& v : product) v = 0;
  mma_half<Half>(product, a, b);
}

template <bool kTransposed = false>
void load_matrices(std::uint32_t (&to)[4], const void* row) {
  if (reinterpret_cast<std::uintptr_t>(row) % 16 != 0)
    simt::fail("ldmatrix: a row is not aligned to 16 bytes");
  const auto* const rows =
      simt::meet(simt::Meeting::kShuffle, kFullWarp, reinterpret_cast<std::uint64_t>(row));
  const int g = simt::lane() / 4, t = simt::lane() % 4;
  for (int matrix = 0; matrix < 4; ++matrix) {
    const auto element = [&](int i, int j) {
      return std::uint32_t{reinterpret_cast<const std::uint16_t*>(rows[8 * matrix + i])[j]};
    };
    to[matrix] = kTransposed ? element(2 * t, g) | element(2 * t + 1, g) << 16
                             : element(g, 2 * t) | element(g, 2 * t + 1) << 16;
  }
  simt::meet(simt::Meeting::kSync, kFullWarp, 0);
}

}  // namespace warpalign::cuda
