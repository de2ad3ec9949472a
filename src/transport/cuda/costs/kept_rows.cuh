// Problems whose exponentials stay in shared memory for many iterations.
//
// At fixed potentials w and z, E[i,j] = 2^(w[i] + z[j] - k C[i,j]). Later potentials are w[i] + log2 u[i] and
// z[j] + log2 v[j], so that an iteration (Schmitzer, SIAM J. Sci. Comput. 2019) is
//
//   s[i] = sum_j b[j] E[i,j] v[j],   u[i] <- u of s[i],   r[j] = sum_i a[i] E[i,j] u[i],   v[j] <- v of r[j]
//
// without exponentials: u = (weight / reference weight) / s on a balanced side, and a power of s on a relaxed
// one. When a scale leaves [2^-kMostBits, 2^kMostBits], potentials take the scales in, and E is made anew. So
// the exponent of each number that matters is small, and its rounding error too.
//
// In an iteration
//   1. a group of lanes makes its rows' sums, updates their scales, and adds their exponentials to its sums
//   of
//      columns, which go to shared memory. Barrier.
//   2. 1 to 8 threads add up the sums of a column, and update its scale, which goes to shared memory.
//   Barrier.
// Blocks of a team exchange sums of columns in between: those of a cluster in shared memory, others in global
// memory, with a barrier of the team. Each of them updates all columns, from the same numbers in the same
// order.
#pragma once

#include "cuda/threads/cluster.cuh"
#include "transport/cuda/costs/kept_passes.cuh"
#include "transport/cuda/costs/short_rows.cuh"
#include "transport/cuda/solve/change.cuh"

namespace warpalign::detail::transport {

template <class Real_>
class KeptRows : public KeptPasses<Real_> {
 public:
  using Real = Real_;
  using Base = KeptPasses<Real_>;
  using Base::Base;
  static constexpr int kMostShortColumns = kMostKeptColumns<Real>;

  // At most `most` iterations from the current potentials on; none of partial transport. They end when no
  // potential moves by `tolerance` bits. Rows' potentials are then in the array number (now + done) % 2, the
  // columns' in the same one as before. Of the last one's moves it is told alone whether they were below the
  // tolerance. A barrier of the team.
  [[nodiscard]] __device__ __forceinline__ ShortIterations iterate(Team& team, const Pass& pass, int most,
                                                                   bool symmetric, float,
                                                                   double tolerance) const {
    if (p_.mass > 0) return {};
    if constexpr (Base::kMostQuads == 4) {
      if (shape_.quads == 4) return iterations<4>(team, pass, most, symmetric, tolerance);
    }
    return iterations<2>(team, pass, most, symmetric, tolerance);
  }

 private:
  using Base::columns_;
  using Base::costs_of_quad;
  using Base::first_;
  using Base::group;
  using Base::kAtOnce;
  using Base::own_;
  using Base::own_column;
  using Base::p_;
  using Base::place;
  using Base::rows_;
  using Base::shape_;
  using Base::shared;
  using Base::team_;
  using Base::total_of_column;
  using typename Base::Quad;
  using typename Base::Shared;
  static constexpr int kMostBits = 8;
  static constexpr Real kHigh = 1 << kMostBits, kLow = Real(1) / kHigh;
  // Sums in range, with the point's own scale. Exponentials of smaller ones may have lost digits.
  static constexpr Real kLeastSum = 0x1p-60, kMostSum = 0x1p100;
  // From here on a relative change is not log2 of the quotient in first order.
  static constexpr double kCoarse = 0x1p-10;

  // How a side's scales follow from their sums.
  struct Law {
    bool is_hard;
    double slope;
  };
  static __device__ __forceinline__ Law law_of(const Side<Real>& side, double epsilon) {
    const Marginal& m = side.marginal;
    return {m.is_hard(), m.is_hard() ? 1.0 : m.strength / (m.strength + epsilon)};
  }
  // Of a point: numbers that do not change between two times at which E is made.
  struct alignas(16) Point {
    Real target;     // of the update
    Real reference;  // weight in the reference
    Real fixed;      // 1: its scale is `target`, whatever the sum
    Real unused;
  };
  static __device__ __forceinline__ Point point_of(const Side<Real>& side, const Law& law, double at,
                                                   double weight) {
    double target = side.product ? 1.0 : weight;
    if (law.slope == 0) {
      target = isinf(at) ? CUDART_NAN : exp2(-at);
    } else if (isinf(at)) {
      target = 1;
    } else if (!law.is_hard) {
      target = law.slope * (at + side.target(weight)) - at;
    }
    return {static_cast<Real>(target), static_cast<Real>(side.reference(weight)),
            Real(law.slope == 0 || isinf(at) ? 1 : 0), 0};
  }
  static __device__ __forceinline__ Real reciprocal(Real v) {
    if constexpr (sizeof(Real) == 4) return cuda::reciprocal_fast(v);
    return 1 / v;
  }
  static __device__ __forceinline__ Real root(Real v) {
    if constexpr (sizeof(Real) == 4) return cuda::sqrt_fast(v);
    return sqrt(v);
  }

