// Passes over pairs of points, with products by matrix units and binary16 factors.
//
//   t[i,j] = own[i] + other[j] + (2 k / s^2) <x'[i], y'[j]>,     own[i] = w[i] - (k / s^2) |x'[i]|^2
//
// x' and y' are the points relative to a centre, times a power of two s, rounded to one binary16 number, or
// to the sum of two or three. Norms are those of the rounded points. So t is that of slightly moved points,
// and the cost of equal points is 0.
//
// With three terms the largest parts are multiples of a grid so coarse that float32 has every sum of their
// products exactly (Mukunoki et al., "DGEMM using tensor cores", 2020). own, other and norms are pairs whose
// high parts are on a grid as well. A fused multiply-add adds the exact sums to the high parts: where points
// are near each other, all digits of t remain. The other products are smaller by 2^-9.
//
// A block's 8 warps own points of one side, in registers, and go through the other side in stages of 64
// points, which are copied to a ring in shared memory. A block owns a run of such steps, which may begin and
// end anywhere within the other side, so that all blocks have the same number.
#pragma once

#include <type_traits>

#include "transport/cuda/points/unit_products.cuh"

namespace warpalign::detail::transport {

// The template's arguments are those of UnitData.
template <int kTerms, int kFrags, int kBlocks>
class UnitPass : public UnitProducts<kTerms, kFrags, kBlocks> {
 public:
  using Data = UnitData<kTerms, kFrags, kBlocks>;
  using Data::kOwn;
  using Data::kWidth;
  using typename Data::Shared;
  using typename Data::Work;
  using Makes = UnitMakes;

  // Calls sink(i, j, mass) with an entry of the plan. For gradients calls sink(i, d, v), where v is the sum
  // over the other points of P (x'[i] - y'[j]) in feature d.
  template <PassKind kKind, Makes kMakes, class Sink>
  static __device__ __forceinline__ void run(Shared& s, PlanSums& sums, const Sink& sink) {
    const Work& work = s.work;
    const float factor = work.factor, cost_factor = -2 * work.numbers.inverse_square;
    constexpr bool kColumns = kMakes == Makes::kBoth, kGradient = kMakes == Makes::kGradient;
    constexpr bool kLargest = kKind == PassKind::kLargest;
    constexpr bool kPieces = kBlocks == 0;
    const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
    const int g = lane / 4, t = lane % 4;
    const int pieces = kPieces ? work.other.blocks / kUnitPiece : 1;
    const int own_group = (work.own_begin + warp * 16 * kFrags) / 16;
    // Groups are padded to whole stages; the results of a warp without points are not used.
    const bool working = own_group * 16 < work.own.count;

    OwnNumbers own;
    Data::template load_own<kGradient>(work, own_group * 16 + g, own);
    Factor a[kPieces ? 1 : kTerms][kFrags][kWidth];
    if constexpr (!kPieces) {
#pragma unroll
      for (int term = 0; term < kTerms; ++term) load_factor(work, term, own_group, 0, lane, a[term]);
    }
    [[maybe_unused]] float moment[kGradient ? kWidth : 1][kFrags][2][4] = {};  // sums of P y'
    using Total = std::conditional_t<kTerms == 3, double, float>;
    Total own_sums[kRows];
    float stage_sums[kRows];
    start_sums<kLargest>(own_sums);

    const int steps = (work.last_stage - work.first_stage) * pieces;
    Incoming incoming;
    start_copies<kKind>(s, work, steps, pieces, incoming);

    Sums sum[kPieces ? kPointsStage / 16 : 1];
    for (int step = 0; step < steps; ++step) {
      const int stage = step / pieces, piece = step - stage * pieces;
      await_step<kKind>(s, work, step, steps, pieces, incoming);
      if constexpr (kColumns) {
        if (piece == 0 && stage > 0) add_columns(s, work, stage - 1);
      }
      const auto& points = s.points[step % kUnitStages];
      const Numbers& numbers = s.numbers[stage % kUnitStages];
      if (!working) {
        if constexpr (kColumns) clear_columns(s.columns[stage % 2][warp], lane);
        continue;
      }
      start_sums<kLargest>(stage_sums);
      if constexpr (kPieces) {
        multiply_piece(work, points, own_group, piece == 0, piece_at(work, piece, pieces), lane, sum);
        if (piece + 1 < pieces) continue;
      }
#pragma unroll kTerms == 3 && !kPieces ? 1 : kPointsStage / 16
      for (int c = 0; c < kPointsStage / 16; ++c) {
        Sums& products = sum[kPieces ? c : 0];
        if constexpr (!kPieces) multiply_all(a, points, c, lane, products);
        auto& pairs = products.of[0];
        float column_sums[4] = {};
        const int other = (work.first_stage + stage) * kPointsStage + 16 * c + 2 * t;
        const int diagonal = kGradient && work.is_one_set ? own_group * 16 + g - other : kNoDiagonal;
        add_terms<kKind, kMakes>(numbers, 16 * c + 2 * t, diagonal, factor, cost_factor, own, products,
                                 stage_sums, column_sums);
        if constexpr (kGradient) add_moments(points, c, lane, pairs, stage_sums, moment);
        if constexpr (kKind == PassKind::kEvaluate && !kGradient) {
          if (work.writes_plan) {
            write_plan(own_group * 16 + g, other, pairs, sink);
          }
        }
        if constexpr (kColumns) store_columns(s.columns[stage % 2][warp] + 16 * c, lane, column_sums);
      }
      end_stage<kKind>(stage_sums, own, own_sums, sums);
    }
    cuda::await_copies();
    if constexpr (kColumns) {
      __syncthreads();
      if (steps > 0) add_columns(s, work, steps / pieces - 1);
    }
    if constexpr (kGradient) {
      write_gradient(work, own, own_group, g, t, own_sums, moment, sink);
    } else {
      write_sums<kLargest>(work, own_group * 16 + g, own_sums);
    }
  }

