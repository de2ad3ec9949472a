// Passes over pairs of points with few coordinates. A thread owns two points of one side, with all their
// coordinates in registers, and goes through the points of the other side, which all threads of the block
// read from the same address of shared memory. Sums are joined only at the end of a run.
//
// For gradients a block owns 32 points, a lane one of them, and each warp has a share of the other points.
// Warps join their sums in order at the end.
#pragma once

#include "transport/cuda/costs/pass.cuh"
#include "transport/cuda/points/point_cost.cuh"
#include "transport/cuda/points/step_share.cuh"
#include "transport/cuda/solve/side.cuh"

namespace warpalign::detail::transport {

// kDim: coordinates, the last of which may be 0.
template <class Real, int kDim>
class PointRows {
 public:
  static constexpr int kOwn = kOwnPointsOfRows;
  static constexpr int kRows = kOwn / kPointsThreads;  // points that a thread owns
  static constexpr int kStage = kPointsStage;
  static constexpr int kUnrolled = sizeof(Real) == 4 ? 4 : 1;  // float64's exponentials are long

  struct Shared {
    static constexpr int kNumbers =
        (kDim + 3 + 3) / 4 * 4;  // numbers of a point: coordinates, potential as a pair, weight
    alignas(16) Real other[2][kStage][kNumbers];
  };
  static constexpr int kGradientOwn = 32;
  static constexpr int kWarps = kPointsThreads / 32;
  struct GradientShared {
    alignas(16) Real other[2][kPointsThreads][Shared::kNumbers];
    Real parts[kWarps][kDim + 1][kGradientOwn];  // by coordinates, and sums of P <u, v> of unit vectors
  };