  // What decides how iterations go on.
  struct Course {
    bool symmetric;
    bool checks;     // whether moves are looked at
    bool is_coarse;  // the tolerance is
    Real tolerance;  // in bits
  };
  // The new scale. goes_on: whether the point moves by the tolerance. Leaves flags of a scale or a sum out of
  // range.
  __device__ __forceinline__ Real updated(const Course& course, const Law& law, const Point& point, Real old,
                                          Real sum, int turn, bool& goes_on) const {
    const bool fixed = point.fixed != 0;
    Real to = point.target;
    if (!fixed) {
      to = law.is_hard ? to * reciprocal(sum) : exp2_of(to - static_cast<Real>(law.slope) * log2(sum));
    }
    const Real whole = old * sum;
    const bool in_range = whole <= kMostSum && (fixed || whole >= kLeastSum);
    if (!(in_range && to >= kLow && to <= kHigh)) {
      int* const flags = shared().flags;
      flags[turn] = 1;
      if (!in_range || isnan(to)) flags[2 + turn] = 1;
    }
    if (course.checks) {
      const Real change = (to - old) * reciprocal(old);
      const Real bits = course.is_coarse ? log2(1 + change) : change * kLog2E<Real>;
      goes_on = goes_on || !(abs(bits) < course.tolerance);
    }
    return course.symmetric ? root(old * to) : to;
  }

  // A thread's column, shared with its neighbours.
  struct Column {
    int j;
    bool exists;
    bool writes;
    double at;  // potential without the scale
    double weight;
    Point point;
    Real scale;
  };

  // Step 1 of an iteration.
  template <int kQuads>
  __device__ __forceinline__ void update_rows(const Course& course, const Law& law, int turn,
                                              bool& goes_on) const {
    const Shared at = shared();
    const auto* const points = reinterpret_cast<const Point*>(at.rows);
    const Real* const scales = at.scales + turn * at.scales_stride;
    Real* const next = at.scales + (1 - turn) * at.scales_stride;
    const int lanes = shape_.lanes, of_round = shape_.groups * kAtOnce;
    const int end = cuda::div_up(own_, of_round) * of_round;
    Quad v[kQuads], acc[kQuads];
    this->template for_quads<kQuads>([&](int q, int j, bool exists) {
      v[q] = exists ? *reinterpret_cast<const Quad*>(at.scaled + j) : Quad{};
      acc[q] = Quad{};
    });
    for (int n = group() * kAtOnce; n < end; n += of_round) {
      Quad e[kAtOnce][kQuads];
      Real sums[kAtOnce];
#pragma unroll
      for (int r = 0; r < kAtOnce; ++r) {
        const Real* const row = at.kernel + min(n + r, own_ - 1) * shape_.stride;
        Quad sum{};
        this->template for_quads<kQuads>([&](int q, int j, bool exists) {
          e[r][q] = exists ? *reinterpret_cast<const Quad*>(row + j) : Quad{};
#pragma unroll
          for (int c = 0; c < 4; ++c) sum.v[c] = fma(e[r][q].v[c], v[q].v[c], sum.v[c]);
        });
        sums[r] = (sum.v[0] + sum.v[1]) + (sum.v[2] + sum.v[3]);
      }
#pragma unroll
      for (int bit = 1; bit < 32; bit *= 2) {
        if (bit >= lanes) continue;
#pragma unroll
        for (int r = 0; r < kAtOnce; ++r) sums[r] += cuda::shuffle_xor(sums[r], bit);
      }
#pragma unroll
      for (int r = 0; r < kAtOnce; ++r) {
        const Point point = points[n + r];
        const Real old = scales[n + r];
        const Real to = updated(course, law, point, old, sums[r], turn, goes_on);
        if (place() == 0) next[n + r] = to;
        const Real factor = (course.symmetric ? old : to) * point.reference;
#pragma unroll
        for (int q = 0; q < kQuads; ++q) {
#pragma unroll
          for (int c = 0; c < 4; ++c) acc[q].v[c] = fma(e[r][q].v[c], factor, acc[q].v[c]);
        }
      }
    }
    this->template store_parts<kQuads>(acc);
  }

