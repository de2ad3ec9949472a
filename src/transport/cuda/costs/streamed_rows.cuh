// Sums of a pass over long rows of given costs, which stream through shared memory (row_stream.cuh).
//
// A block owns a row; thread t owns its columns t, t + kWidth, t + 2 kWidth, ..., and the last warp also a
// row's last costs. A column's potential and its sum are in registers. The lo parts of potentials are
// factors: 2^(lo of the column) of the column's weight in the row's sum, and of the column's sum after the
// last row; 2^(lo of the row) of the row's sum.
//
//   e[i,j] = 2^(hi[i] + hi[j] - k C[i,j]),   row sum = 2^lo[i] sum_j b[j] 2^lo[j] e[i,j]
//
// A row's sum is joined over the warps while the next row's exponentials are computed.
#pragma once

#include "transport/cuda/costs/dense.cuh"
#include "transport/cuda/costs/row_stream.cuh"

namespace warpalign::detail::transport {

// Dense computes largest logits, and the sums of the plan.
template <int kColumns, int kWidth, int kStages, class Stored = float>
class StreamedRows : public Dense<float, kColumns, kWidth, Stored> {
 public:
  using Base = Dense<float, kColumns, kWidth, Stored>;
  using Real = float;
  using Base::Base;
  static constexpr int kTotalsAtOnce = 72;
  static constexpr bool kColumnsOfHi =
      kHasRowStreams;  // a column's sum does not contain 2^(lo of the column)

  static std::size_t shared_bytes(const SolveLayout& layout) {
    const std::size_t loaded = Base::shared_bytes(layout);
    return layout.streams ? std::max(loaded, kScratchBytes + sizeof(Shared)) : loaded;
  }

  template <PassKind kKind>
  __device__ __attribute__((noinline)) void run(const Pass& pass, PlanSums& sums) const {
    if constexpr (kKind == PassKind::kSums && kHasRowStreams) {
      const int segments = p_.layout.segments;
      for (int task = team_.rank; task < p_.layout.row_groups * segments; task += team_.blocks) {
        sums_of_task(pass, task / segments, task % segments);
      }
    } else {
      Base::template run<kKind>(pass, sums);
    }
  }

 protected:
  using Base::columns_;
  using Base::p_;
  using Base::rows_;
  using Base::team_;

 private:
  using Stream = RowStream<Stored, float, Base::kPadded, kWidth, kStages>;
  static constexpr int kPadded = Base::kPadded;
  static constexpr int kMostRows =
      Stream::kMostRows;  // the most rows that a thread sums before it writes to memory
  static_assert(kColumns % 8 == 0 && kColumns >= 24);

  struct alignas(16) Quad {
    float v[4];
  };
  struct alignas(16) RowNumbers {
    float hi;
    float of_lo;   // 2^lo
    float weight;  // and times 2^lo in the reference:
    float plain;
    double base;  // the potential changes by min(most, base - slope log2(sum))
    double most;
  };
  // The columns of the tail, in the last warp's first lanes.
  struct Tail {
    float hi;
    float weight;
  };

  struct Shared {
    typename Stream::Shared stream;
    Quad weights[kColumns / 4][kWidth];  // of four columns: the weight in the reference times 2^lo
    RowNumbers numbers[kMostRows];
    Tail tail[Stream::kTail];
  };
  [[nodiscard]] static __device__ __forceinline__ Shared& shared() {
    return *reinterpret_cast<Shared*>(cuda::dynamic_shared() + kScratchBytes);
  }

  struct Column {
    Potential<float> z;
    float weight;  // in the reference, times 2^lo
  };
  [[nodiscard]] __device__ __forceinline__ Column column_at(const Pass& pass, int j) const {
    const Potential<float> z =
        Potential<float>::split(pass.columns_at ? pass.columns_at[j] : 0.0, pass.rounder);
    return {z, static_cast<float>(columns_.reference(columns_.weight(j))) * cuda::exp2_fast(z.lo)};
  }

  // The first `whole` columns are not in the tail. kUsed: the columns of a thread that a row has.
  template <int kUsed>
  __device__ __forceinline__ void load_columns(const Pass& pass, int begin, int whole, int tail,
                                               float (&hi)[kUsed]) const {
    constexpr int kTogether = kUsed % 16 == 0 ? 16 : 8;  // loads in flight
    static_assert(kUsed % kTogether == 0);
    const int place = static_cast<int>(threadIdx.x), left = whole - place;
    const double* const at = pass.columns_at ? pass.columns_at + begin + place : nullptr;
    const float* const weights = columns_.p.weights && columns_.product
                                     ? columns_.p.weights + columns_.row_of_batch() + begin + place
                                     : nullptr;
    const float uniform = static_cast<float>(columns_.reference(columns_.uniform));
#pragma unroll
    for (int first = 0; first < kUsed; first += kTogether) {
      double z[kTogether];
      float weight[kTogether];
#pragma unroll
      for (int u = 0; u < kTogether; ++u) {
        const int j = (first + u) * kWidth;
        z[u] = at && j < left ? at[j] : 0.0;
        weight[u] = j >= left ? 0.0f : weights ? weights[j] : uniform;
      }
#pragma unroll
      for (int u = 0; u < kTogether; ++u) {
        const int c = first + u;
        const Potential<float> split = Potential<float>::split(z[u], pass.rounder);
        hi[c] = c * kWidth < left ? split.hi : static_cast<float>(-CUDART_INF);
        shared().weights[c / 4][place].v[c % 4] = weight[u] * cuda::exp2_fast(split.lo);
      }
    }
    if (tail >= 0) {
      const Column column = column_at(pass, begin + tail);
      shared().tail[tail - whole] = {column.z.hi, column.weight};
    }
  }

