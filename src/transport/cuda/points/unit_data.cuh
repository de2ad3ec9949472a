// The data of passes over points on matrix units: packed points and their numbers, and the copies of both to
// a block.
#pragma once

#include <cfloat>
#include <cstdint>

#include "cuda/memory/copy_async.cuh"
#include "cuda/numbers/half.cuh"
#include "transport/cuda/costs/pass.cuh"
#include "transport/cuda/solve/side.cuh"

namespace warpalign::detail::transport {

inline constexpr int kUnitPiece = 4;  // blocks of 16 features at a time
inline constexpr int kUnitStages = 3;

// 8 features of a point. 32 of them are a block of 16 points and 16 features, in four matrices of 8 points
// and 8 features: points 0 to 7 and 8 to 15 of features 0 to 7, then of features 8 to 15. Word 32 m + lane of
// a block is register m of mma_half()'s factor a.
struct alignas(16) UnitRow {
  std::uint32_t v[4];
};

// The grid of the large ones of three parts. Coordinates are at most 2^14, so that in units of the grid
// norms are at most 2^24: so are all sums of products, whose squares are at most products of norms.
__device__ __forceinline__ double unit_grid(int dim) {
  int exponent;
  const float mantissa = frexp(static_cast<float>(dim), &exponent);  // in [0.5, 1)
  return exp2(2.0 + (mantissa == 0.5f ? exponent : exponent + 1) / 2);
}

// The squared norm of two coordinates, from the products that the units make.
template <int kTerms>
__device__ __forceinline__ double unit_norm(int v, const UnitRow (&parts)[kTerms]) {
  float part[kTerms][2];
#pragma unroll
  for (int term = 0; term < kTerms; ++term) {
    cuda::widen_pair<cuda::Float16>(parts[term].v[v], part[term][0], part[term][1]);
  }
  double norm = 0;
#pragma unroll
  for (int e = 0; e < 2; ++e) {
#pragma unroll
    for (int i = 0; i < kTerms; ++i) {
#pragma unroll
      for (int j = 0; j < kTerms - i; ++j) {
        norm += static_cast<double>(part[i][e]) * static_cast<double>(part[j][e]);
      }
    }
  }
  return norm;
}

// Each part is what the parts before it have left of a number, rounded to binary16; the first one of three
// to the grid.
template <int kTerms>
__device__ __forceinline__ void unit_split(double (&left)[2], double grid, int v, UnitRow (&parts)[kTerms]) {
#pragma unroll
  for (int term = 0; term < kTerms; ++term) {
    float next[2];
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      next[e] = static_cast<float>(kTerms == 3 && term == 0 ? rint(left[e] / grid) * grid : left[e]);
    }
    parts[term].v[v] = cuda::narrow_pair<cuda::Float16>(next[0], next[1]);
    cuda::widen_pair<cuda::Float16>(parts[term].v[v], next[0], next[1]);
#pragma unroll
    for (int e = 0; e < 2; ++e) left[e] -= static_cast<double>(next[e]);
  }
}

// A side in a pass.
struct UnitSide {
  const UnitRow* points[3];  // (groups of 16 points, blocks of 16 features, 32): parts, the largest first
  const double* norms;       // squared, of the rounded points
  const double* at;          // potentials; null: 0
  const float* weights;      // null: uniform weights
  float uniform;
  bool counts;    // whether the reference's weights are 1
  double lambda;  // added to the potentials
  int count;
  int blocks;  // blocks of 16 features: kBlocks, or a multiple of kUnitPiece
};

// The results of a pass: sums of the own points, also those of the other points, or gradients with respect to
// the own points.
enum class UnitMakes { kOwn, kBoth, kGradient };

// Constants of a pass.
struct UnitPassNumbers {
  double norm_factor;    // k / s^2, half of the factor of products
  double rounder;        // rounds potentials minus norms to their grid
  double norm_rounder;   // rounds norms over s^2 to their grid
  float inverse_square;  // 1 / s^2
};