 private:
  using Products = UnitProducts<kTerms, kFrags, kBlocks>;
  using Data::copy_points;
  using Data::kRows;
  using Data::load_factor;
  using Data::piece_at;
  using Products::add_moments;
  using Products::write_gradient;
  using typename Data::Factor;
  using typename Data::Incoming;
  using typename Data::Numbers;
  using typename Data::OwnNumbers;
  using typename Data::Quad;
  using typename Products::Sums;

  // Starts the copies of the first steps, and loads the other points' numbers of the first two stages.
  template <PassKind kKind>
  static __device__ __forceinline__ void start_copies(Shared& s, const Work& work, int steps, int pieces,
                                                      Incoming& incoming) {
    for (int step = 0; step < kUnitStages - 1; ++step) {
      if (step < steps) copy_points(s, work, step, pieces);
      cuda::end_copy_group();
    }
    incoming.load(work, work.first_stage);
    incoming.template store<kKind>(s.numbers[0], work);
    incoming.load(work, work.first_stage + 1);
  }
  // Waits for the points of a step. Starts the copy of a later one to the place of the step before, which all
  // threads have left, and stores the numbers of the next stage.
  template <PassKind kKind>
  static __device__ __forceinline__ void await_step(Shared& s, const Work& work, int step, int steps,
                                                    int pieces, Incoming& incoming) {
    cuda::await_copy_groups<kUnitStages - 2>();
    __syncthreads();
    if (step + kUnitStages - 1 < steps) copy_points(s, work, step + kUnitStages - 1, pieces);
    cuda::end_copy_group();
    const int stage = step / pieces;
    if (step != stage * pieces) return;
    incoming.template store<kKind>(s.numbers[(stage + 1) % kUnitStages], work);
    incoming.load(work, work.first_stage + stage + 2);
  }

  // The lane's row of a block of 16 points and 16 features: matrices in the order 0, 2, 1, 3, so that the two
  // registers of an operand b are neighbours.
  static __device__ __forceinline__ int row_of_right(int lane) {
    return (lane & 7) | (lane & 8) << 1 | (lane & 16) >> 1;
  }

