// The exponentials of a problem of long_rows.cuh: where they and the numbers beside them lie, how they are
// made, and what becomes of the scales behind the last iteration.
#pragma once

#include <math_constants.h>

#include "transport/cuda/kept/kept_costs.cuh"
#include "transport/cuda/kept/kept_layout.h"
#include "transport/cuda/kept/kept_scales.cuh"

namespace warpalign::detail::transport {

template <class Real>
class LongKernel {
 public:
  __device__ __forceinline__ LongKernel(const SolveParams<Real>& p, Team& team, const Side<Real>& rows,
                                        const Side<Real>& columns)
      : p_(p),
        team_(team),
        rows_(rows),
        columns_(columns),
        shape_(long_shape<Real>(p.layout)),
        first_(p.layout.first_row(team.rank, rows.count)),
        own_(p.layout.first_row(team.rank + 1, rows.count) - first_),
        first_column_(team.rank * shape_.owned),
        own_columns_(max(min(shape_.owned, columns.count - first_column_), 0)),
        blocks_(team.blocks),
        records_(p.kept_sums + static_cast<std::int64_t>(team.index) * 2 * blocks_ * record_numbers()),
        own_record_(records_ + team.rank * record_numbers()) {}

 protected:
  using Scales = KeptScales<Real>;
  using Law = typename Scales::Law;
  using Point = typename Scales::Point;
  using Quad = KeptQuad<Real>;

  struct Shared {
    LongBlock& block;
    Real* kernel;         // (rows, stride): exponentials
    Real* scaled;         // (stride): columns' weights in the reference times their scales
    Real* parts;          // (warps, padded): of the rows' sums
    Point* rows;          // (padded)
    Real* scales;         // (2, padded): of rows, before an iteration and after it, in turns
    Real* factors;        // (padded): of rows in the sums of columns
    Point* columns;       // (owned)
    Real* column_scales;  // (2, owned): as scales
  };
  [[nodiscard]] __device__ __forceinline__ Shared shared() const {
    unsigned char* const memory = cuda::dynamic_shared() + kScratchBytes;
    auto* const kernel = reinterpret_cast<Real*>(memory + sizeof(LongBlock));
    Real* const scaled = kernel + p_.layout.rows * shape_.stride;
    Real* const parts = scaled + shape_.stride;
    Real* const rows = parts + shape_.warps * shape_.padded;
    Real* const scales = rows + 2 * shape_.padded;
    Real* const factors = scales + 2 * shape_.padded;
    Real* const columns = factors + shape_.padded;
    return {*reinterpret_cast<LongBlock*>(memory),
            kernel,
            scaled,
            parts,
            reinterpret_cast<Point*>(rows),
            scales,
            factors,
            reinterpret_cast<Point*>(columns),
            columns + 2 * shape_.owned};
  }

  // A block's record in global memory is followed by the next block's: its sums of all columns, and its word.
  // Behind those of all blocks follow the columns' weights in the reference times their scales.
  [[nodiscard]] __device__ __forceinline__ int record_numbers() const { return shape_.stride + kToldFlags; }
  [[nodiscard]] __device__ __forceinline__ Real* all_scaled() const {
    return records_ + static_cast<std::int64_t>(blocks_) * record_numbers();
  }

  // Calls body(q) for the thread's quads.
  template <class Body>
  __device__ __forceinline__ void for_quads(const Body& body) const {
    const int count = shape_.stride / 4, step = static_cast<int>(blockDim.x);
#pragma unroll 1
    for (int q = static_cast<int>(threadIdx.x); q < count; q += step) body(q);
  }
  // Calls body(k) for the thread's numbers below `count`.
  template <class Body>
  static __device__ __forceinline__ void for_each(int count, const Body& body) {
#pragma unroll 1
    for (int k = static_cast<int>(threadIdx.x); k < count; k += static_cast<int>(blockDim.x)) body(k);
  }
  [[nodiscard]] static __device__ __forceinline__ Quad& quad_at(Real* numbers, int q) {
    return reinterpret_cast<Quad*>(numbers)[q];
  }
  [[nodiscard]] __device__ __forceinline__ Real* row_of(const Shared& at, int n) const {
    return at.kernel + min(n, own_ - 1) * shape_.stride;
  }

