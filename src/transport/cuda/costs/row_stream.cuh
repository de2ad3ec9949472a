// A stream of rows of costs through a ring of kStages places in shared memory. A row is copied by one bulk
// copy, which needs no registers and no address arithmetic. Warps may be at different rows: each publishes
// its part of a row's sum when it has read the row. When all have, the sum is complete and the row's place is
// free.
//
// A bulk copy begins and ends at multiples of 16 bytes. It begins up to 15 bytes before the row, and ends
// within it: a row's last kTail costs are not copied with it. Costs that are not contiguous are copied one by
// one.
//
// Compute capability 9.0 and later.
#pragma once

#include <cstdint>

#include "cuda/memory/bulk_copy.cuh"
#include "cuda/memory/copy_async.cuh"
#include "cuda/threads/warp.cuh"

namespace warpalign::detail::transport {

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
inline constexpr bool kHasRowStreams = false;
#else
inline constexpr bool kHasRowStreams = true;
#endif

// kWidth threads, which are the block, read rows of up to kColumns costs. Thread t reads the costs t,
// t + kWidth, t + 2 kWidth, ... Real: the type of a row's sum.
template <class Stored, class Real, int kColumns, int kWidth, int kStages>
class RowStream {
 public:
  static constexpr int kWarps = kWidth / 32;
  static constexpr int kAligned = 16 / sizeof(Stored);
  static constexpr int kTail = kAligned - 1;
  // A warp is at most one row ahead of another, and sums a row's parts one row later, so that parts are
  // stored for kPartSlots rows.
  static constexpr int kPartSlots = 4;
  static constexpr int kMostRows = 128;  // the most rows whose tails are in shared memory
  static_assert(kStages >= 2 && kStages <= kWarps);

  struct Shared {
    alignas(16) Stored rows[kStages][kColumns + kAligned];
    alignas(16) Real parts[kPartSlots][kWarps];
    Stored tails[kMostRows][kTail];
    cuda::TransferBarrier arrived[kStages];
    cuda::TransferBarrier read[2];  // for even and for odd rows
  };

  // Called by all threads, when no thread uses the memory any more. Starts to copy the first rows. `count`:
  // the number of a row's costs without its tail; read: the number of costs that threads read, at least that.
  __device__ __forceinline__ RowStream(Shared& shared, const Stored* costs, std::int64_t row_stride,
                                       std::int64_t stride, int rows, int count, int read = kColumns)
      : s_(shared), costs_(costs), row_stride_(row_stride), stride_(stride), rows_(rows), count_(count) {
    if (threadIdx.x == 0) {
      for (cuda::TransferBarrier& barrier : s_.arrived) cuda::transfer_init<1>(&barrier);
      for (cuda::TransferBarrier& barrier : s_.read) cuda::transfer_init<kWarps>(&barrier);
      cuda::transfer_fence();
    }
    // The memory after the rows must have finite numbers.
    for (int stage = 0; stage < kStages; ++stage) {
      for (int j = count_ + static_cast<int>(threadIdx.x); j < read + kAligned; j += kWidth) {
        s_.rows[stage][j] = Stored{};
      }
    }
    cuda::fence_bulk_shared();
    __syncthreads();
    if (!whole()) {
      for (int n = 0; n < kStages; ++n) copy_row(n, n);
    } else if (threadIdx.x % 32 == 0 && threadIdx.x / 32 < kStages) {
      fetch(static_cast<int>(threadIdx.x) / 32, static_cast<int>(threadIdx.x) / 32);
    }
  }

  // Called by all threads, followed by a barrier of the block. Loads the tails of rows begin ... end - 1, at
  // most kMostRows, together: the latency of a load is longer than a row.
  __device__ __forceinline__ void load_tails(int begin, int end, int count) const {
    for (int k = static_cast<int>(threadIdx.x); k < (end - begin) * kTail; k += kWidth) {
      const int n = begin + k / kTail, j = count_ + k % kTail;
      if (j < count) s_.tails[k / kTail][k % kTail] = costs_[n * row_stride_ + j * stride_];
    }
  }

