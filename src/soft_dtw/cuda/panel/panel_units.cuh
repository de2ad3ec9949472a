// Products of a panel's tiles on the matrix units, with TF32 factors: a block's 8 warps make 64 x 64 sums,
// 16 x 32 each.
//
// Factors are split once, when they are written to the memory that the units read. Series are relative to an
// origin near the tile's own steps, x' = x - origin, so that a common offset costs no accuracy.
#pragma once

#include <cstdint>

#include "cuda/numbers/tf32.cuh"
#include "cuda/products/mma.cuh"
#include "cuda/threads/warp.cuh"
#include "soft_dtw/cuda/panel/panel_tile.cuh"

namespace warpalign::detail::soft_dtw {

// A lane's elements of a 64 x 64 matrix: rows row() and row() + 8, and columns column(k) and column(k) + 1 of
// each of 4 blocks k of 8 columns. sum[k][i] is in row row() + i / 2 * 8 and column column(k) + i % 2.
struct UnitPlace {
  int row0;
  int column0;
  int g;
  int t;

  __device__ UnitPlace()
      : row0(static_cast<int>(threadIdx.x) / 64 * 16),
        column0(static_cast<int>(threadIdx.x) / 32 % 2 * 32),
        g(static_cast<int>(threadIdx.x) % 32 / 4),
        t(static_cast<int>(threadIdx.x) % 4) {}
  [[nodiscard]] __device__ __forceinline__ int row(int i) const { return row0 + g + i / 2 * 8; }
  [[nodiscard]] __device__ __forceinline__ int column(int k, int i) const {
    return column0 + 8 * k + 2 * t + i % 2;
  }
};

constexpr int kTerms = 32;  // terms of a product whose factors are in shared memory at a time

// The high or the low parts of a factor of 64 rows (columns) and kTerms terms, row after row. Fragments of 8
// rows and 4 terms are in different banks.
struct __align__(16) UnitPart {
  static constexpr int kStride = kTerms + 4;
  float of[kPanelRows * kStride];

  [[nodiscard]] __device__ __forceinline__ float4& four(int row, int term) {
    return *reinterpret_cast<float4*>(of + row * kStride + term);
  }
};

// The TF32 parts of four numbers: hi and lo, or hi alone with one term. Returns the sum of the four numbers
// as the units read them.
__device__ __forceinline__ float split_four(const float (&v)[4], bool three_terms, float4& hi, float4& lo) {
  if (three_terms) {
    const cuda::Tf32Parts s[4] = {cuda::split_tf32(v[0]), cuda::split_tf32(v[1]), cuda::split_tf32(v[2]),
                                  cuda::split_tf32(v[3])};
    hi = {s[0].hi, s[1].hi, s[2].hi, s[3].hi};
    lo = {s[0].lo, s[1].lo, s[2].lo, s[3].lo};
    return (v[0] + v[1]) + (v[2] + v[3]);
  }
  hi = {cuda::rounded_tf32(v[0]), cuda::rounded_tf32(v[1]), cuda::rounded_tf32(v[2]),
        cuda::rounded_tf32(v[3])};
  return (hi.x + hi.y) + (hi.z + hi.w);
}

// A factor, split.
struct UnitFactor {
  const UnitPart& hi;
  const UnitPart& lo;  // not read with one term
};

__device__ __forceinline__ void load_fragments(float (&to)[4], const float* row) {
  std::uint32_t words[4];
  cuda::load_matrices(words, row);
#pragma unroll
  for (int i = 0; i < 4; ++i) to[i] = __int_as_float(static_cast<int>(words[i]));
}

// sum += left right of a warp's 16 rows and 32 columns. left: 64 rows; right: 64 columns; Only the first
// `terms` of the kTerms terms may differ from 0.
__device__ __forceinline__ void multiply_on_units(const UnitPlace& at, const UnitFactor& left,
                                                  const UnitFactor& right, int terms, bool three_terms,
                                                  float (&sum)[4][4]) {
  // A warp loads 16 rows (columns) of 8 terms in one access.
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int left_at = (at.row0 + lane % 16) * UnitPart::kStride + lane / 16 * 4;
  const int right_at = (at.column0 + lane % 8 + lane / 16 * 8) * UnitPart::kStride + lane / 8 % 2 * 4;
  const auto load = [&](const UnitPart& part, int k0, float(&to)[4][2]) {
#pragma unroll
    for (int k = 0; k < 4; k += 2) {
      float both[4];
      load_fragments(both, part.of + right_at + 8 * k * UnitPart::kStride + k0);
      to[k][0] = both[0], to[k][1] = both[1], to[k + 1][0] = both[2], to[k + 1][1] = both[3];
    }
  };
#pragma unroll
  for (int k0 = 0; k0 < kTerms; k0 += 8) {
    if (k0 >= terms) break;
    float left_hi[4], right_hi[4][2];
    load_fragments(left_hi, left.hi.of + left_at + k0);
    load(right.hi, k0, right_hi);
    if (three_terms) {  // small products first
      float left_lo[4], right_lo[4][2];
      load_fragments(left_lo, left.lo.of + left_at + k0);
      load(right.lo, k0, right_lo);
#pragma unroll
      for (int k = 0; k < 4; ++k) cuda::mma_tf32(sum[k], left_lo, right_hi[k]);
#pragma unroll
      for (int k = 0; k < 4; ++k) cuda::mma_tf32(sum[k], left_hi, right_lo[k]);
    }
#pragma unroll
    for (int k = 0; k < 4; ++k) cuda::mma_tf32(sum[k], left_hi, right_hi[k]);
  }
}

// Finds out whether products cancelled: (sum_j E) x' and E Y' have relative errors of about 2^-20, and their
// difference may be much smaller than either. A warp sums the squares of its own steps' differences and of
// (sum_j E) x'.
class Cancellation {
 public:
  __device__ __forceinline__ void add(float term, float difference) {
    terms_ += term * term;
    differences_ += difference * difference;
  }
  // Whether the warp's differences are less than a quarter of the terms in L2. Called by all lanes. False for
  // NaN and infinite numbers.
  [[nodiscard]] __device__ __forceinline__ bool is_large() const {
    constexpr float kLeast = 1.0f / 16;
    return cuda::reduce_sum(differences_) < kLeast * cuda::reduce_sum(terms_);
  }

 private:
  float terms_ = 0;
  float differences_ = 0;
};

// The mean of four steps of a tile, feature f: an origin near all of its steps.
template <class Element>
__device__ __forceinline__ float mean_of_tile(const Series<Element>& series, int f) {
  constexpr int kApart = kPanelRows / 4;
  float sum = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) sum += series.at(i * kApart, f);
  return 0.25f * sum;
}

}  // namespace warpalign::detail::soft_dtw