  // The slope of a row's update in log2(sum): updated() and free_of() (side.cuh) as a linear function.
  [[nodiscard]] __device__ __forceinline__ double slope_of_rows(const Pass& pass) const {
    const Marginal& m = rows_.marginal;
    if (m.partial || isinf(m.strength)) return 1;
    return m.strength == 0 ? 0 : m.strength / (m.strength + pass.epsilon);
  }
  __device__ __forceinline__ void load_rows(const Pass& pass, double slope, int first, int rows) const {
    const float* const weights = rows_.p.weights ? rows_.p.weights + rows_.row_of_batch() : nullptr;
    for (int n = static_cast<int>(threadIdx.x); n < rows; n += kWidth) {
      const double at = pass.rows_at ? pass.rows_at[first + n] : 0.0;
      const float weight = weights ? weights[first + n] : static_cast<float>(rows_.uniform);
      const Potential<float> w = Potential<float>::split(at + pass.lambda, pass.rounder);
      const float of_lo = cuda::exp2_fast(w.lo);
      const double target = rows_.product ? 0.0 : log2_in<float>(weight);
      RowNumbers& to = shared().numbers[n];
      to.hi = w.hi;
      to.of_lo = of_lo;
      to.weight = weight;
      to.plain = (rows_.product ? weight : 1.0f) * of_lo;
      to.base = rows_.marginal.partial ? target : slope == 0 ? -at : slope * (at + target) - at;
      to.most = rows_.marginal.partial ? -at : CUDART_INF;
    }
    __syncthreads();
  }

  // Computes exponentials kFirst ... kFirst + kCount - 1 of a thread's row, and their part of the row's sum.
  template <int kFirst, int kUsed, int kCount>
  static __device__ __forceinline__ void make(const Stored* costs, const float (&hi)[kUsed], float k,
                                              float row_hi, float (&e)[kCount], float (&parts)[4]) {
#pragma unroll
    for (int c = 0; c < kCount; c += 4) {
      const Quad weights = shared().weights[(kFirst + c) / 4][threadIdx.x];
#pragma unroll
      for (int u = 0; u < 4; ++u) {
        const int column = kFirst + c + u;
        e[c + u] = cuda::exp2_fast(fmaf(-k, cuda::widen(costs[column * kWidth]), row_hi + hi[column]));
        parts[u] = fmaf(e[c + u], weights.v[u], parts[u]);
      }
    }
  }
  template <int kCount, int kAll>
  static __device__ __forceinline__ void add_to(float (&acc)[kAll], int first, const float (&e)[kCount],
                                                float factor) {
#pragma unroll
    for (int c = 0; c < kCount; ++c) acc[first + c] = fmaf(e[c], factor, acc[first + c]);
  }
  // The factor of a row's exponentials in the columns' sums: its weight in the reference, times 2^(the change
  // of its potential). sum: the row's sum, positive and finite.
  [[nodiscard]] static __device__ __forceinline__ float moved_factor(const RowNumbers& w, double slope,
                                                                     float sum) {
    int exponent;
    const float mantissa = frexpf(sum, &exponent);
    const double move = min(w.most, w.base - slope * (exponent + static_cast<double>(log2f(mantissa))));
    if (!(abs(move) < CUDART_INF)) return w.plain;
    const double whole = rint(max(-1000.0, min(1000.0, move)));
    return ldexpf(w.plain * cuda::exp2_fast(static_cast<float>(move - whole)), static_cast<int>(whole));
  }

