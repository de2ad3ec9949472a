// One pass over costs that are given, read once: sums or largest logits of rows, of columns, or of both.
//
//   t[i,j] = w[i] + lambda + z[j] - k C[i,j],   row sum = sum_j b[j] 2^t,   column sum = sum_i a[i] 2^t
//
// A thread owns its columns for a whole part of the rows: their potentials are in shared memory, their sums
// in registers. A row's costs are copied to shared memory during the previous row, asynchronously and in
// groups, for which a thread waits one by one (loads into registers would all wait for the latest one). A
// row's exponentials stay in registers from the row's sum to the columns' sums. A fused sweep updates the row
// in between, so that a whole iteration takes one read and one exponential per element.
#pragma once

#include "transport/cuda/costs/pass.cuh"
#include "transport/cuda/costs/short_rows.cuh"
#include "transport/cuda/costs/stored_costs.cuh"
#include "transport/cuda/solve/side.cuh"

namespace warpalign::detail::transport {

// kWidth threads, a warp or the whole block, own a row, each of them kColumns columns. Stored: the type of
// costs in memory, Real or Float16.
template <class Real_, int kColumns, int kWidth, class Stored = Real_>
class Dense {
 public:
  using Real = Real_;
  static constexpr RowShape kShape{kColumns, kWidth};
  static constexpr const char* name() {
    if (kHalf) return kWidth == 128 ? "dense, half, rows of 128 threads" : "dense, half, rows of 256 threads";
    if (kWidth == 32) return "dense, rows of 32 threads";
    if (kWidth == 128) return "dense, rows of 128 threads";
    if (kWidth == 384) return "dense, rows of 384 threads";
    return kColumns == 24 ? "dense, rows of 256 threads, 24 columns each" : "dense, rows of 256 threads";
  }
  static constexpr int kMostThreads = kShape.warp_rows() ? 32 * kMostWarps : kWidth;
  static constexpr int kBlocks = kWidth == 128 ? 4 : 1;  // blocks per multiprocessor that registers allow

  __device__ __forceinline__ Dense(const SolveParams<Real>& p, const Team& team, const Side<Real>& rows,
                                   const Side<Real>& columns)
      : p_(p), team_(team), rows_(rows), columns_(columns) {}

  // The most columns of problems whose iterations are those of short_rows.cuh; 0: none. Float32 rows of 257
  // costs and more are faster by the passes below.
  static constexpr int kMostShortColumns = kWidth == 32                           ? kShape.columns()
                                           : kWidth == 128 && sizeof(Stored) != 4 ? kShape.columns() / 2
                                                                                  : 0;

  static std::size_t shared_bytes(const SolveLayout& layout) {
    const std::size_t of_passes = dense_shared_bytes<Real, Stored>(kShape, layout.threads);
    if constexpr (kMostShortColumns == 0) {
      return of_passes;
    } else {
      using Short = ShortRows<Real, Stored, kMostShortColumns>;
      return std::max(of_passes, kScratchBytes + Short::shared_bytes(layout.threads));
    }
  }

  // Called before the first pass of a solve. take_extent() gets the largest result of all threads.
  __device__ __forceinline__ float prepare() const { return 0; }
  __device__ __forceinline__ void take_extent(float) const {}
  __device__ __forceinline__ void write_gradients(const Pass&) const {}

  // Whether one pass can update rows and compute the columns' sums.
  [[nodiscard]] __device__ __forceinline__ bool sweeps() const { return p_.layout.sweeps(); }

  // As many iterations from the current potentials on as ShortRows does, at most `most`; none if the problem
  // is not of these.
  [[nodiscard]] __device__ __forceinline__ ShortIterations iterate(Team& team, const Pass& pass, int most,
                                                                   bool symmetric, float near,
                                                                   double tolerance) const {
    if constexpr (kMostShortColumns > 0) {
      const ShortRows<Real, Stored, kMostShortColumns> rows(p_, team, rows_, columns_, symmetric);
      if (rows.serves()) return rows.run(pass, most, near, tolerance);
    }
    return {};
  }

  // Called by all threads of the team. The sums can be read after the team's next barrier. Not inlined,
  // because it is nearly the whole kernel.
  template <PassKind kKind>
  __device__ __attribute__((noinline)) void run(const Pass& pass, PlanSums& sums) const {
    const int segments = p_.layout.segments;
    for (int task = team_.rank; task < p_.layout.row_groups * segments; task += team_.blocks) {
      run_task<kKind>(pass, task / segments, task % segments, sums);
    }
  }

