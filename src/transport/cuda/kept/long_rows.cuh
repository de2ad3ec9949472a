// Iterations on given costs with longer rows than those of kept_rows.cuh, whose exponentials E stay in shared
// memory all the same. E, the scales u and v, and their range are those of kept_rows.cuh.
//
// A block of the team owns neighbouring rows of E, all of them in its shared memory, and updates the scales
// of some neighbouring columns. A thread works on the quads of four neighbouring columns number t,
// t + threads, ... of its block's rows. In an iteration
//   1. a thread multiplies its columns of E by v and their weights, eight rows at a time. Lanes join their
//   parts of a row's sum by shuffles, warps in shared memory. Barrier. Some threads update the rows' scales
//   u. Barrier.
//   2. a thread multiplies its columns of E by u and the rows' weights. The block's sums of columns go to
//   global memory. Barrier of the team.
//   3. a warp joins all blocks' sums of a quad of its block's columns, in a fixed order and in float64,
//   because the rounding of a sum may be the same in every iteration, and updates v. v times the weights goes
//   to global memory. Barrier of the team. Every thread reads those of its quads.
// What a block writes to global memory between two barriers of the team, others read behind the second one,
// and it is written again behind the next one at the earliest.
#pragma once

#include "transport/cuda/costs/row_stream.cuh"
#include "transport/cuda/kept/kept_points.cuh"
#include "transport/cuda/kept/long_kernel.cuh"

namespace warpalign::detail::transport {

template <class Real>
class LongRows : public LongKernel<Real> {
 public:
  using LongKernel<Real>::LongKernel;

  // As KeptRows::iterate().
  [[nodiscard]] __device__ __attribute__((noinline)) ShortIterations run(const Pass& pass, int most,
                                                                         bool symmetric,
                                                                         double tolerance) const {
    const Course course = Scales::course_of(symmetric, tolerance);
    const Law of_rows = Scales::law_of(rows_, pass.epsilon),
              of_columns = Scales::law_of(columns_, pass.epsilon);
    this->make_kernel(pass, of_rows, of_columns, 0, true);
    Stretch s;
    while (true) {
      s = stretch(course, of_rows, of_columns, s.done, most);
      if (!s.in_range || s.is_over || s.done == most) break;
      this->make_kernel(pass, of_rows, of_columns, s.done % 2, false);
    }
    ShortIterations found;
    found.done = s.done;
    found.in_range = s.in_range;
    found.last.moved[0] = course.moved(s.is_over);
    this->finish(s.done, s.ends, found);
    return found;
  }

 private:
  using Base = LongKernel<Real>;
  using Base::blocks_;
  using Base::columns_;
  using Base::own_;
  using Base::own_columns_;
  using Base::p_;
  using Base::rows_;
  using Base::shape_;
  using Base::team_;
  using typename Base::Law;
  using typename Base::Point;
  using typename Base::Quad;
  using typename Base::Scales;
  using typename Base::Shared;
  using Course = typename Scales::Course;

  // Joins kCount numbers of every lane over the warp. A lane gets the sum number lane / (32 / kCount).
  template <class Number, int kCount>
  [[nodiscard]] static __device__ __forceinline__ Number joined_in_warp(Number (&v)[kCount]) {
    int bit = 16;
#pragma unroll
    for (int half = kCount / 2; half > 0; half /= 2, bit /= 2) {
      const bool is_upper = (threadIdx.x & bit) != 0;
#pragma unroll
      for (int r = 0; r < half; ++r) {
        const Number given = is_upper ? v[r] : v[r + half], kept = is_upper ? v[r + half] : v[r];
        v[r] = kept + cuda::shuffle_xor(given, bit);
      }
    }
#pragma unroll
    for (; bit > 0; bit /= 2) v[0] += cuda::shuffle_xor(v[0], bit);
    return v[0];
  }
  // The warp's parts of the sums of rows first ... first + kCount - 1.
  template <int kCount>
  __device__ __forceinline__ void add_rows(const Shared& at, int first) const {
    const Real* rows[kCount];
    Real sums[kCount] = {};
#pragma unroll
    for (int r = 0; r < kCount; ++r) rows[r] = this->row_of(at, first + r);
    this->for_quads([&](int q) {
      const Quad v = this->quad_at(at.scaled, q);
#pragma unroll
      for (int r = 0; r < kCount; ++r) {
        const Quad e = reinterpret_cast<const Quad*>(rows[r])[q];
#pragma unroll
        for (int c = 0; c < 4; ++c) sums[r] = fma(e.v[c], v.v[c], sums[r]);
      }
    });
    const Real sum = joined_in_warp(sums);
    constexpr int kLanes = 32 / kCount;
    const int thread = static_cast<int>(threadIdx.x), lane = thread % 32;
    if (lane % kLanes == 0) at.parts[thread / 32 * shape_.padded + first + lane / kLanes] = sum;
  }

