// Sums of a pass over long rows of given costs, which stream through shared memory.
//
// A row belongs to the whole block; a thread has columns t, t + kWidth, t + 2 kWidth, ... of it. Rows come to
// a ring in shared memory by one bulk copy each: no register holds a cost on the way, and no instruction of
// the loop makes an address. A column's sum stays in a register for all rows of the block. The lo parts of
// potentials are factors: 2^(lo of the column) of the column's weight in the row's sum, and of the column's
// sum behind the last row; 2^(lo of the row) of the row's sum.
//
//   e[i,j] = 2^(hi[i] + hi[j] - k C[i,j]),   row sum = 2^lo[i] sum_j b[j] 2^lo[j] e[i,j]
#pragma once

#include "cuda/bulk_copy.cuh"
#include "transport/cuda/dense.cuh"

namespace warpalign::detail::transport {

// Largest logits, and the sums of the plan, are made by Dense.
template <int kColumns, int kWidth, int kStages, class Stored = float>
class StreamedRows : public Dense<float, kColumns, kWidth, Stored> {
 public:
  using Base = Dense<float, kColumns, kWidth, Stored>;
  using Real = float;
  using Base::Base;

  static std::size_t shared_bytes(const SolveLayout& layout) {
    return std::max(Base::shared_bytes(layout), kScratchBytes + sizeof(Shared));
  }

