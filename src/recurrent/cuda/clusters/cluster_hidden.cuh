// h on its way between the blocks of a cluster: a block sends each new h of its units to all blocks, and
// multiplies with R what it gets.
#pragma once

#include "recurrent/cuda/clusters/cluster_tiles.cuh"
#include "recurrent/cuda/steps/forward.cuh"

namespace warpalign::detail::recurrent {

// Messages of the nearest 8 ranks come first. A block waits for them apart from the others.
constexpr int kNearRanks = 8;
constexpr int kSendBytes = kBlockUnits * 8 * 2;  // to a block, of a tile

// Shared memory of a tile of rows: h before steps of even and of odd place, what each thread carries from
// step to step, and the mailboxes by buffer and nearness.
template <int kSteps>
struct alignas(16) ForwardTile {
  cuda::Word h[2][kSteps * kTileWords];
  float states[2][kClusterThreads];  // c, and h unless the sweep is plain
  cuda::Mailbox boxes[2][2];
};

// R's columns lie in the order in which blocks send: the own rank's first, then those of rank + 1, ...
// Rows of lanes with lane / 4 < 4 are i and f of unit lane / 4 % 4, the others' are g and o.
template <class T, int kSteps>
__device__ __forceinline__ void load_weights(const CudaCell<T>& cell, const ClusterPlace& at, int ranks,
                                             Weights16 (&weights)[kSteps]) {
  const int g = at.lane / 4, unit = at.rank * kBlockUnits + at.warp * kWarpUnits + g % 4;
  const T* const upper = cell.hh + (static_cast<Offset>(g / 4 * 2) * cell.hidden + unit) * cell.output_stride;
  const T* const lower = upper + static_cast<Offset>(cell.hidden) * cell.output_stride;
#pragma unroll
  for (int s = 0; s < kSteps; ++s) {
    const int word = 4 * s + at.lane % 4, slot = word / kClusterWarps;
    const int column = ((slot + at.rank) % ranks * kClusterWarps + word % kClusterWarps) * kWarpUnits;
    const bool is_there = unit < cell.hidden && slot < ranks && column < cell.hidden;
    weights[s] = {is_there ? *reinterpret_cast<const cuda::Word*>(upper + column) : 0,
                  is_there ? *reinterpret_cast<const cuda::Word*>(lower + column) : 0};
  }
}

// The lanes' places in a forward sweep: a thread has one unit, and row `row` of every tile.
struct ForwardLanes : UnitLanes<4, 8> {
  int odd, row;

  __device__ __forceinline__ ForwardLanes() {
    const int lane = static_cast<int>(threadIdx.x) % cuda::kWarpSize;
    odd = lane / 16, row = lane % 4 * 2 + odd;
  }
};

// Puts the states before the first step into the tiles. Rows without a step within the places keep theirs.
template <bool kMayIdle, class T, class Work, class Tile>
__device__ __forceinline__ void fill_states(const CudaCell<T>& cell, const ClusterPlace& at, int ranks,
                                            const Work& work, int end, int unit, int row, Tile* tiles) {
  constexpr int kWords = sizeof(tiles->h[0]) / sizeof(cuda::Word);
  const int thread = static_cast<int>(threadIdx.x), hidden = cell.hidden, batch = cell.at.batch;
  for (int n = thread; n < work.count() * kWords; n += kClusterThreads) {
    const int tile = n / kWords, word = n % kWords / 8, r = n % 8;
    const int slot = word / kClusterWarps, b = work.batch_row(tile, r);
    const int column = ((slot + at.rank) % ranks * kClusterWarps + word % kClusterWarps) * kWarpUnits;
    const bool is_there = slot < ranks && column < hidden && b < batch;
    const T* const from = cell.h[0] + static_cast<Offset>(b) * cell.output_stride + column;
    tiles[tile].h[0][word_place(word, r)] = is_there ? *reinterpret_cast<const cuda::Word*>(from) : 0;
    tiles[tile].h[1][word_place(word, r)] = 0;
  }
  for (int tile = 0; tile < work.count(); ++tile) {
    const int b = work.batch_row(tile, row);
    const bool is_own = unit < hidden && b < batch;
    tiles[tile].states[0][thread] = is_own ? cell.c[static_cast<Offset>(b) * hidden + unit] : 0.0f;
    tiles[tile].states[1][thread] =
        is_own ? cuda::widen(cell.h[0][static_cast<Offset>(b) * cell.output_stride + unit]) : 0.0f;
    if constexpr (kMayIdle) {
      const Offset index = static_cast<Offset>(b) * cell.output_stride + unit;
      if (is_own && end % 2 && work.is_idle(tile, row)) cell.h[1][index] = cell.h[0][index];
    }
  }
}

// What a block gets of a tile from the nearer, or from the farther ranks.
__device__ __forceinline__ int hidden_bytes(int ranks, int far) {
  return (far == 0 ? min(ranks, kNearRanks) : ranks - kNearRanks) * kSendBytes;
}
// One thread opens a tile's mailboxes.
template <class Tile>
__device__ __forceinline__ void open_hidden(Tile& tile, int ranks) {
  for (auto& boxes : tile.boxes) {
    for (int far = 0; far < 2; ++far) open_mailbox(&boxes[far], hidden_bytes(ranks, far));
  }
}

// A thread's part in the exchange, behind the cluster_sync(). A Tile has h and boxes as ForwardTile has.
template <class Tile>
class HiddenExchange {
 public:
  __device__ __forceinline__ HiddenExchange(Tile* tiles, const ClusterPlace& at, int ranks,
                                            const ForwardLanes& lanes)
      : bytes_{hidden_bytes(ranks, 0), hidden_bytes(ranks, 1)} {
    // 8 lanes have the same two rows' words, and send them to a near and a far rank each.
#pragma unroll
    for (int far = 0; far < 2; ++far) {
      const int slot = lanes.unit + 4 * lanes.odd + far * kNearRanks;
      sends_[far] = slot < ranks;
      const int peer = sends_[far] ? (at.rank + ranks - slot) % ranks : at.rank;
      const int place = word_place(slot * kClusterWarps + at.warp, lanes.row - lanes.odd);
      to_[far] = cuda::cluster_address(tiles[0].h[0], peer) + place * static_cast<int>(sizeof(cuda::Word));
      boxes_[far] = cuda::cluster_address(&tiles[0].boxes[0][far], peer);
    }
  }

