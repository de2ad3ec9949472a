// Passes over pairs of points with many coordinates. A thread owns kRows x 4 pairs of a tile, with their
// costs in registers. Coordinates go through a double buffer in shared memory in pieces of 16: while a piece
// is used, the next one is loaded to registers. There is one barrier of the block per piece.
#pragma once

#include "transport/cuda/costs/pass.cuh"
#include "transport/cuda/points/point_cost.cuh"
#include "transport/cuda/points/step_share.cuh"
#include "transport/cuda/solve/side.cuh"

namespace warpalign::detail::transport {

template <class Real>
class PointTiles {
 public:
  static constexpr int kRows = sizeof(Real) == 4 ? 8 : 4;
  static constexpr int kColumns = 4;
  static constexpr int kOwn = 16 * kRows;  // points that a block owns
  static constexpr int kStage = 16 * kColumns;
  static constexpr int kPiece = 16;  // coordinates at a time
  static_assert(kStage == kPointsStage && kPointsThreads == 256);

  struct Shared {
    static constexpr int kOwnRow = kOwn + 4,
                         kOtherRow = kStage + 4;  // keep 16-byte alignment, spread over banks
    alignas(16) Real own[2][kPiece][kOwnRow];
    alignas(16) Real other[2][kPiece][kOtherRow];
    Real own_hi[kOwn], own_lo[kOwn], own_weight[kOwn], own_inverse[kOwn];
    Real other_hi[2][kStage], other_lo[2][kStage], other_weight[2][kStage], other_inverse[2][kStage];
  };

  // One run of steps. With PassKind::kEvaluate calls sink(i, j, mass) with an entry of the plan.
  template <class Sink>
  static __device__ __forceinline__ void run(const SolveParams<Real>& p, PassKind kind, const Pass& pass,
                                             bool of_rows, const Side<Real>& own, const Side<Real>& other,
                                             int tile, int part, int first_stage, int last_stage,
                                             PlanSums& sums, const Sink& sink) {
    auto& s = *reinterpret_cast<Shared*>(cuda::dynamic_shared() + kScratchBytes);
    const double* const own_at = of_rows ? pass.rows_at : pass.columns_at;
    const double* const other_at = of_rows ? pass.columns_at : pass.rows_at;
    const double own_lambda = of_rows ? pass.lambda : 0.0, other_lambda = of_rows ? 0.0 : pass.lambda;
    const Real k = static_cast<Real>(pass.k);
    const int thread = static_cast<int>(threadIdx.x);
    const int own_begin = tile * kOwn;
    const int pieces = cuda::div_up(p.dim, kPiece), steps = (last_stage - first_stage) * pieces;
    const CostKind cost_kind = p.kind;

    __syncthreads();  // no thread reads the earlier contents of shared memory any more
    if (thread < kOwn) {
      const Numbers n = numbers_of(p, own, own_begin + thread, own_at, own_lambda, pass.rounder);
      s.own_hi[thread] = n.hi;
      s.own_lo[thread] = n.lo;
      s.own_weight[thread] = n.weight;
      s.own_inverse[thread] = n.inverse;
    }
    Coordinates<kRows> next_own(own, p.dim);
    Coordinates<kColumns> next_other(other, p.dim);
    const auto load = [&](int step) {
      if (step >= steps) return;
      const int first = step % pieces * kPiece;
      next_own.load(own_begin, first);
      next_other.load((first_stage + step / pieces) * kStage, first);
    };
    load(0);

    double totals[kRows];
#pragma unroll
    for (int r = 0; r < kRows; ++r) totals[r] = kind == PassKind::kLargest ? -CUDART_INF : 0.0;
    Real costs[kRows][kColumns];
    for (int step = 0; step < steps; ++step) {
      const int place = step % 2, piece = step % pieces, stage = first_stage + step / pieces;
      next_own.store(&s.own[place][0][0], Shared::kOwnRow);
      next_other.store(&s.other[place][0][0], Shared::kOtherRow);
      if (piece == 0) {
#pragma unroll
        for (int r = 0; r < kRows; ++r) {
#pragma unroll
          for (int c = 0; c < kColumns; ++c) costs[r][c] = 0;
        }
        if (thread < kStage) {
          const Numbers n =
              numbers_of(p, other, stage * kStage + thread, other_at, other_lambda, pass.rounder);
          s.other_hi[stage % 2][thread] = n.hi;
          s.other_lo[stage % 2][thread] = n.lo;
          s.other_weight[stage % 2][thread] = n.weight;
          s.other_inverse[stage % 2][thread] = n.inverse;
        }
      }
      __syncthreads();
      load(step + 1);
      const int count = min(p.dim - piece * kPiece, kPiece);
      add_piece(cost_kind, s, place, count, costs);
      if (piece < pieces - 1) continue;
      add_stage(kind, cost_kind, k, s, stage % 2, costs, totals, sums,
                [&](int row, int c, Real mass) { sink(own_begin + row, stage * kStage + c, mass); });
    }
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const double total = cuda::reduce<16>(totals[r], [kind](double a, double b) {
        return kind == PassKind::kLargest ? larger(a, b) : a + b;
      });
      const int i = own_begin + thread / 16 * kRows + r;
      if (thread % 16 == 0 && i < own.count) own.partials(part)[i] = static_cast<Real>(total);
    }
  }

