// Sums of a pass over rows of float64 costs, which stream through shared memory. A cluster of kBlocks blocks
// owns a row; each block owns a part of its columns. The blocks exchange their parts of a row's sum, so that
// a fused sweep handles rows kBlocks times as long as one block's registers hold.
//
// A row's message is in flight while the next row's exponentials are computed.
#pragma once

#include <cstring>

#include "cuda/threads/cluster.cuh"
#include "transport/cuda/costs/dense.cuh"
#include "transport/cuda/costs/row_stream.cuh"

namespace warpalign::detail::transport {

template <int kColumns, int kWidth, int kStages, int kBlocks_>
class ClusterRows : public Dense<double, kColumns, kWidth> {
 public:
  using Base = Dense<double, kColumns, kWidth>;
  using Real = double;
  using Base::Base;
  static_assert(kBlocks_ > 1);
  static constexpr const char* name() { return "dense, rows of two blocks"; }

  static std::size_t shared_bytes(const SolveLayout& layout) {
    return std::max(Base::shared_bytes(layout), kScratchBytes + sizeof(Shared));
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

 private:
  using Base::columns_;
  using Base::p_;
  using Base::rows_;
  using Base::team_;
  using Stream = RowStream<double, double, Base::kPadded, kWidth, kStages>;
  static constexpr int kPadded = Base::kPadded;
  static constexpr int kMostRows = Stream::kMostRows;
  static constexpr int kSlots = 4;  // so many that a slot is reused only after its readers have read it

  struct alignas(16) Pair {
    double v[2];
  };
  struct RowNumbers {
    double at;
    double weight;
  };
  struct Shared {
    typename Stream::Shared stream;
    Pair columns[kPadded];  // potential and weight
    RowNumbers numbers[kMostRows];
    Pair tail;
    alignas(16) double messages[kSlots][2];
    cuda::Mailbox boxes[kSlots];
  };
  [[nodiscard]] static __device__ __forceinline__ Shared& shared() {
    return *reinterpret_cast<Shared*>(cuda::dynamic_shared() + kScratchBytes);
  }

  // The first `whole` columns are not in the tail. The tail is column `tail`, which one thread owns.
  __device__ __forceinline__ void load_columns(const Pass& pass, int begin, int whole, int tail) const {
    constexpr int kTogether = 8;
    static_assert(kColumns % kTogether == 0);
    const int place = static_cast<int>(threadIdx.x), left = whole - place;
    const double* const at = pass.columns_at ? pass.columns_at + begin + place : nullptr;
    const double* const weights = columns_.p.weights && columns_.product
                                      ? columns_.p.weights + columns_.row_of_batch() + begin + place
                                      : nullptr;
    const double uniform = columns_.reference(columns_.uniform);
#pragma unroll 1
    for (int first = 0; first < kPadded; first += kTogether * kWidth) {
      double z[kTogether], weight[kTogether];
#pragma unroll
      for (int u = 0; u < kTogether; ++u) {
        const bool exists = first + u * kWidth < left;
        z[u] = !exists ? -CUDART_INF : at ? at[first + u * kWidth] : 0.0;
        weight[u] = !exists ? 0.0 : weights ? weights[first + u * kWidth] : uniform;
      }
#pragma unroll
      for (int u = 0; u < kTogether; ++u) {
        shared().columns[first + u * kWidth + place] = {
            {Potential<double>::split(z[u], pass.rounder).hi, weight[u]}};
      }
    }
    if (tail >= 0) {
      const double z = pass.columns_at ? pass.columns_at[begin + tail] : 0.0;
      shared().tail = {
          {Potential<double>::split(z, pass.rounder).hi, columns_.reference(columns_.weight(begin + tail))}};
    }
  }
  __device__ __forceinline__ void load_rows(const Pass& pass, int first, int rows) const {
    const double* const weights = rows_.p.weights ? rows_.p.weights + rows_.row_of_batch() : nullptr;
    for (int n = static_cast<int>(threadIdx.x); n < rows; n += kWidth) {
      shared().numbers[n] = {pass.rows_at ? pass.rows_at[first + n] : 0.0,
                             weights ? weights[first + n] : rows_.uniform};
    }
    __syncthreads();
  }

  // Called by one thread: sends this block's part of row n's sum to the other block of the cluster.
  static __device__ __forceinline__ void tell(int n, double own) {
    Shared& s = shared();
    const int slot = n % kSlots, other = 1 - cuda::cluster_rank();
    std::uint32_t words[4] = {};
    std::memcpy(words, &own, sizeof own);
    cuda::mailbox_expect(&s.boxes[slot], 16);
    cuda::send_message(cuda::cluster_address(s.messages[slot], other), words,
                       cuda::cluster_address(&s.boxes[slot], other));
  }
  // The row's whole sum, added in the same order in both blocks.
  static __device__ __forceinline__ double sum_of_both(int n, double own) {
    Shared& s = shared();
    cuda::mailbox_wait(&s.boxes[n % kSlots], n / kSlots);
    const double other = *const_cast<const volatile double*>(s.messages[n % kSlots]);
    return own + other;
  }

  __device__ __forceinline__ void sums_of_task(const Pass& pass, int row_group, int segment) const {
    Shared& s = shared();
    const int place = static_cast<int>(threadIdx.x), begin = segment * kPadded;
    const int first = p_.layout.first_row(row_group, rows_.count);
    const int rows = p_.layout.first_row(row_group + 1, rows_.count) - first;
    const int count = min(max(columns_.count - begin, 0), kPadded), whole = max(count - Stream::kTail, 0);
    const int tail = place == kWidth - 32 && whole < count ? whole : -1;
    const std::int64_t row_stride = p_.cost_stride[1], stride = p_.cost_stride[2];
    const double* const costs = static_cast<const double*>(p_.cost) + rows_.b * p_.cost_stride[0] +
                                first * row_stride + begin * stride;
    const bool makes_rows = pass.rows, makes_columns = pass.columns, updates = pass.updates_rows;
    const bool is_hard = !rows_.marginal.partial && isinf(rows_.marginal.strength), product = rows_.product;
    const double k = pass.k, lambda = pass.lambda;
    double* const row_sums = rows_.partials(segment) + first;

    __syncthreads();  // no thread reads the earlier contents of shared memory any more
    if (updates && place == 0) {
      for (cuda::Mailbox& box : s.boxes) cuda::mailbox_init(&box);
    }
    Stream stream(s.stream, costs, row_stride, stride, rows, whole);
    load_columns(pass, begin, whole, tail);
    if (updates) cuda::cluster_sync();

    for (int round = 0; round < rows || round == 0; round += kMostRows) {
      double acc[kColumns], e[kColumns], own = 0, tail_acc = 0, tail_e = 0;
#pragma unroll
      for (int c = 0; c < kColumns; ++c) acc[c] = 0;
      const int last = min(rows, round + kMostRows);
      stream.load_tails(round, last, count);
      load_rows(pass, first + round, last - round);
      // Step n computes the exponentials of row n, and adds those of row n - 1 to the columns' sums.
      for (int n = round; n <= last; ++n) {
        double next[kColumns], tail_next = 0, made = 0;
        if (n < last) {
          const double w = Potential<double>::split(s.numbers[n - round].at + lambda, 0).hi;
          const double* const row = stream.next();
          double parts[2] = {};
#pragma unroll
          for (int c = 0; c < kColumns; ++c) {
            const Pair z = s.columns[c * kWidth + place];
            next[c] = exp2_of(fma(-k, row[c * kWidth], w + z.v[0]));
            parts[c % 2] = fma(next[c], z.v[1], parts[c % 2]);
          }
          if (tail >= 0) {
            tail_next = exp2_of(fma(-k, s.stream.tails[n - round][0], w + s.tail.v[0]));
            parts[0] = fma(tail_next, s.tail.v[1], parts[0]);
          }
          stream.tell(n, parts[0] + parts[1]);
          made = stream.sum_of(n);
          if (makes_rows && place == 0) row_sums[n] = made;
          if (updates && place == 0) tell(n, made);
        }
        if (n > round) {
          const RowNumbers w = s.numbers[n - 1 - round];
          const double sum = updates ? sum_of_both(n - 1, own) : own;
          double factor = product ? w.weight : 1.0;
          if (updates && sum > 0 && !isinf(sum)) {
            factor = is_hard ? w.weight / sum : this->moved_factor(pass, w.at, w.weight, sum);
          }
          if (isnan(sum)) factor = sum;
#pragma unroll
          for (int c = 0; c < kColumns; ++c) acc[c] = fma(e[c], factor, acc[c]);
          tail_acc = fma(tail_e, factor, tail_acc);
        }
        own = made;
        tail_e = tail_next;
#pragma unroll
        for (int c = 0; c < kColumns; ++c) e[c] = next[c];
      }
      if (makes_columns) add(acc, tail, tail_acc, row_group, begin, whole, round == 0);
      __syncthreads();  // no thread reads the rows' numbers any more
    }
    if (updates) {
      cuda::cluster_sync();
      if (place == 0) {
        for (cuda::Mailbox& box : s.boxes) cuda::transfer_end(&box);
      }
    }
    stream.end();
  }

  __device__ __forceinline__ void add(const double (&acc)[kColumns], int tail, double tail_acc, int row_group,
                                      int begin, int whole, bool is_first) const {
    double* const to = columns_.partials(row_group) + begin;
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      const int j = c * kWidth + static_cast<int>(threadIdx.x);
      if (j < whole) to[j] = is_first ? acc[c] : to[j] + acc[c];
    }
    if (tail >= 0) to[tail] = is_first ? tail_acc : to[tail] + tail_acc;
  }
};

}  // namespace warpalign::detail::transport