  // Adds the products of a piece of the features to those of the stage, which begin at 0. The own factors
  // come from memory.
  template <class StagePoints>
  static __device__ __forceinline__ void multiply_piece(const Work& work, const StagePoints& points,
                                                        int own_group, bool is_first, int piece, int lane,
                                                        Sums (&sum)[kPointsStage / 16]) {
    if (is_first) {
#pragma unroll
      for (int c = 0; c < kPointsStage / 16; ++c) sum[c].clear();
    }
#pragma unroll
    for (int k = 0; k < kUnitPiece; ++k) {
      Factor factor[kTerms][kFrags][1];
#pragma unroll
      for (int term = 0; term < kTerms; ++term) {
        load_factor(work, term, own_group, piece * kUnitPiece + k, lane, factor[term]);
      }
#pragma unroll
      for (int c = 0; c < kPointsStage / 16; ++c) {
        Factor b[kTerms];
#pragma unroll
        for (int term = 0; term < kTerms; ++term) {
          cuda::load_matrices(b[term].v, &points[term][c][k][row_of_right(lane)]);
        }
        Products::template multiply<false>(factor, 0, b, sum[c]);
      }
    }
  }
  // The products of all features, of 16 points of the stage. The own factors are in registers.
  template <class Factors, class StagePoints>
  static __device__ __forceinline__ void multiply_all(const Factors& a, const StagePoints& points, int c,
                                                      int lane, Sums& sum) {
#pragma unroll
    for (int k = 0; k < kWidth; ++k) {
      Factor b[kTerms];
#pragma unroll
      for (int term = 0; term < kTerms; ++term) {
        cuda::load_matrices(b[term].v, &points[term][c][k][row_of_right(lane)]);
      }
      if (k == 0) {
        Products::template multiply<true>(a, k, b, sum);
      } else {
        Products::template multiply<false>(a, k, b, sum);
      }
    }
  }

