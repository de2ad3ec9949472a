// Products of a pass over points on matrix units: points with points for logits, and the plan with points for
// gradients.
#pragma once

#include "cuda/numbers/half.cuh"
#include "cuda/products/mma.cuh"
#include "transport/cuda/points/unit_data.cuh"

namespace warpalign::detail::transport {

template <int kTerms, int kFrags, int kBlocks>
class UnitProducts : public UnitData<kTerms, kFrags, kBlocks> {
 protected:
  using Data = UnitData<kTerms, kFrags, kBlocks>;
  using Data::kRows;
  using Data::kWidth;
  using typename Data::Factor;
  using typename Data::OwnNumbers;
  using typename Data::Work;

  static __device__ __forceinline__ void clear(float (&sum)[kFrags][2][4]) {
#pragma unroll
    for (int m = 0; m < kFrags; ++m) {
#pragma unroll
      for (int n = 0; n < 2; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) sum[m][n][i] = 0;
      }
    }
  }

  // sum += a[..][k] b over all terms except the product of the two small parts. kFirst: sum is overwritten.
  template <bool kFirst, int kTermsOfA, int kCount>
  static __device__ __forceinline__ void multiply(const Factor (&a)[kTermsOfA][kFrags][kCount], int k,
                                                  const Factor (&b)[kTerms], float (&sum)[kFrags][2][4]) {
    constexpr int kProducts = kTerms == 1 ? 1 : 3;
#pragma unroll
    for (int product = 0; product < kProducts; ++product) {
      const int of_a = kTerms == 2 && product == 0, of_b = kTerms == 2 && product == 1;
#pragma unroll
      for (int m = 0; m < kFrags; ++m) {
#pragma unroll
        for (int n = 0; n < 2; ++n) {
          const std::uint32_t right[2] = {b[of_b].v[2 * n], b[of_b].v[2 * n + 1]};
          if (kFirst && product == 0) {
            cuda::mma_half_product<cuda::Float16>(sum[m][n], a[of_a][m][k].v, right);
          } else {
            cuda::mma_half<cuda::Float16>(sum[m][n], a[of_a][m][k].v, right);
          }
        }
      }
    }
  }

  // moment += P y' over 16 other points, and their part of the sums of P. P is rounded first in both.
  template <class Points>
  static __device__ __forceinline__ void add_moments(const Points& points, int c, int lane,
                                                     const float (&mass)[kFrags][2][4],
                                                     float (&own_sums)[kRows],
                                                     float (&moment)[kWidth][kFrags][2][4]) {
    Factor left[kTerms][kFrags];
#pragma unroll
    for (int m = 0; m < kFrags; ++m) {
#pragma unroll
      for (int v = 0; v < 4; ++v) {
        const float first = mass[m][v / 2][v % 2 * 2], second = mass[m][v / 2][v % 2 * 2 + 1];
        left[0][m].v[v] = cuda::narrow_pair<cuda::Float16>(first, second);
        float large[2];
        cuda::widen_pair<cuda::Float16>(left[0][m].v[v], large[0], large[1]);
        if constexpr (kTerms == 2) {
          left[1][m].v[v] = cuda::narrow_pair<cuda::Float16>(first - large[0], second - large[1]);
          own_sums[2 * m + v % 2] += first + second;
        } else {
          own_sums[2 * m + v % 2] += large[0] + large[1];
        }
      }
    }
#pragma unroll
    for (int k = 0; k < kWidth; ++k) {
      Factor right[kTerms];
#pragma unroll
      for (int term = 0; term < kTerms; ++term) {
        cuda::load_matrices<true>(right[term].v, &points[term][c][k][lane]);
      }
#pragma unroll
      for (int product = 0; product < (kTerms == 1 ? 1 : 3); ++product) {
        const int of_left = kTerms == 2 && product == 0, of_right = kTerms == 2 && product == 1;
#pragma unroll
        for (int m = 0; m < kFrags; ++m) {
#pragma unroll
          for (int n = 0; n < 2; ++n) {
            const std::uint32_t b[2] = {right[of_right].v[2 * n], right[of_right].v[2 * n + 1]};
            cuda::mma_half<cuda::Float16>(moment[k][m][n], left[of_left][m].v, b);
          }
        }
      }
    }
  }

  template <class Sink>
  static __device__ __forceinline__ void write_gradient(const Work& work, const OwnNumbers& own,
                                                        int own_group, int g, int t,
                                                        const float (&own_sums)[kRows],
                                                        const float (&moment)[kWidth][kFrags][2][4],
                                                        const Sink& sink) {
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const float mass = cuda::reduce_sum<4>(own_sums[r]);
      const int i = own_group * 16 + r * 8 + g;
      if (i >= work.own.count) continue;
#pragma unroll
      for (int k = 0; k < kWidth; ++k) {
        const int block = work.piece * kUnitPiece + k;
        float x[2][2] = {};
#pragma unroll
        for (int term = kTerms - 1; term >= 0; --term) {
          const std::int64_t at = static_cast<std::int64_t>(i / 16) * work.own.blocks + block;
          const auto* const words = reinterpret_cast<const std::uint32_t*>(work.own.points[term] + at * 32);
#pragma unroll
          for (int n = 0; n < 2; ++n) {
            float part[2];
            cuda::widen_pair<cuda::Float16>(words[32 * (2 * n + r % 2) + g * 4 + t], part[0], part[1]);
            x[n][0] += part[0], x[n][1] += part[1];
          }
        }
#pragma unroll
        for (int n = 0; n < 2; ++n) {
#pragma unroll
          for (int v = 0; v < 2; ++v) {
            const float sum = fmaf(x[n][v], mass, -moment[k][r / 2][n][r % 2 * 2 + v]);
            sink(i, 16 * block + 8 * n + 2 * t + v, own.weight[r] * own.scale[r] * sum);
          }
        }
      }
    }
  }
};

}  // namespace warpalign::detail::transport
