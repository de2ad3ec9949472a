// Stands in for src/cuda/products/mma.cuh: the same products in float32, of as many bits as the GPU sees.
#pragma once

#include <cstdint>

#include "core/half.h"
#include "cuda/threads/warp.cuh"
#include "simt.h"

namespace warpalign::cuda {

// sum += rows x columns, each of kDepth elements: element i of a lane is row i / 2 and column i % 2 of its
// own.
template <int kDepth>
void add_products(float (&sum)[4], const float (&rows)[2][kDepth], const float (&columns)[2][kDepth]) {
  for (int i = 0; i < 4; ++i) {
    for (int k = 0; k < kDepth; ++k) sum[i] += rows[i / 2][k] * columns[i % 2][k];
  }
}

inline void mma_tf32(float (&sum)[4], const float (&a)[4], const float (&b)[2]) {
  struct Mine {
    float a[4], b[2];
  } mine;
  const auto seen = [](float v) { return simt::bits_as<float>(simt::bits_as<std::uint32_t>(v) & ~0x1fffu); };
  for (int k = 0; k < 4; ++k) mine.a[k] = seen(a[k]);
  for (int k = 0; k < 2; ++k) mine.b[k] = seen(b[k]);
  const simt::Exchange<Mine> all(kFullWarp, mine);
  const int g = simt::lane() / 4, t = simt::lane() % 4;
  float rows[2][8], columns[2][8];
  for (int i = 0; i < 2; ++i) {
    for (int from = 0; from < 4; ++from) {
      const Mine& left = all[g * 4 + from];
      const Mine& right = all[(2 * t + i) * 4 + from];
      for (int half = 0; half < 2; ++half) {
        rows[i][4 * half + from] = left.a[i + 2 * half];
        columns[i][4 * half + from] = right.b[half];
      }
    }
  }
  add_products(sum, rows, columns);
}

template <class Half>
void mma_half(float (&sum)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2]) {
  // A register's two elements of the depth, as float32.
  struct Mine {
    float a[4][2], b[2][2];
  } mine;
  const auto widen = [](std::uint32_t pair, float(&to)[2]) {
    for (int k = 0; k < 2; ++k) to[k] = static_cast<float>(Half{static_cast<std::uint16_t>(pair >> 16 * k)});
  };
  for (int k = 0; k < 4; ++k) widen(a[k], mine.a[k]);
  for (int k = 0; k < 2; ++k) widen(b[k], mine.b[k]);
  const simt::Exchange<Mine> all(kFullWarp, mine);
  const int g = simt::lane() / 4, t = simt::lane() % 4;
  float rows[2][16], columns[2][16];
  for (int i = 0; i < 2; ++i) {
    for (int from = 0; from < 4; ++from) {
      const Mine& left = all[g * 4 + from];
      const Mine& right = all[(2 * t + i) * 4 + from];
      for (int half = 0; half < 2; ++half) {
        for (int k = 0; k < 2; ++k) {
          rows[i][8 * half + 2 * from + k] = left.a[i + 2 * half][k];
          columns[i][8 * half + 2 * from + k] = right.b[half][k];
        }
      }
    }
  }
  add_products(sum, rows, columns);
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
