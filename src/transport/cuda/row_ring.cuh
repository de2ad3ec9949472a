// A ring of rows of costs in shared memory. A row comes by one bulk copy: no register holds a cost on the
// way, and no instruction of a loop over the row makes an address. The row's first and last costs, which are
// less than 16 bytes, are stored by single threads: no byte outside the costs is read. Costs with gaps
// between them are copied one by one.
//
// Compute capability 9.0 and later.
#pragma once

#include <cstdint>

#include "cuda/bulk_copy.cuh"
#include "cuda/copy_async.cuh"

namespace warpalign::detail::transport {

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
inline constexpr bool kHasRowRings = false;
#else
inline constexpr bool kHasRowRings = true;
#endif

// kWidth threads, which are the block, read rows of up to kColumns costs. Thread t reads the costs t,
// t + kWidth, t + 2 kWidth, ... There are kStages places.
template <class Stored, int kColumns, int kWidth, int kStages>
class RowRing {
 public:
  static constexpr int kAligned = 16 / sizeof(Stored);  // costs of what a bulk copy copies at least
  static_assert(kStages >= 2 && kStages <= kWidth / 32 && 3 * kAligned <= 32);

  struct Shared {
    alignas(16) Stored rows[kStages][kColumns + kAligned];
    cuda::TransferBarrier arrived[kStages];
  };

  // All threads come, when nobody uses the memory any more. `count` costs of each of `rows` rows.
  __device__ __forceinline__ RowRing(Shared& shared, const Stored* costs, std::int64_t row_stride,
                                     std::int64_t stride, int rows, int count)
      : s_(shared),
        costs_(costs),
        row_stride_(row_stride),
        stride_(stride),
        rows_(rows),
        count_(count),
        offset_(whole()
                    ? static_cast<int>(reinterpret_cast<std::uintptr_t>(costs) / sizeof(Stored) % kAligned)
                    : 0),
        next_offset_(whole() ? static_cast<int>(static_cast<std::uint64_t>(row_stride) % kAligned) : 0) {
    if (threadIdx.x == 0) {
      for (int stage = 0; stage < kStages; ++stage) cuda::transfer_init<1>(&s_.arrived[stage]);
      cuda::transfer_fence();
    }
    clear(0);
  }

  // All threads come. What is behind the rows' ends becomes 0, in the places from `stage` on.
  __device__ __forceinline__ void clear(int stage) {
    for (; stage < kStages; ++stage) {
      for (int j = count_ + static_cast<int>(threadIdx.x); j < kColumns + kAligned; j += kWidth) {
        s_.rows[stage][j] = Stored{};
      }
    }
    cuda::fence_bulk_shared();
    __syncthreads();
  }
  // All threads come. Asks for rows begin ... end - 1, which go to the places of these numbers. settle() and
  // a wait of the block come behind it.
  __device__ __forceinline__ void ask(int begin, int end) {
    if (!whole()) {
      for (int n = begin; n < end; ++n) copy_row(n, n);
      return;
    }
    const int warp = static_cast<int>(threadIdx.x) / 32;
    if (begin <= warp && warp < end) fetch(warp, warp);
  }
  // Stores what this thread has read of a row's ends, for threads behind the block's next wait.
  __device__ __forceinline__ void settle() {
    if (!edge_to_) return;
    *edge_to_ = edge_;
    edge_to_ = nullptr;
    cuda::fence_bulk_shared();
  }

  // Waits for the current row, the first one at first. Returns this thread's first cost.
  [[nodiscard]] __device__ __forceinline__ const Stored* wait() const {
    cuda::transfer_wait(&s_.arrived[stage_], phase_);
    if (!whole()) cuda::await_copy_groups_but<kStages - 1>();
    return s_.rows[stage_] + offset_ + threadIdx.x;
  }
  // All threads come, when all have read the current row: the next row becomes the current one.
  __device__ __forceinline__ void advance() {
    const int next = row_ + kStages;
    if (!whole()) {
      copy_row(next, stage_);
    } else if (threadIdx.x < 32) {
      fetch(next, stage_);
    }
    ++row_;
    offset_ = (offset_ + next_offset_) % kAligned;
    if (++stage_ == kStages) {
      stage_ = 0;
      phase_ ^= 1;
    }
  }

  // All threads come, when all rows have been read. The first rows go to the second-level cache: whoever
  // reads the same costs next begins with them.
  __device__ __forceinline__ void end() {
    prefetch();
    cuda::await_copies();
    __syncthreads();
    if (threadIdx.x < kStages) cuda::transfer_end(&s_.arrived[threadIdx.x]);
  }

 private:
  static constexpr int kRowsAhead = 4;

  [[nodiscard]] __device__ __forceinline__ bool whole() const { return stride_ == 1; }

  // By one warp.
  __device__ __forceinline__ void fetch(int n, int stage) {
    if (n >= rows_) return;
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const Stored* const from = costs_ + n * row_stride_;
    // In its place a row begins where it does in memory, relative to 16 bytes.
    const int offset = static_cast<int>(reinterpret_cast<std::uintptr_t>(from) / sizeof(Stored) % kAligned);
    Stored* const to = s_.rows[stage] + offset;
    const int head = min((kAligned - offset) % kAligned, count_);
    const int body = (count_ - head) / kAligned * kAligned;
    if (lane == 0) {
      const int bytes = body * static_cast<int>(sizeof(Stored));
      cuda::transfer_expect(&s_.arrived[stage], bytes);
      if (body > 0) cuda::copy_bulk(to + head, from + head, bytes, &s_.arrived[stage]);
    }
    // A few lanes have a cost in front of the copy, behind it, or a 0 behind the row's end.
    const int k = lane % kAligned;
    const int at = lane < kAligned ? k : lane < 2 * kAligned ? head + body + k : count_ + k;
    const bool exists = lane < kAligned       ? k < head
                        : lane < 2 * kAligned ? at < count_
                                              : lane < 3 * kAligned && offset + k < kAligned;
    if (!exists) return;
    edge_to_ = to + at;
    edge_ = at < count_ ? from[at] : Stored{};
  }
  // A row with gaps between its costs. By all threads, each its own ones.
  __device__ __forceinline__ void copy_row(int n, int stage) const {
    if (n < rows_) {
      copy_costs(s_.rows[stage], costs_ + n * row_stride_, stride_, count_);
      if (threadIdx.x == 0) cuda::transfer_expect(&s_.arrived[stage], 0);
    }
    cuda::end_copy_group();
  }
  static __device__ __attribute__((noinline)) void copy_costs(Stored* to, const Stored* from,
                                                              std::int64_t stride, int count) {
    for (int j = static_cast<int>(threadIdx.x); j < count; j += kWidth) {
      if constexpr (sizeof(Stored) >= 4) {
        cuda::copy_async(to + j, from + j * stride);
      } else {
        to[j] = from[j * stride];
      }
    }
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
  int offset_;  // of the current row's first cost in its place
  const int next_offset_;
  int row_ = 0;
  int stage_ = 0;
  int phase_ = 0;
  Stored* edge_to_ = nullptr;
  Stored edge_{};
};

}  // namespace warpalign::detail::transport