// kTerms: the number of binary16 numbers of a coordinate. kFrags: a warp owns 16 kFrags points. kBlocks: the
// number of blocks of 16 features that a warp keeps in registers; 0: there are more, and pieces of kUnitPiece
// blocks are loaded one after the other.
template <int kTerms, int kFrags, int kBlocks>
class UnitData {
 public:
  static constexpr int kOwn = 16 * kFrags * kUnitWarps;  // points that a block owns at a time
  static constexpr int kWidth = kBlocks == 0 ? kUnitPiece : kBlocks;
  static constexpr int kRows = 2 * kFrags;  // own points per lane

  struct alignas(16) Numbers {
    float main[kPointsStage][2];  // the point's part of its logits, and its weight
    float lo[kPointsStage];       // the low part of the former
    float norm[kPointsStage];     // over s^2
    float norm_lo[kTerms == 3 ? kPointsStage : 4];
  };
  // The current work of a block. In shared memory, because all threads need the same few of its numbers at a
  // time.
  struct Work {
    UnitSide own;
    UnitSide other;
    UnitPassNumbers numbers;
    float factor;     // 2 k / s^2
    int own_begin;    // the first of kOwn points
    int first_stage;  // stages of the other side: first_stage ... last_stage - 1
    int last_stage;
    float* own_sums;    // a sum per own point, over this run
    float* other_sums;  // kBoth: a sum per other point, over these own points
    // For gradients: the own points' sums, in part_count parts, and the number of the piece of features.
    const float* parts;
    std::int64_t part_stride;
    int part_count;
    int piece;
    bool writes_plan;
    bool is_one_set;  // gradients leave out pairs of a point with itself: their differences are 0
    int* near;        // for gradients with three terms: set where differences of points are small
  };

  struct alignas(16) Shared {
    UnitRow points[kUnitStages][kTerms][kPointsStage / 16][kWidth][32];
    Numbers numbers[kUnitStages];
    float columns[2][kUnitWarps][kPointsStage];
    Work work;
  };

 protected:
  struct alignas(16) Quad {
    float v[4];
  };
  struct Factor {  // operands of mma_half(): one a, or two b
    std::uint32_t v[4];
  };
  // A factor of a gradient's products is at most 2^14.
  static constexpr int kBitsOfMass = 14;

  // The order of pieces. The piece of a gradient's features comes last.
  [[nodiscard]] static __device__ __forceinline__ int piece_at(const Work& work, int piece, int pieces) {
    const int at = piece + work.piece + 1;
    return at % pieces;
  }
  struct OwnNumbers {
    float hi[kRows];
    float lo[kRows];
    float weight[kRows];
    float norm[kRows];  // over s^2
    float norm_lo[kRows];
    float linear = 0;
    float logits = 0;
    // For gradients: a factor of each row, and the sum of its costs, each times the plan.
    float scale[kRows];
    float costs[kRows] = {};
  };

  // A point's part of its logits, as a pair, and its weight. A point that does not exist has logits of -inf.
  static __device__ __forceinline__ Potential<float> number_of(const UnitPassNumbers& numbers, double at,
                                                               double norm) {
    if (at == CUDART_INF) at = 0;
    return Potential<float>::split(fma(-numbers.norm_factor, norm, at), numbers.rounder);
  }
  // A norm over s^2, as a pair with three terms, and otherwise as one number.
  static __device__ __forceinline__ Potential<float> norm_of(const UnitPassNumbers& numbers, double norm) {
    const double scaled = norm * static_cast<double>(numbers.inverse_square);
    if constexpr (kTerms == 3) return Potential<float>::split(scaled, numbers.norm_rounder);
    return {static_cast<float>(scaled), 0};
  }
  [[nodiscard]] static __device__ __forceinline__ float weight_of(const UnitSide& side, float weight) {
    return side.counts ? 1.0f : weight;
  }

