// One pass over costs that are computed from points and not stored: sums or largest logits of one side, tile
// by tile; and the gradients with respect to the points. The other side's sums use the same code with the
// sides exchanged, so that only sums are stored.
#pragma once

#include "transport/cuda/points/tiles.cuh"

namespace warpalign::detail::transport {

template <class Real_>
class Points : public Tiles<Real_> {
 public:
  using Real = Real_;
  using Tiles<Real_>::Tiles;
  static constexpr const char* name() { return "points"; }

  [[nodiscard]] __device__ __forceinline__ bool sweeps() const { return false; }

  // Computes the lengths of the points, for the cosine. They can be read after the team's next barrier.
  __device__ __forceinline__ float prepare() const {
    if (p_.cost || p_.kind != CostKind::kCosine) return 0;
    for (const Side<Real>* const side : {&rows_, &columns_}) {
      for_points(*side, team_, [&](int i) {
        double square = 0;
        for (int d = 0; d < p_.dim; ++d) {
          const double v = static_cast<double>(*feature(side->p.points, side->b, i, d));
          square += v * v;
        }
        inverse_lengths(*side)[i] = square == 0 ? Real(0) : static_cast<Real>(1 / sqrt(square));
      });
    }
    return 0;
  }
  __device__ __forceinline__ void take_extent(float) const {}

  // Called by all threads of the team. The sums can be read after the team's next barrier.
  template <PassKind kKind>
  __device__ __forceinline__ void run(const Pass& pass, PlanSums& sums) const {
    if (pass.rows) one_side<kKind>(pass, true, sums);
    if (pass.columns) one_side<kKind == PassKind::kEvaluate ? PassKind::kSums : kKind>(pass, false, sums);
  }

  // Writes the gradients with respect to the points of both sides that are not null.
  __device__ __forceinline__ void write_gradients(const Pass& pass) const {
    const Real scale = static_cast<Real>(p_.cost_scale);
    if (rows_.p.grad_points) gradient_of_side(pass, true, rows_.p.grad_points, scale, One{}, All{});
    if (columns_.p.grad_points) gradient_of_side(pass, false, columns_.p.grad_points, scale, One{}, All{});
  }

 protected:
  using Base = Tiles<Real_>;
  using Base::columns_;
  using Base::costs_of_tile;
  using Base::feature;
  using Base::first_other;
  using Base::first_own;
  using Base::inverse_lengths;
  using Base::kTile;
  using Base::load_numbers;
  using Base::logit;
  using Base::p_;
  using Base::rows_;
  using Base::shared;
  using Base::team_;
  using typename Base::Quad;
  using typename Base::Shared;
  using typename Base::TilePoints;

  // The part of the factor of P in a gradient that is the same for all features of a pair.
  [[nodiscard]] __device__ __forceinline__ Real shared_factor(Real mass, Real cost, int c) const {
    if (p_.kind == CostKind::kEuclidean) return cost > 0 ? mass / cost : Real(0);
    if (p_.kind == CostKind::kSquaredEuclidean) return 2 * mass;
    return p_.kind == CostKind::kCosine ? mass * shared().inverse_length[1][first_other() + c] : mass;
  }
  // The part that depends on the feature: the other point's feature for a cosine, otherwise a function of the
  // difference.
  [[nodiscard]] __device__ __forceinline__ Real slope(Real x, Real y) const {
    return slope_of(p_.kind, x, y);
  }

  // W = 1, for the gradient of the sum of W P.
  struct One {
    static constexpr bool kIsOne = true;
  };
  // All points.
  struct All {
    __device__ __forceinline__ bool operator()(int) const { return true; }
  };

  // The thread's part of W P of a tile, times the factor of the cost's derivative that features share, goes
  // to shared memory. along += W P (1 - C) of each own point.
  template <class Weights>
  __device__ __forceinline__ void store_factors(const TilePoints& own_points, const TilePoints& other_points,
                                                Real k, const Weights& weights, double (&along)[4]) const {
    Shared& s = shared();
    Real costs[4][4];
    costs_of_tile(own_points, other_points, costs);
    [[maybe_unused]] Real w[4][4];
    if constexpr (!Weights::kIsOne) weights(own_points, other_points, w);
#pragma unroll
    for (int r = 0; r < 4; ++r) {
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        Real mass = s.weight[0][first_own() + r] * s.weight[1][first_other() + c] *
                    exp2_of(logit(r, c, costs[r][c], k));
        if constexpr (!Weights::kIsOne) {
          if (mass != 0) mass *= w[r][c];
        }
        along[r] += static_cast<double>(mass == 0 ? Real(0) : mass * (1 - costs[r][c]));
        s.plan[first_other() + c][first_own() + r] =
            mass == 0 ? Real(0) : shared_factor(mass, costs[r][c], c);
      }
    }
  }

