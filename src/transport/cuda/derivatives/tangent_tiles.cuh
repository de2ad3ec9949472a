// Passes over the plan and its derivative (tangent_pairs.cuh), tile by tile: all of sinkhorn_jvp() that reads
// costs.
#pragma once

#include "transport/cuda/derivatives/tangent_pairs.cuh"

namespace warpalign::detail::transport {

// Sums over the whole plan; costs are scaled.
struct TangentTotals {
  double mass = 0;
  double mass_moved = 0;
  double linear = 0;
  double linear_moved = 0;
  double kl_moved = 0;  // without the sum of the reference

  __device__ __forceinline__ void join(const TangentTotals& other) {
    mass += other.mass;
    mass_moved += other.mass_moved;
    linear += other.linear;
    linear_moved += other.linear_moved;
    kl_moved += other.kl_moved;
  }
};

template <class Real_>
class TangentTiles : public TangentPairs<Real_> {
 public:
  using Real = Real_;
  using TangentPairs<Real_>::TangentPairs;
  using TangentPairs<Real_>::array;
  using TangentPairs<Real_>::tangents;
  // Sum `which` of a point over the tiles of one pass.
  [[nodiscard]] __device__ __forceinline__ double sum(const Side<Real>& side, int which, int i) const {
    double total = 0;
    for (int split = 0; split < side.p.splits; ++split) total += partials(side, which, split)[i];
    return total;
  }

  // Computes sums[0] of every point of a side: the sum over the other side of R e factor, without the point's
  // own weight.
  __device__ __attribute__((noinline)) void sum_weighted(const Pass& pass, bool of_rows,
                                                         const double* factor) const {
    const Side<Real>& own = of_rows ? rows_ : columns_;
    const Side<Real>& other = of_rows ? columns_ : rows_;
    const Real k = static_cast<Real>(pass.k);
    for_tasks(pass, of_rows, [&](const TilePoints& own_points, int split, int first_tile, int last_tile) {
      double totals[4] = {};
      for (int tile = first_tile; tile < last_tile; ++tile) {
        const TilePoints other_points{other, tile * kTile};
        __syncthreads();
        load_numbers(other_points, 1, of_rows ? pass.columns_at : pass.rows_at, of_rows ? 0.0 : pass.lambda,
                     pass.rounder);
        if (threadIdx.x < kTile) {  // the thread that wrote this weight
          const int j = other_points.point(static_cast<int>(threadIdx.x));
          if (j >= 0) {
            const double weighted = other.reference(other.weight(j)) * factor[j];
            shared().weight[1][threadIdx.x] = static_cast<Real>(weighted);
          }
        }
        Real costs[4][4];
        costs_of_tile(own_points, other_points, costs);
#pragma unroll
        for (int r = 0; r < 4; ++r) {
          Real joined = 0;
#pragma unroll
          for (int c = 0; c < 4; ++c) {
            joined = fma(exp2_of(logit(r, c, costs[r][c], k)), shared().weight[1][first_other() + c], joined);
          }
          totals[r] += static_cast<double>(joined);
        }
      }
      write_partials(own, 0, split, own_points, totals);
    });
  }

  // Computes sums[0] and sums[1] of every point of a side: the ratio and its derivative. For rows also the
  // plan's totals, and, if requested, the derivative of the gradient with respect to given costs.
  __device__ __attribute__((noinline)) void sum_tangents(const Pass& pass, bool of_rows,
                                                         const TangentNumbers& numbers, Real* grad_cost,
                                                         TangentTotals& totals) const {
    const Side<Real>& own = of_rows ? rows_ : columns_;
    const Side<Real>& other = of_rows ? columns_ : rows_;
    for_tasks(pass, of_rows, [&](const TilePoints& own_points, int split, int first_tile, int last_tile) {
      load_moved(own_points, 0, numbers.lambda, pass.epsilon);
      double ratio[4] = {}, ratio_moved[4] = {};
      for (int tile = first_tile; tile < last_tile; ++tile) {
        const TilePoints other_points{other, tile * kTile};
        __syncthreads();
        load_numbers(other_points, 1, of_rows ? pass.columns_at : pass.rows_at, of_rows ? 0.0 : pass.lambda,
                     pass.rounder);
        load_moved(other_points, 1, 0, pass.epsilon);
        Real costs[4][4], moved[4][4];
        tangents_of_tile(own_points, other_points, costs, moved);
#pragma unroll
        for (int r = 0; r < 4; ++r) {
          const int i = own_points.point(first_own() + r);
#pragma unroll
          for (int c = 0; c < 4; ++c) {
            const Pair pair = pair_at(r, c, costs[r][c], moved[r][c], pass, numbers);
            ratio[r] += static_cast<double>(pair.share);
            ratio_moved[r] += static_cast<double>(pair.share_moved);
            if (!of_rows) continue;
            if (pair.mass != 0 || pair.mass_moved != 0) {
              totals.mass += static_cast<double>(pair.mass);
              totals.mass_moved += static_cast<double>(pair.mass_moved);
              totals.linear += p_.cost_scale * static_cast<double>(pair.mass * costs[r][c]);
              const Real linear = pair.mass_moved * costs[r][c] + pair.mass * moved[r][c];
              totals.linear_moved +=
                  p_.cost_scale * (static_cast<double>(linear) +
                                   numbers.log_scale * static_cast<double>(pair.mass * costs[r][c]));
              totals.kl_moved +=
                  static_cast<double>(pair.mass_moved * pair.logit + pair.mass * pair.logit_moved);
            }
            const int j = other_points.point(first_other() + c);
            if (grad_cost && i >= 0 && j >= 0) {
              grad_cost[(own.row_of_batch() + i) * other.p.length + j] =
                  static_cast<Real>(p_.cost_scale) *
                  (pair.mass_moved + static_cast<Real>(numbers.log_scale) * pair.mass);
            }
          }
        }
      }
      write_partials(own, 0, split, own_points, ratio);
      write_partials(own, 1, split, own_points, ratio_moved);
    });
  }