  // Adds R h to z of the thread's unit and row. waits: for the messages of phase `phase`.
  template <class T, int kSteps>
  __device__ __forceinline__ void multiply(Tile& own, const Weights16 (&weights)[kSteps],
                                           const ForwardLanes& lanes, int buffer, bool waits, int phase,
                                           float (&z)[4]) const {
    // Four sums, so that products need not wait for each other.
    float sums[4][4] = {};
    const cuda::Word* const operands = operand_of_lane(own.h[buffer]);
#pragma unroll
    for (int far = 0; far < 2; ++far) {
      if (far == 1 && kSteps <= 2 * kNearRanks) continue;
      if (waits && bytes_[far] > 0) take_mail(&own.boxes[buffer][far], phase, bytes_[far]);
#pragma unroll
      for (int k = 0; k < 2 * kNearRanks; ++k) {
        const int s = far * 2 * kNearRanks + k;
        if (s < kSteps)
          weights[s < kSteps ? s : 0].template multiply<T>(operands[s * kTileWords], sums[s % 4]);
      }
    }
    float rows[4];
#pragma unroll
    for (int k = 0; k < 4; ++k) rows[k] = (sums[0][k] + sums[1][k]) + (sums[2][k] + sums[3][k]);
    // A lane gives its odd or even row of the batch for the other two gates.
    const int odd = lanes.odd;
    const float first = cuda::shuffle_xor(odd ? rows[0] : rows[1], 16);
    const float second = cuda::shuffle_xor(odd ? rows[2] : rows[3], 16);
    z[0] += odd ? first : rows[0], z[1] += odd ? second : rows[2];
    z[2] += odd ? rows[1] : first, z[3] += odd ? rows[3] : second;
  }

  // The word that four lanes share of the row's h, to every block's buffer of the next place. other: that of
  // the row beside.
  __device__ __forceinline__ void send(int tile, int buffer, const ForwardLanes& lanes, cuda::Word word,
                                       cuda::Word other) const {
    const cuda::Word even = lanes.odd ? other : word, uneven = lanes.odd ? word : other;
    const std::uint32_t message[4] = {
        static_cast<std::uint32_t>(even), static_cast<std::uint32_t>(even >> 32),
        static_cast<std::uint32_t>(uneven), static_cast<std::uint32_t>(uneven >> 32)};
    constexpr int kTileBytes = static_cast<int>(sizeof(Tile));
    const int offset = tile * kTileBytes + (1 - buffer) * static_cast<int>(sizeof(Tile::h[0]));
    const int box_offset = tile * kTileBytes + (1 - buffer) * 2 * static_cast<int>(sizeof(cuda::Mailbox));
#pragma unroll
    for (int far = 0; far < 2; ++far) {
      if (sends_[far]) cuda::send_message(to_[far] + offset, message, boxes_[far] + box_offset);
    }
  }

 private:
  int bytes_[2];
  bool sends_[2];
  cuda::ClusterAddress to_[2], boxes_[2];
};

}  // namespace warpalign::detail::recurrent