  // A thread has 8, 16, 24 or kColumns columns: the fewest that hold the segment's costs.
  __device__ __forceinline__ void sums_of_task(const Pass& pass, int row_group, int segment) const {
    const int count = columns_.count - segment * kPadded;
    if (count <= 8 * kWidth) return sums_of<8>(pass, row_group, segment);
    if (count <= 16 * kWidth) return sums_of<16>(pass, row_group, segment);
    if constexpr (kColumns > 24) {
      if (count <= 24 * kWidth) return sums_of<24>(pass, row_group, segment);
    }
    sums_of<kColumns>(pass, row_group, segment);
  }
  template <int kUsed>
  __device__ __attribute__((noinline)) void sums_of(const Pass& pass, int row_group, int segment) const {
    // Exponentials of a row that are computed before the previous row's sum is read.
    constexpr int kEarly = kUsed > 8 ? 8 : 4;
    Shared& s = shared();
    const int place = static_cast<int>(threadIdx.x), begin = segment * kPadded;
    const int first = p_.layout.first_row(row_group, rows_.count);
    const int rows = p_.layout.first_row(row_group + 1, rows_.count) - first;
    const int count = min(max(columns_.count - begin, 0), kPadded), whole = max(count - Stream::kTail, 0);
    const bool makes_rows = pass.rows, makes_columns = pass.columns, updates = pass.updates_rows;
    const bool is_hard = !rows_.marginal.partial && isinf(rows_.marginal.strength);
    const double slope = slope_of_rows(pass);
    const float k = static_cast<float>(pass.k);
    float* const row_sums = rows_.partials(segment) + first;
    const std::int64_t row_stride = p_.cost_stride[1], stride = p_.cost_stride[2];
    const Stored* const costs =
        static_cast<const Stored*>(p_.cost) + first_cost(p_, rows_) + first * row_stride + begin * stride;

    __syncthreads();  // no thread reads the earlier contents of shared memory any more
    Stream stream(s.stream, costs, row_stride, stride, rows, whole, kUsed * kWidth);
    const int in_tail = place - (kWidth - 32);
    const int tail = in_tail >= 0 && in_tail < count - whole ? whole + in_tail : -1;
    for (int round = 0; round < rows || round == 0; round += kMostRows) {
      float acc[kUsed], before[kEarly] = {}, late[kUsed - kEarly] = {}, tail_e = 0, tail_acc = 0;
#pragma unroll
      for (int c = 0; c < kUsed; ++c) acc[c] = 0;
      const int last = min(rows, round + kMostRows);
      stream.load_tails(round, last, count);
      load_rows(pass, slope, first + round, last - round);
      float hi[kUsed];
      load_columns(pass, begin, whole, tail, hi);
      // Waits for row n's sum, and returns the row's factor in the columns' sums. Its place is free then.
      const auto factor_of = [&](int n) {
        if (n < round) return 0.0f;
        const RowNumbers& w = s.numbers[n - round];
        const float own = stream.sum_of(n), sum = own * w.of_lo;
        if (makes_rows && place == 32) row_sums[n] = sum;
        float factor = w.plain;
        if (updates && sum > 0 && !isinf(sum)) {
          factor = is_hard ? w.weight * cuda::reciprocal_fast(own) : moved_factor(w, slope, sum);
        }
        return isnan(own) ? own : factor;
      };
      // Computes row n. After its first kEarly exponentials, row n - 1 is added to the columns' sums.
      for (int n = round; n < last; ++n) {
        float early[kEarly];
        const Stored* const row = stream.next();
        const float row_hi = s.numbers[n - round].hi;
        float parts[4] = {};
        make<0>(row, hi, k, row_hi, early, parts);
        const float factor = factor_of(n - 1);
        add_to(acc, 0, before, factor);
#pragma unroll
        for (int c = 0; c < kEarly; ++c) before[c] = early[c];
        add_to(acc, kEarly, late, factor);
        make<kEarly>(row, hi, k, row_hi, late, parts);
        if (tail >= 0) {
          const Tail column = s.tail[in_tail];
          tail_acc = fmaf(tail_e, factor, tail_acc);
          const float cost = cuda::widen(s.stream.tails[n - round][in_tail]);
          tail_e = cuda::exp2_fast(fmaf(-k, cost, row_hi + column.hi));
          parts[0] = fmaf(tail_e, column.weight, parts[0]);
        }
        stream.tell(n, (parts[0] + parts[1]) + (parts[2] + parts[3]));
      }
      const float factor = factor_of(last - 1);
      add_to(acc, 0, before, factor);
      add_to(acc, kEarly, late, factor);
      tail_acc = fmaf(tail_e, factor, tail_acc);
      if (makes_columns) add(acc, tail, tail_acc, row_group, begin, whole, round == 0);
      __syncthreads();  // no thread reads the rows' numbers any more
    }
    stream.end();
  }

  // Adds the columns' sums of some rows to those of the earlier rows.
  template <int kUsed>
  __device__ __forceinline__ void add(const float (&acc)[kUsed], int tail, float tail_acc, int row_group,
                                      int begin, int whole, bool is_first) const {
    float* const to = columns_.partials(row_group) + begin;
#pragma unroll
    for (int c = 0; c < kUsed; ++c) {
      const int j = c * kWidth + static_cast<int>(threadIdx.x);
      if (j < whole) to[j] = is_first ? acc[c] : to[j] + acc[c];
    }
    if (tail >= 0) to[tail] = is_first ? tail_acc : to[tail] + tail_acc;
  }
};

}  // namespace warpalign::detail::transport