  // Writes the derivative of the value's gradient with respect to the points of a side. A task is a tile of
  // points and 64 features.
  __device__ __attribute__((noinline)) void write_gradient_tangent(const Pass& pass, bool of_rows,
                                                                   const TangentNumbers& numbers,
                                                                   Real* to) const {
    const Side<Real>& own = of_rows ? rows_ : columns_;
    const Side<Real>& other = of_rows ? columns_ : rows_;
    MovedShared& s = moved_shared();
    const bool cosine = p_.kind == CostKind::kCosine;
    const int pieces = cuda::div_up(p_.dim, kTile);
    for (int task = team_.rank; task < cuda::div_up(own.p.length, kTile) * pieces; task += team_.blocks) {
      const int begin = task / pieces * kTile, first = task % pieces * kTile;
      const TilePoints own_points{own, begin};
      __syncthreads();
      load_numbers(own_points, 0, of_rows ? pass.rows_at : pass.columns_at, of_rows ? pass.lambda : 0.0,
                   pass.rounder);
      load_moved(own_points, 0, numbers.lambda, pass.epsilon);
      Real x[4][4], x_moved[4][4], total[4][4] = {};
      double along[4] = {}, along_moved[4] = {};
      load_own_features(own, own_points, first, x, x_moved);
      for (int other_begin = 0; other_begin < other.count && begin < own.count; other_begin += kTile) {
        const TilePoints other_points{other, other_begin};
        __syncthreads();
        load_numbers(other_points, 1, of_rows ? pass.columns_at : pass.rows_at, of_rows ? 0.0 : pass.lambda,
                     pass.rounder);
        load_moved(other_points, 1, 0, pass.epsilon);
        this->template load_columns<kTile, false>(s.features, other.p.points, other_points, first);
        this->template load_columns<kTile, false>(s.features_moved, tangents(other).points, other_points,
                                                  first);
        store_tangent_factors(own_points, other_points, pass, numbers, along, along_moved);
        __syncthreads();
        Real part[4][4] = {};
        for (int j = 0; j < kTile; ++j) {
          const Quad one = *reinterpret_cast<const Quad*>(&s.plan[j][first_own()]);
          const Quad two = *reinterpret_cast<const Quad*>(&s.plan_second[j][first_own()]);
          const Quad y = *reinterpret_cast<const Quad*>(&s.features[j][first_other()]);
          const Quad y_moved = *reinterpret_cast<const Quad*>(&s.features_moved[j][first_other()]);
#pragma unroll
          for (int r = 0; r < 4; ++r) {
#pragma unroll
            for (int c = 0; c < 4; ++c) {
              part[r][c] = fma(one.v[r], this->slope(x[r][c], y.v[c]), part[r][c]);
              part[r][c] = fma(two.v[r], bent(x[r][c], y.v[c], x_moved[r][c], y_moved.v[c]), part[r][c]);
            }
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
        const Real all = static_cast<Real>(cuda::reduce_sum<16>(along[r]));
        const Real all_moved = static_cast<Real>(cuda::reduce_sum<16>(along_moved[r]));
        const Real inverse = s.inverse_length[0][first_own() + r], stretch = s.stretch[0][first_own() + r];
#pragma unroll
        for (int c = 0; c < 4; ++c) {
          const int i = begin + first_own() + r, d = first + first_other() + c;
          if (i >= own.p.length || d >= p_.dim) continue;
          Real v = total[r][c];
          if (cosine) {
            // (a u - G) / |x| with u = x / |x|, where a = <G, u>: total has G with -G d ln |x| in it.
            const Real unit = x[r][c] * inverse;
            const Real unit_moved = x_moved[r][c] * inverse - stretch * unit;
            v = (all_moved * unit + all * (unit_moved - stretch * unit) - v) * inverse;
          }
          to[(own.row_of_batch() + i) * p_.dim + d] =
              i < own.count ? static_cast<Real>(p_.cost_scale) * v : Real(0);
        }
      }
    }
  }

 private:
  using Base = TangentPairs<Real_>;
  using Base::bent;
  using Base::columns_;
  using Base::costs_of_tile;
  using Base::feature;
  using Base::first_other;
  using Base::first_own;
  using Base::kTile;
  using Base::load_moved;
  using Base::load_numbers;
  using Base::logit;
  using Base::moved_shared;
  using Base::p_;
  using Base::pair_at;
  using Base::rows_;
  using Base::shared;
  using Base::tangents_of_tile;
  using Base::team_;
  using typename Base::MovedShared;
  using typename Base::Pair;
  using typename Base::Quad;
  using typename Base::TilePoints;

  // Features first + first_other() ... + 3 of the thread's own points, and their tangents; 0 where there is
  // none.
  __device__ __forceinline__ void load_own_features(const Side<Real>& own, const TilePoints& own_points,
                                                    int first, Real (&x)[4][4], Real (&x_moved)[4][4]) const {
    const Table<Real>& moved = tangents(own).points;
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      const int i = own_points.point(first_own() + r);
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        const int d = first + first_other() + c;
        const bool exists = i >= 0 && d < p_.dim;
        x[r][c] = exists ? *feature(own.p.points, own.b, i, d) : Real(0);
        x_moved[r][c] = exists && moved.data ? *feature(moved, own.b, i, d) : Real(0);
      }
    }
  }