 protected:
  using Word = CostWord<Real, Stored>;
  static constexpr bool kHalf = sizeof(Stored) < sizeof(Real);
  static constexpr bool kPairs = sizeof(Real) == 4;
  static constexpr int kPadded = kShape.columns();
  static constexpr int kGroup = kColumns < 8 ? kColumns : 8;  // columns of a group of copies
  static constexpr int kWords = kColumns / Word::kCosts;
  static constexpr int kGroupWords = kGroup / Word::kCosts;
  static constexpr int kMostRounds = 128;  // the most rows that a thread sums before it writes to memory

  // The column of the segment that is a thread's c-th one.
  [[nodiscard]] static __device__ __forceinline__ int column(int c, int place) {
    constexpr int kCosts = Word::kCosts;
    return (c / kCosts * kWidth + place) * kCosts + c % kCosts;
  }

  [[nodiscard]] static __device__ __forceinline__ Real minus_infinity() {
    return static_cast<Real>(-CUDART_INF);
  }

  // The numbers of a segment's columns in shared memory, and the memory in which warps join their sums.
  struct Columns {
    Real* hi;
    Real* lo;
    Real* weight;
    Real* exchange;
    typename Word::Type*
        costs;  // (words, threads): costs of the next row; a thread reads and writes only its own words
  };
  [[nodiscard]] __device__ __forceinline__ Columns columns() const {
    auto* const first = reinterpret_cast<Real*>(cuda::dynamic_shared() + kScratchBytes);
    Real* const exchange = first + kNumbersOfColumn<Real> * kPadded;
    const int exchanged = kShape.warp_rows() ? static_cast<int>(blockDim.x) / 32 * kPadded : 0;
    return {first, first + (kPairs ? kPadded : 0), first + (kPairs ? 2 : 1) * kPadded, exchange,
            reinterpret_cast<typename Word::Type*>(exchange + exchanged)};
  }

  __device__ __forceinline__ void load_columns(const Pass& pass, int begin, int count) const {
    const Columns to = columns();
    __syncthreads();  // no thread reads the earlier contents any more
    for (int j = static_cast<int>(threadIdx.x); j < kPadded; j += static_cast<int>(blockDim.x)) {
      Potential<Real> z{0, 0};
      Real weight = 0;
      if (j < count) {
        z = Potential<Real>::split(pass.columns_at ? pass.columns_at[begin + j] : 0.0, pass.rounder);
        weight = static_cast<Real>(columns_.reference(columns_.weight(begin + j)));
      }
      to.hi[j] = z.hi;
      if (kPairs) to.lo[j] = z.lo;
      to.weight[j] = weight;
    }
    __syncthreads();
  }

  // The numbers of a row, loaded in advance.
  struct Row {
    double at;
    Real weight;
  };

  // Joins a number over all threads of a row. All of them get the result.
  template <bool kLargest>
  __device__ __forceinline__ Real joined(Real v, int& parity) const {
    const auto join = [](Real a, Real b) { return kLargest ? larger(a, b) : a + b; };
    v = cuda::reduce(v, join);
    if constexpr (kShape.warp_rows()) return v;
    auto* const places =
        reinterpret_cast<Real*>(cuda::dynamic_shared() + kMostWarps * kRecordBytes) + parity * kMostWarps;
    parity ^= 1;  // alternates, so that one barrier of the block is enough
    if (threadIdx.x % 32 == 0) places[threadIdx.x / 32] = v;
    __syncthreads();
    Real parts[4];
#pragma unroll
    for (int k = 0; k < 4; ++k) parts[k] = kLargest ? minus_infinity() : Real(0);
#pragma unroll
    for (int k = 0; k < kWidth / 32; ++k) parts[k % 4] = join(parts[k % 4], places[k]);
    return join(join(parts[0], parts[1]), join(parts[2], parts[3]));
  }

  // The factor of a row's exponentials in the columns' sums: its weight in the reference, times 2^(the change
  // of its potential). sum: the row's sum, positive and finite.
  [[nodiscard]] __device__ __forceinline__ Real moved_factor(const Pass& pass, double at, double weight,
                                                             Real sum) const {
    const double reference = rows_.reference(weight);
    const double target = rows_.product ? 0.0 : log2_in<Real>(weight);
    const double next =
        rows_.marginal.updated(free_of(target, at, log2_in<Real>(static_cast<double>(sum))), pass.epsilon);
    if (isinf(next) || isinf(at)) return static_cast<Real>(reference);
    return static_cast<Real>(reference * exp2_in<Real>(next - at));
  }

