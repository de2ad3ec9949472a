// Iterations on given costs whose rows are short, one after the other in a single loop, with all numbers of
// the columns on chip.
//
// 1 to 32 neighbouring lanes own a row. Lane l of them has its columns l, l + lanes, l + 2 lanes, ... The
// block's rows go to its groups of lanes in turns. In an iteration
//   1. a group makes 2^(hi parts - k C) of its row, once, and the row's sum. It updates the row's potential,
//      and adds the exponentials times the row's factor to its lanes' sums of columns. 2^lo of a row and of a
//      column are factors of their weights.
//   2. The warps' sums of columns meet in shared memory, and those of several blocks in global memory. Every
//      block updates all columns, from the same numbers in the same order.
//   3. The block joins the largest moves, which give the grid of the next hi parts.
// So a team of several blocks has one barrier in an iteration, and a team of one block has none.
#pragma once

#include "cuda/numbers/half.cuh"
#include "transport/cuda/costs/pass.cuh"
#include "transport/cuda/solve/change.cuh"
#include "transport/cuda/solve/side.cuh"

namespace warpalign::detail::transport {

// The largest moves of both sides' potentials, in bits, as in Change. 16 bytes are read at a time.
struct alignas(16) ShortMoves {
  float moved[2] = {0, 0};
  float top[2] = {0, 0};
  float gap = 0;
  float out_of_range = 0;

  __device__ __forceinline__ void join(const ShortMoves& other) {
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      moved[k] = larger(moved[k], other.moved[k]);
      top[k] = larger(top[k], other.top[k]);
    }
    gap = larger(gap, other.gap);
    out_of_range = larger(out_of_range, other.out_of_range);
  }
};

// What came of some iterations.
struct ShortIterations {
  int done = 0;          // iterations whose sums were in range
  bool in_range = true;  // false: those of one more were not, which has changed nothing
  int ends = 0;          // 1: rows have been updated once more, as the solve ends where columns come first
  ShortMoves last;       // of the last one that is done
};

// kMostColumns: of a row, at most.
template <class Real, class Stored, int kMostColumns>
class ShortRows {
 public:
  __device__ __forceinline__ ShortRows(const SolveParams<Real>& p, Team& team, const Side<Real>& rows,
                                       const Side<Real>& columns, bool symmetric)
      : p_(p), team_(team), rows_(rows), columns_(columns), symmetric_(symmetric) {
    constexpr int kFew =
        kColumns < 8 || sizeof(Real) == 8 ? 4 : 8;  // columns of a lane, while lanes are left
    while (lanes_ < 32 && lanes_ * kFew < columns.count) lanes_ *= 2;
    quads_ = cuda::div_up(columns.count, 4 * lanes_);
  }

  // Bytes of shared memory behind the scratch memory of a block.
  static constexpr std::size_t shared_bytes(int threads) {
    return kMostColumns * (2 * sizeof(double) + sizeof(Column)) +
           threads / 32 * (kMostColumns * sizeof(Real) + sizeof(ShortMoves));
  }

  // Whether the problem is of these. A lane adds at most kMostRounds numbers before they go to others.
  [[nodiscard]] __device__ __forceinline__ bool serves() const {
    const int rows = cuda::div_up(rows_.count, p_.layout.row_groups);
    return p_.mass == 0 && p_.layout.segments == 1 && columns_.p.length <= kMostColumns &&
           cuda::div_up(rows, slots()) <= kMostRounds;
  }

