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

  // Sums of products with 16 points. With three terms, those of the largest parts, which are exact, and all
  // others.
  struct Sums {
    float of[kTerms == 3 ? 2 : 1][kFrags][2][4];

    __device__ __forceinline__ void clear() {
#pragma unroll
      for (auto& level : of) {
#pragma unroll
        for (auto& fragment : level) {
#pragma unroll
          for (auto& half : fragment) {
#pragma unroll
            for (float& v : half) v = 0;
          }
        }
      }
    }
  };

  // sum += a[..][k] b over the products a_i b_j with i + j < kTerms, the smallest first. kFirst: sum is
  // overwritten.
  template <bool kFirst, int kTermsOfA, int kCount>
  static __device__ __forceinline__ void multiply(const Factor (&a)[kTermsOfA][kFrags][kCount], int k,
                                                  const Factor (&b)[kTerms], Sums& sum) {
#pragma unroll
    for (int both = kTerms - 1; both >= 0; --both) {
      auto& to = sum.of[kTerms == 3 && both > 0];
#pragma unroll
      for (int i = both; i >= 0; --i) {
        const bool overwrites = kFirst && i == both && (both == kTerms - 1 || (kTerms == 3 && both == 0));
#pragma unroll
        for (int m = 0; m < kFrags; ++m) {
#pragma unroll
          for (int n = 0; n < 2; ++n) {
            const std::uint32_t right[2] = {b[both - i].v[2 * n], b[both - i].v[2 * n + 1]};
            if (overwrites) {
              cuda::mma_half_product<cuda::Float16>(to[m][n], a[i][m][k].v, right);
            } else {
              cuda::mma_half<cuda::Float16>(to[m][n], a[i][m][k].v, right);
            }
          }
        }
      }
    }
  }

  // moment += P y' over 16 other points, and their part of the sums of P. An entry of P is rounded to one
  // binary16 number, or to the sum of two. With three terms the units sum these 16 points from 0 on: they
  // round sums down.
  template <class Points>
  static __device__ __forceinline__ void add_moments(const Points& points, int c, int lane,
                                                     const float (&mass)[kFrags][2][4],
                                                     float (&own_sums)[kRows],
                                                     float (&moment)[kWidth][kFrags][2][4]) {
    constexpr int kParts = kTerms == 1 ? 1 : 2;  // of an entry of the plan
    Factor left[kParts][kFrags];
#pragma unroll
    for (int m = 0; m < kFrags; ++m) {
#pragma unroll
      for (int v = 0; v < 4; ++v) {
        const float first = mass[m][v / 2][v % 2 * 2], second = mass[m][v / 2][v % 2 * 2 + 1];
        left[0][m].v[v] = cuda::narrow_pair<cuda::Float16>(first, second);
        float large[2];
        cuda::widen_pair<cuda::Float16>(left[0][m].v[v], large[0], large[1]);
        if constexpr (kTerms > 1) {
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
      for (int m = 0; m < kFrags; ++m) {
#pragma unroll
        for (int n = 0; n < 2; ++n) {
          [[maybe_unused]] float some[4] = {};
          float(&to)[4] = kTerms == 3 ? some : moment[k][m][n];
#pragma unroll
          for (int both = kTerms - 1; both >= 0; --both) {
#pragma unroll
            for (int i = both < kParts ? both : kParts - 1; i >= 0; --i) {
              const std::uint32_t b[2] = {right[both - i].v[2 * n], right[both - i].v[2 * n + 1]};
              cuda::mma_half<cuda::Float16>(to, left[i][m].v, b);
            }
          }
          if constexpr (kTerms == 3) {
#pragma unroll
            for (int v = 0; v < 4; ++v) moment[k][m][n][v] += some[v];
          }
        }
      }
    }
  }

  // Where the root of a point's mean cost is less than a quarter of its own length, x' P - P y' loses more
  // than two bits.
  static constexpr float kNearSquare = 1.0f / 16;

  template <class Total, class Sink>
  static __device__ __forceinline__ void write_gradient(const Work& work, const OwnNumbers& own,
                                                        int own_group, int g, int t,
                                                        const Total (&own_sums)[kRows],
                                                        const float (&moment)[kWidth][kFrags][2][4],
                                                        const Sink& sink) {
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const auto mass = static_cast<float>(cuda::reduce_sum<4>(own_sums[r]));
      const int i = own_group * 16 + r * 8 + g;
      [[maybe_unused]] const float costs = kTerms == 3 ? cuda::reduce_sum<4>(own.costs[r]) : 0.0f;
      if (i >= work.own.count) continue;
      if constexpr (kTerms == 3) {
        if (t == 0 && costs < kNearSquare * own.norm[r] * mass) *work.near = 1;
      }
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