  // Adds the terms of a lane's pairs with 16 points of the stage to the sums of its own points, and with
  // UnitMakes::kBoth to those of the other points: first ... + 1 and first + 8 ... + 9. Replaces products by
  // entries of the plan where these are used. diagonal: the index of the lane's first own point less that of
  // its first other point, if pairs of a point with itself are left out.
  static constexpr int kNoDiagonal = 1 << 20;
  template <PassKind kKind, Makes kMakes>
  static __device__ __forceinline__ void add_terms(const Numbers& numbers, int first, int diagonal,
                                                   float factor, float cost_factor, OwnNumbers& own,
                                                   Sums& sum, float (&stage_sums)[kRows],
                                                   float (&column_sums)[4]) {
    constexpr bool kColumns = kMakes == Makes::kBoth, kGradient = kMakes == Makes::kGradient;
    constexpr bool kLargest = kKind == PassKind::kLargest;
    auto& pairs = sum.of[0];
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      const int j = first + 8 * n;
      const Quad main = *reinterpret_cast<const Quad*>(numbers.main[j]);
      [[maybe_unused]] const float lo[2] = {kTerms > 1 ? numbers.lo[j] : 0.0f,
                                            kTerms > 1 ? numbers.lo[j + 1] : 0.0f};
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const float product = pairs[r / 2][n][r % 2 * 2 + i];
          float logit = fmaf(factor, product, own.hi[r] + main.v[2 * i]);
          if constexpr (kTerms == 2) logit += own.lo[r] + lo[i];
          [[maybe_unused]] float rest = 0;
          if constexpr (kTerms == 3) {
            rest = sum.of[1][r / 2][n][r % 2 * 2 + i];
            logit += fmaf(factor, rest, own.lo[r] + lo[i]);
          }
          if constexpr (kLargest) {
            stage_sums[r] = larger(stage_sums[r], logit);
          } else {
            const float e = exp2_of(logit);
            if constexpr (kGradient) {
              const float mass = diagonal + 8 * r == 8 * n + i ? 0.0f : e * main.v[2 * i + 1];
              if constexpr (kTerms == 3) {
                const float cost = fmaf(cost_factor, product + rest, own.norm[r] + numbers.norm[j + i]);
                own.costs[r] = fmaf(mass, cost, own.costs[r]);
              }
              pairs[r / 2][n][r % 2 * 2 + i] = mass;
              continue;
            }
            if constexpr (kColumns) column_sums[2 * n + i] = fmaf(e, own.weight[r], column_sums[2 * n + i]);
            if constexpr (kKind == PassKind::kEvaluate) {
              const float weighted = e * main.v[2 * i + 1], mass = own.weight[r] * weighted;
              float cost = fmaf(cost_factor, product, own.norm[r] + numbers.norm[j + i]);
              if constexpr (kTerms == 3) {
                cost += fmaf(cost_factor, rest, own.norm_lo[r] + numbers.norm_lo[j + i]);
              }
              stage_sums[r] += weighted;
              own.linear = fmaf(mass, cost, own.linear);
              own.logits = fmaf(mass, fmaxf(logit, -FLT_MAX), own.logits);  // 0 times -infinity is 0
              pairs[r / 2][n][r % 2 * 2 + i] = mass;
            } else {
              stage_sums[r] = fmaf(e, main.v[2 * i + 1], stage_sums[r]);
            }
          }
        }
      }
    }
  }

  static __device__ __forceinline__ void clear_columns(float* to, int lane) { to[lane] = to[lane + 32] = 0; }
  // Joins the sums of lanes with equal lane % 4: each lane gets one of its four columns.
  static __device__ __forceinline__ void store_columns(float* to, int lane, const float (&column_sums)[4]) {
    const bool upper = lane & 16, odd = lane & 8;
    float joined[2];
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      const float sent = upper ? column_sums[k] : column_sums[2 + k];
      joined[k] = (upper ? column_sums[2 + k] : column_sums[k]) + cuda::shuffle_xor(sent, 16);
    }
    const float sent = odd ? joined[0] : joined[1];
    float one = (odd ? joined[1] : joined[0]) + cuda::shuffle_xor(sent, 8);
    one += cuda::shuffle_xor(one, 4);
    const int k = 2 * upper + odd;
    if (!(lane & 4)) to[8 * (k / 2) + 2 * (lane % 4) + k % 2] = one;
  }

  // Calls sink(i, j, mass) for a lane's pairs of own points `row` + 8 r and other points from `column` on.
  template <class Sink>
  static __device__ __forceinline__ void write_plan(int row, int column, const float (&pairs)[kFrags][2][4],
                                                    const Sink& sink) {
#pragma unroll
    for (int n = 0; n < 2; ++n) {
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          sink(row + r * 8, column + 8 * n + i, pairs[r / 2][n][r % 2 * 2 + i]);
        }
      }
    }
  }

  template <bool kLargest, class Total>
  static __device__ __forceinline__ void start_sums(Total (&sums)[kRows]) {
#pragma unroll
    for (int r = 0; r < kRows; ++r) sums[r] = kLargest ? static_cast<Total>(-CUDART_INF) : Total(0);
  }
  template <PassKind kKind, class Total>
  static __device__ __forceinline__ void end_stage(const float (&stage_sums)[kRows], OwnNumbers& own,
                                                   Total (&own_sums)[kRows], PlanSums& sums) {
    constexpr bool kLargest = kKind == PassKind::kLargest;
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const Total sum = stage_sums[r];
      own_sums[r] = kLargest ? larger(own_sums[r], sum) : own_sums[r] + sum;
    }
    if constexpr (kKind == PassKind::kEvaluate) {
      sums.linear += static_cast<double>(own.linear);
      sums.logits += static_cast<double>(own.logits);
      own.linear = own.logits = 0;
    }
  }
  // Joins the lanes' sums of own points `row` + 8 r, and writes them.
  template <bool kLargest, class Total>
  static __device__ __forceinline__ void write_sums(const Work& work, int row,
                                                    const Total (&own_sums)[kRows]) {
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const Total all =
          cuda::reduce<4>(own_sums[r], [](Total x, Total y) { return kLargest ? larger(x, y) : x + y; });
      const int i = row + r * 8;
      if (threadIdx.x % 4 == 0 && i < work.own.count) work.own_sums[i] = static_cast<float>(all);
    }
  }

  // Adds the warps' sums of a stage, in the order of the warps.
  static __device__ __forceinline__ void add_columns(const Shared& s, const Work& work, int stage) {
    const int k = static_cast<int>(threadIdx.x) - kPointsStage;
    if (k < 0 || k >= kPointsStage) return;
    float all = 0;
#pragma unroll
    for (int warp = 0; warp < kUnitWarps; ++warp) all += s.columns[stage % 2][warp][k];
    const int j = (work.first_stage + stage) * kPointsStage + k;
    if (j < work.other.count) work.other_sums[j] = all;
  }
};

}  // namespace warpalign::detail::transport