  // to = scale * sum over the other points of W P dC / dx. A task is a tile of points and 64 features; costs
  // are computed again for every 64 features. weights(own, other, w) computes a tile of W. asks(i): whether
  // the gradients of points i ... i + 63 are asked for.
  template <class Weights, class Asks>
  __device__ __attribute__((noinline)) void gradient_of_side(const Pass& pass, bool of_rows, Real* to,
                                                             Real scale, const Weights& weights,
                                                             const Asks& asks) const {
    const Side<Real>& own = of_rows ? rows_ : columns_;
    const Side<Real>& other = of_rows ? columns_ : rows_;
    Shared& s = shared();
    const int pieces = cuda::div_up(p_.dim, kTile);
    const Real k = static_cast<Real>(pass.k);
    Real* const gradient = to + own.row_of_batch() * p_.dim;
    for (int task = team_.rank; task < cuda::div_up(own.p.length, kTile) * pieces; task += team_.blocks) {
      const int begin = task / pieces * kTile, first = task % pieces * kTile;
      if (!asks(begin)) continue;
      const TilePoints own_points{own, begin};
      __syncthreads();
      load_numbers(own_points, 0, of_rows ? pass.rows_at : pass.columns_at, of_rows ? pass.lambda : 0.0,
                   pass.rounder);
      // The thread owns features first_other() ... + 3 of its own points.
      Real x[4][4], total[4][4] = {};
      double along[4] = {};
#pragma unroll
      for (int r = 0; r < 4; ++r) {
#pragma unroll
        for (int c = 0; c < 4; ++c) {
          const int i = begin + first_own() + r, d = first + first_other() + c;
          x[r][c] = i < own.count && d < p_.dim ? *feature(own.p.points, own.b, i, d) : Real(0);
        }
      }
      for (int other_begin = 0; other_begin < other.count && begin < own.count; other_begin += kTile) {
        __syncthreads();
        const TilePoints other_points{other, other_begin};
        load_numbers(other_points, 1, of_rows ? pass.columns_at : pass.rows_at, of_rows ? 0.0 : pass.lambda,
                     pass.rounder);
        this->template load_columns<kTile, false>(s.features, other.p.points, other_points, first);
        store_factors(own_points, other_points, k, weights, along);
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
          v *= scale;
          if (pass.is_nan) v = static_cast<Real>(CUDART_NAN);
          gradient[static_cast<std::int64_t>(i) * p_.dim + d] = i < own.count ? v : Real(0);
        }
      }
    }
  }

 private:
  // Computes the sums of the rows, or of the columns.
  template <PassKind kKind>
  __device__ __attribute__((noinline)) void one_side(const Pass& pass, bool of_rows, PlanSums& sums) const {
    const Side<Real>& own = of_rows ? rows_ : columns_;
    const int splits = own.p.splits;
    const int tiles = cuda::div_up(own.count, kTile);
    const int other_tiles = cuda::div_up((of_rows ? columns_ : rows_).count, kTile);
    for (int task = team_.rank; task < tiles * splits; task += team_.blocks) {
      const int split = task % splits;
      sums_of_tile<kKind>(pass, of_rows, task / splits, split, other_tiles * split / splits,
                          other_tiles * (split + 1) / splits, sums);
    }
  }

 protected:
  // Computes the sums of a tile's points over tiles first ... last - 1 of the other side.
  template <PassKind kKind>
  __device__ __attribute__((noinline)) void sums_of_tile(const Pass& pass, bool of_rows, int own_tile,
                                                         int part, int first, int last,
                                                         PlanSums& sums) const {
    constexpr bool kLargest = kKind == PassKind::kLargest;
    const Side<Real>& own = of_rows ? rows_ : columns_;
    const Side<Real>& other = of_rows ? columns_ : rows_;
    const int begin = own_tile * kTile;
    const Real k = static_cast<Real>(pass.k);
    __syncthreads();
    const TilePoints own_points{own, begin};
    load_numbers(own_points, 0, of_rows ? pass.rows_at : pass.columns_at, of_rows ? pass.lambda : 0.0,
                 pass.rounder);
    double totals[4];
#pragma unroll
    for (int r = 0; r < 4; ++r) totals[r] = kLargest ? -CUDART_INF : 0.0;
    for (int tile = first; tile < last; ++tile) {
      __syncthreads();
      const TilePoints other_points{other, tile * kTile};
      load_numbers(other_points, 1, of_rows ? pass.columns_at : pass.rows_at, of_rows ? 0.0 : pass.lambda,
                   pass.rounder);
      Real costs[4][4];
      costs_of_tile(own_points, other_points, costs);
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
      if (first_other() == 0 && i < own.count) own.partials(part)[i] = static_cast<Real>(total);
    }
  }
};

}  // namespace warpalign::detail::transport