  // One run of steps. Calls sink(i, j, mass) with an entry of the plan.
  template <PassKind kKind, CostKind kCost, class Sink>
  static __device__ __forceinline__ void run(const SolveParams<Real>& p, const Pass& pass, bool of_rows,
                                             const Side<Real>& own, const Side<Real>& other, int tile,
                                             int part, int first_stage, int last_stage, PlanSums& sums,
                                             const Sink& sink) {
    constexpr bool kLargest = kKind == PassKind::kLargest;
    auto& s = *reinterpret_cast<Shared*>(cuda::dynamic_shared() + kScratchBytes);
    const double* const own_at = of_rows ? pass.rows_at : pass.columns_at;
    const double* const other_at = of_rows ? pass.columns_at : pass.rows_at;
    const double own_lambda = of_rows ? pass.lambda : 0.0, other_lambda = of_rows ? 0.0 : pass.lambda;
    const Real k = static_cast<Real>(pass.k), minus_infinity = static_cast<Real>(-CUDART_INF);
    const int first = tile * kOwn + static_cast<int>(threadIdx.x);
    Point mine[kRows];
    double totals[kRows];
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      mine[r] = point_of<kCost>(p, own, first + r * kPointsThreads, own_at, own_lambda, pass.rounder);
      totals[r] = kLargest ? -CUDART_INF : 0.0;
    }
    // A warp without own points only helps to load.
    const bool working = first / 32 * 32 < own.count;
    const bool loads = threadIdx.x < kStage;
    Point incoming{};
    const auto load = [&](int stage) {
      const int j = stage * kStage + static_cast<int>(threadIdx.x);
      if (loads && stage < last_stage) {
        incoming = point_of<kCost>(p, other, j, other_at, other_lambda, pass.rounder);
      }
    };
    __syncthreads();  // no thread reads the earlier contents of shared memory any more
    load(first_stage);
    for (int stage = first_stage; stage < last_stage; ++stage) {
      if (loads) store_point<kLargest>(incoming, s.other[stage % 2][threadIdx.x]);
      load(stage + 1);
      __syncthreads();
      if (!working) continue;
      Real stage_sums[kRows];
#pragma unroll
      for (int r = 0; r < kRows; ++r) stage_sums[r] = kLargest ? minus_infinity : Real(0);
      [[maybe_unused]] Real linear = 0, logits = 0;
      const auto& others = s.other[stage % 2];
#pragma unroll(kUnrolled)
      for (int c = 0; c < kStage; ++c) {
        const Numbers y = numbers_of(others[c]);
#pragma unroll
        for (int r = 0; r < kRows; ++r) {
          const Real cost = cost_of<kCost>(mine[r], y);
          Real t = fma(-k, cost, mine[r].hi + y.at(kDim));
          if constexpr (sizeof(Real) == 4) t += mine[r].lo + y.at(kDim + 1);
          if constexpr (kLargest) {
            stage_sums[r] = larger(stage_sums[r], t);
          } else {
            const Real weighted = exp2_of(t) * y.at(kDim + 2);
            stage_sums[r] += weighted;
            if constexpr (kKind == PassKind::kEvaluate) {
              const Real mass = mine[r].weight * weighted;
              if (mass != 0) {
                linear += mass * cost;
                logits += mass * t;
              }
              sink(first + r * kPointsThreads, stage * kStage + c, mass);
            }
          }
        }
      }
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        const auto sum = static_cast<double>(stage_sums[r]);
        totals[r] = kLargest ? larger(totals[r], sum) : totals[r] + sum;
      }
      if constexpr (kKind == PassKind::kEvaluate) {
        sums.linear += static_cast<double>(linear);
        sums.logits += static_cast<double>(logits);
      }
    }
#pragma unroll
    for (int r = 0, i = first; r < kRows; ++r, i += kPointsThreads) {
      if (i < own.count) own.partials(part)[i] = static_cast<Real>(totals[r]);
    }
  }

  // to = scale * sum over the other points of P dC / dx, for points begin ... begin + 31.
  template <CostKind kCost>
  static __device__ __forceinline__ void gradient(const SolveParams<Real>& p, const Pass& pass, bool of_rows,
                                                  const Side<Real>& own, const Side<Real>& other, int begin,
                                                  Real* to) {
    auto& s = *reinterpret_cast<GradientShared*>(cuda::dynamic_shared() + kScratchBytes);
    const double* const own_at = of_rows ? pass.rows_at : pass.columns_at;
    const double* const other_at = of_rows ? pass.columns_at : pass.rows_at;
    const double own_lambda = of_rows ? pass.lambda : 0.0, other_lambda = of_rows ? 0.0 : pass.lambda;
    const Real k = static_cast<Real>(pass.k);
    const int thread = static_cast<int>(threadIdx.x), warp = thread / 32, lane = thread % 32;
    const int i = begin + lane;
    const Point mine = point_of<kCost>(p, own, i, own_at, own_lambda, pass.rounder);
    const int stages = begin < own.count ? cuda::div_up(other.count, kPointsThreads) : 0;
    Real totals[kDim] = {}, along = 0;
    const auto load = [&](int stage) {
      return point_of<kCost>(p, other, stage * kPointsThreads + thread, other_at, other_lambda, pass.rounder);
    };
    Point incoming = load(0);
    __syncthreads();  // no thread reads the earlier contents of shared memory any more
    for (int stage = 0; stage < stages; ++stage) {
      store_point<false>(incoming, s.other[stage % 2][thread]);
      incoming = load(stage + 1);
      __syncthreads();
      const auto& others = s.other[stage % 2];
      Real sums[kDim] = {}, sum_along = 0;
#pragma unroll(kUnrolled)
      for (int c = warp * 32; c < warp * 32 + 32; ++c) {
        const Numbers y = numbers_of(others[c]);
        const Real cost = cost_of<kCost>(mine, y);
        Real t = fma(-k, cost, mine.hi + y.at(kDim));
        if constexpr (sizeof(Real) == 4) t += mine.lo + y.at(kDim + 1);
        const Real mass = mine.weight * y.at(kDim + 2) * exp2_of(t);
        if constexpr (kCost == CostKind::kCosine) sum_along += mass == 0 ? Real(0) : mass * (1 - cost);
        Real factor = mass;
        if constexpr (kCost == CostKind::kSquaredEuclidean) factor = 2 * mass;
        if constexpr (kCost == CostKind::kEuclidean) factor = cost > 0 ? mass / cost : Real(0);
#pragma unroll
        for (int d = 0; d < kDim; ++d) sums[d] = fma(factor, slope_of<kCost>(mine.x[d], y.at(d)), sums[d]);
      }
#pragma unroll
      for (int d = 0; d < kDim; ++d) totals[d] += sums[d];
      along += sum_along;
    }
#pragma unroll
    for (int d = 0; d < kDim; ++d) s.parts[warp][d][lane] = totals[d];
    s.parts[warp][kDim][lane] = along;
    __syncthreads();
    const auto joined = [&](int d) {
      Real sum = 0;
#pragma unroll
      for (int n = 0; n < kWarps; ++n) sum += s.parts[n][d][lane];
      return sum;
    };
    if (i >= own.p.length) return;
#pragma unroll
    for (int d = 0; d < kDim; ++d) {
      if (d % kWarps != warp || d >= p.dim) continue;
      Real v = joined(d);
      if constexpr (kCost == CostKind::kCosine) {  // mine.x and y have unit length
        const std::int64_t row = static_cast<std::int64_t>(own.team) * own.p.length + i;
        v = (joined(kDim) * mine.x[d] - v) * own.p.inverse_lengths[row];
      }
      v *= static_cast<Real>(p.cost_scale);
      if (pass.is_nan) v = static_cast<Real>(CUDART_NAN);
      to[static_cast<std::int64_t>(i) * p.dim + d] = i < own.count ? v : Real(0);
    }
  }

 private:
  struct alignas(16) Quad {
    Real v[4];
  };
  struct Numbers {
    Quad quads[Shared::kNumbers / 4];
    [[nodiscard]] __device__ __forceinline__ Real at(int k) const { return quads[k / 4].v[k % 4]; }
  };
  struct Point {
    Real x[kDim];
    Real hi;
    Real lo;
    Real weight;
  };

  // A point that does not exist has logits of -inf.
  template <CostKind kCost>
  static __device__ __forceinline__ Point point_of(const SolveParams<Real>& p, const Side<Real>& side, int i,
                                                   const double* at, double lambda, double rounder) {
    Point point{};
    point.hi = static_cast<Real>(-CUDART_INF);
    if (i >= side.count) return point;
    const Table<Real>& table = side.p.points;
    const Real* const from = table.data + side.b * table.stride[0] + i * table.stride[1];
    Real scale = 1;
    if constexpr (kCost == CostKind::kCosine) {
      scale = side.p.inverse_lengths[static_cast<std::int64_t>(side.team) * side.p.length + i];
    }
#pragma unroll
    for (int d = 0; d < kDim; ++d) point.x[d] = d < p.dim ? scale * from[d * table.stride[2]] : Real(0);
    const auto w = Potential<Real>::split((at ? at[i] : 0.0) + lambda, rounder);
    point.hi = w.hi;
    point.lo = w.lo;
    point.weight = static_cast<Real>(side.reference(side.weight(i)));
    return point;
  }

  // The cost of a pair of points.
  template <CostKind kCost>
  static __device__ __forceinline__ Real cost_of(const Point& x, const Numbers& y) {
    Real cost = 0;
#pragma unroll
    for (int d = 0; d < kDim; ++d) cost = with_feature<kCost>(cost, x.x[d], y.at(d));
    if constexpr (kCost == CostKind::kEuclidean) cost = sqrt(cost);
    if constexpr (kCost == CostKind::kCosine) cost = 1 - cost;
    return cost;
  }
  static __device__ __forceinline__ Numbers numbers_of(const Real* from) {
    Numbers y;
#pragma unroll
    for (int q = 0; q < Shared::kNumbers / 4; ++q) {
      y.quads[q] = *reinterpret_cast<const Quad*>(from + 4 * q);
    }
    return y;
  }
  // Writes a point of the other side to shared memory.
  template <bool kLargest>
  static __device__ __forceinline__ void store_point(const Point& from, Real* to) {
#pragma unroll
    for (int d = 0; d < kDim; ++d) to[d] = from.x[d];
    to[kDim] = kLargest && !(from.weight > 0) ? static_cast<Real>(-CUDART_INF) : from.hi;
    to[kDim + 1] = from.lo;
    to[kDim + 2] = from.weight;
  }
};

}  // namespace warpalign::detail::transport