  template <PassKind kKind>
  __device__ __forceinline__ void run_task(const Pass& pass, int row_group, int segment,
                                           PlanSums& sums) const {
    constexpr bool kLargest = kKind == PassKind::kLargest;
    const int begin = segment * kPadded;
    const int count = min(max(columns_.count - begin, 0), kPadded);
    load_columns(pass, begin, count);
    const Columns z = columns();
    const int place = static_cast<int>(threadIdx.x) % kWidth;  // in the row
    const int group = static_cast<int>(threadIdx.x) / kWidth;
    const int groups = static_cast<int>(blockDim.x) / kWidth;
    const int end = p_.layout.first_row(row_group + 1, rows_.count);
    // Local copies, because the compiler must assume that the loop's stores change the originals.
    const bool makes_rows = pass.rows, makes_columns = pass.columns, product = rows_.product;
    [[maybe_unused]] const bool updates = pass.updates_rows;
    [[maybe_unused]] const bool is_hard = !rows_.marginal.partial && isinf(rows_.marginal.strength);
    const double* const rows_at = pass.rows_at;
    const double lambda = pass.lambda, rounder = pass.rounder;
    const Real* const weights = rows_.p.weights ? rows_.p.weights + rows_.row_of_batch() : nullptr;
    const Real uniform = static_cast<Real>(rows_.uniform);
    Real* const row_sums = rows_.partials(segment);
    const Real k = static_cast<Real>(pass.k);
    const std::int64_t row_stride = p_.cost_stride[1], stride = p_.cost_stride[2];
    const Stored* const costs = static_cast<const Stored*>(p_.cost) + first_cost(p_, rows_) +
                                static_cast<std::int64_t>(begin + column(0, place)) * stride;
    const std::int64_t step = Word::kCosts * kWidth * stride;
    const bool whole = Word::are_whole(costs, row_stride, stride);
    const bool weighted_columns = columns_.p.weights;
    const Real uniform_column = static_cast<Real>(columns_.reference(columns_.uniform));

    const int threads = static_cast<int>(blockDim.x);
    typename Word::Type* const own_costs = z.costs + threadIdx.x;
    // After the last row its costs are copied again.
    const auto row_of = [&](int i) { return costs + min(i, end - 1) * row_stride; };
    const auto copy = [&](int word, const Stored* from) {
      const int left = count - column(word * Word::kCosts, place);
      Word::copy(own_costs + word * threads, from, stride, left, whole);
    };
    Row ahead;
    const auto load_rest = [&](int i) {
      ahead.at = i < end && rows_at ? rows_at[i] : 0.0;
      ahead.weight = i < end && weights ? weights[i] : uniform;
    };
    const int first = p_.layout.first_row(row_group, rows_.count);
    for (int word = 0; word < kWords; ++word) {
      if (column(word * Word::kCosts, place) >= count) own_costs[word * threads] = Word::none();
    }
    if (first < end) {
#pragma unroll
      for (int word = 0; word < kWords; ++word) {
        copy(word, row_of(first + group) + word * step);
        if (word % kGroupWords == kGroupWords - 1) cuda::end_copy_group();
      }
    }
    load_rest(first + group);

    bool is_first = true;
    int parity = 0;
    // A round has one row of every group. All warps of a block have the same number of rounds.
    for (int round = first; round < end || is_first; round += groups * kMostRounds) {
      Real acc[kColumns];
#pragma unroll
      for (int c = 0; c < kColumns; ++c) acc[c] = kLargest ? minus_infinity() : Real(0);
      const int last = min(end, round + groups * kMostRounds);
      for (int i = round + group; i < last; i += groups) {
        Row row;
        row.at = ahead.at;
        row.weight = ahead.weight;
        load_rest(i + groups);
        const Potential<Real> w = Potential<Real>::split(row.at + lambda, rounder);
        Real e[kColumns];
        Real own = kLargest ? minus_infinity() : Real(0);
        Real linear = 0, logits = 0;
        [[maybe_unused]] const Real of_row = product ? static_cast<Real>(row.weight) : Real(1);
        const Stored* from = row_of(i + groups);
#pragma unroll
        for (int begin_of_group = 0; begin_of_group < kColumns; begin_of_group += kGroup) {
          if (column(begin_of_group, 0) >= count) {  // no thread has these columns
#pragma unroll
            for (int c = 0; c < kGroup; ++c) e[begin_of_group + c] = kLargest ? minus_infinity() : Real(0);
            cuda::end_copy_group();
            continue;
          }
          Real group_costs[kGroup];
          cuda::await_copy_groups<kColumns / kGroup - 1>();
#pragma unroll
          for (int word = 0; word < kGroupWords; ++word) {
            Word::widen(own_costs[(begin_of_group / Word::kCosts + word) * threads],
                        group_costs + word * Word::kCosts);
          }
#pragma unroll
          for (int word = 0; word < kGroupWords; ++word, from += step)
            copy(begin_of_group / Word::kCosts + word, from);
          cuda::end_copy_group();
#pragma unroll
          for (int in_group = 0; in_group < kGroup; ++in_group) {
            const int c = begin_of_group + in_group, j = column(c, place);
            const Real cost = group_costs[in_group];
            const Real column_weight = weighted_columns ? z.weight[j] : uniform_column;
            Real t = fma(-k, cost, w.hi + z.hi[j]);
            if constexpr (kPairs) t += w.lo + z.lo[j];
            if constexpr (kLargest) {
              e[c] = t;
              if (column_weight > 0) own = larger(own, t);
            } else {
              e[c] = exp2_of(t);
              const Real weighted = e[c] * column_weight;
              own += weighted;
              if constexpr (kKind == PassKind::kEvaluate) {
                const Real mass = of_row * weighted;
                if (mass != 0) {
                  linear += mass * cost;
                  logits += mass * t;
                }
                if (p_.plan && j < count) {
                  const double plan = pass.is_nan ? CUDART_NAN : p_.plan_scale * static_cast<double>(mass);
                  p_.plan[rows_.b * p_.plan_stride[0] + i * p_.plan_stride[1] +
                          (begin + j) * p_.plan_stride[2]] = static_cast<Real>(plan);
                }
              }
            }
          }
        }
        if constexpr (kKind == PassKind::kEvaluate) {
          sums.linear += static_cast<double>(linear);
          sums.logits += static_cast<double>(logits);
        }
        if (makes_rows) {
          own = joined<kLargest>(own, parity);
          if (place == 0) row_sums[i] = own;
        }
        if (!makes_columns) continue;
        if constexpr (kLargest) {
          if (row.weight > 0 || !product) {
#pragma unroll
            for (int c = 0; c < kColumns; ++c) acc[c] = larger(acc[c], e[c]);
          }
        } else {
          Real factor = of_row;
          if (updates && own > 0 && !isinf(own)) {
            factor =
                is_hard ? static_cast<Real>(row.weight) / own : moved_factor(pass, row.at, row.weight, own);
          }
          if (isnan(own)) factor = own;
#pragma unroll
          for (int c = 0; c < kColumns; ++c) acc[c] += e[c] * factor;
        }
      }
      if (makes_columns) add<kLargest>(acc, z, row_group, begin, count, is_first);
      is_first = false;
    }
    cuda::await_copies();  // the next task's copies use the same memory
  }

