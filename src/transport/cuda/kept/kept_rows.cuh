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
//   of columns, which go to shared memory. Barrier.
//   2. 1 to 8 threads add up a column's sums, and update its scale, which goes to shared memory. Barrier.
// Blocks of a team tell each other their sums of columns in between (kept_team.cuh). Each of them updates all
// columns, from the same numbers in the same order.
#pragma once

#include "transport/cuda/costs/short_rows.cuh"
#include "transport/cuda/kept/kept_scales.cuh"
#include "transport/cuda/kept/kept_team.cuh"

namespace warpalign::detail::transport {

template <class Real_>
class KeptRows : public KeptTeam<Real_> {
 public:
  using Real = Real_;
  using Base = KeptTeam<Real_>;
  using Base::Base;
  static constexpr int kMostShortColumns = kMostKeptColumns<Real>;

  // At most `most` iterations from the current potentials on; none of partial transport. They end when no
  // potential moves by `tolerance` bits. Rows' potentials are then in the array number (now + done) % 2, the
  // columns' in the same one as before. Of the last one's moves it is told alone whether they were below the
  // tolerance. Where columns come first and no further iteration follows, rows may be updated once more, and
  // that update's potentials are in the next array. A barrier of the team.
  [[nodiscard]] __device__ __forceinline__ ShortIterations iterate(Team& team, const Pass& pass, int most,
                                                                   bool symmetric, float,
                                                                   double tolerance) const {
    if (p_.mass > 0) return {};
    const Course course = Scales::course_of(symmetric, tolerance);
    if constexpr (Base::kMostQuads == 4) {
      if (shape_.quads == 4) return iterations<4>(team, pass, most, course);
    }
    return iterations<2>(team, pass, most, course);
  }

