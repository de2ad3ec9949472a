// Tiles of 64 x 64 pairs, whose costs are computed from points or read. Shared by the passes over points and
// over plans.
//
// A block owns 64 points of one side ("own") and goes through the points of the other. A thread owns 4 x 4
// pairs. Features go through shared memory in pieces of 16.
//
// Classes that derive from Tiles list the names that they use, because names of a dependent base are not
// found by lookup.
#pragma once

#include "cuda/numbers/half.cuh"
#include "transport/cuda/costs/pass.cuh"
#include "transport/cuda/points/point_cost.cuh"
#include "transport/cuda/solve/side.cuh"

namespace warpalign::detail::transport {

template <class Real_>
class Tiles {
 public:
  using Real = Real_;
  static constexpr int kMostThreads = kPointsThreads;
  static constexpr int kBlocks = sizeof(Real) == 4 ? 2 : 1;

  __device__ __forceinline__ Tiles(const SolveParams<Real>& p, const Team& team, const Side<Real>& rows,
                                   const Side<Real>& columns)
      : p_(p), team_(team), rows_(rows), columns_(columns) {}

  static std::size_t shared_bytes(const SolveLayout&) {
    return kScratchBytes + std::max<std::size_t>(kTotalsBytes, sizeof(Shared));
  }

 protected:
  static constexpr int kTile = kPointsTile;
  static constexpr int kPiece = 16;       // features at a time
  static constexpr int kRow = kTile + 4;  // of shared memory: keeps 16-byte alignment, avoids bank conflicts
  static constexpr int kThreads = kPointsThreads;
  static constexpr bool kPairs = sizeof(Real) == 4;

  struct alignas(16) Quad {
    Real v[4];
  };
  struct Shared {
    Real own[kPiece][kRow];
    Real other[kPiece][kRow];
    Real hi[2][kTile];  // [own, other points]
    Real lo[2][kTile];
    Real weight[2][kTile];
    Real inverse_length[2][kTile];
    Real plan[kTile][kRow];      // for gradients: [other point][own point]
    Real features[kTile][kRow];  // for gradients: those of the other points
  };
  [[nodiscard]] static __device__ __forceinline__ Shared& shared() {
    return *reinterpret_cast<Shared*>(cuda::dynamic_shared() + kScratchBytes);
  }

  // The points of a tile: contiguous from `begin` on, or given by a list of pairs.
  struct TilePoints {
    const Side<Real>& side;
    int begin;
    const std::int32_t* named = nullptr;  // (count, 2): the first element of each pair is the point
    int named_count = 0;

    // The point at place k; negative if there is none.
    [[nodiscard]] __device__ __forceinline__ int point(int k) const {
      const int at = begin + k;
      if (named) return at < named_count ? named[2 * static_cast<std::int64_t>(at)] : -1;
      return at < side.count ? at : -1;
    }
  };

  [[nodiscard]] static __device__ __forceinline__ const Real* feature(const Table<Real>& table, int b, int i,
                                                                      int d) {
    const std::int64_t* const stride = table.stride;
    return table.data + b * stride[0] + i * stride[1] + d * stride[2];
  }
  [[nodiscard]] static __device__ __forceinline__ Real* inverse_lengths(const Side<Real>& side) {
    return side.p.inverse_lengths + static_cast<std::int64_t>(side.team) * side.p.length;
  }

  // The first of the 4 x 4 pairs of a tile that a thread owns.
  static __device__ __forceinline__ int first_own() { return static_cast<int>(threadIdx.x) / 16 * 4; }
  static __device__ __forceinline__ int first_other() { return static_cast<int>(threadIdx.x) % 16 * 4; }

  // Loads potentials, weights and lengths of a tile's points. place: 0 for own, 1 for other points.
  __device__ __forceinline__ void load_numbers(const TilePoints& points, int place, const double* at,
                                               double lambda, double rounder) const {
    Shared& s = shared();
    const Side<Real>& side = points.side;
    for (int k = static_cast<int>(threadIdx.x); k < kTile; k += kThreads) {
      const int i = points.point(k);
      const bool exists = i >= 0;
      Potential<Real> w{static_cast<Real>(-CUDART_INF), 0};  // without a point the exponentials are 0
      if (exists) w = Potential<Real>::split((at ? at[i] : 0.0) + lambda, rounder);
      s.hi[place][k] = w.hi;
      s.lo[place][k] = w.lo;
      s.weight[place][k] = exists ? static_cast<Real>(side.reference(side.weight(i))) : Real(0);
      const bool has_length = exists && !p_.cost && p_.kind == CostKind::kCosine;
      s.inverse_length[place][k] = has_length ? inverse_lengths(side)[i] : Real(0);
    }
  }