  // Adds the columns' sums of some rows to those of the earlier rows.
  template <bool kLargest>
  __device__ __forceinline__ void add(const Real (&acc)[kColumns], const Columns& z, int row_group, int begin,
                                      int count, bool is_first) const {
    const auto join = [](Real a, Real b) { return kLargest ? larger(a, b) : a + b; };
    Real* const to = columns_.partials(row_group) + begin;
    const int place = static_cast<int>(threadIdx.x) % kWidth;
    if constexpr (!kShape.warp_rows()) {
#pragma unroll
      for (int c = 0; c < kColumns; ++c) {
        const int j = column(c, place);
        if (j < count) to[j] = is_first ? acc[c] : join(to[j], acc[c]);
      }
      return;
    }
    const int group = static_cast<int>(threadIdx.x) / kWidth;
    __syncthreads();
#pragma unroll
    for (int c = 0; c < kColumns; ++c) z.exchange[group * kPadded + column(c, place)] = acc[c];
    __syncthreads();
    for (int j = static_cast<int>(threadIdx.x); j < count; j += static_cast<int>(blockDim.x)) {
      Real sum = z.exchange[j];
      for (int g = 1; g < static_cast<int>(blockDim.x) / kWidth; ++g) {
        sum = join(sum, z.exchange[g * kPadded + j]);
      }
      to[j] = is_first ? sum : join(to[j], sum);
    }
  }

  const SolveParams<Real>& p_;
  const Team& team_;
  const Side<Real>& rows_;
  const Side<Real>& columns_;
};

}  // namespace warpalign::detail::transport