  // Step 1.
  __device__ __forceinline__ void update_rows(const Shared& at, const Course& course, const Law& law,
                                              int turn) const {
    constexpr int kHalf = kLongRowsAtOnce / 2;
    int first = 0;
#pragma unroll 1
    for (; own_ - first > kHalf; first += kLongRowsAtOnce) add_rows<kLongRowsAtOnce>(at, first);
    if (first < own_) add_rows<kHalf>(at, first);
    __syncthreads();
    const Real* const scales = at.scales + turn * shape_.padded;
    Real* const next = at.scales + (1 - turn) * shape_.padded;
    int* const flags = at.block.flags + turn;
    this->for_each(shape_.padded, [&](int n) {
      const Point point = at.rows[n];
      const Real old[1] = {scales[n]};
      Real to[1] = {1};
      if (n < own_) {
        double sum = 0;
#pragma unroll 8
        for (int warp = 0; warp < shape_.warps; ++warp) {
          sum += static_cast<double>(at.parts[warp * shape_.padded + n]);
        }
        const Real sums[1] = {static_cast<Real>(sum)};
        bool goes_on = false;
        Scales::template update<1>(course, law, {point}, old, sums, flags, goes_on, to);
        if (goes_on) flags[kGoesOn] = 1;
      }
      next[n] = to[0];
      at.factors[n] = (course.symmetric ? old[0] : to[0]) * point.reference;
    });
    __syncthreads();
  }
  // Step 2.
  __device__ __forceinline__ void tell_columns(const Shared& at) const {
    this->for_quads([&](int q) {
      Quad sums{};
#pragma unroll 2
      for (int first = 0; first < own_; first += 4) {
        const Quad factors = this->quad_at(at.factors, first / 4);
#pragma unroll
        for (int r = 0; r < 4; ++r) {
          const Quad e = this->quad_at(this->row_of(at, first + r), q);
#pragma unroll
          for (int c = 0; c < 4; ++c) sums.v[c] = fma(e.v[c], factors.v[r], sums.v[c]);
        }
      }
      this->quad_at(this->own_record_, q) = sums;
    });
    team_.barrier();
  }
  // Step 3 but for its barrier.
  __device__ __forceinline__ void update_columns(const Shared& at, const Course& course, const Law& law,
                                                 int turn) const {
    const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
    const int numbers = this->record_numbers();
    const Real* const scales = at.column_scales + turn * shape_.owned;
    Real* const next = at.column_scales + (1 - turn) * shape_.owned;
    int* const flags = at.block.flags + turn;
#pragma unroll 1
    for (int first = 4 * warp; first < own_columns_; first += 4 * shape_.warps) {
      const Real* const from = this->records_ + this->first_column_ + first;
      double total[4] = {};
#pragma unroll 5
      for (int b = lane; b < blocks_; b += 32) {
        const Quad v = *reinterpret_cast<const Quad*>(from + static_cast<std::int64_t>(b) * numbers);
#pragma unroll
        for (int c = 0; c < 4; ++c) total[c] += static_cast<double>(v.v[c]);
      }
      const Real sums[1] = {static_cast<Real>(joined_in_warp(total))};  // of column lane / 8
      const int k = first + lane / 8;
      if (lane % 8 > 0 || k >= own_columns_) continue;
      const Point point = at.columns[k];
      bool goes_on = false;
      Real to[1];
      Scales::template update<1>(course, law, {point}, {scales[k]}, sums, flags, goes_on, to);
      if (goes_on) flags[kGoesOn] = 1;
      next[k] = to[0];
      this->all_scaled()[this->first_column_ + k] = to[0] * point.reference;
    }
  }
  // Tells the others the block's flags, waits for all blocks, and returns all blocks' flags: 1: a potential
  // moves, 2: a scale has left its range, 4: a sum has. Reads v of the thread's quads.
  [[nodiscard]] __device__ __forceinline__ int exchanged(const Shared& at, int turn) const {
    __syncthreads();
    if (threadIdx.x == 0) {
      const int* const flags = at.block.flags + turn;
      this->own_record_[shape_.stride] = static_cast<Real>((flags[kGoesOn] != 0 ? 1 : 0) |
                                                           (flags[0] != 0 ? 2 : 0) | (flags[2] != 0 ? 4 : 0));
      at.block.flags[kGoesOn + 1 - turn] = 0;
    }
    team_.barrier();
    const int numbers = this->record_numbers();
    const Real* const words = this->records_ + shape_.stride;
    int told = 0;
#pragma unroll 5
    for (int b = static_cast<int>(threadIdx.x) % 32; b < blocks_; b += 32) {
      told |= static_cast<int>(words[static_cast<std::int64_t>(b) * numbers]);
    }
    this->for_quads([&](int q) { this->quad_at(at.scaled, q) = this->quad_at(this->all_scaled(), q); });
    return cuda::reduce(told, [](int x, int y) { return x | y; });
  }