 private:
  struct alignas(16) Quad {
    Real v[4];
  };
  struct Numbers {
    Real hi, lo, weight, inverse;
  };

  // The numbers of point i. A point after the last one has logits of -inf.
  static __device__ __forceinline__ Numbers numbers_of(const SolveParams<Real>& p, const Side<Real>& side,
                                                       int i, const double* at, double lambda,
                                                       double rounder) {
    Numbers n{static_cast<Real>(-CUDART_INF), 0, 0, 0};
    if (i >= side.count) return n;
    const auto w = Potential<Real>::split((at ? at[i] : 0.0) + lambda, rounder);
    n.hi = w.hi;
    n.lo = w.lo;
    n.weight = static_cast<Real>(side.reference(side.weight(i)));
    if (p.kind == CostKind::kCosine) {
      n.inverse = side.p.inverse_lengths[static_cast<std::int64_t>(side.team) * side.p.length + i];
    }
    return n;
  }

  // Copies a piece of coordinates of 16 kEach points to shared memory. A thread copies one coordinate of
  // kEach points.
  template <int kEach>
  class Coordinates {
   public:
    __device__ __forceinline__ Coordinates(const Side<Real>& side, int dim)
        : count_(side.count),
          dim_(dim),
          point_stride_(side.p.points.stride[1]),
          stride_(side.p.points.stride[2]) {
      from_ = side.p.points.data + side.b * side.p.points.stride[0];
    }
    // Coordinates after the last one, and those of points after the last one, are 0.
    __device__ __forceinline__ void load(int first_point, int first) {
      const int d = first + static_cast<int>(threadIdx.x) % kPiece;
      const int i = first_point + static_cast<int>(threadIdx.x) / kPiece;
      const Real* from = from_ + i * point_stride_ + d * stride_;
#pragma unroll
      for (int n = 0; n < kEach; ++n, from += kApart * point_stride_) {
        v_[n] = d < dim_ && i + n * kApart < count_ ? *from : Real(0);
      }
    }
    __device__ __forceinline__ void store(Real* to, int row) const {
      const int d = static_cast<int>(threadIdx.x) % kPiece, k = static_cast<int>(threadIdx.x) / kPiece;
#pragma unroll
      for (int n = 0; n < kEach; ++n) to[d * row + k + n * kApart] = v_[n];
    }

   private:
    static constexpr int kApart = kPointsThreads / kPiece;  // distance between a thread's points

    const Real* from_;
    int count_;
    int dim_;
    std::int64_t point_stride_;
    std::int64_t stride_;
    Real v_[kEach];
  };