  template <bool kGradient>
  static __device__ __forceinline__ void load_own(const Work& work, int first, OwnNumbers& own) {
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const int i = first + r * 8;
      own.hi[r] = static_cast<float>(-CUDART_INF);
      own.lo[r] = own.weight[r] = own.norm[r] = own.norm_lo[r] = own.scale[r] = 0;
      if (i >= work.own.count) continue;
      const double norm = work.own.norms[i];
      double bits = 0;
      if constexpr (kGradient) {
        float sum = 0;
        for (int k = 0; k < work.part_count; ++k) sum += work.parts[k * work.part_stride + i];
        const bool known = sum > 0 && sum <= FLT_MAX;
        const int whole = known ? ilogbf(sum) + 1 - kBitsOfMass : 0;
        bits = whole;
        own.scale[r] = exp2_of(static_cast<float>(whole));
      }
      const Potential<float> at =
          number_of(work.numbers, (work.own.at ? work.own.at[i] : 0.0) + work.own.lambda - bits, norm);
      own.hi[r] = at.hi;
      own.lo[r] = at.lo;
      own.weight[r] = weight_of(work.own, work.own.weights ? work.own.weights[i] : work.own.uniform);
      const Potential<float> scaled = norm_of(work.numbers, norm);
      own.norm[r] = scaled.hi;
      own.norm_lo[r] = scaled.lo;
    }
  }

  // The numbers of a later stage, by the block's first 64 threads. They are loaded one step before they are
  // stored.
  struct Incoming {
    double at;
    double norm;
    float weight;
    bool exists;

    __device__ __forceinline__ void load(const Work& work, int stage) {
      exists = false;
      if (threadIdx.x >= kPointsStage) return;
      const int j = stage * kPointsStage + static_cast<int>(threadIdx.x);
      exists = j < work.other.count;
      if (!exists) return;
      at = work.other.at ? work.other.at[j] : 0.0;
      norm = work.other.norms[j];
      weight = work.other.weights ? work.other.weights[j] : work.other.uniform;
    }
    template <PassKind kKind>
    __device__ __forceinline__ void store(Numbers& to, const Work& work) const {
      if (threadIdx.x >= kPointsStage) return;
      const int k = static_cast<int>(threadIdx.x);
      Potential<float> z{static_cast<float>(-CUDART_INF), 0};
      float of_reference = 0;
      if (exists) {
        of_reference = weight_of(work.other, weight);
        if (kKind != PassKind::kLargest || of_reference > 0) {
          z = number_of(work.numbers, at + work.other.lambda, norm);
        }
      }
      to.main[k][0] = z.hi;
      to.main[k][1] = of_reference;
      to.lo[k] = z.lo;
      const Potential<float> scaled = norm_of(work.numbers, exists ? norm : 0.0);
      to.norm[k] = scaled.hi;
      if constexpr (kTerms == 3) to.norm_lo[k] = scaled.lo;
    }
  };

  static __device__ __forceinline__ void copy_points(Shared& s, const Work& work, int step, int pieces) {
    const int stage = step / pieces, piece = step - stage * pieces;
    const int group = (work.first_stage + stage) * (kPointsStage / 16);
#pragma unroll
    for (int term = 0; term < kTerms; ++term) {
      constexpr int kAll = kPointsStage / 16 * kWidth * 32;
#pragma unroll
      for (int n = 0; n < kAll; n += 32 * kUnitWarps) {
        const int k = n + static_cast<int>(threadIdx.x);
        const int of_group = k / (kWidth * 32), rest = k % (kWidth * 32);
        if (kAll % (32 * kUnitWarps) != 0 && k >= kAll) break;
        cuda::copy_async_l2(&s.points[step % kUnitStages][term][0][0][0] + k,
                            work.other.points[term] +
                                (static_cast<std::int64_t>(group + of_group) * work.other.blocks +
                                 piece_at(work, piece, pieces) * kWidth) *
                                    32 +
                                rest);
      }
    }
  }

  template <int kCount>
  static __device__ __forceinline__ void load_factor(const Work& work, int term, int own_group, int block,
                                                     int lane, Factor (&to)[kFrags][kCount]) {
#pragma unroll
    for (int m = 0; m < kFrags; ++m) {
#pragma unroll
      for (int k = 0; k < kCount; ++k) {
        const int group = min(own_group + m, (work.own.count - 1) / 16);
        const std::int64_t at = static_cast<std::int64_t>(group) * work.own.blocks + block + k;
        const auto* const words = reinterpret_cast<const std::uint32_t*>(work.own.points[term] + at * 32);
#pragma unroll
        for (int v = 0; v < 4; ++v) to[m][k].v[v] = words[32 * v + lane];
      }
    }
  }
};

}  // namespace warpalign::detail::transport