  // Iterations between two times at which E is made, and what ended them.
  struct Stretch {
    int done = 0;
    bool in_range = true;  // false: the sums of one more were not, which has changed nothing
    bool is_over = false;  // whether no potential moves
    bool ends = false;     // whether rows have been updated once more
  };
  // Not inlined, and on a copy: what does not change stays in registers.
  [[nodiscard]] __device__ __attribute__((noinline)) Stretch stretch(const Course course, const Law of_rows,
                                                                     const Law of_columns, int done,
                                                                     int most) const {
    const LongRows me(*this);
    const Shared at = me.shared();
    const bool ends_with_rows = !course.symmetric && !p_.rows_first;
    Stretch s;
    s.done = done;
    while (true) {
      const int turn = s.done % 2;
      me.update_rows(at, course, of_rows, turn);
      if (s.ends) break;
      me.tell_columns(at);
      me.update_columns(at, course, of_columns, turn);
      const int told = me.exchanged(at, turn);
      const bool left = (told & 2) != 0;
      if (left && (told & 4) != 0) {
        s.in_range = false;
        break;
      }
      ++s.done;
      s.is_over = course.checks && (told & 1) == 0;
      const bool is_last = s.is_over || s.done == most;
      s.ends = is_last && ends_with_rows;
      if ((left || is_last) && !s.ends) break;
    }
    return s;
  }
};

// Passes over costs, given or made of points, with iterations on kept exponentials where the layout has room
// for them.
template <class Passes>
class LongKept : public Passes {
 public:
  using Real = typename Passes::Real;
  using Passes::Passes;
  static constexpr int kMostShortColumns = Passes::kShape.columns();
  static_assert(Passes::kShape.width == kLongThreads<Real> && kMostShortColumns >= kMostLongColumns);
  static constexpr bool kHasPoints = !Passes::kHalf;  // whether costs may be made of points

  static std::size_t shared_bytes(const SolveLayout& layout) {
    const std::size_t of_passes = Passes::shared_bytes(layout);
    return layout.rows > 0 ? std::max(of_passes, long_shared_bytes<Real>(layout)) : of_passes;
  }

  [[nodiscard]] __device__ __forceinline__ ShortIterations iterate(Team& team, const Pass& pass, int most,
                                                                   bool symmetric, float,
                                                                   double tolerance) const {
    if (p_.layout.rows == 0 || p_.mass > 0) return {};
    return LongRows<Real>(p_, team, rows_, columns_).run(pass, most, symmetric, tolerance);
  }

  __device__ __attribute__((noinline)) float prepare() const {
    if constexpr (kHasPoints) {
      points().prepare();
      // Passes copy these costs in bulk, which is another proxy. A barrier of the team follows.
      if (kHasRowStreams && sizeof(Real) == 4 && p_.dim > 0) cuda::fence_bulk();
    }
    return 0;
  }
  __device__ __attribute__((noinline)) void write_gradients(const Pass& pass) const {
    if constexpr (kHasPoints) points().write_gradients(pass);
  }

 private:
  using Passes::columns_;
  using Passes::p_;
  using Passes::rows_;
  using Passes::team_;

  [[nodiscard]] __device__ __forceinline__ KeptPoints<Real> points() const {
    return {p_, team_, rows_, columns_};
  }
};

}  // namespace warpalign::detail::transport
