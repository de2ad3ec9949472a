// Passes over pairs of points with few coordinates. A thread owns two points of one side, with all their
// coordinates in registers, and goes through the points of the other side, which all threads of the block
// read from the same address of shared memory. Sums are joined only at the end of a run. The low parts of
// potentials are factors: e[i,j] = 2^(hi[i] + hi[j] - k C[i,j]), and the row's sum is 2^lo[i] sum_j b[j]
// 2^lo[j] e[i,j].
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
  static constexpr int kStage = kPointsThreads;        // other points in shared memory: one of each thread
  static constexpr int kSummed = 64;                   // terms that are added up before float64 takes them
  static constexpr int kUnrolled = sizeof(Real) == 4 ? 4 : 1;  // float64's exponentials are long

  // Potentials up to this magnitude, in bits, have low parts of at most 8, whose powers of two are far from
  // the limits of float32.
  static constexpr double kMostPotential = 0x1p27;
  static __device__ __forceinline__ bool serves(const Pass& pass) {
    return sizeof(Real) == 8 || pass.largest <= kMostPotential;
  }

  struct Shared {
    // The numbers of a point: its coordinates, the high part of its potential, its factor, and the low part
    // of its potential.
    static constexpr int kNumbers = (kDim + 3 + 3) / 4 * 4;
    alignas(16) Real other[2][kStage][kNumbers];
  };
  static constexpr int kGradientOwn = 32;
  static constexpr int kWarps = kPointsThreads / 32;
  struct GradientShared {
    alignas(16) Real other[2][kPointsThreads][Shared::kNumbers];
    Real parts[kWarps][kDim + 1][kGradientOwn];  // by coordinates, and sums of P <u, v> of unit vectors
  };

  // One run of steps, each of kUnitOfRows other points. Calls sink(i, j, mass) with an entry of the plan.
  //
  // Stages of other points alternate between two places of shared memory. A thread comes to a stage's barrier
  // when it has read the stage before, so that the place of the one before that is free. Loads of the next
  // stage overlap with the arithmetic of this one.
  template <PassKind kKind, CostKind kCost, class Sink>
  static __device__ __forceinline__ void run(const SolveParams<Real>& p, const Pass& pass, bool of_rows,
                                             const Side<Real>& own, const Side<Real>& other, int tile,
                                             int part, int first_unit, int last_unit, PlanSums& sums,
                                             const Sink& sink) {
    constexpr bool kLargest = kKind == PassKind::kLargest;
    auto& s = *reinterpret_cast<Shared*>(cuda::dynamic_shared() + kScratchBytes);
    const Source of_own(p, own, of_rows ? pass.rows_at : pass.columns_at, of_rows ? pass.lambda : 0.0);
    const Source of_other(p, other, of_rows ? pass.columns_at : pass.rows_at, of_rows ? 0.0 : pass.lambda);
    const Real k = static_cast<Real>(pass.k), minus_infinity = static_cast<Real>(-CUDART_INF);
    const int thread = static_cast<int>(threadIdx.x), first = tile * kOwn + thread;
    const int begin = first_unit * kUnitOfRows, end = last_unit * kUnitOfRows;
    Raw raw[kRows], incoming = of_other.template load<kCost>(begin + thread);
#pragma unroll
    for (int r = 0; r < kRows; ++r) raw[r] = of_own.template load<kCost>(first + r * kPointsThreads);
    Point mine[kRows];
    double totals[kRows];
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      mine[r] = point_of<kCost>(own, raw[r], pass.rounder);
      totals[r] = kLargest ? -CUDART_INF : 0.0;
    }
    // A warp without own points only helps to load.
    const bool working = first / 32 * 32 < own.count;
    __syncthreads();  // no thread reads the earlier contents of shared memory any more
    for (int at = begin, turn = 0; at < end; at += kStage, turn = 1 - turn) {
      store_point<kLargest>(point_of<kCost>(other, incoming, pass.rounder), s.other[turn][thread]);
      if (at + kStage < end) incoming = of_other.template load<kCost>(at + kStage + thread);
      __syncthreads();
      if (!working) continue;
      const auto& others = s.other[turn];
      const int count = min(kStage, end - at);
      for (int from = 0; from < count; from += kSummed) {
        Real some[kRows];
#pragma unroll
        for (int r = 0; r < kRows; ++r) some[r] = kLargest ? minus_infinity : Real(0);
        [[maybe_unused]] Real linear = 0, logits = 0;
        const int to = min(from + kSummed, count);
        for (int c = from; c < to; c += kUnrolled) {
#pragma unroll
          for (int u = 0; u < kUnrolled; ++u) {
            const Numbers y = numbers_of(others[c + u]);
#pragma unroll
            for (int r = 0; r < kRows; ++r) {
              const Real cost = cost_of<kCost>(mine[r], y);
              const Real t = fma(-k, cost, mine[r].hi + y.at(kDim));
              if constexpr (kLargest) {
                some[r] = larger(some[r], t);
              } else {
                const Real e = exp2_of(t);
                some[r] = fma(e, y.at(kDim + 1), some[r]);
                if constexpr (kKind == PassKind::kEvaluate) {
                  const Real mass = mine[r].factor * (e * y.at(kDim + 1));
                  if (mass != 0) {
                    linear += mass * cost;
                    logits += mass * (t + (mine[r].lo + y.at(kDim + 2)));
                  }
                  sink(first + r * kPointsThreads, at + c + u, mass);
                }
              }
            }
          }
        }
#pragma unroll
        for (int r = 0; r < kRows; ++r) {
          const auto sum = static_cast<double>(some[r]);
          totals[r] = kLargest ? larger(totals[r], sum) : totals[r] + sum;
        }
        if constexpr (kKind == PassKind::kEvaluate) {
          sums.linear += static_cast<double>(linear);
          sums.logits += static_cast<double>(logits);
        }
      }
    }
