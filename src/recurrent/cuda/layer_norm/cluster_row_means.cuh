// Means over all units of a row, where each block of a cluster has some of the units.
//
// A warp puts its four units together, a block its warps, and the blocks exchange what they have: two numbers
// for each row of a tile. Every block merges them in the order of the ranks, so that all get the same bits.
//
// A tile's mail needs one buffer. A block sends the next place's numbers when it has all messages of h, or of
// dh's parts, of this place. Everybody sends those after the last look at this place's numbers.
#pragma once

#include "recurrent/cuda/clusters/cluster_operands.cuh"

namespace warpalign::detail::recurrent {

// The means of two numbers over some of a row's units. With moments the first one is a mean, and the second
// one the variance about it.
struct alignas(8) RowPair {
  float first, second;
};
// What each rank sends of a tile's 8 rows, and the mailbox that counts its bytes.
template <int kRanks>
struct alignas(16) RowMail {
  RowPair of_rank[kRanks][8];
  cuda::Mailbox box;
};
// What the warps of a block have, for even and odd turns.
struct alignas(16) WarpPairs {
  RowPair of_warp[2][kClusterWarps][8];
};

// Bytes that a rank sends to each block for a tile.
constexpr int kMailBytes = 8 * static_cast<int>(sizeof(RowPair));

// All threads open a tile's mail. Absent ranks send nothing.
template <int kRanks>
__device__ __forceinline__ void open_mail(RowMail<kRanks>& mail, int ranks) {
  for (int n = static_cast<int>(threadIdx.x); n < kRanks * 8; n += kClusterThreads) {
    mail.of_rank[n / 8][n % 8] = {0, 0};
  }
  if (threadIdx.x == 0) open_mailbox(&mail.box, ranks * kMailBytes);
}

// A thread's part in the exchange, after the cluster_sync(). The lanes of a row's four units differ in the
// bits kFirst and kSecond, those of a row and the row beside in kBeside.
template <int kRanks, bool kMoments, int kFirst, int kSecond, int kBeside>
class RowMeans {
 public:
  // mail: of the first tile.
  __device__ __forceinline__ RowMeans(RowMail<kRanks>* mail, WarpPairs* shared, const ClusterPlace& at,
                                      int ranks, int hidden, int unit, int row)
      : shared_(shared), warp_(at.warp), unit_(unit), row_(row), bytes_(ranks * kMailBytes) {
    warps_ = min(max(hidden / kWarpUnits - at.rank * kClusterWarps, 0), kClusterWarps);
    share_of_warp_ = warps_ > 0 ? 1.0f / static_cast<float>(warps_) : 0.0f;
    unroll<kOfLane>([&](int k) {
      const int units = min(max(hidden - (unit + 4 * k) * kBlockUnits, 0), kBlockUnits);
      shares_[k] = static_cast<float>(units) / static_cast<float>(hidden);
    });
    // 8 lanes have the same two rows' numbers. Two of them send: each warp serves two ranks.
    const int slot = unit + 4 * (row % 2), distance = at.warp + slot * kClusterWarps;
    sends_ = slot < 2 && distance < ranks;
    const int peer = sends_ ? (at.rank + distance) % ranks : at.rank;
    const cuda::ClusterAddress there = cuda::cluster_address(mail, peer);
    to_ = there + (at.rank * 8 + row / 2 * 2) * static_cast<int>(sizeof(RowPair));
    box_ = there + static_cast<int>(sizeof(mail->of_rank));
  }

  // All threads of the block call these three in turn, with a __syncthreads() after the first one. put():
  // the pair of this thread's unit and row. merge(): that of the block's units. send(): to all blocks;
  // offset: of the mail, from the first tile's one.
  __device__ __forceinline__ void put(RowPair pair) {
    pair = with_lane<kFirst>(pair);
    pair = with_lane<kSecond>(pair);
    turn_ = 1 - turn_;
    if (unit_ == 0) shared_->of_warp[turn_][warp_][row_] = pair;
  }
  [[nodiscard]] __device__ __forceinline__ RowPair merge() const {
    const auto& own = shared_->of_warp[turn_];
    RowPair parts[kClusterWarps];
    float first = 0, second = 0;
    unroll<kClusterWarps>([&](int k) {
      parts[k] = own[k][row_];
      if (k < warps_) first += parts[k].first;
    });
    first *= share_of_warp_;
    unroll<kClusterWarps>([&](int k) {
      if (k < warps_) second += about(parts[k], first);
    });
    return {first, second * share_of_warp_};
  }
  __device__ __forceinline__ void send(const RowPair& pair, int offset) const {
    const float first = pair.first, first_beside = cuda::shuffle_xor(first, kBeside);
    const float second = pair.second, second_beside = cuda::shuffle_xor(second, kBeside);
    if (!sends_) return;
    const bool odd = row_ % 2;
    const Message message = bits_of({odd ? first_beside : first, odd ? second_beside : second,
                                     odd ? first : first_beside, odd ? second : second_beside});
    cuda::send_message(to_ + offset, message.words, box_ + offset);
  }

  // The pair of all of this thread's row.
  __device__ __forceinline__ RowPair take(RowMail<kRanks>& mail, int phase) const {
    take_mail(&mail.box, phase, bytes_);
    RowPair parts[kOfLane];
    float first = 0, second = 0;
    unroll<kOfLane>([&](int k) {
      parts[k] = mail.of_rank[unit_ + 4 * k][row_];
      first += shares_[k] * parts[k].first;
    });
    first = over_lanes(first);
    unroll<kOfLane>([&](int k) { second += shares_[k] * about(parts[k], first); });
    return {first, over_lanes(second)};
  }

 private:
  static constexpr int kOfLane = kRanks / 4;

  // A part's second number, as seen from the mean of all.
  __device__ __forceinline__ static float about(const RowPair& part, float first) {
    if constexpr (!kMoments) return part.second;
    const float off = part.first - first;
    return part.second + off * off;
  }
  template <int kLane>
  __device__ __forceinline__ static RowPair with_lane(const RowPair& pair) {
    const float other = cuda::shuffle_xor(pair.first, kLane);
    const float first = .5f * (pair.first + other), off = .5f * (pair.first - other);
    const float second = .5f * (pair.second + cuda::shuffle_xor(pair.second, kLane));
    return {first, kMoments ? second + off * off : second};
  }
  __device__ __forceinline__ static float over_lanes(float v) {
    v += cuda::shuffle_xor(v, kFirst);
    return v + cuda::shuffle_xor(v, kSecond);
  }

  WarpPairs* shared_;
  int warp_, unit_, row_, bytes_;
  int turn_ = 0;
  int warps_;  // so many warps of the block have units
  float share_of_warp_, shares_[kOfLane];
  bool sends_;
  cuda::ClusterAddress to_, box_;
};

}  // namespace warpalign::detail::recurrent
