// A group's slots of one strip, copied to shared memory during the previous group.
//
// Piece k has the slots of one arc that end at the group's steps: rows first - frames ... first - frames + 7.
// They are one run of global memory (layout.h). Rows that the strip does not have are not copied: they belong
// to no arc.
#pragma once

#include "cuda/memory/copy_async.cuh"
#include "cuda/memory/streaming.cuh"
#include "transducer/cuda/call/layout.h"

namespace warpalign::detail::transducer {

template <class Real>
class SlotStage {
 public:
  // Bytes of two groups with `pieces` pieces each.
  static WARPALIGN_ANYWHERE constexpr int bytes(int pieces, int lane_stride) {
    return 2 * pieces * kGroup * kStrip * lane_stride * static_cast<int>(sizeof(Real));
  }

  // slots: those of the strip. read_lane: the lane whose slots this lane reads. shared: bytes() bytes,
  // aligned to 16 bytes.
  __device__ __forceinline__ SlotStage(const SlotLayout& layout, const Real* slots, unsigned char* shared,
                                       int pieces, int lane, int read_lane)
      : slots_(slots),
        shared_(reinterpret_cast<Real*>(shared)),
        rows_(layout.rows()),
        row_stride_(layout.row_stride()),
        // With two slots of a lane per row, the row is copied for each of the two.
        arc_stride_(layout.lane_stride() == 2 ? 0 : layout.arc_stride()),
        lane_stride_(layout.lane_stride()),
        pieces_(pieces),
        lane_(lane),
        read_lane_(read_lane) {}

  // Starts the copy of piece k of the group of steps first ... first + 7. No lane reads the group before the
  // previous one any more, whose memory it uses. kLaneStride: the layout's, if it is known at compile time.
  template <int kLaneStride = 0>
  __device__ __forceinline__ void ask(int first, int k, int arc, int frames) const {
    const int row = first - frames;
    const int row_stride = kLaneStride > 0 ? kLaneStride * kStrip : row_stride_;
    const Real* const from = slots_ + arc * arc_stride_ + static_cast<std::int64_t>(row) * row_stride;
    Real* const to = piece(first, k);
    // A row has 8, 16 or 32 chunks of 16 bytes; the warp copies 4, 2 or 1 rows at a time.
    const int chunks_of_row = row_stride / kPerChunk, step = kStrip / chunks_of_row;
    const bool inside = row >= 0 && row + kGroup <= rows_;
    const int r = row + lane_ / chunks_of_row, copies = kGroup * chunks_of_row / kStrip;
#pragma unroll(kLaneStride > 0 ? kGroup * kLaneStride / kPerChunk : 1)
    for (int c = 0; c < copies; ++c) {
      if (!inside && (r + c * step < 0 || r + c * step >= rows_)) continue;
      const int at = c * kStrip + lane_;
      cuda::copy_async_l2(reinterpret_cast<Chunk*>(to) + at, reinterpret_cast<const Chunk*>(from) + at);
    }
  }
  // Waits until all copies have arrived, for all lanes.
  static __device__ __forceinline__ void await() {
    cuda::await_copies();
    __syncwarp();
  }
  // The slot of lane read_lane, q steps after `first`.
  [[nodiscard]] __device__ __forceinline__ Real slot(int first, int k, int arc, int q) const {
    return piece(first, k)[q * row_stride_ + read_lane_ * lane_stride_ + (lane_stride_ == 2 ? arc : 0)];
  }

 private:
  using Chunk = cuda::Bits128;
  static constexpr int kPerChunk = 16 / static_cast<int>(sizeof(Real));

  [[nodiscard]] __device__ __forceinline__ Real* piece(int first, int k) const {
    return shared_ + ((first / kGroup % 2) * pieces_ + k) * kGroup * row_stride_;
  }

  const Real* const slots_;
  Real* const shared_;
  const int rows_;
  const int row_stride_;
  const std::int64_t arc_stride_;
  const int lane_stride_;
  const int pieces_;
  const int lane_;
  const int read_lane_;
};

}  // namespace warpalign::detail::transducer
