// Results of a plan that is not stored, tile by tile.
#pragma once

#include "transport/cuda/points/points.cuh"

namespace warpalign::detail::transport {

template <class Real_>
class PlanTiles : public Points<Real_> {
 public:
  using Real = Real_;
  using Points<Real_>::Points;

  // Writes the product of the plan with K columns. A task is 64 points of the result and 64 columns.
  __device__ __attribute__((noinline)) void write_product(const Pass& pass) const {
    const bool of_rows = !p_.transposed;
    const Side<Real>& own = of_rows ? rows_ : columns_;
    const Side<Real>& other = of_rows ? columns_ : rows_;
    Shared& s = shared();
    const int pieces = cuda::div_up(p_.factor.columns, kTile);
    const Real k = static_cast<Real>(pass.k);
    Real* const result = p_.result + own.row_of_batch() * p_.factor.columns;
    for (int task = team_.rank; task < cuda::div_up(own.p.length, kTile) * pieces; task += team_.blocks) {
      const int begin = task / pieces * kTile, first = task % pieces * kTile;
      const TilePoints own_points{own, begin};
      __syncthreads();
      load_numbers(own_points, 0, of_rows ? pass.rows_at : pass.columns_at, 0, pass.rounder);
      Real total[4][4] = {};
      for (int other_begin = 0; other_begin < other.count && begin < own.count; other_begin += kTile) {
        __syncthreads();
        const TilePoints other_points{other, other_begin};
        load_numbers(other_points, 1, of_rows ? pass.columns_at : pass.rows_at, 0, pass.rounder);
        this->template load_columns<kTile, false>(s.features, p_.factor, other_points, first);
        Real costs[4][4];
        costs_of_tile(own_points, other_points, costs);
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
          if (i >= own.p.length || d >= p_.factor.columns) continue;
          result[static_cast<std::int64_t>(i) * p_.factor.columns + d] =
              i < own.count ? total[r][c] : Real(0);
        }
      }
    }
  }

  // Writes the largest entries of every row. A pass over the plan finds four of them.
  __device__ __attribute__((noinline)) void write_top(const Pass& pass) const {
    const bool of_rows = !p_.transposed;
    const Side<Real>& own = of_rows ? rows_ : columns_;
    const Side<Real>& other = of_rows ? columns_ : rows_;
    const Real k = static_cast<Real>(pass.k);
    const int entries = min(p_.top_count, other.count);
    const std::int64_t first_entry = own.row_of_batch() * p_.top_count;
    for (int task = team_.rank; task < cuda::div_up(own.p.length, kTile); task += team_.blocks) {
      const int begin = task * kTile;
      fill_top(own, begin, entries, first_entry);
      const TilePoints own_points{own, begin};
      load_numbers(own_points, 0, of_rows ? pass.rows_at : pass.columns_at, 0, pass.rounder);
      Entry last[4];  // the last entry of a row so far; those after it are searched
      for (int done = 0; done < entries && begin < own.count; done += 4) {
        Entry best[4][4];
#pragma unroll
        for (int r = 0; r < 4; ++r) {
          if (done == 0) last[r] = {static_cast<Real>(CUDART_INF), -1};
#pragma unroll
          for (int n = 0; n < 4; ++n) best[r][n] = {-1, 0x7fffffff};
        }
        for (int other_begin = 0; other_begin < other.count; other_begin += kTile) {
          __syncthreads();
          const TilePoints other_points{other, other_begin};
          load_numbers(other_points, 1, of_rows ? pass.columns_at : pass.rows_at, 0, pass.rounder);
          Real costs[4][4];
          costs_of_tile(own_points, other_points, costs);
#pragma unroll
          for (int r = 0; r < 4; ++r) {
#pragma unroll
            for (int c = 0; c < 4; ++c) {
              const Real mass = shared().weight[1][first_other() + c] * exp2_of(logit(r, c, costs[r][c], k));
              const int j = other_begin + first_other() + c;
              // NaN is the largest.
              Entry entry{isnan(mass) ? static_cast<Real>(CUDART_INF) : mass, j};
              if (j >= other.count || !comes_before(last[r], entry)) continue;
#pragma unroll
              for (int n = 0; n < 4; ++n) {
                if (!comes_before(entry, best[r][n])) continue;
                const Entry moves = best[r][n];
                best[r][n] = entry;
                entry = moves;
              }
            }
          }
        }
#pragma unroll
        for (int r = 0; r < 4; ++r) {
          const int i = begin + first_own() + r;
          for (int n = done; n < min(done + 4, entries); ++n) {
            const Entry top = cuda::reduce<16>(
                best[r][0], [](const Entry& a, const Entry& b) { return comes_before(b, a) ? b : a; });
            if (top.index == best[r][0].index) {  // it is this lane's entry
#pragma unroll
              for (int m = 0; m < 3; ++m) best[r][m] = best[r][m + 1];
              best[r][3] = {-1, 0x7fffffff};
            }
            last[r] = top;
            if (first_other() > 0 || i >= own.count) continue;
            const std::int64_t at = first_entry + static_cast<std::int64_t>(i) * p_.top_count + n;
            const Real value = isinf(top.value) ? static_cast<Real>(CUDART_NAN) : top.value;
            p_.top_values[at] = shared().weight[0][first_own() + r] * value;
            p_.top_indices[at] = top.index;
          }
        }
      }
    }
  }

 private:
  using Base = Tiles<Real_>;
  using Base::columns_;
  using Base::costs_of_tile;
  using Base::first_other;
  using Base::first_own;
  using Base::kThreads;
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

  // An entry of a row of the plan, without the row's own weight.
  struct Entry {
    Real value;
    std::int32_t index;
  };
  static __device__ __forceinline__ bool comes_before(const Entry& a, const Entry& b) {
    return a.value > b.value || (a.value == b.value && a.index < b.index);
  }
  // Initialises entries that no pair fills: 0, by index. The others may be written after a barrier.
  __device__ __forceinline__ void fill_top(const Side<Real>& own, int begin, int entries,
                                           std::int64_t first_entry) const {
    const std::int64_t count = p_.top_count;
    const int rows = min(kTile, own.p.length - begin);
    for (std::int64_t e = threadIdx.x; e < rows * count; e += kThreads) {
      const int i = begin + static_cast<int>(e / count), n = static_cast<int>(e % count);
      if (i < own.count && n < entries) continue;
      p_.top_values[first_entry + begin * count + e] = 0;
      p_.top_indices[first_entry + begin * count + e] = n;
    }
    __syncthreads();
  }
};

}  // namespace warpalign::detail::transport
