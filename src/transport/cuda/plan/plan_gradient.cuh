// The derivatives of s = sum W P with respect to all inputs of the plan, tile by tile. W is given, or U V^T.
#pragma once

#include "transport/cuda/points/points.cuh"

namespace warpalign::detail::transport {

template <class Real_>
class PlanGradient : public Points<Real_> {
 public:
  using Real = Real_;
  using Points<Real_>::Points;

  // Called by all threads of the team. epsilon: that of the problem.
  __device__ __forceinline__ void write(const Pass& pass, double epsilon, Team& team) const {
    const PlanGradientParams<Real>& g = p_.gradient;
    const double per_cost = -p_.cost_scale / epsilon;
    PlanSums sums;
    for (const bool of_rows : {true, false}) {
      const int k = of_rows ? 0 : 1;
      const Side<Real>& own = of_rows ? rows_ : columns_;
      if (g.sums[k] || g.grad_weights[k] || (of_rows && (g.grad_cost || g.grad_epsilon))) {
        sum_side(pass, of_rows, per_cost, sums);
        team.barrier();
        write_sums(own, g.sums[k], g.grad_weights[k]);
      }
      if (own.p.grad_points) {
        gradient_of_side(pass, of_rows, own.p.grad_points, static_cast<Real>(per_cost), Weights{*this},
                         typename Base::All{});
      }
    }
    const PlanSums all = team.joined(sums);
    if (g.grad_epsilon && team.rank == 0 && threadIdx.x == 0) {
      g.grad_epsilon[rows_.b] = static_cast<Real>(-all.logits / (kLog2E<double> * epsilon));
    }
  }

 private:
  using Base = Points<Real_>;
  using Base::columns_;
  using Base::costs_of_tile;
  using Base::first_other;
  using Base::first_own;
  using Base::gradient_of_side;
  using Base::kPiece;
  using Base::kTile;
  using Base::load_numbers;
  using Base::load_pairs;
  using Base::logit;
  using Base::p_;
  using Base::rows_;
  using Base::shared;
  using Base::team_;
  using typename Base::Shared;
  using typename Base::TilePoints;

  struct Weights {
    static constexpr bool kIsOne = false;
    const PlanGradient& of;
    __device__ __forceinline__ void operator()(const TilePoints& own, const TilePoints& other,
                                               Real (&w)[4][4]) const {
      of.weights_of_tile(own, other, w);
    }
  };

  // Computes a tile of W. Called by all threads of the block.
  __device__ __attribute__((noinline)) void weights_of_tile(const TilePoints& own, const TilePoints& other,
                                                            Real (&w)[4][4]) const {
    const PlanGradientParams<Real>& g = p_.gradient;
    if (g.dense) return load_pairs(g.dense, g.dense_stride, 0, own, other, w);
#pragma unroll
    for (int r = 0; r < 4; ++r) {
#pragma unroll
      for (int c = 0; c < 4; ++c) w[r][c] = 0;
    }
    const int of_own = &own.side == &rows_ ? 0 : 1;
    for (int first = 0; first < g.factors[0].columns; first += kPiece) {
      __syncthreads();
      this->template load_columns<kPiece, true>(shared().own, g.factors[of_own], own, first);
      this->template load_columns<kPiece, true>(shared().other, g.factors[1 - of_own], other, first);
      __syncthreads();
      this->template add_piece<CostKind::kCosine>(w);
    }
  }

  // Computes the sums of W P over a side's rows, without the row's own weight in R.
  __device__ __attribute__((noinline)) void sum_side(const Pass& pass, bool of_rows, double per_cost,
                                                     PlanSums& sums) const {
    const Side<Real>& own = of_rows ? rows_ : columns_;
    const Side<Real>& other = of_rows ? columns_ : rows_;
    Real* const grad_cost = of_rows ? p_.gradient.grad_cost : nullptr;
    const int splits = own.p.splits;
    const int tiles = cuda::div_up(own.count, kTile), other_tiles = cuda::div_up(other.count, kTile);
    const Real k = static_cast<Real>(pass.k);
    for (int task = team_.rank; task < tiles * splits; task += team_.blocks) {
      const int split = task % splits;
      const TilePoints own_points{own, task / splits * kTile};
      __syncthreads();
      load_numbers(own_points, 0, of_rows ? pass.rows_at : pass.columns_at, 0, pass.rounder);
      double totals[4] = {};
      const int last = other_tiles * (split + 1) / splits;
      for (int tile = other_tiles * split / splits; tile < last; ++tile) {
        const TilePoints other_points{other, tile * kTile};
        __syncthreads();
        load_numbers(other_points, 1, of_rows ? pass.columns_at : pass.rows_at, 0, pass.rounder);
        Real costs[4][4], w[4][4];
        costs_of_tile(own_points, other_points, costs);
        weights_of_tile(own_points, other_points, w);
        const Shared& s = shared();
#pragma unroll
        for (int r = 0; r < 4; ++r) {
          const int i = own_points.point(first_own() + r);
          const Real own_weight = s.weight[0][first_own() + r];
          Real sum = 0;
#pragma unroll
          for (int c = 0; c < 4; ++c) {
            const Real t = logit(r, c, costs[r][c], k);
            Real share = exp2_of(t) * s.weight[1][first_other() + c];
            if (share != 0) share *= w[r][c];
            sum += share;
            const Real part = own_weight * share;
            if (of_rows && part != 0) sums.logits += static_cast<double>(part) * static_cast<double>(t);
            const int j = other_points.point(first_other() + c);
            if (grad_cost && i >= 0 && j >= 0) {
              grad_cost[(own.row_of_batch() + i) * other.p.length + j] =
                  static_cast<Real>(per_cost * static_cast<double>(part));
            }
          }
          totals[r] += static_cast<double>(sum);
        }
      }
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        const double total = cuda::reduce_sum<16>(totals[r]);
        const int i = own_points.point(first_own() + r);
        if (first_other() == 0 && i >= 0) own.partials(split)[i] = static_cast<Real>(total);
      }
    }
  }

  __device__ __forceinline__ void write_sums(const Side<Real>& side, Real* sums, Real* grad_weights) const {
    const std::int64_t first = side.row_of_batch();
    for_totals<false>(side, team_, [&](int i, double sum) {
      if (sums) sums[first + i] = static_cast<Real>(side.reference(side.weight(i)) * sum);
      if (grad_weights) grad_weights[first + i] = side.product ? static_cast<Real>(sum) : Real(0);
    });
    for_padding(side, team_, [&](int i) {
      if (sums) sums[first + i] = 0;
      if (grad_weights) grad_weights[first + i] = 0;
    });
  }
};

}  // namespace warpalign::detail::transport
