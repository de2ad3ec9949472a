// One pass over costs that are made from points, which are never stored: sums or largest logits of one side,
// tile by tile of 64 x 64 pairs; the gradients by the points; and products of a plan, of given costs too.
//
// A block keeps 64 points of one side ("own") and goes through the points of the other, or a part of them
// ("split"). A thread has the costs of 4 x 4 pairs. Features come in pieces of 16 through shared memory. The
// other side's sums are the same code with the sides exchanged, so nothing is stored but sums.
#pragma once

#include "transport/cuda/dense.cuh"

namespace warpalign::detail::transport {

template <class Real_>
class Points {
 public:
  using Real = Real_;
  static constexpr int kMostThreads = kPointsThreads;
  static constexpr int kBlocks = sizeof(Real) == 4 ? 2 : 1;

  __device__ __forceinline__ Points(const SolveParams<Real>& p, const Team& team, const Side<Real>& rows,
                                    const Side<Real>& columns)
      : p_(p), team_(team), rows_(rows), columns_(columns) {}

  static std::size_t shared_bytes(const SolveLayout&) {
    return kScratchBytes + std::max<std::size_t>(kTotalsBytes, sizeof(Shared));
  }

  [[nodiscard]] __device__ __forceinline__ bool sweeps() const { return false; }

  // Lengths of the points, by which the cosine divides. Behind the team's next barrier.
  __device__ __forceinline__ void prepare() const {
    if (p_.cost || p_.kind != CostKind::kCosine) return;
    for (const Side<Real>* const side : {&rows_, &columns_}) {
      const int step = team_.blocks * static_cast<int>(blockDim.x);
      for (int i = team_.rank * static_cast<int>(blockDim.x) + static_cast<int>(threadIdx.x); i < side->count;
           i += step) {
        double square = 0;
        for (int d = 0; d < p_.dim; ++d) {
          const double v = static_cast<double>(*feature(*side, i, d));
          square += v * v;
        }
        inverse_lengths(*side)[i] = square == 0 ? Real(0) : static_cast<Real>(1 / sqrt(square));
      }
    }
  }

  // All threads of the team. The sums are there behind the team's next barrier.
  template <PassKind kKind>
  __device__ __forceinline__ void run(const Pass& pass, PlanSums& sums) const {
    if (pass.rows) one_side<kKind>(pass, true, sums);
    if (pass.columns) one_side<kKind == PassKind::kEvaluate ? PassKind::kSums : kKind>(pass, false, sums);
  }

  // The product of the plan with K columns: 64 points of the result and 64 columns at a time.
  __device__ __attribute__((noinline)) void write_product(const Pass& pass) const {
    const bool of_rows = !p_.transposed;
    const Side<Real>& own = of_rows ? rows_ : columns_;
    const Side<Real>& other = of_rows ? columns_ : rows_;
    Shared& s = shared();
    const int pieces = cuda::div_up(p_.result_columns, kTile);
    const Real k = static_cast<Real>(pass.k);
    Real* const result = p_.result + own.row_of_batch() * p_.result_columns;
    for (int task = team_.rank; task < cuda::div_up(own.p.length, kTile) * pieces; task += team_.blocks) {
      const int begin = task / pieces * kTile, first = task % pieces * kTile;
      __syncthreads();
      load_numbers(own, 0, begin, of_rows ? pass.rows_at : pass.columns_at, 0, pass.grid);
      Real total[4][4] = {};
      for (int other_begin = 0; other_begin < other.count && begin < own.count; other_begin += kTile) {
        __syncthreads();
        load_numbers(other, 1, other_begin, of_rows ? pass.columns_at : pass.rows_at, 0, pass.grid);
        load_factor(s.features, other, other_begin, first);
        Real costs[4][4];
        costs_of_tile(own, other, begin, other_begin, costs);
#pragma unroll
        for (int r = 0; r < 4; ++r) {
#pragma unroll
          for (int c = 0; c < 4; ++c) {
            s.plan[first_other() + c][first_own() + r] = s.weight[0][first_own() + r] *
                                                         s.weight[1][first_other() + c] *
                                                         exp2_of(logit(r, c, costs[r][c], k));
          }
        }
        __syncthreads();
        Real part[4][4] = {};
        for (int j = 0; j < kTile; ++j) {
          const Quad mass = *reinterpret_cast<const Quad*>(&s.plan[j][first_own()]);
          const Quad v = *reinterpret_cast<const Quad*>(&s.features[j][first_other()]);
#pragma unroll
          for (int r = 0; r < 4; ++r) {
#pragma unroll
            for (int c = 0; c < 4; ++c) part[r][c] = fma(mass.v[r], v.v[c], part[r][c]);
          }
        }
#pragma unroll
        for (int r = 0; r < 4; ++r) {
#pragma unroll
          for (int c = 0; c < 4; ++c) total[r][c] += part[r][c];
        }
      }
#pragma unroll
      for (int r = 0; r < 4; ++r) {
#pragma unroll
        for (int c = 0; c < 4; ++c) {
          const int i = begin + first_own() + r, d = first + first_other() + c;
          if (i >= own.p.length || d >= p_.result_columns) continue;
          result[static_cast<std::int64_t>(i) * p_.result_columns + d] =
              i < own.count ? total[r][c] : Real(0);
        }
      }
    }
  }