  // At most `most` iterations from the current potentials on, while each is in range and follows from a step
  // of at most `near` bits. They end when no potential moves by `tolerance` bits. Rows' potentials of
  // iteration n are in the array number (now + n) % 2, the columns' in the same one as before. A barrier of
  // the team.
  __device__ __attribute__((noinline)) ShortIterations run(const Pass& pass, int most, float near,
                                                           double tolerance) const {
    const Law laws[2] = {law_of(rows_, pass.epsilon), law_of(columns_, pass.epsilon)};
    const Real k = static_cast<Real>(pass.k);
    const Places at = places();
    __syncthreads();  // no thread reads the earlier contents of shared memory any more
    for_columns([&](int j) { at.potentials[0][j] = columns_.current()[j]; });
    for (int j = columns_.count + static_cast<int>(threadIdx.x); j < 4 * quads_ * lanes_;
         j += static_cast<int>(blockDim.x)) {
      at.columns[j] = {0, 0};
    }
    ShortIterations found;
    double largest = pass.largest;
    while (found.done < most) {
      const double* const z = at.potentials[found.done % 2];
      double* const next = at.potentials[(found.done + 1) % 2];
      const double rounder = rounder_of<Real>(largest);
      for_columns([&](int j) {
        const Potential<Real> v = Potential<Real>::split(z[j], rounder);
        const Real weight = static_cast<Real>(columns_.reference(columns_.weight(j)));
        at.columns[j] = {v.hi, weight * power_of_lo(v.lo)};
      });
      __syncthreads();
      ShortMoves mine;
      pass_over_rows(laws[0], k, rounder, found.done, mine);
      if (team_.blocks > 1) record(mine);
      __syncthreads();
      const Real* parts = at.sums;
      int count = static_cast<int>(blockDim.x) / 32, stride = kMostColumns;
      if (team_.blocks > 1) {
        parts = exchanged(found.done % 2, mine);
        count = team_.blocks;
        stride = columns_.p.length + kShortMoves;
      }
      for_columns([&](int j) {
        double sum = 0;
        for (int part = 0; part < count; ++part) sum += static_cast<double>(parts[part * stride + j]);
        const double lo = static_cast<double>(Potential<Real>::split(z[j], rounder).lo);
        const double log2_sum = static_cast<double>(log2(static_cast<Real>(sum))) + lo;
        next[j] = updated(laws[1], 1, z[j], columns_.weight(j), log2_sum, mine);
      });
      record(mine);
      __syncthreads();
      const ShortMoves all = joined();
      if (all.out_of_range != 0) {
        found.in_range = false;
        break;
      }
      found.last = all;
      ++found.done;
      largest = max(static_cast<double>(all.top[0]), static_cast<double>(all.top[1]));
      const float moved = larger(all.moved[0], all.moved[1]);
      if (!(moved <= near && all.gap <= near) || static_cast<double>(moved) < tolerance) break;
    }
    if (team_.rank == 0) {
      for_columns([&](int j) { columns_.current()[j] = at.potentials[found.done % 2][j]; });
    }
    team_.barrier();
    return found;
  }

 private:
  static constexpr int kColumns = kMostColumns / 32;  // of a lane, at most
  static constexpr int kMostRounds = 128;
  static constexpr double kSmallest = -60;  // log2 of sums that keep their digits
  static_assert(kMostColumns % 128 == 0 && kMostColumns <= kMostShortColumns);

  struct alignas(2 * sizeof(Real)) Column {
    Real hi;
    Real weight;  // in the reference, times 2^lo
  };
  struct Places {
    double* potentials[2];
    Column* columns;
    Real* sums;  // (warps, kMostColumns)
    ShortMoves* moves;
  };
  [[nodiscard]] static __device__ __forceinline__ Places places() {
    auto* const first = reinterpret_cast<double*>(cuda::dynamic_shared() + kScratchBytes);
    auto* const columns = reinterpret_cast<Column*>(first + 2 * kMostColumns);
    auto* const sums = reinterpret_cast<Real*>(columns + kMostColumns);
    return {{first, first + kMostColumns},
            columns,
            sums,
            reinterpret_cast<ShortMoves*>(sums + static_cast<int>(blockDim.x) / 32 * kMostColumns)};
  }

  // How a side's potentials follow from their sums.
  struct Law {
    bool is_hard;
    bool follows_sums;
    double slope;
  };
  static __device__ __forceinline__ Law law_of(const Side<Real>& side, double epsilon) {
    const Marginal& m = side.marginal;
    return {m.is_hard(), m.follows_sums(), m.is_hard() ? 1.0 : m.strength / (m.strength + epsilon)};
  }

  [[nodiscard]] __device__ __forceinline__ int slots() const { return static_cast<int>(blockDim.x) / lanes_; }
  static __device__ __forceinline__ Real power_of_lo(Real lo) {
    return sizeof(Real) == 4 ? exp2_of(lo) : Real(1);
  }
  // A thread owns the same columns in all calls.
  template <class Body>
  __device__ __forceinline__ void for_columns(const Body& body) const {
    for (int j = static_cast<int>(threadIdx.x); j < columns_.count; j += static_cast<int>(blockDim.x))
      body(j);
  }
  // Calls body(c, column) for the lane's columns, the last of which may be beyond the row's end. Four at a
  // time have no branch between them.
  template <class Body>
  __device__ __forceinline__ void for_own_columns(int place, const Body& body) const {
#pragma unroll
    for (int quad = 0; quad < kColumns / 4; ++quad) {
      if (quad < quads_) {
#pragma unroll
        for (int c = 4 * quad; c < 4 * quad + 4; ++c) body(c, c * lanes_ + place);
      }
    }
  }