  // Potentials take the scales in, which become 1, and exponentials are made. is_first: there are no scales.
  __device__ __attribute__((noinline)) void make_kernel(const Pass& pass, const Law& of_rows,
                                                        const Law& of_columns, int turn,
                                                        bool is_first) const {
    const Shared at = shared();
    __syncthreads();  // no thread reads the earlier contents of shared memory any more
    if (!is_first) {
      double* const w = rows_.current() + first_;
      double* const z = columns_.current() + first_column_;
      for_each(own_, [&](int n) { w[n] += log2(static_cast<double>(at.scales[turn * shape_.padded + n])); });
      for_each(own_columns_,
               [&](int k) { z[k] += log2(static_cast<double>(at.column_scales[turn * shape_.owned + k])); });
      team_.barrier();
    }
    const double rounder = rounder_of<Real>(static_cast<double>(reset(at, of_rows, of_columns)) * 1.000001);
    if (threadIdx.x < 6) at.block.flags[threadIdx.x] = 0;
    make_exponentials(at, static_cast<Real>(pass.k), rounder);
    __syncthreads();
  }
  // Writes potentials; `ends`: those of the rows after one more update, too.
  __device__ __attribute__((noinline)) void finish(int done, bool ends, ShortIterations& found) const {
    const Shared at = shared();
    const int turn = done % 2;
    const double* const from = rows_.current() + first_;
    double* const to = rows_.potentials((rows_.now + turn) % 2) + first_;
    double* const updated = rows_.potentials((rows_.now + turn + 1) % 2) + first_;
    double* const z = columns_.current() + first_column_;
    __syncthreads();
    KeptEnds mine;
    mine.out_of_range = ends && at.block.flags[turn] != 0 ? 1 : 0;
    for_each(own_, [&](int n) {
      const double w = from[n];
      to[n] = Scales::taken_in(mine.top[0], w, at.scales[turn * shape_.padded + n]);
      if (ends) updated[n] = Scales::taken_in(mine.updated, w, at.scales[(1 - turn) * shape_.padded + n]);
    });
    for_each(own_columns_, [&](int k) {
      z[k] = Scales::taken_in(mine.top[1], z[k], at.column_scales[turn * shape_.owned + k]);
    });
    team_.joined(mine).tell(ends, found);
  }

  const SolveParams<Real>& p_;
  Team& team_;
  const Side<Real>& rows_;
  const Side<Real>& columns_;
  const LongShape shape_;
  const int first_;  // the block's rows
  const int own_;
  const int first_column_;  // the columns whose scales the block updates
  const int own_columns_;
  const int blocks_;  // the number of blocks of the team
  Real* const records_;
  Real* const own_record_;

 private:
  // Scales become 1, and what they follow from is made. Returns the largest magnitude of the potentials.
  [[nodiscard]] __device__ __forceinline__ float reset(const Shared& at, const Law& of_rows,
                                                       const Law& of_columns) const {
    const double* const w = rows_.current() + first_;
    const double* const z = columns_.current();
    const auto of_column = [&](int j) {
      return Scales::point_of(columns_, rows_, of_columns, z[j], columns_.weight(j));
    };
    float top = 0;
    for_each(shape_.padded, [&](int n) {
      Point point{Scales::none_of(of_rows), 0};
      if (n < own_) {
        raise(top, w[n]);
        point = Scales::point_of(rows_, columns_, of_rows, w[n], rows_.weight(first_ + n));
      }
      at.rows[n] = point;
      at.scales[n] = at.scales[shape_.padded + n] = 1;
    });
    for_each(shape_.owned, [&](int k) {
      const int j = first_column_ + k;
      if (k < own_columns_) {
        at.columns[k] = of_column(j);
        at.column_scales[k] = at.column_scales[shape_.owned + k] = 1;
      } else if (j < shape_.stride) {
        all_scaled()[j] = 0;  // a column that does not exist
      }
    });
    for_quads([&](int q) {
      Quad scaled{};
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        const int j = 4 * q + c;
        if (j >= columns_.count) continue;
        raise(top, z[j]);
        scaled.v[c] = of_column(j).reference;
      }
      quad_at(at.scaled, q) = scaled;
    });
    top = cuda::reduce(top, [](float a, float b) { return larger(a, b); });
    if (threadIdx.x % 32 == 0) at.block.tops[threadIdx.x / 32] = top;
    __syncthreads();
    for (int warp = 0; warp < shape_.warps; ++warp) top = larger(top, at.block.tops[warp]);
    return top;
  }
  // The rows' potentials lie in the memory of the parts meanwhile.
  __device__ __forceinline__ void make_exponentials(const Shared& at, Real k, double rounder) const {
    const double* const potentials = rows_.current() + first_;
    const double* const column_potentials = columns_.current();
    Real* const hi = at.parts;
    Real* const lo = at.parts + shape_.padded;
    for_each(own_, [&](int n) {
      const Potential<Real> w = Potential<Real>::split(potentials[n], rounder);
      hi[n] = w.hi;
      lo[n] = w.lo;
    });
    __syncthreads();
    const KeptCosts<Real> costs(p_, rows_, columns_, first_);
    for_quads([&](int q) {
      Potential<Real> z[4];
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        const int j = 4 * q + c;
        z[c] = j < columns_.count ? Potential<Real>::split(column_potentials[j], rounder)
                                  : Potential<Real>{static_cast<Real>(-CUDART_INF), 0};
      }
#pragma unroll 1
      for (int first = 0; first < own_; first += kLongRowsAtOnce) {
        Quad e[kLongRowsAtOnce];
#pragma unroll
        for (int r = 0; r < kLongRowsAtOnce; ++r) e[r] = costs.quad(min(first + r, own_ - 1), 4 * q);
#pragma unroll
        for (int r = 0; r < kLongRowsAtOnce; ++r) {
          const int n = first + r;
          if (n >= own_) break;
          e[r] = costs.existing(e[r], 4 * q);
#pragma unroll
          for (int c = 0; c < 4; ++c) {
            e[r].v[c] = Scales::exponential(k, e[r].v[c], hi[n] + z[c].hi, lo[n] + z[c].lo);
          }
          quad_at(row_of(at, n), q) = e[r];
        }
      }
    });
  }
};

}  // namespace warpalign::detail::transport