  // d value / d the points of both sides, where wanted.
  __device__ __forceinline__ void write_gradients(const Pass& pass) const {
    if (rows_.p.grad_points) gradient_of_side(pass, true);
    if (columns_.p.grad_points) gradient_of_side(pass, false);
  }

 private:
  static constexpr int kTile = kPointsTile;
  static constexpr int kPiece = 16;       // features at a time
  static constexpr int kRow = kTile + 4;  // of shared memory: keeps 16-byte alignment, spreads over banks
  static constexpr int kThreads = kPointsThreads;
  static constexpr bool kPairs = sizeof(Real) == 4;

  struct alignas(16) Quad {
    Real v[4];
  };
  struct Shared {
    Real own[kPiece][kRow];
    Real other[kPiece][kRow];
    Real hi[2][kTile];  // of own and of other points
    Real lo[2][kTile];
    Real weight[2][kTile];
    Real inverse_length[2][kTile];
    Real plan[kTile][kRow];      // of gradients: by the other point, then by the own one
    Real features[kTile][kRow];  // of gradients: of the other points
  };
  [[nodiscard]] static __device__ __forceinline__ Shared& shared() {
    return *reinterpret_cast<Shared*>(cuda::dynamic_shared() + kScratchBytes);
  }

  [[nodiscard]] static __device__ __forceinline__ const Real* feature(const Side<Real>& side, int i, int d) {
    const std::int64_t* const stride = side.p.point_stride;
    return side.p.points + side.b * stride[0] + i * stride[1] + d * stride[2];
  }
  [[nodiscard]] static __device__ __forceinline__ Real* inverse_lengths(const Side<Real>& side) {
    return side.p.inverse_lengths + static_cast<std::int64_t>(side.team) * side.p.length;
  }

  // Which 4 x 4 pairs of a tile a thread has.
  static __device__ __forceinline__ int first_own() { return static_cast<int>(threadIdx.x) / 16 * 4; }
  static __device__ __forceinline__ int first_other() { return static_cast<int>(threadIdx.x) % 16 * 4; }

  // Potentials, weights and lengths of a tile's points. place: 0 of own, 1 of other points.
  __device__ __forceinline__ void load_numbers(const Side<Real>& side, int place, int begin, const double* at,
                                               double lambda, double grid) const {
    Shared& s = shared();
    for (int k = static_cast<int>(threadIdx.x); k < kTile; k += kThreads) {
      const int i = begin + k;
      const bool exists = i < side.count;
      Potential<Real> w{static_cast<Real>(-CUDART_INF), 0};  // no such point: its exponentials are 0
      if (exists) w = Potential<Real>::split((at ? at[i] : 0.0) + lambda, grid);
      s.hi[place][k] = w.hi;
      s.lo[place][k] = w.lo;
      s.weight[place][k] = exists ? static_cast<Real>(side.reference(side.weight(i))) : Real(0);
      const bool has_length = exists && !p_.cost && p_.kind == CostKind::kCosine;
      s.inverse_length[place][k] = has_length ? inverse_lengths(side)[i] : Real(0);
    }
  }

  // to[k][d]: columns first ... first + 63 of v (rows of the other side), 0 where there are none.
  __device__ __forceinline__ void load_factor(Real (*to)[kRow], const Side<Real>& side, int begin,
                                              int first) const {
    const std::int64_t* const stride = p_.factor_stride;
    for (int n = static_cast<int>(threadIdx.x); n < kTile * kTile; n += kThreads) {
      const int k = n / kTile, d = n % kTile;
      const bool exists = begin + k < side.count && first + d < p_.result_columns;
      to[k][d] = exists ? p_.factor[side.b * stride[0] + (begin + k) * stride[1] + (first + d) * stride[2]]
                        : Real(0);
    }
  }