#pragma unroll
    for (int r = 0, i = first; r < kRows; ++r, i += kPointsThreads) {
      if (i < own.count)
        own.partials(part)[i] = static_cast<Real>(kLargest ? totals[r] : totals[r] * mine[r].of_lo);
    }
  }

  // to = scale * sum over the other points of P dC / dx, for points begin ... begin + 31.
  template <CostKind kCost>
  static __device__ __forceinline__ void gradient(const SolveParams<Real>& p, const Pass& pass, bool of_rows,
                                                  const Side<Real>& own, const Side<Real>& other, int begin,
                                                  Real* to) {
    auto& s = *reinterpret_cast<GradientShared*>(cuda::dynamic_shared() + kScratchBytes);
    const Source of_own(p, own, of_rows ? pass.rows_at : pass.columns_at, of_rows ? pass.lambda : 0.0);
    const Source of_other(p, other, of_rows ? pass.columns_at : pass.rows_at, of_rows ? 0.0 : pass.lambda);
    const Real k = static_cast<Real>(pass.k);
    const int thread = static_cast<int>(threadIdx.x), warp = thread / 32, lane = thread % 32;
    const int i = begin + lane;
    const Point mine = point_of<kCost>(own, of_own.template load<kCost>(i), pass.rounder);
    const int stages = begin < own.count ? cuda::div_up(other.count, kPointsThreads) : 0;
    Real totals[kDim] = {}, along = 0;
    const auto load = [&](int stage) {
      return of_other.template load<kCost>(stage * kPointsThreads + thread);
    };
    Raw incoming = load(0);
    __syncthreads();  // no thread reads the earlier contents of shared memory any more
    for (int stage = 0; stage < stages; ++stage) {
      store_point<false>(point_of<kCost>(other, incoming, pass.rounder), s.other[stage % 2][thread]);
      incoming = load(stage + 1);
      __syncthreads();
      const auto& others = s.other[stage % 2];
      Real sums[kDim] = {}, sum_along = 0;
#pragma unroll(kUnrolled)
      for (int c = warp * 32; c < warp * 32 + 32; ++c) {
        const Numbers y = numbers_of(others[c]);
        const Real cost = cost_of<kCost>(mine, y);
        const Real mass = mine.factor * y.at(kDim + 1) * exp2_of(fma(-k, cost, mine.hi + y.at(kDim)));
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
    Real of_lo;   // 2^lo
    Real factor;  // of its exponentials: the weight in the reference times 2^lo
  };

  // A point as it lies in memory.
  struct Raw {
    Real x[kDim];
    double at;
    Real weight;
    Real scale;
    bool exists;
  };
  // Where the points of a side come from.
  struct Source {
    const Side<Real>& side;
    const double* const at;
    const double lambda;
    const Real* const points;
    const std::int64_t stride, feature_stride;
    const int dim;

    __device__ __forceinline__ Source(const SolveParams<Real>& p, const Side<Real>& side, const double* at,
                                      double lambda)
        : side(side),
          at(at),
          lambda(lambda),
          points(side.p.points.data + side.b * side.p.points.stride[0]),
          stride(side.p.points.stride[1]),
          feature_stride(side.p.points.stride[2]),
          dim(p.dim) {}

    template <CostKind kCost>
    [[nodiscard]] __device__ __forceinline__ Raw load(int i) const {
      Raw raw{};
      raw.exists = i < side.count;
      if (!raw.exists) return raw;
      const Real* const from = points + i * stride;
#pragma unroll
      for (int d = 0; d < kDim; ++d) raw.x[d] = d < dim ? from[d * feature_stride] : Real(0);
      if constexpr (kCost == CostKind::kCosine) {
        raw.scale = side.p.inverse_lengths[static_cast<std::int64_t>(side.team) * side.p.length + i];
      }
      raw.at = (at ? at[i] : 0.0) + lambda;
      raw.weight = side.p.weights && side.product ? side.p.weights[side.row_of_batch() + i] : Real(0);
      return raw;
    }
  };

  // A point that does not exist has logits of -inf.
  template <CostKind kCost>
  static __device__ __forceinline__ Point point_of(const Side<Real>& side, const Raw& raw, double rounder) {
    Point point{};
    point.hi = static_cast<Real>(-CUDART_INF);
    if (!raw.exists) return point;
#pragma unroll
    for (int d = 0; d < kDim; ++d) {
      point.x[d] = kCost == CostKind::kCosine ? raw.scale * raw.x[d] : raw.x[d];
    }
    const auto w = Potential<Real>::split(raw.at, rounder);
    point.hi = w.hi;
    point.lo = w.lo;
    point.of_lo = sizeof(Real) == 4 ? exp2_of(w.lo) : Real(1);
    const Real weight = !side.product    ? Real(1)
                        : side.p.weights ? raw.weight
                                         : static_cast<Real>(side.uniform);
    point.factor = weight * point.of_lo;
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
    to[kDim] = kLargest && from.factor == 0 ? static_cast<Real>(-CUDART_INF) : from.hi;
    to[kDim + 1] = from.factor;
    to[kDim + 2] = from.lo;
  }
};

}  // namespace warpalign::detail::transport
