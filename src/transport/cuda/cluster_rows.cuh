// Sums of a pass over rows of float64 costs, which stream through shared memory. A row belongs to kBlocks
// blocks of a cluster: each has a part of its columns. So a fused sweep has rows that are kBlocks times as
// long as one block's registers hold: the blocks tell each other their parts of a row's sum.
//
// A row's message is on its way while the next row's exponentials are made.
#pragma once

#include <cstring>

#include "cuda/cluster.cuh"
#include "transport/cuda/dense.cuh"
#include "transport/cuda/row_ring.cuh"

namespace warpalign::detail::transport {

template <int kColumns, int kWidth, int kStages, int kBlocks_>
class ClusterRows : public Dense<double, kColumns, kWidth> {
 public:
  using Base = Dense<double, kColumns, kWidth>;
  using Real = double;
  using Base::Base;
  static constexpr int kCluster = kBlocks_;
  static_assert(kCluster > 1);
  static constexpr const char* name() { return "dense, rows of two blocks"; }

  static std::size_t shared_bytes(const SolveLayout& layout) {
    return std::max(Base::shared_bytes(layout), kScratchBytes + sizeof(Shared));
  }

  template <PassKind kKind>
  __device__ __attribute__((noinline)) void run(const Pass& pass, PlanSums& sums) const {
    if constexpr (kKind == PassKind::kSums && kHasRowRings) {
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
  using Ring = RowRing<double, Base::kPadded, kWidth, kStages>;
  static constexpr int kPadded = Base::kPadded;
  static constexpr int kMostRows = 128;
  static constexpr int kSlots = 4;  // a message stays until its readers have surely read it

  struct alignas(16) Pair {
    double v[2];
  };
  struct RowNumbers {
    double at;
    double weight;
  };
  struct Shared {
    typename Ring::Shared ring;
    Pair columns[kPadded];  // potential and weight
    RowNumbers numbers[kMostRows];
    alignas(16) double messages[kSlots][2];
    cuda::Mailbox boxes[kSlots];
  };
  [[nodiscard]] static __device__ __forceinline__ Shared& shared() {
    return *reinterpret_cast<Shared*>(cuda::dynamic_shared() + kScratchBytes);
  }

  __device__ __forceinline__ void load_columns(const Pass& pass, int begin, int count) const {
    constexpr int kTogether = 8;
    static_assert(kColumns % kTogether == 0);
    const int place = static_cast<int>(threadIdx.x), left = count - place;
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
  }
  __device__ __forceinline__ void load_rows(const Pass& pass, int first, int rows) const {
    const double* const weights = rows_.p.weights ? rows_.p.weights + rows_.row_of_batch() : nullptr;
    for (int n = static_cast<int>(threadIdx.x); n < rows; n += kWidth) {
      shared().numbers[n] = {pass.rows_at ? pass.rows_at[first + n] : 0.0,
                             weights ? weights[first + n] : rows_.uniform};
    }
    __syncthreads();
  }

  // One thread. What the other block of the cluster needs of row n.
  static __device__ __forceinline__ void tell(int n, double own) {
    Shared& s = shared();
    const int slot = n % kSlots, other = 1 - cuda::cluster_rank();
    std::uint32_t words[4] = {};
    std::memcpy(words, &own, sizeof own);
    cuda::mailbox_expect(&s.boxes[slot], 16);
    cuda::send_message(cuda::cluster_address(s.messages[slot], other), words,
                       cuda::cluster_address(&s.boxes[slot], other));
  }
  // The row's whole sum, in the same order in both blocks.
  static __device__ __forceinline__ double whole(int n, double own) {
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
    const int count = min(max(columns_.count - begin, 0), kPadded);
    const bool makes_rows = pass.rows, makes_columns = pass.columns, updates = pass.updates_rows;
    const bool is_hard = !rows_.marginal.partial && isinf(rows_.marginal.strength), product = rows_.product;
    const double k = pass.k, lambda = pass.lambda;
    double* const row_sums = rows_.partials(segment) + first;

    __syncthreads();  // whatever was in shared memory has been used
    if (updates && place == 0) {
      for (cuda::Mailbox& box : s.boxes) cuda::mailbox_init(&box);
    }
    Ring ring(s.ring,
              static_cast<const double*>(p_.cost) + rows_.b * p_.cost_stride[0] + first * p_.cost_stride[1] +
                  begin * p_.cost_stride[2],
              p_.cost_stride[1], p_.cost_stride[2], rows, count);
    ring.ask(0, kStages);
    load_columns(pass, begin, count);
    ring.settle();
    if (updates) cuda::cluster_sync();

    int parity = 0;
    for (int round = 0; round < rows || round == 0; round += kMostRows) {
      double acc[kColumns], e[kColumns], own = 0;
#pragma unroll
      for (int c = 0; c < kColumns; ++c) acc[c] = 0;
      const int last = min(rows, round + kMostRows);
      load_rows(pass, first + round, last - round);
      // Row n is made in step n, and goes to the columns' sums in step n + 1.
      for (int n = round; n <= last; ++n) {
        double next[kColumns], made = 0;
        if (n < last) {
          const double w = Potential<double>::split(s.numbers[n - round].at + lambda, 0).hi;
          const double* const row = ring.wait();
          double parts[2] = {};
#pragma unroll
          for (int c = 0; c < kColumns; ++c) {
            const Pair z = s.columns[c * kWidth + place];
            next[c] = exp2(fma(-k, row[c * kWidth], w + z.v[0]));
            parts[c % 2] = fma(next[c], z.v[1], parts[c % 2]);
          }
          ring.settle();
          made = this->template joined<false>(parts[0] + parts[1], parity);
          ring.advance();  // all threads have read the row
          if (makes_rows && place == 0) row_sums[n] = made;
          if (updates && place == 0) tell(n, made);
        }
        if (n > round) {
          const RowNumbers w = s.numbers[n - 1 - round];
          const double sum = updates ? whole(n - 1, own) : own;
          double factor = product ? w.weight : 1.0;
          if (updates && sum > 0 && !isinf(sum)) {
            factor = is_hard ? w.weight / sum : this->moved_factor(pass, w.at, w.weight, sum);
          }
          if (isnan(sum)) factor = sum;
#pragma unroll
          for (int c = 0; c < kColumns; ++c) acc[c] = fma(e[c], factor, acc[c]);
        }
        own = made;
#pragma unroll
        for (int c = 0; c < kColumns; ++c) e[c] = next[c];
      }
      if (makes_columns) add(acc, row_group, begin, count, round == 0);
      __syncthreads();  // the rows' numbers have been read
    }
    if (updates) {
      cuda::cluster_sync();
      if (place == 0) {
        for (cuda::Mailbox& box : s.boxes) cuda::transfer_end(&box);
      }
    }
    ring.end();
  }

  __device__ __forceinline__ void add(const double (&acc)[kColumns], int row_group, int begin, int count,
                                      bool is_first) const {
    double* const to = columns_.partials(row_group) + begin;
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      const int j = c * kWidth + static_cast<int>(threadIdx.x);
      if (j < count) to[j] = is_first ? acc[c] : to[j] + acc[c];
    }
  }
};

}  // namespace warpalign::detail::transport