  // to[k][d] or, transposed, to[d][k]: features first ... first + width - 1 of a tile's points; 0 where there
  // are none.
  template <int kWidth, bool kTransposed>
  __device__ __forceinline__ void load_features(Real (*to)[kRow], const Side<Real>& side, int begin,
                                                int first) const {
    for (int n = static_cast<int>(threadIdx.x); n < kTile * kWidth; n += kThreads) {
      const int k = n / kWidth, d = n % kWidth;
      Real v = 0;
      if (begin + k < side.count && first + d < p_.dim) v = *feature(side, begin + k, first + d);
      if constexpr (kTransposed) {
        to[d][k] = v;
      } else {
        to[k][d] = v;
      }
    }
  }

  // What one feature adds to the sum that a cost is made of.
  template <CostKind kKind>
  static __device__ __forceinline__ Real with_feature(Real sum, Real x, Real y) {
    if constexpr (kKind == CostKind::kCosine) return fma(x, y, sum);
    const Real difference = x - y;
    if constexpr (kKind == CostKind::kSquaredEuclidean) return fma(difference, difference, sum);
    const Real size = abs(difference);
    if constexpr (kKind == CostKind::kL1) return sum + size;
    const Real inner = size > 1 ? Real(1) : size;  // kHuber
    return fma(inner, size - inner / 2, sum);
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

  // Costs that are given; inf where there is no pair.
  __device__ __forceinline__ void load_costs(const Side<Real>& own, const Side<Real>& other, int begin,
                                             int other_begin, Real (&costs)[4][4]) const {
    __syncthreads();  // as where costs are made
    const bool of_rows = &own == &rows_;
    const std::int64_t own_stride = p_.cost_stride[of_rows ? 1 : 2], stride = p_.cost_stride[of_rows ? 2 : 1];
#pragma unroll
    for (int r = 0; r < 4; ++r) {
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        const int i = begin + first_own() + r, j = other_begin + first_other() + c;
        costs[r][c] = static_cast<Real>(CUDART_INF);
        if (i < own.count && j < other.count) {
          costs[r][c] = p_.cost[own.b * p_.cost_stride[0] + i * own_stride + j * stride];
        }
      }
    }
  }
  // The thread's costs, not scaled. All threads of the block come.
  __device__ __attribute__((noinline)) void costs_of_tile(const Side<Real>& own, const Side<Real>& other,
                                                          int begin, int other_begin,
                                                          Real (&costs)[4][4]) const {
#pragma unroll
    for (int r = 0; r < 4; ++r) {
#pragma unroll
      for (int c = 0; c < 4; ++c) costs[r][c] = 0;
    }
    if (p_.cost) return load_costs(own, other, begin, other_begin, costs);
    for (int first = 0; first < p_.dim; first += kPiece) {
      __syncthreads();  // what was there has been used
      load_features<kPiece, true>(shared().own, own, begin, first);
      load_features<kPiece, true>(shared().other, other, other_begin, first);
      __syncthreads();
      switch (p_.kind) {
        case CostKind::kSquaredEuclidean:
        case CostKind::kEuclidean:
          add_piece<CostKind::kSquaredEuclidean>(costs);
          break;
        case CostKind::kL1:
          add_piece<CostKind::kL1>(costs);
          break;
        case CostKind::kCosine:
          add_piece<CostKind::kCosine>(costs);
          break;
        case CostKind::kHuber:
          add_piece<CostKind::kHuber>(costs);
          break;
      }
    }
    if (p_.kind != CostKind::kEuclidean && p_.kind != CostKind::kCosine) return;
    const Shared& s = shared();
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      const Real of_own = s.inverse_length[0][first_own() + r];
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        costs[r][c] = p_.kind == CostKind::kEuclidean
                          ? sqrt(costs[r][c])
                          : 1 - costs[r][c] * of_own * s.inverse_length[1][first_other() + c];
      }
    }
  }
  [[nodiscard]] static __device__ __forceinline__ Real logit(int r, int c, Real cost, Real k) {
    const Shared& s = shared();
    const int own = first_own() + r, other = first_other() + c;
    const Real t = fma(-k, cost, s.hi[0][own] + s.hi[1][other]);
    return kPairs ? t + (s.lo[0][own] + s.lo[1][other]) : t;
  }

  // Sums of the rows, or of the columns.
  template <PassKind kKind>
  __device__ __attribute__((noinline)) void one_side(const Pass& pass, bool of_rows, PlanSums& sums) const {
    constexpr bool kLargest = kKind == PassKind::kLargest;
    const Side<Real>& own = of_rows ? rows_ : columns_;
    const Side<Real>& other = of_rows ? columns_ : rows_;
    const int splits = own.p.splits;
    const int tiles = cuda::div_up(own.count, kTile), other_tiles = cuda::div_up(other.count, kTile);
    const Real k = static_cast<Real>(pass.k);
    for (int task = team_.rank; task < tiles * splits; task += team_.blocks) {
      const int begin = task / splits * kTile, split = task % splits;
      __syncthreads();
      load_numbers(own, 0, begin, of_rows ? pass.rows_at : pass.columns_at, of_rows ? pass.lambda : 0.0,
                   pass.grid);
      double totals[4];
#pragma unroll
      for (int r = 0; r < 4; ++r) totals[r] = kLargest ? -CUDART_INF : 0.0;
      const int last = other_tiles * (split + 1) / splits;
      for (int tile = other_tiles * split / splits; tile < last; ++tile) {
        __syncthreads();
        load_numbers(other, 1, tile * kTile, of_rows ? pass.columns_at : pass.rows_at,
                     of_rows ? 0.0 : pass.lambda, pass.grid);
        Real costs[4][4];
        costs_of_tile(own, other, begin, tile * kTile, costs);
        const Shared& s = shared();
#pragma unroll
        for (int r = 0; r < 4; ++r) {
          Real joined = kLargest ? static_cast<Real>(-CUDART_INF) : Real(0);
          [[maybe_unused]] Real linear = 0, logits = 0;
#pragma unroll
          for (int c = 0; c < 4; ++c) {
            const Real t = logit(r, c, costs[r][c], k);
            const Real weight = s.weight[1][first_other() + c];
            if constexpr (kLargest) {
              if (weight > 0) joined = larger(joined, t);
            } else {
              const Real weighted = exp2_of(t) * weight;
              joined += weighted;
              if constexpr (kKind == PassKind::kEvaluate) {
                const Real mass = s.weight[0][first_own() + r] * weighted;
                if (mass != 0) {
                  linear += mass * costs[r][c];
                  logits += mass * t;
                }
                const int i = begin + first_own() + r, j = tile * kTile + first_other() + c;
                if (p_.plan && i < own.count && j < other.count) {
                  const double plan = pass.is_nan ? CUDART_NAN : p_.plan_scale * static_cast<double>(mass);
                  p_.plan[own.b * p_.plan_stride[0] + i * p_.plan_stride[1] + j * p_.plan_stride[2]] =
                      static_cast<Real>(plan);
                }
              }
            }
          }
          if constexpr (kKind == PassKind::kEvaluate) {
            sums.linear += static_cast<double>(linear);
            sums.logits += static_cast<double>(logits);
          }
          totals[r] = kLargest ? larger(totals[r], static_cast<double>(joined))
                               : totals[r] + static_cast<double>(joined);
        }
      }
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        const double total =
            cuda::reduce<16>(totals[r], [](double a, double b) { return kLargest ? larger(a, b) : a + b; });
        const int i = begin + first_own() + r;
        if (first_other() == 0 && i < own.count) own.partials(split)[i] = static_cast<Real>(total);
      }
    }
  }

  // The factor of P in the gradient by one feature: what is the same for all features of a pair.
  [[nodiscard]] __device__ __forceinline__ Real shared_factor(Real mass, Real cost, int c) const {
    if (p_.kind == CostKind::kEuclidean) return cost > 0 ? mass / cost : Real(0);
    if (p_.kind == CostKind::kSquaredEuclidean) return 2 * mass;
    return p_.kind == CostKind::kCosine ? mass * shared().inverse_length[1][first_other() + c] : mass;
  }
  // And what is the feature's own: of a cosine the other point's, else a function of the difference.
  [[nodiscard]] __device__ __forceinline__ Real slope(Real x, Real y) const {
    const Real difference = x - y;
    switch (p_.kind) {
      case CostKind::kCosine:
        return y;
      case CostKind::kL1:
        return difference > 0 ? Real(1) : difference < 0 ? Real(-1) : difference;
      case CostKind::kHuber:
        return difference > 1 ? Real(1) : difference < -1 ? Real(-1) : difference;
      default:
        return difference;
    }
  }

  // sum over the other points of P dC / dx. A task is a tile of points and 64 features; costs are made again
  // for every 64 features.
  __device__ __attribute__((noinline)) void gradient_of_side(const Pass& pass, bool of_rows) const {
    const Side<Real>& own = of_rows ? rows_ : columns_;
    const Side<Real>& other = of_rows ? columns_ : rows_;
    Shared& s = shared();
    const int pieces = cuda::div_up(p_.dim, kTile);
    const Real k = static_cast<Real>(pass.k);
    Real* const gradient = own.p.grad_points + own.row_of_batch() * p_.dim;
    for (int task = team_.rank; task < cuda::div_up(own.p.length, kTile) * pieces; task += team_.blocks) {
      const int begin = task / pieces * kTile, first = task % pieces * kTile;
      __syncthreads();
      load_numbers(own, 0, begin, of_rows ? pass.rows_at : pass.columns_at, of_rows ? pass.lambda : 0.0,
                   pass.grid);
      // The thread has features first_other() ... + 3 of its own points.
      Real x[4][4], total[4][4] = {};
      double along[4] = {};
#pragma unroll
      for (int r = 0; r < 4; ++r) {
#pragma unroll
        for (int c = 0; c < 4; ++c) {
          const int i = begin + first_own() + r, d = first + first_other() + c;
          x[r][c] = i < own.count && d < p_.dim ? *feature(own, i, d) : Real(0);
        }
      }
      for (int other_begin = 0; other_begin < other.count && begin < own.count; other_begin += kTile) {
        __syncthreads();
        load_numbers(other, 1, other_begin, of_rows ? pass.columns_at : pass.rows_at,
                     of_rows ? 0.0 : pass.lambda, pass.grid);
        load_features<kTile, false>(s.features, other, other_begin, first);
        Real costs[4][4];
        costs_of_tile(own, other, begin, other_begin, costs);
#pragma unroll
        for (int r = 0; r < 4; ++r) {
#pragma unroll
          for (int c = 0; c < 4; ++c) {
            const Real mass = s.weight[0][first_own() + r] * s.weight[1][first_other() + c] *
                              exp2_of(logit(r, c, costs[r][c], k));
            along[r] += static_cast<double>(mass == 0 ? Real(0) : mass * (1 - costs[r][c]));
            s.plan[first_other() + c][first_own() + r] =
                mass == 0 ? Real(0) : shared_factor(mass, costs[r][c], c);
          }
        }
        __syncthreads();
        Real part[4][4] = {};
        for (int j = 0; j < kTile; ++j) {
          const Quad mass = *reinterpret_cast<const Quad*>(&s.plan[j][first_own()]);
          const Quad y = *reinterpret_cast<const Quad*>(&s.features[j][first_other()]);
#pragma unroll
          for (int r = 0; r < 4; ++r) {
#pragma unroll
            for (int c = 0; c < 4; ++c) part[r][c] = fma(mass.v[r], slope(x[r][c], y.v[c]), part[r][c]);
          }
        }
#pragma unroll
        for (int r = 0; r < 4; ++r) {
#pragma unroll
          for (int c = 0; c < 4; ++c) total[r][c] += part[r][c];
        }
      }
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        const double all = cuda::reduce_sum<16>(along[r]);  // sum P <u, v>
        const Real inverse = s.inverse_length[0][first_own() + r];
#pragma unroll
        for (int c = 0; c < 4; ++c) {
          const int i = begin + first_own() + r, d = first + first_other() + c;
          if (i >= own.p.length || d >= p_.dim) continue;
          Real v = total[r][c];
          if (p_.kind == CostKind::kCosine) v = (static_cast<Real>(all) * x[r][c] * inverse - v) * inverse;
          v *= static_cast<Real>(p_.cost_scale);
          if (pass.is_nan) v = static_cast<Real>(CUDART_NAN);
          gradient[static_cast<std::int64_t>(i) * p_.dim + d] = i < own.count ? v : Real(0);
        }
      }
    }
  }

  const SolveParams<Real>& p_;
  const Team& team_;
  const Side<Real>& rows_;
  const Side<Real>& columns_;
};

}  // namespace warpalign::detail::transport