  // Potentials take the scales in, which become 1, and E is made. is_first: there are none yet. Resets flags.
  // Returns the column, which is a copy so that it stays in registers between the calls.
  template <int kQuads>
  [[nodiscard]] __device__ __attribute__((noinline)) Column make_kernel(const Pass& pass, const Law& of_rows,
                                                                        const Law& of_columns, int turn,
                                                                        bool is_first, Column column) const {
    const Shared at = shared();
    double* const potentials = rows_.current() + first_;
    float top = 0;
    for (int n = static_cast<int>(threadIdx.x); n < shape_.padded; n += static_cast<int>(blockDim.x)) {
      Point point{1, 0, 1, 0};
      if (n < own_) {
        double w = potentials[n];
        if (!is_first) potentials[n] = w += log2(static_cast<double>(at.scales[turn * at.scales_stride + n]));
        if (!isinf(w)) top = larger(top, static_cast<float>(abs(w)));
        point = point_of(rows_, of_rows, w, rows_.weight(first_ + n));
      }
      reinterpret_cast<Point*>(at.rows)[n] = point;
      at.scales[n] = at.scales[at.scales_stride + n] = 1;
    }
    if (column.exists) {
      if (!is_first) column.at += log2(static_cast<double>(column.scale));
      column.scale = 1;
      column.point = point_of(columns_, of_columns, column.at, column.weight);
      if (!isinf(column.at)) top = larger(top, static_cast<float>(abs(column.at)));
    }
    top = cuda::reduce(top, [](float a, float b) { return larger(a, b); });
    if (threadIdx.x % 32 == 0) at.tops[threadIdx.x / 32] = top;
    __syncthreads();
    for (int warp = 0; warp < static_cast<int>(blockDim.x) / 32; ++warp) top = larger(top, at.tops[warp]);
    const double rounder = rounder_of<Real>(static_cast<double>(top) * 1.000001);
    if (threadIdx.x < 4) at.flags[threadIdx.x] = 0;
    if (column.writes) {
      const Potential<Real> z = Potential<Real>::split(column.at, rounder);
      at.hi[column.j] = column.exists ? z.hi : static_cast<Real>(-CUDART_INF);
      at.lo[column.j] = column.exists ? z.lo : Real(0);
      at.scaled[column.j] = column.exists ? column.point.reference : Real(0);
    }
    __syncthreads();
    const Real k = static_cast<Real>(pass.k);
    for (int n = group(); n < own_; n += shape_.groups) {
      const Potential<Real> w = Potential<Real>::split(potentials[n], rounder);
      this->template for_quads<kQuads>([&](int, int j, bool exists) {
        if (!exists) return;
        const Quad costs = costs_of_quad(n, j);
        const Quad hi = *reinterpret_cast<const Quad*>(at.hi + j);
        const Quad lo = *reinterpret_cast<const Quad*>(at.lo + j);
        Quad e;
#pragma unroll
        for (int c = 0; c < 4; ++c) {
          Real t = fma(-k, costs.v[c], w.hi + hi.v[c]);
          if constexpr (sizeof(Real) == 4) t += w.lo + lo.v[c];
          e.v[c] = exp2_of(t);
        }
        *reinterpret_cast<Quad*>(at.kernel + n * shape_.stride + j) = e;
      });
    }
    __syncthreads();
    return column;
  }

  // The column's sum over the rows of all blocks. told: flags of this block's rows as bits, then of all
  // blocks'. Two places take turns, so that one barrier is enough. The blocks of a cluster write into each
  // other's shared memory.
  __device__ __forceinline__ Real exchanged(Team& team, const Column& column, Real sum, int turn,
                                            int& told) const {
    const bool in_cluster = p_.layout.cluster > 1;
    const int stride = shape_.stride + kToldFlags;
    Real* const all = in_cluster ? shared().received + turn * team_.blocks * stride
                                 : p_.kept_sums + (static_cast<std::int64_t>(team_.index) * 2 + turn) *
                                                      team_.blocks * stride;
    Real* const own = all + team_.rank * stride;
    const bool tells_column = column.exists && column.writes;
    if (in_cluster) {
      for (int block = 0; block < team_.blocks; ++block) {
        Real* const there = cuda::in_block(own, block);
        if (tells_column) there[column.j] = sum;
        if (threadIdx.x == 0) there[stride - 1] = static_cast<Real>(told);
      }
      cuda::cluster_sync();
    } else {
      if (tells_column) own[column.j] = sum;
      if (threadIdx.x == 0) own[stride - 1] = static_cast<Real>(told);
      team.barrier();
    }
    told = 0;
    for (int block = static_cast<int>(threadIdx.x) % 32; block < team_.blocks; block += 32) {
      told |= static_cast<int>(all[block * stride + stride - 1]);
    }
    told = cuda::reduce(told, [](int a, int b) { return a | b; });
    if (!column.exists) return 0;
    const Real* from = all + column.j;
    double total = 0;
#pragma unroll 8
    for (int block = 0; block < team_.blocks; ++block, from += stride) total += static_cast<double>(*from);
    return static_cast<Real>(total);
  }