  // Loads columns first ... first + width - 1 of a tile's points to to[k][d] or, transposed, to[d][k]; 0 for
  // missing points and columns.
  template <int kWidth, bool kTransposed>
  __device__ __forceinline__ void load_columns(Real (*to)[kRow], const Table<Real>& table,
                                               const TilePoints& points, int first) const {
    constexpr int kApart = kThreads / kWidth;  // distance between a thread's points
    constexpr int kEach = kTile / kApart;
    const int d = static_cast<int>(threadIdx.x) % kWidth,
              first_point = static_cast<int>(threadIdx.x) / kWidth;
    const bool exists = table.data && first + d < table.columns;
    const std::int64_t stride = table.stride[1];
    const std::int64_t offset = points.side.b * table.stride[0] + (first + d) * table.stride[2];
    const Real* const from = exists ? table.data + offset : nullptr;
    Real v[kEach];  // all loads start before the first store
#pragma unroll
    for (int n = 0; n < kEach; ++n) {
      const int i = exists ? points.point(first_point + n * kApart) : -1;
      v[n] = i >= 0 ? from[i * stride] : Real(0);
    }
#pragma unroll
    for (int n = 0; n < kEach; ++n) {
      const int k = first_point + n * kApart;
      if constexpr (kTransposed) {
        to[d][k] = v[n];
      } else {
        to[k][d] = v[n];
      }
    }
  }

  template <CostKind kKind>
  static __device__ __forceinline__ void add_piece(Real (&sums)[4][4]) {
    const Shared& s = shared();
#pragma unroll 4
    for (int d = 0; d < kPiece; ++d) {
      const Quad x = *reinterpret_cast<const Quad*>(&s.own[d][first_own()]);
      const Quad y = *reinterpret_cast<const Quad*>(&s.other[d][first_other()]);
#pragma unroll
      for (int r = 0; r < 4; ++r) {
#pragma unroll
        for (int c = 0; c < 4; ++c) sums[r][c] = with_feature<kKind>(sums[r][c], x.v[r], y.v[c]);
      }
    }
  }

  // Entries of a table of pairs (B, N, M); `none` for missing pairs.
  template <class Entry>
  __device__ __forceinline__ void load_pairs(const Entry* table, const std::int64_t* strides, Real none,
                                             const TilePoints& own, const TilePoints& other,
                                             Real (&entries)[4][4]) const {
    const bool of_rows = &own.side == &rows_;
    const std::int64_t own_stride = strides[of_rows ? 1 : 2], stride = strides[of_rows ? 2 : 1];
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      const int i = own.point(first_own() + r);
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        const int j = other.point(first_other() + c);
        entries[r][c] = none;
        if (i < 0 || j < 0) continue;
        entries[r][c] = cuda::widen(table[own.side.b * strides[0] + i * own_stride + j * stride]);
      }
    }
  }
  // Loads the thread's given costs.
  __device__ __forceinline__ void load_costs(const TilePoints& own, const TilePoints& other,
                                             Real (&costs)[4][4]) const {
    const auto none = static_cast<Real>(CUDART_INF);
    if constexpr (sizeof(Real) == 4) {
      const auto* const halves = static_cast<const cuda::Float16*>(p_.cost);
      if (p_.half_cost) return load_pairs(halves, p_.cost_stride, none, own, other, costs);
    }
    load_pairs(static_cast<const Real*>(p_.cost), p_.cost_stride, none, own, other, costs);
  }
  // Computes or loads the thread's costs, not scaled. Called by all threads of the block.
  __device__ __attribute__((noinline)) void costs_of_tile(const TilePoints& own, const TilePoints& other,
                                                          Real (&costs)[4][4]) const {
    if (p_.cost) {
      __syncthreads();  // as in the other branch
      return load_costs(own, other, costs);
    }
    // A local array, which the compiler keeps in registers.
    Real sums[4][4] = {};
    for (int first = 0; first < p_.dim; first += kPiece) {
      __syncthreads();  // no thread reads the earlier contents any more
      load_columns<kPiece, true>(shared().own, own.side.p.points, own, first);
      load_columns<kPiece, true>(shared().other, other.side.p.points, other, first);
      __syncthreads();
      switch (p_.kind) {
        case CostKind::kSquaredEuclidean:
        case CostKind::kEuclidean:
          add_piece<CostKind::kSquaredEuclidean>(sums);
          break;
        case CostKind::kL1:
          add_piece<CostKind::kL1>(sums);
          break;
        case CostKind::kCosine:
          add_piece<CostKind::kCosine>(sums);
          break;
        case CostKind::kHuber:
          add_piece<CostKind::kHuber>(sums);
          break;
      }
    }
    const Shared& s = shared();
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      const Real of_own = s.inverse_length[0][first_own() + r];
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        Real cost = sums[r][c];
        if (p_.kind == CostKind::kEuclidean) cost = sqrt(cost);
        if (p_.kind == CostKind::kCosine) cost = 1 - cost * of_own * s.inverse_length[1][first_other() + c];
        costs[r][c] = cost;
      }
    }
  }
  [[nodiscard]] static __device__ __forceinline__ Real logit(int r, int c, Real cost, Real k) {
    const Shared& s = shared();
    const int own = first_own() + r, other = first_other() + c;
    const Real t = fma(-k, cost, s.hi[0][own] + s.hi[1][other]);
    return kPairs ? t + (s.lo[0][own] + s.lo[1][other]) : t;
  }

  const SolveParams<Real>& p_;
  const Team& team_;
  const Side<Real>& rows_;
  const Side<Real>& columns_;
};

}  // namespace warpalign::detail::transport