  // The new potential of a point of side `side`, as in Solver::change().
  [[nodiscard]] __device__ __forceinline__ double updated(const Law& law, int side, double at, double weight,
                                                          double log2_sum, ShortMoves& mine) const {
    const double target = rows_.product ? 0.0 : log2_in<Real>(weight);
    const double free = free_of(target, at, log2_sum);
    double to = law.is_hard ? free : law.slope == 0 ? 0.0 : law.slope * free;
    const bool too_small = law.follows_sums && log2_sum < kSmallest && !isinf(at);
    if (!(log2_sum < CUDART_INF) || too_small) mine.out_of_range = 1;
    if (to != at) mine.moved[side] = larger(mine.moved[side], static_cast<float>(abs(to - at)));
    if (symmetric_ && !isinf(to)) to = (at + to) / 2;
    if (!isinf(to)) {
      if (law.follows_sums) mine.gap = larger(mine.gap, static_cast<float>(abs(free - to)));
      mine.top[side] = larger(mine.top[side], static_cast<float>(abs(to)) * 1.000001f);
    }
    return to;
  }

  // The factor of a row's exponentials in the columns' sums. sum: the row's.
  [[nodiscard]] __device__ __forceinline__ Real factor_of(const Law& law, double at, double to, Real weight,
                                                          Real sum) const {
    if (isnan(sum)) return sum;
    const Real reference = rows_.product ? weight : Real(1);
    if (symmetric_ || !(sum > 0) || isinf(sum)) return reference;
    if (law.is_hard) return weight / sum;
    if (isinf(to) || isinf(at)) return reference;
    return static_cast<Real>(static_cast<double>(reference) * exp2_in<Real>(to - at));
  }

  // Updates the potentials of the block's rows, and leaves the warps' sums of columns in shared memory.
  __device__ __forceinline__ void pass_over_rows(const Law& law, Real k, double rounder, int iteration,
                                                 ShortMoves& mine) const {
    const int lane = static_cast<int>(threadIdx.x) % 32, place = lane % lanes_;
    const int first = p_.layout.first_row(team_.rank, rows_.count);
    const int end = p_.layout.first_row(team_.rank + 1, rows_.count);
    const int which = (rows_.now + iteration) % 2;
    const double* const potentials = rows_.potentials(which);
    double* const next = rows_.potentials(1 - which);
    const std::int64_t stride = p_.cost_stride[2], step = lanes_ * stride, row_stride = p_.cost_stride[1];
    const Stored* const costs =
        static_cast<const Stored*>(p_.cost) + rows_.b * p_.cost_stride[0] + place * stride;
    const Column* const columns = places().columns;
    const int count = columns_.count;

    Real cost[kColumns], acc[kColumns];
    double at = 0;
    Real weight = 0;
    const auto load = [&](int i) {
      const Stored* from = costs + i * row_stride;
      for_own_columns(place, [&](int c, int j) {
        cost[c] = j < count ? cuda::widen(*from) : static_cast<Real>(CUDART_INF);
        from += step;
      });
      at = potentials[i];
      weight = static_cast<Real>(rows_.weight(i));
    };
#pragma unroll
    for (int c = 0; c < kColumns; ++c) acc[c] = 0;
    int i = first + static_cast<int>(threadIdx.x) / lanes_;
    if (first < end) load(min(i, end - 1));
    // All lanes of a warp have the same number of rounds. A group without a row repeats the last one, whose
    // exponentials are 0 then.
    for (int begin = first; begin < end; begin += slots(), i += slots()) {
      const bool exists = i < end;
      Potential<Real> w = Potential<Real>::split(at, rounder);
      if (!exists) w = {static_cast<Real>(-CUDART_INF), 0};
      Real e[kColumns];
      Real sum = 0;
      for_own_columns(place, [&](int c, int j) {
        const Column z = columns[j];
        e[c] = exp2_of(fma(-k, cost[c], w.hi + z.hi));
        sum = fma(e[c], z.weight, sum);
      });
      const double old = at;
      const Real own_weight = weight;
      if (begin + slots() < end) load(min(i + slots(), end - 1));
      for (int bit = 1; bit < lanes_; bit *= 2) sum += cuda::shuffle_xor(sum, bit);
      const Real of_lo = power_of_lo(w.lo);
      sum *= of_lo;
      Real factor = 0;
      if (exists) {
        const double log2_sum = static_cast<double>(log2(sum));
        const double to = updated(law, 0, old, static_cast<double>(own_weight), log2_sum, mine);
        if (place == 0) next[i] = to;
        factor = factor_of(law, old, to, own_weight, sum) * of_lo;
      }
      for_own_columns(place, [&](int c, int) { acc[c] = fma(e[c], factor, acc[c]); });
    }
    Real* const sums = places().sums + static_cast<int>(threadIdx.x) / 32 * kMostColumns;
    for_own_columns(place, [&](int c, int j) {
      for (int bit = lanes_; bit < 32; bit *= 2) acc[c] += cuda::shuffle_xor(acc[c], bit);
      if (lane == place && j < count) sums[j] = acc[c];
    });
  }