  // Waits for the next row. Returns the address of this thread's first cost.
  [[nodiscard]] __device__ __forceinline__ const Stored* next() {
    cuda::transfer_wait(&s_.arrived[stage_], phase_);
    if (!whole()) cuda::await_copy_groups<kStages - 2>();
    const Stored* const row = s_.rows[stage_] + offset(row_) + threadIdx.x;
    ++row_;
    if (++stage_ == kStages) {
      stage_ = 0;
      phase_ ^= 1;
    }
    return row;
  }
  // Called by all lanes of a warp when they have read row n. part: this lane's part of the row's sum.
  __device__ __forceinline__ void tell(int n, Real part) const {
    part = cuda::reduce_sum(part);
    __syncwarp();
    if (threadIdx.x % 32 != 0) return;
    s_.parts[n & (kPartSlots - 1)][threadIdx.x / 32] = part;
    cuda::transfer_arrive(&s_.read[n & 1]);
  }
  // Called by all threads, for one row after the other. Waits until all warps have published their parts of
  // row n, starts to copy another row to its place, and returns the sum.
  __device__ __forceinline__ Real sum_of(int n) {
    cuda::transfer_wait(&s_.read[n & 1], n >> 1 & 1);
    if (!whole()) {
      copy_row(n + kStages, free_);
    } else if (threadIdx.x == 0) {
      fetch(n + kStages, free_);
    }
    if (++free_ == kStages) free_ = 0;
    Real sums[4] = {};
#pragma unroll
    for (int k = 0; k < kWarps; ++k) sums[k % 4] += s_.parts[n & (kPartSlots - 1)][k];
    return (sums[0] + sums[1]) + (sums[2] + sums[3]);
  }
  // Called by all threads after all rows. Prefetches the first rows into the second-level cache, because the
  // next pass over the same costs begins with them.
  __device__ __forceinline__ void end() const {
    prefetch();
    cuda::await_copies();
    __syncthreads();
    if (threadIdx.x < kStages) cuda::transfer_end(&s_.arrived[threadIdx.x]);
    if (threadIdx.x < 2) cuda::transfer_end(&s_.read[threadIdx.x]);
  }

 private:
  static constexpr int kRowsAhead = 4;

  [[nodiscard]] __device__ __forceinline__ bool whole() const { return stride_ == 1; }
  // The offset of row n in its place: its address modulo 16 bytes.
  [[nodiscard]] __device__ __forceinline__ int offset(int n) const {
    if (!whole()) return 0;
    const auto first = static_cast<unsigned>(reinterpret_cast<std::uintptr_t>(costs_) / sizeof(Stored));
    return static_cast<int>((first + static_cast<unsigned>(n) * static_cast<unsigned>(row_stride_)) %
                            kAligned);
  }

  // Called by one thread.
  __device__ __forceinline__ void fetch(int n, int stage) const {
    if (n >= rows_) return;
    const auto from = reinterpret_cast<std::uintptr_t>(costs_ + n * row_stride_);
    const int skipped = static_cast<int>(from % 16);
    const int bytes = count_ > 0 ? (skipped + count_ * static_cast<int>(sizeof(Stored)) + 15) / 16 * 16 : 0;
    cuda::transfer_expect(&s_.arrived[stage], bytes);
    if (bytes > 0) {
      cuda::copy_bulk(s_.rows[stage], reinterpret_cast<const void*>(from - skipped), bytes,
                      &s_.arrived[stage]);
    }
  }
  // Copies a row whose costs are not contiguous. Called by all threads, each for its own costs.
  __device__ __forceinline__ void copy_row(int n, int stage) const {
    if (n < rows_) {
      const Stored* const from = costs_ + n * row_stride_;
#pragma unroll 1
      for (int j = static_cast<int>(threadIdx.x); j < count_; j += kWidth) {
        if constexpr (sizeof(Stored) >= 4) {
          cuda::copy_async(s_.rows[stage] + j, from + j * stride_);
        } else {
          s_.rows[stage][j] = from[j * stride_];
        }
      }
      if (threadIdx.x == 0) cuda::transfer_expect(&s_.arrived[stage], 0);
    }
    cuda::end_copy_group();
  }
  __device__ __forceinline__ void prefetch() const {
    if (!whole() || static_cast<int>(threadIdx.x) >= min(kRowsAhead, rows_)) return;
    const auto from = reinterpret_cast<std::uintptr_t>(costs_ + threadIdx.x * row_stride_);
    const std::uintptr_t begin = (from + 15) / 16 * 16, end = (from + count_ * sizeof(Stored)) / 16 * 16;
    if (begin < end) {
      cuda::prefetch_bulk(reinterpret_cast<const void*>(begin), static_cast<int>(end - begin));
    }
  }

  Shared& s_;
  const Stored* const costs_;
  const std::int64_t row_stride_;
  const std::int64_t stride_;
  const int rows_;
  const int count_;
  int row_ = 0;    // the next row
  int stage_ = 0;  // its place, and the phase of its barrier
  int phase_ = 0;
  int free_ = 0;  // the place that becomes free next
};

}  // namespace warpalign::detail::transport
