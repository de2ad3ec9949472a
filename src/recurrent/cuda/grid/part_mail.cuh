// Parts of dh between blocks that share units. The owner of a unit adds them in the order of the ranks.
//
// A message for step s + 1 needs dz of step s, which its receiver has written after its last look at the
// parts of step s. So two buffers suffice.
#pragma once

#include "recurrent/cuda/cell/mail.cuh"
#include "recurrent/cuda/grid/resident.cuh"

namespace warpalign::detail::recurrent {

constexpr int kPairRows = 16;

// Shared memory of a pair of tiles: parts of dh from each block for steps of even and of odd place, and what
// counts their bytes.
template <int kSplit>
struct alignas(16) SplitPair {
  static constexpr int kFloats = kPairRows * kOwnUnits;
  float parts[2][kSplit][kFloats];
  cuda::Mailbox boxes[2];
};

// A thread joins the warps' sums of four units of a row, and sends them to the block that owns the units.
template <int kSplit>
class PartMail {
 public:
  // Before the cluster_sync() after which blocks make their PartMail. One thread calls it.
  __device__ __forceinline__ static void open(SplitPair<kSplit>* pairs, int count) {
    for (int pair = 0; pair < count; ++pair) {
      for (cuda::Mailbox& box : pairs[pair].boxes) open_mailbox(&box, kBytes);
    }
  }
  // part: the block's number in its cluster. A block that has no units gets no messages.
  __device__ __forceinline__ PartMail(SplitPair<kSplit>* pairs, const PairPlace& at, int part, int hidden)
      : pairs_(pairs), takes_(at.rank * kOwnUnits < hidden) {
    if constexpr (kSplit == 1) return;
    const int item = static_cast<int>(threadIdx.x) / 4, row = item % kPairRows, block = item / kPairRows;
    const int units = static_cast<int>(threadIdx.x) % 4 * 4;  // the first one of them
    sends_ = block < kSplit && (at.rank - part + block) * kOwnUnits < hidden;
    from_ = row / 8 * kDistance + (block * 8 + row % 8) * kColumnDistance + units;
    const int peer = sends_ ? block : part;
    to_ = cuda::cluster_address(&pairs[0].parts[0][part][row * kOwnUnits + units], peer);
    box_ = cuda::cluster_address(&pairs[0].boxes[0], peer);
  }
  __device__ __forceinline__ void send(const float* partials, int pair, int buffer) const {
    if (!sends_) return;
    float sum[2][4] = {};
    unroll<kResidentWarps>([&](int k) {
      const float4 v = *reinterpret_cast<const float4*>(partials + from_ + 2 * k * kDistance);
      sum[k % 2][0] += v.x, sum[k % 2][1] += v.y, sum[k % 2][2] += v.z, sum[k % 2][3] += v.w;
    });
    const Message message =
        bits_of({sum[0][0] + sum[1][0], sum[0][1] + sum[1][1], sum[0][2] + sum[1][2], sum[0][3] + sum[1][3]});
    const int offset = pair * static_cast<int>(sizeof(Pair));
    cuda::send_message(to_ + offset + buffer * static_cast<int>(sizeof(pairs_->parts[0])), message.words,
                       box_ + offset + buffer * static_cast<int>(sizeof(cuda::Mailbox)));
  }
  // What arrives for this thread's unit and row; 0: the block owns no units.
  __device__ __forceinline__ float take(int pair, int place, int row) const {
    if (!takes_) return 0;
    const int buffer = place % 2, lane = static_cast<int>(threadIdx.x) % cuda::kWarpSize;
    Pair& here = pairs_[pair];
    take_mail(&here.boxes[buffer], (place - 1) / 2, kBytes);
    const int own = row * kOwnUnits + lane / 2;
    float sum = here.parts[buffer][0][own];
#pragma unroll
    for (int k = 1; k < kSplit; ++k) sum += here.parts[buffer][k][own];
    return sum;
  }

 private:
  using Pair = SplitPair<kSplit>;
  static constexpr int kDistance = warp_distance(kSplit);
  static constexpr int kBytes = kSplit * Pair::kFloats * static_cast<int>(sizeof(float));

  Pair* pairs_;
  bool takes_, sends_;
  int from_;  // where the thread's first sum lies among the warps'
  cuda::ClusterAddress to_, box_;
};

}  // namespace warpalign::detail::recurrent