  // Leaves the warp's moves in shared memory.
  static __device__ __forceinline__ void record(const ShortMoves& mine) {
    // Their order as integers is that of floats, none of which is negative; NaN comes last.
    ShortMoves all;
    const auto larger_of = [](float v) {
      int bits = __float_as_int(v);
      bits = cuda::reduce_max(bits);
      return __int_as_float(bits);
    };
#pragma unroll
    for (int side = 0; side < 2; ++side) {
      all.moved[side] = larger_of(mine.moved[side]);
      all.top[side] = larger_of(mine.top[side]);
    }
    all.gap = larger_of(mine.gap);
    all.out_of_range = larger_of(mine.out_of_range);
    if (threadIdx.x % 32 == 0) places().moves[threadIdx.x / 32] = all;
  }
  // The moves of all warps.
  [[nodiscard]] static __device__ __forceinline__ ShortMoves joined() {
    ShortMoves all;
    for (int warp = 0; warp < static_cast<int>(blockDim.x) / 32; ++warp) all.join(places().moves[warp]);
    return all;
  }

  // The sums of columns of all blocks, (blocks, columns and moves) in global memory. Joins the rows' moves of
  // all blocks to those of some of the threads. Two places take turns, so that one barrier is enough.
  __device__ __forceinline__ const Real* exchanged(int turn, ShortMoves& mine) const {
    const int stride = columns_.p.length + kShortMoves;
    Real* const places_of_all =
        p_.short_sums + (static_cast<std::int64_t>(team_.index) * 2 + turn) * team_.blocks * stride;
    Real* const own = places_of_all + team_.rank * stride;
    const Places at = places();
    for_columns([&](int j) {
      double sum = 0;
      for (int warp = 0; warp < static_cast<int>(blockDim.x) / 32; ++warp) {
        sum += static_cast<double>(at.sums[warp * kMostColumns + j]);
      }
      own[j] = static_cast<Real>(sum);
    });
    if (threadIdx.x == 0) {
      const ShortMoves of_rows = joined();
      Real* const to = own + columns_.p.length;
      to[0] = static_cast<Real>(of_rows.moved[0]);
      to[1] = static_cast<Real>(of_rows.top[0]);
      to[2] = static_cast<Real>(of_rows.gap);
      to[3] = static_cast<Real>(of_rows.out_of_range);
    }
    team_.barrier();
    for (int block = static_cast<int>(threadIdx.x); block < team_.blocks;
         block += static_cast<int>(blockDim.x)) {
      const Real* const from = places_of_all + block * stride + columns_.p.length;
      ShortMoves of_rows;
      of_rows.moved[0] = static_cast<float>(from[0]);
      of_rows.top[0] = static_cast<float>(from[1]);
      of_rows.gap = static_cast<float>(from[2]);
      of_rows.out_of_range = static_cast<float>(from[3]);
      mine.join(of_rows);
    }
    return places_of_all;
  }

  const SolveParams<Real>& p_;
  Team& team_;
  const Side<Real>& rows_;
  const Side<Real>& columns_;
  const bool symmetric_;  // whether both sides are updated from the old potentials
  int lanes_ = 1;         // of a row
  int quads_ = 0;         // of a lane: four columns each
};

}  // namespace warpalign::detail::transport