  template <int kQuads>
  __device__ __attribute__((noinline)) ShortIterations iterations(Team& team, const Pass& pass, int most,
                                                                  bool symmetric, double tolerance) const {
    const Law of_rows = law_of(rows_, pass.epsilon), of_columns = law_of(columns_, pass.epsilon);
    const Course course{symmetric, tolerance > 0, tolerance >= kCoarse, static_cast<Real>(tolerance)};
    const bool shares = team_.blocks > 1;
    const Shared at = shared();
    Column column{};
    column.j = own_column();
    column.exists = column.j < columns_.count;
    column.writes = static_cast<int>(threadIdx.x) % shape_.sharing == 0 && column.j < shape_.stride;
    if (column.exists) {
      column.at = columns_.current()[column.j];
      column.weight = columns_.weight(column.j);
    }
    // A copy, whose address no call gets: its numbers stay in registers, where those of *this would be loaded
    // again after every store.
    const KeptRows me(*this);
    __syncthreads();  // no thread reads the earlier contents of shared memory any more
    column = make_kernel<kQuads>(pass, of_rows, of_columns, 0, true, column);
    ShortIterations found;
    while (found.done < most) {
      const int turn = found.done % 2;
      bool goes_on = !course.checks;
      me.template update_rows<kQuads>(course, of_rows, turn, goes_on);
      int told = 0;
      if (shares) {
        told = __syncthreads_or(goes_on) ? 1 : 0;
        told |= at.flags[turn] * 2 + at.flags[2 + turn] * 4;
      } else {
        __syncthreads();
      }
      Real sum = me.total_of_column(column.j);
      if (shares) {
        sum = me.exchanged(team, column, sum, turn, told);
        goes_on = goes_on || told % 2 != 0;
      }
      Real to = column.scale;
      if (column.exists) {
        to = me.updated(course, of_columns, column.point, column.scale, sum, turn, goes_on);
        if (column.writes) at.scaled[column.j] = to * column.point.reference;
      }
      goes_on = __syncthreads_or(goes_on);
      const bool left = at.flags[turn] != 0 || told > 1;
      if (left && (at.flags[2 + turn] != 0 || told > 3)) {
        found.in_range = false;
        break;
      }
      column.scale = to;
      ++found.done;
      found.last.moved[0] = larger(1e-30F, 1.001F * static_cast<float>(tolerance));
      if (!goes_on) {
        found.last.moved[0] = 0;
        break;
      }
      if (left && found.done < most) {
        column = make_kernel<kQuads>(pass, of_rows, of_columns, found.done % 2, false, column);
      }
    }
    finish(team, column, found);
    return found;
  }

  // Writes potentials.
  __device__ __forceinline__ void finish(Team& team, const Column& column, ShortIterations& found) const {
    const double* const from = rows_.current() + first_;
    double* const to = rows_.potentials((rows_.now + found.done) % 2) + first_;
    const Real* const scales = shared().scales + found.done % 2 * shared().scales_stride;
    Change mine;
    const auto taken_in = [&](int side, double at, Real scale) {
      const double w = at + log2(static_cast<double>(scale));
      if (!isinf(w)) mine.top[side] = larger(mine.top[side], static_cast<float>(abs(w)) * 1.000001f);
      return w;
    };
    for (int n = static_cast<int>(threadIdx.x); n < own_; n += static_cast<int>(blockDim.x)) {
      to[n] = taken_in(0, from[n], scales[n]);
    }
    if (column.exists) {
      const double z = taken_in(1, column.at, column.scale);
      if (column.writes && team_.rank == 0) columns_.current()[column.j] = z;
    }
    const Change all = team.joined(mine);
    found.last.top[0] = all.top[0];
    found.last.top[1] = all.top[1];
  }
};

}  // namespace warpalign::detail::transport