  // The thread's part of a tile's factors goes to shared memory: the gradient is a sum of first * slope(x -
  // y), and its derivative also has second * slope'(x - y) (dx - dy). For the cosine, adds P (1 - C) of the
  // own points to `along`, and its derivative to `along_moved`.
  __device__ __forceinline__ void store_tangent_factors(const TilePoints& own_points,
                                                        const TilePoints& other_points, const Pass& pass,
                                                        const TangentNumbers& numbers, double (&along)[4],
                                                        double (&along_moved)[4]) const {
    MovedShared& s = moved_shared();
    const Real log_scale = static_cast<Real>(numbers.log_scale);
    Real costs[4][4], moved[4][4];
    tangents_of_tile(own_points, other_points, costs, moved);
#pragma unroll
    for (int r = 0; r < 4; ++r) {
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        const Pair pair = pair_at(r, c, costs[r][c], moved[r][c], pass, numbers);
        Real first_factor = 0, second_factor = 0;
        if (pair.mass != 0 || pair.mass_moved != 0) {
          const Real mass_moved = pair.mass_moved + log_scale * pair.mass;
          first_factor = this->shared_factor(mass_moved, costs[r][c], c);
          second_factor = this->shared_factor(pair.mass, costs[r][c], c);
          const Real cost = costs[r][c], cost_moved = moved[r][c];
          if (p_.kind == CostKind::kEuclidean && cost > 0) {
            first_factor -= second_factor * cost_moved / cost;
          } else if (p_.kind == CostKind::kCosine) {
            const int j = first_other() + c;
            // The own length contributes a factor of the row.
            first_factor -= second_factor * (s.stretch[1][j] + s.stretch[0][first_own() + r]);
            along[r] += static_cast<double>(pair.mass * (1 - cost));
            along_moved[r] += static_cast<double>(mass_moved * (1 - cost) - pair.mass * cost_moved);
          }
        }
        s.plan[first_other() + c][first_own() + r] = first_factor;
        s.plan_second[first_other() + c][first_own() + r] = second_factor;
      }
    }
  }

  [[nodiscard]] __device__ __forceinline__ double* partials(const Side<Real>& side, int which,
                                                            int split) const {
    const std::int64_t at = (static_cast<std::int64_t>(side.team) * 2 + which) * side.p.splits + split;
    return tangents(side).partials + at * side.p.length;
  }
  // Joins the sums of the 16 threads of a row, and writes them.
  __device__ __forceinline__ void write_partials(const Side<Real>& side, int which, int split,
                                                 const TilePoints& own, const double (&totals)[4]) const {
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      const double total = cuda::reduce_sum<16>(totals[r]);
      const int i = own.point(first_own() + r);
      if (first_other() == 0 && i >= 0) partials(side, which, split)[i] = total;
    }
  }

  // Calls body(own, split, first tile, last tile) for the block's parts of a pass, after loading the own
  // points' numbers.
  template <class Body>
  __device__ __forceinline__ void for_tasks(const Pass& pass, bool of_rows, const Body& body) const {
    const Side<Real>& own = of_rows ? rows_ : columns_;
    const Side<Real>& other = of_rows ? columns_ : rows_;
    const int splits = own.p.splits;
    const int tiles = cuda::div_up(own.count, kTile), other_tiles = cuda::div_up(other.count, kTile);
    for (int task = team_.rank; task < tiles * splits; task += team_.blocks) {
      const int split = task % splits;
      const TilePoints own_points{own, task / splits * kTile};
      __syncthreads();
      load_numbers(own_points, 0, of_rows ? pass.rows_at : pass.columns_at, of_rows ? pass.lambda : 0.0,
                   pass.rounder);
      body(own_points, split, other_tiles * split / splits, other_tiles * (split + 1) / splits);
    }
  }
};

}  // namespace warpalign::detail::transport