 private:
  using Base::arrays;
  using Base::block;
  using Base::columns_;
  using Base::first_;
  using Base::group;
  using Base::own_;
  using Base::own_column;
  using Base::p_;
  using Base::place;
  using Base::rows_;
  using Base::shape_;
  using Base::shared;
  using Base::team_;
  using typename Base::CostRows;
  using typename Base::Quad;
  using typename Base::Shared;
  using Scales = KeptScales<Real>;
  using Course = typename Scales::Course;
  using Law = typename Scales::Law;
  using Point = typename Scales::Point;

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
  static __device__ __forceinline__ void update_rows(const Course& course, const Law& law, int turn,
                                                     bool& goes_on) {
    constexpr int kAtOnce = kept_rows_at_once<Real>(kQuads);
    const KeptBlock::Places at = block().places;
    int* const flags = block().flags + turn;
    const int lane_bits = kQuads == 4 ? 5 : at.lane_bits, lanes = 1 << lane_bits;
    const int place = static_cast<int>(threadIdx.x) & (lanes - 1);
    const int group = static_cast<int>(threadIdx.x) >> lane_bits, of_round = at.groups * kAtOnce;
    const int in_warp = static_cast<int>(threadIdx.x) % 32 >> lane_bits;  // the warp's groups before this one
    const Real* const kernel = arrays() + at.kernel;
    const Point* const points = reinterpret_cast<const Point*>(arrays() + at.points);
    const Real* const scales = arrays() + at.scales + turn * at.scales_stride;
    Real* const next = arrays() + at.scales + (1 - turn) * at.scales_stride;
    const bool reads_old = course.checks || course.symmetric;
    int offset[kQuads];   // the lane's columns within a row, or any that exist
    bool exists[kQuads];  // whether the lane has these columns
    Quad v[kQuads], acc[kQuads];
#pragma unroll
    for (int q = 0; q < kQuads; ++q) {
      const int j = 4 * (q * lanes + place);
      exists[q] = j < at.stride;
      offset[q] = min(j, at.stride - 4);
      v[q] = exists[q] ? *reinterpret_cast<const Quad*>(arrays() + at.scaled + offset[q]) : Quad{};
      acc[q] = Quad{};
    }
#pragma unroll 1
    for (int first = group * kAtOnce; first - in_warp * kAtOnce < at.own; first += of_round) {
      Quad e[kAtOnce][kQuads];
      Real sums[kAtOnce];
#pragma unroll
      for (int r = 0; r < kAtOnce; ++r) {
        const Real* const row = kernel + min(first + r, at.own - 1) * at.stride;
#pragma unroll
        for (int q = 0; q < kQuads; ++q) e[r][q] = *reinterpret_cast<const Quad*>(row + offset[q]);
      }
#pragma unroll
      for (int r = 0; r < kAtOnce; ++r) {
        Quad sum{};
#pragma unroll
        for (int q = 0; q < kQuads; ++q) {
#pragma unroll
          for (int c = 0; c < 4; ++c) sum.v[c] = fma(e[r][q].v[c], v[q].v[c], sum.v[c]);
        }
        sums[r] = (sum.v[0] + sum.v[1]) + (sum.v[2] + sum.v[3]);
      }
#pragma unroll 1
      for (int bit = 1; bit < lanes; bit *= 2) {
#pragma unroll
        for (int r = 0; r < kAtOnce; ++r) sums[r] += cuda::shuffle_xor(sums[r], bit);
      }
      Point of[kAtOnce];
      Real old[kAtOnce], to[kAtOnce];
#pragma unroll
      for (int r = 0; r < kAtOnce; ++r) {
        of[r] = points[first + r];
        old[r] = reads_old ? scales[first + r] : Real(1);
      }
      Scales::update(course, law, of, old, sums, flags, goes_on, to);
      if (place == 0) {
#pragma unroll
        for (int r = 0; r < kAtOnce; ++r) next[first + r] = to[r];
      }
#pragma unroll
      for (int r = 0; r < kAtOnce; ++r) {
        const Real factor = (course.symmetric ? old[r] : to[r]) * of[r].reference;
#pragma unroll
        for (int q = 0; q < kQuads; ++q) {
#pragma unroll
          for (int c = 0; c < 4; ++c) acc[q].v[c] = fma(e[r][q].v[c], factor, acc[q].v[c]);
        }
      }
    }
    Real* const stored = arrays() + group * at.part_stride;
#pragma unroll
    for (int q = 0; q < kQuads; ++q) {
      if (exists[q]) *reinterpret_cast<Quad*>(stored + offset[q]) = acc[q];
    }
  }
  // The sum of the thread's column over the block's rows, after a barrier.
  [[nodiscard]] static __device__ __forceinline__ Real sum_of_column() {
    const KeptBlock::Places& at = block().places;
    const int sharing = 1 << at.sharing_bits, sharer = static_cast<int>(threadIdx.x) & (sharing - 1);
    const int j = min(static_cast<int>(threadIdx.x) >> at.sharing_bits, at.stride - 1);
    const int stride = at.part_stride << at.sharing_bits;
    const Real* from = arrays() + sharer * at.part_stride + j;
    Real total = 0;
#pragma unroll 8
    for (int g = sharer; g < at.groups; g += sharing, from += stride) total += *from;
#pragma unroll 1
    for (int bit = 1; bit < sharing; bit *= 2) total += cuda::shuffle_xor(total, bit);
    return total;
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
      Point point{Scales::none_of(of_rows), 0};
      if (n < own_) {
        double w = potentials[n];
        if (!is_first) potentials[n] = w += log2(static_cast<double>(at.scales[turn * at.scales_stride + n]));
        if (!isinf(w)) top = larger(top, static_cast<float>(abs(w)));
        point = Scales::point_of(rows_, columns_, of_rows, w, rows_.weight(first_ + n));
      }
      reinterpret_cast<Point*>(at.rows)[n] = point;
      at.scales[n] = at.scales[at.scales_stride + n] = 1;
    }
    if (column.exists) {
      if (!is_first) column.at += log2(static_cast<double>(column.scale));
      column.scale = 1;
      column.point = Scales::point_of(columns_, rows_, of_columns, column.at, column.weight);
      if (!isinf(column.at)) top = larger(top, static_cast<float>(abs(column.at)));
    }
    top = cuda::reduce(top, [](float a, float b) { return larger(a, b); });
    if (threadIdx.x % 32 == 0) block().tops[threadIdx.x / 32] = top;
    __syncthreads();
    for (int warp = 0; warp < static_cast<int>(blockDim.x) / 32; ++warp)
      top = larger(top, block().tops[warp]);
    const double rounder = rounder_of<Real>(static_cast<double>(top) * 1.000001);
    if (threadIdx.x < 4) block().flags[threadIdx.x] = 0;
    if (column.writes) {
      const Potential<Real> z = Potential<Real>::split(column.at, rounder);
      at.hi[column.j] = column.exists ? z.hi : static_cast<Real>(-CUDART_INF);
      at.lo[column.j] = column.exists ? z.lo : Real(0);
      at.scaled[column.j] = column.exists ? column.point.reference : Real(0);
    }
    __syncthreads();
    const Real k = static_cast<Real>(pass.k);
    const CostRows costs = this->cost_rows();
    constexpr int kRows = 8 / kQuads;  // whose costs are on their way at a time
#pragma unroll 1
    for (int first = group(); first < own_; first += kRows * shape_.groups) {
      Quad e[kRows][kQuads];
#pragma unroll
      for (int r = 0; r < kRows; ++r) this->template load<kQuads>(costs, first + r * shape_.groups, e[r]);
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        const int n = first + r * shape_.groups;
        if (n >= own_) continue;
        const Potential<Real> w = Potential<Real>::split(potentials[n], rounder);
        this->template for_quads<kQuads>([&](int q, int j, bool exists) {
          if (!exists) return;
          const Quad hi = *reinterpret_cast<const Quad*>(at.hi + j);
          const Quad lo = *reinterpret_cast<const Quad*>(at.lo + j);
#pragma unroll
          for (int c = 0; c < 4; ++c) {
            e[r][q].v[c] = Scales::exponential(k, e[r][q].v[c], w.hi + hi.v[c], w.lo + lo.v[c]);
          }
          *reinterpret_cast<Quad*>(at.kernel + n * shape_.stride + j) = e[r][q];
        });
      }
    }
    __syncthreads();
    return column;
  }

  // Iterations between two times at which E is made, and what ended them.
  struct Stretch {
    int done;
    Real scale;            // of the thread's column
    bool in_range = true;  // false: the sums of one more were not, which has changed nothing
    bool is_over = false;  // whether no potential moves
    bool ends = false;     // whether rows have been updated once more
  };
  // Not inlined, and without calls of its own: no number of the callers takes a register of the loop.
  template <int kQuads>
  [[nodiscard]] __device__ __attribute__((noinline)) Stretch stretch(Team& team, Course course, Law of_rows,
                                                                     Law of_columns, Point point, Real scale,
                                                                     int done, int most) const {
    const bool ends_with_rows = !course.symmetric && !p_.rows_first;
    const KeptBlock::Places& at = block().places;
    const int blocks = at.blocks;
    Stretch s{done, scale};
    while (true) {
      const int turn = s.done % 2;
      int* const flags = block().flags + turn;
      bool goes_on = !course.checks;
      update_rows<kQuads>(course, of_rows, turn, goes_on);
      if (s.ends) break;
      int told = 0;
      if (blocks > 1) {
        told = __syncthreads_or(goes_on) ? 1 : 0;
        told |= flags[0] * 2 + flags[2] * 4;
      } else {
        __syncthreads();
      }
      const int j = static_cast<int>(threadIdx.x) >> at.sharing_bits;
      const bool exists = j < at.columns;
      const bool writes = exists && (static_cast<int>(threadIdx.x) & ((1 << at.sharing_bits) - 1)) == 0;
      Real sum = 0;
      if (blocks == 1) {
        sum = sum_of_column();
      } else if (at.in_cluster) {
        sum = Base::template joined_sum<Real>(Base::told_by_messages(s.done, told), j, exists, told);
      } else {
        const Real* const all = this->told_in_memory(team, j, writes, sum_of_column(), turn, told);
        sum = Base::template joined_sum<double>(all, j, exists, told);
      }
      goes_on = goes_on || told % 2 != 0;
      Real to[1] = {s.scale};
      if (exists) {
        Scales::template update<1>(course, of_columns, {point}, {s.scale}, {sum}, flags, goes_on, to);
        if (writes) arrays()[at.scaled + j] = to[0] * point.reference;
      }
      if (course.checks) {
        goes_on = __syncthreads_or(goes_on);
      } else {
        __syncthreads();
      }
      const bool left = flags[0] != 0 || told > 1;
      if (left && (flags[2] != 0 || told > 3)) {
        s.in_range = false;
        break;
      }
      s.scale = to[0];
      ++s.done;
      s.is_over = !goes_on;
      const bool is_last = s.is_over || s.done == most;
      s.ends = is_last && ends_with_rows;
      if ((left || is_last) && !s.ends) break;
    }
    __syncthreads();
    return s;
  }
  template <int kQuads>
  __device__ __attribute__((noinline)) ShortIterations iterations(Team& team, const Pass& pass, int most,
                                                                  Course course) const {
    const Law of_rows = Scales::law_of(rows_, pass.epsilon),
              of_columns = Scales::law_of(columns_, pass.epsilon);
    Column column{};
    column.j = own_column();
    column.exists = column.j < columns_.count;
    column.writes = (static_cast<int>(threadIdx.x) & (shape_.sharing - 1)) == 0 && column.j < shape_.stride;
    if (column.exists) {
      column.at = columns_.current()[column.j];
      column.weight = columns_.weight(column.j);
    }
    __syncthreads();  // no thread reads the earlier contents of shared memory any more
    if (threadIdx.x == 0) block().places = this->places();
    column = make_kernel<kQuads>(pass, of_rows, of_columns, 0, true, column);
    if (block().places.in_cluster) {
      if (threadIdx.x < 2) cuda::mailbox_init(block().boxes + threadIdx.x);
      cuda::cluster_sync();
    }
    ShortIterations found;
    bool is_over = false, ends = false;
    while (true) {
      const Stretch s =
          stretch<kQuads>(team, course, of_rows, of_columns, column.point, column.scale, found.done, most);
      found.done = s.done;
      found.in_range = s.in_range;
      column.scale = s.scale;
      is_over = s.is_over;
      ends = s.ends;
      if (!found.in_range || is_over || found.done == most) break;
      column = make_kernel<kQuads>(pass, of_rows, of_columns, found.done % 2, false, column);
    }
    found.last.moved[0] = course.moved(is_over);
    finish(team, column, ends, found);
    return found;
  }

  // Writes potentials; with `ends` those of the rows after one more update, too.
  __device__ __forceinline__ void finish(Team& team, const Column& column, bool ends,
                                         ShortIterations& found) const {
    const Shared at = shared();
    const int turn = found.done % 2;
    const double* const from = rows_.current() + first_;
    double* const to = rows_.potentials((rows_.now + turn) % 2) + first_;
    double* const updated = rows_.potentials((rows_.now + turn + 1) % 2) + first_;
    KeptEnds mine;
    mine.out_of_range = ends && block().flags[turn] != 0 ? 1 : 0;
    const auto taken_in = [](float& top, double at, Real scale) { return Scales::taken_in(top, at, scale); };
    for (int n = static_cast<int>(threadIdx.x); n < own_; n += static_cast<int>(blockDim.x)) {
      const double w = from[n];
      to[n] = taken_in(mine.top[0], w, at.scales[turn * at.scales_stride + n]);
      if (ends) updated[n] = taken_in(mine.updated, w, at.scales[(1 - turn) * at.scales_stride + n]);
    }
    if (column.exists) {
      const double z = taken_in(mine.top[1], column.at, column.scale);
      if (column.writes && team_.rank == 0) columns_.current()[column.j] = z;
    }
    const KeptEnds all = team.joined(mine);
    this->close_boxes();
    all.tell(ends, found);
  }
};

}  // namespace warpalign::detail::transport
