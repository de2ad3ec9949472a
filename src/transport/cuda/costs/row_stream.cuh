// Rows of costs come to shared memory, some of them ahead. A row comes by one bulk copy: no register holds a
// cost on the way, and no instruction of a loop over the row makes an address. Warps need not be at the same
// row: each tells its part of a row's sum when it has read the row. When all have, the sum is known and the
// row's place is free.
//
// A bulk copy begins and ends at multiples of 16 bytes. It begins up to 15 bytes in front of the row, and
// ends within it: a row's last kTail costs are not in shared memory. Costs with gaps between them are copied
// one by one.
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
// t + kWidth, t + 2 kWidth, ... There are kStages places. Real: of a row's sum.
template <class Stored, class Real, int kColumns, int kWidth, int kStages>
class RowStream {
 public:
  static constexpr int kWarps = kWidth / 32;
  static constexpr int kAligned = 16 / sizeof(Stored);
  static constexpr int kTail = kAligned - 1;
  // A warp is at most one row ahead of another, and adds a row's parts up a row later: they stay so long.
  static constexpr int kPartSlots = 4;
  static constexpr int kMostRows = 128;  // whose tails are in shared memory
  static_assert(kStages >= 2 && kStages <= kWarps);

  struct Shared {
    alignas(16) Stored rows[kStages][kColumns + kAligned];
    alignas(16) Real parts[kPartSlots][kWarps];
    Stored tails[kMostRows][kTail];
    cuda::TransferBarrier arrived[kStages];
    cuda::TransferBarrier read[2];  // of rows of even and of odd numbers
  };

  // All threads come, when nobody uses the memory any more. Asks for the first rows. `count`: the costs of a
  // row but for its tail.
  __device__ __forceinline__ RowStream(Shared& shared, const Stored* costs, std::int64_t row_stride,
                                       std::int64_t stride, int rows, int count)
      : s_(shared), costs_(costs), row_stride_(row_stride), stride_(stride), rows_(rows), count_(count) {
    if (threadIdx.x == 0) {
      for (cuda::TransferBarrier& barrier : s_.arrived) cuda::transfer_init<1>(&barrier);
      for (cuda::TransferBarrier& barrier : s_.read) cuda::transfer_init<kWarps>(&barrier);
      cuda::transfer_fence();
    }
    // Behind the rows are numbers, whatever was there before.
    for (int stage = 0; stage < kStages; ++stage) {
      for (int j = count_ + static_cast<int>(threadIdx.x); j < kColumns + kAligned; j += kWidth) {
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

  // All threads come. Brings the tails of rows begin ... end - 1 together, at most kMostRows. A wait of the
  // block comes behind it. Loads a row ahead would take longer than a row.
  __device__ __forceinline__ void load_tails(int begin, int end, int count) const {
    for (int k = static_cast<int>(threadIdx.x); k < (end - begin) * kTail; k += kWidth) {
      const int n = begin + k / kTail, j = count_ + k % kTail;
      if (j < count) s_.tails[k / kTail][k % kTail] = costs_[n * row_stride_ + j * stride_];
    }
  }

  // Waits for the next row, the first one at first. Returns this thread's first cost.
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
  // The lanes of a warp come when they have read row n, each with its part of the row's sum.
  __device__ __forceinline__ void tell(int n, Real part) const {
    part = cuda::reduce_sum(part);
    __syncwarp();
    if (threadIdx.x % 32 != 0) return;
    s_.parts[n & (kPartSlots - 1)][threadIdx.x / 32] = part;
    cuda::transfer_arrive(&s_.read[n & 1]);
  }
  // All threads come, for one row after the other. Waits until all warps have told their parts of row n.
  // Another row comes to its place. Returns the sum.
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
  // All threads come, when all rows have been added up. The first rows go to the second-level cache: whoever
  // reads the same costs next begins with them.
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
  // Where row n begins in its place: as in memory, relative to 16 bytes.
  [[nodiscard]] __device__ __forceinline__ int offset(int n) const {
    if (!whole()) return 0;
    const auto first = static_cast<unsigned>(reinterpret_cast<std::uintptr_t>(costs_) / sizeof(Stored));
    return static_cast<int>((first + static_cast<unsigned>(n) * static_cast<unsigned>(row_stride_)) %
                            kAligned);
  }

  // By one thread.
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
  // A row with gaps between its costs. By all threads, each its own ones.
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
  int row_ = 0;    // the next one
  int stage_ = 0;  // its place, and the phase of its arrival
  int phase_ = 0;
  int free_ = 0;  // the place that becomes free next
};

}  // namespace warpalign::detail::transport