  template <PassKind kKind>
  __device__ __attribute__((noinline)) void run(const Pass& pass, PlanSums& sums) const {
    if constexpr (kKind == PassKind::kSums && kHasBulkCopies) {
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
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
  static constexpr bool kHasBulkCopies = false;
#else
  static constexpr bool kHasBulkCopies = true;
#endif
  static constexpr int kPadded = Base::kPadded;
  static constexpr int kMostRows = 128;                 // that a thread adds up before they go to memory
  static constexpr int kAligned = 16 / sizeof(Stored);  // costs of what a bulk copy copies at least
  static_assert(kStages >= 2 && kColumns % 2 == 0);

  struct alignas(16) Quad {
    float v[4];
  };
  struct Shared {
    alignas(16) Stored rows[kStages][kPadded + kAligned];
    Quad numbers[kColumns / 2][kWidth];  // of two columns: hi, and the weight in the reference times 2^lo
    cuda::TransferBarrier arrived[kStages];
  };
  [[nodiscard]] static __device__ __forceinline__ Shared& shared() {
    return *reinterpret_cast<Shared*>(cuda::dynamic_shared() + kScratchBytes);
  }

  // The costs of a task: row `first` and those behind it, `count` columns.
  struct Costs {
    const Stored* data;
    std::int64_t row_stride;
    std::int64_t stride;
    int rows;
    int count;

    [[nodiscard]] __device__ __forceinline__ const Stored* row(int n) const { return data + n * row_stride; }
    // Where a row begins in its place of the ring: as in memory, relative to 16 bytes.
    [[nodiscard]] __device__ __forceinline__ int offset(int n) const {
      if (stride != 1) return 0;
      return static_cast<int>(reinterpret_cast<std::uintptr_t>(row(n)) / sizeof(Stored) % kAligned);
    }
  };

  // A cost in front of a bulk copy or behind it; or a 0 behind the row's end. It is stored a row later.
  struct Edge {
    Stored* to = nullptr;
    Stored value{};

    __device__ __forceinline__ void store() const {
      if (!to) return;
      *to = value;
      cuda::fence_bulk_shared();
    }
  };

  // Asks for row n, whose place nobody reads any more.
  static __device__ __forceinline__ Edge fetch(const Costs& costs, int n, int stage) {
    Edge edge;
    if (n >= costs.rows) return edge;
    Shared& s = shared();
    const Stored* const from = costs.row(n);
    Stored* const to = s.rows[stage];
    const int thread = static_cast<int>(threadIdx.x);
    if (costs.stride != 1) {
      for (int j = thread; j < costs.count; j += kWidth) {
        if constexpr (sizeof(Stored) == 4) {
          cuda::copy_async(to + j, from + j * costs.stride);
        } else {
          to[j] = from[j * costs.stride];
        }
      }
      if (thread == 0) cuda::transfer_expect(&s.arrived[stage], 0);
      return edge;
    }
    const int offset = costs.offset(n);
    const int head = min((kAligned - offset) % kAligned, costs.count);
    const int body = (costs.count - head) / kAligned * kAligned;
    if (thread == 0) {
      const int bytes = body * static_cast<int>(sizeof(Stored));
      cuda::transfer_expect(&s.arrived[stage], bytes);
      if (body > 0) cuda::copy_bulk(to + offset + head, from + head, bytes, &s.arrived[stage]);
    }
    const int k = thread % kAligned;
    if (thread < kAligned && k < head) edge = {to + offset + k, from[k]};
    if (thread / kAligned == 1 && head + body + k < costs.count) {
      edge = {to + offset + head + body + k, from[head + body + k]};
    }
    if (thread / kAligned == 2 && offset + k < kAligned) edge = {to + offset + costs.count + k, Stored{}};
    return edge;
  }

  // The sum over the block of a warp's sums, by one barrier.
  static __device__ __forceinline__ float joined(float v, int& parity, const Edge& edge) {
    v = cuda::reduce_sum(v);
    auto* const places =
        reinterpret_cast<float*>(cuda::dynamic_shared() + kMostWarps * kRecordBytes) + parity * kMostWarps;
    parity ^= 1;
    if (threadIdx.x % 32 == 0) places[threadIdx.x / 32] = v;
    edge.store();
    __syncthreads();
    float parts[4] = {};
#pragma unroll
    for (int k = 0; k < kWidth / 32; ++k) parts[k % 4] += places[k];
    return (parts[0] + parts[1]) + (parts[2] + parts[3]);
  }

  [[nodiscard]] __device__ __forceinline__ Potential<float> column_at(const Pass& pass, int j) const {
    return Potential<float>::split(pass.columns_at ? pass.columns_at[j] : 0.0, pass.rounder);
  }

  __device__ __forceinline__ void load_columns(const Pass& pass, int begin, int count) const {
    for (int j = static_cast<int>(threadIdx.x); j < kPadded; j += kWidth) {
      float hi = static_cast<float>(-CUDART_INF), weight = 0;
      if (j < count) {
        const Potential<float> z = column_at(pass, begin + j);
        hi = z.hi;
        weight = static_cast<float>(columns_.reference(columns_.weight(begin + j))) * cuda::exp2_fast(z.lo);
      }
      const int c = j / kWidth, place = j % kWidth;
      Quad& to = shared().numbers[c / 2][place];
      to.v[c % 2 * 2] = hi;
      to.v[c % 2 * 2 + 1] = weight;
    }
  }

  __device__ __forceinline__ void sums_of_task(const Pass& pass, int row_group, int segment) const {
    Shared& s = shared();
    const int place = static_cast<int>(threadIdx.x), begin = segment * kPadded;
    const int first = p_.layout.first_row(row_group, rows_.count);
    const Costs costs{static_cast<const Stored*>(p_.cost) + rows_.b * p_.cost_stride[0] +
                          first * p_.cost_stride[1] + begin * p_.cost_stride[2],
                      p_.cost_stride[1], p_.cost_stride[2],
                      p_.layout.first_row(row_group + 1, rows_.count) - first,
                      min(max(columns_.count - begin, 0), kPadded)};
    const bool makes_rows = pass.rows, makes_columns = pass.columns, updates = pass.updates_rows;
    const bool is_hard = !rows_.marginal.partial && isinf(rows_.marginal.strength), product = rows_.product;
    const double* const rows_at = pass.rows_at;
    const double lambda = pass.lambda, rounder = pass.rounder;
    const float* const weights = rows_.p.weights ? rows_.p.weights + rows_.row_of_batch() : nullptr;
    const float uniform = static_cast<float>(rows_.uniform), factor_of_costs = static_cast<float>(pass.k);
    float* const row_sums = rows_.partials(segment);

    __syncthreads();  // whatever was in shared memory has been used
    load_columns(pass, begin, costs.count);
    for (int stage = 0; stage < kStages; ++stage) {
      for (int j = costs.count + place; j < kPadded + kAligned; j += kWidth) s.rows[stage][j] = Stored{};
      if (place == 0) cuda::transfer_init<1>(&s.arrived[stage]);
    }
    if (place == 0) cuda::transfer_fence();
    cuda::fence_bulk_shared();
    __syncthreads();
    for (int stage = 0; stage < kStages; ++stage) {
      fetch(costs, stage, stage).store();
      cuda::end_copy_group();
    }

    const auto at_of = [&](int n) { return n < costs.rows && rows_at ? rows_at[first + n] : 0.0; };
    const auto weight_of = [&](int n) { return n < costs.rows && weights ? weights[first + n] : uniform; };
    double next_at = at_of(0);
    float next_weight = weight_of(0);
    __syncthreads();  // the first edges
    Edge edge;
    int parity = 0, stage = 0, phase = 0;
    for (int round = 0; round < costs.rows || round == 0; round += kMostRows) {
      float acc[kColumns];
#pragma unroll
      for (int c = 0; c < kColumns; ++c) acc[c] = 0;
      const int last = min(costs.rows, round + kMostRows);
      for (int n = round; n < last; ++n) {
        const double at = next_at;
        const float weight = next_weight;
        next_at = at_of(n + 1);
        next_weight = weight_of(n + 1);
        const Potential<float> w = Potential<float>::split(at + lambda, rounder);
        const Stored* const row = s.rows[stage] + costs.offset(n) + place;
        cuda::transfer_wait(&s.arrived[stage], phase);
        cuda::await_copy_groups_but<kStages - 1>();
        float e[kColumns], parts[2] = {};
#pragma unroll
        for (int c = 0; c < kColumns; c += 2) {
          const Quad z = s.numbers[c / 2][place];
#pragma unroll
          for (int k = 0; k < 2; ++k) {
            e[c + k] = cuda::exp2_fast(
                fmaf(-factor_of_costs, cuda::widen(row[(c + k) * kWidth]), w.hi + z.v[2 * k]));
            parts[k] = fmaf(e[c + k], z.v[2 * k + 1], parts[k]);
          }
        }
        const float own = joined(parts[0] + parts[1], parity, edge);
        // All threads have read the row.
        edge = fetch(costs, n + kStages, stage);
        cuda::end_copy_group();
        if (++stage == kStages) {
          stage = 0;
          phase ^= 1;
        }
        const float of_lo = cuda::exp2_fast(w.lo), sum = own * of_lo;
        if (makes_rows && place == 0) row_sums[first + n] = sum;
        if (!makes_columns) continue;
        float factor = (product ? weight : 1.0f) * of_lo;
        if (updates && sum > 0 && !isinf(sum)) {
          factor = is_hard ? weight / own : relaxed_factor(pass, at, weight, sum) * of_lo;
        }
        if (isnan(own)) factor = own;
#pragma unroll
        for (int c = 0; c < kColumns; ++c) acc[c] = fmaf(e[c], factor, acc[c]);
      }
      if (makes_columns) add(pass, acc, row_group, begin, costs.count, round == 0);
    }
    cuda::await_copies();
    __syncthreads();
    if (place < kStages) cuda::transfer_end(&s.arrived[place]);
  }

  // A call of its own: its float64 numbers would take the registers of the loop.
  __device__ __attribute__((noinline)) float relaxed_factor(const Pass& pass, double at, float weight,
                                                            float sum) const {
    return this->moved_factor(pass, at, weight, sum);
  }

  // Puts the columns' sums of some rows to those of the rows before.
  __device__ __forceinline__ void add(const Pass& pass, const float (&acc)[kColumns], int row_group,
                                      int begin, int count, bool is_first) const {
    float* const to = columns_.partials(row_group) + begin;
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      const int j = c * kWidth + static_cast<int>(threadIdx.x);
      if (j >= count) continue;
      const float sum = acc[c] * cuda::exp2_fast(column_at(pass, begin + j).lo);
      to[j] = is_first ? sum : to[j] + sum;
    }
  }
};

}  // namespace warpalign::detail::transport