  template <CostKind kKind>
  static __device__ __forceinline__ void add_piece(const Shared& s, int place, int count,
                                                   Real (&costs)[kRows][kColumns]) {
    const int own_place = static_cast<int>(threadIdx.x) / 16 * kRows;
    const int other_place = static_cast<int>(threadIdx.x) % 16 * kColumns;
#pragma unroll 4
    for (int d = 0; d < count; ++d) {
      Quad x[kRows / 4];
#pragma unroll
      for (int q = 0; q < kRows / 4; ++q) {
        x[q] = *reinterpret_cast<const Quad*>(&s.own[place][d][own_place + 4 * q]);
      }
      const Quad y = *reinterpret_cast<const Quad*>(&s.other[place][d][other_place]);
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
#pragma unroll
        for (int c = 0; c < kColumns; ++c)
          costs[r][c] = with_feature<kKind>(costs[r][c], x[r / 4].v[r % 4], y.v[c]);
      }
    }
  }

  static __device__ __forceinline__ void add_piece(CostKind kind, const Shared& s, int place, int count,
                                                   Real (&costs)[kRows][kColumns]) {
    switch (kind) {
      case CostKind::kSquaredEuclidean:
      case CostKind::kEuclidean:
        return add_piece<CostKind::kSquaredEuclidean>(s, place, count, costs);
      case CostKind::kL1:
        return add_piece<CostKind::kL1>(s, place, count, costs);
      case CostKind::kCosine:
        return add_piece<CostKind::kCosine>(s, place, count, costs);
      case CostKind::kHuber:
        return add_piece<CostKind::kHuber>(s, place, count, costs);
    }
  }

  // Adds a stage to the totals of the thread's rows: exponentials, or the largest logit. place: of the other
  // points' numbers. With PassKind::kEvaluate calls sink(row, column, mass) with entries of the tile.
  template <class Sink>
  static __device__ __forceinline__ void add_stage(PassKind kind, CostKind cost_kind, Real k, const Shared& s,
                                                   int place, Real (&costs)[kRows][kColumns],
                                                   double (&totals)[kRows], PlanSums& sums,
                                                   const Sink& sink) {
    const Real minus_infinity = static_cast<Real>(-CUDART_INF);
    const int own_place = static_cast<int>(threadIdx.x) / 16 * kRows;
    const int other_place = static_cast<int>(threadIdx.x) % 16 * kColumns;
    Real hi[kColumns], lo[kColumns], weight[kColumns], inverse[kColumns];
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      hi[c] = s.other_hi[place][other_place + c];
      lo[c] = s.other_lo[place][other_place + c];
      weight[c] = s.other_weight[place][other_place + c];
      inverse[c] = s.other_inverse[place][other_place + c];
    }
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const int row = own_place + r;
      const Real own_hi = s.own_hi[row], own_lo = s.own_lo[row];
      Real t[kColumns];
#pragma unroll
      for (int c = 0; c < kColumns; ++c) {
        Real& cost = costs[r][c];
        if (cost_kind == CostKind::kEuclidean) cost = sqrt(cost);
        if (cost_kind == CostKind::kCosine) cost = 1 - cost * (s.own_inverse[row] * inverse[c]);
        t[c] = fma(-k, cost, own_hi + hi[c]);
        if constexpr (sizeof(Real) == 4) t[c] += own_lo + lo[c];
      }
      if (kind == PassKind::kLargest) {
        Real largest = minus_infinity;
#pragma unroll
        for (int c = 0; c < kColumns; ++c) {
          if (weight[c] > 0) largest = larger(largest, t[c]);
        }
        totals[r] = larger(totals[r], static_cast<double>(largest));
        continue;
      }
      Real sum = 0;
      Real weighted[kColumns];
#pragma unroll
      for (int c = 0; c < kColumns; ++c) sum += weighted[c] = exp2_of(t[c]) * weight[c];
      totals[r] += static_cast<double>(sum);
      if (kind != PassKind::kEvaluate) continue;
      Real linear = 0, logits = 0;
#pragma unroll
      for (int c = 0; c < kColumns; ++c) {
        const Real mass = s.own_weight[row] * weighted[c];
        if (mass != 0) {
          linear += mass * costs[r][c];
          logits += mass * t[c];
        }
        sink(row, other_place + c, mass);
      }
      sums.linear += static_cast<double>(linear);
      sums.logits += static_cast<double>(logits);
    }
  }
};

}  // namespace warpalign::detail::transport
