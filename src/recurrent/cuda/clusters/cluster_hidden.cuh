// h on its way between the blocks of a cluster: a block sends each new h of its units to all blocks, and
// multiplies with R what it gets. A warp has the gates of 4 units for the whole depth: 16 rows of R.
#pragma once

#include "recurrent/cuda/clusters/cluster_operands.cuh"
#include "recurrent/cuda/clusters/cluster_tiles.cuh"

namespace warpalign::detail::recurrent {

// Messages of the nearest 8 ranks come first. A block waits for them apart from the others.
constexpr int kNearRanks = 8;

// Shared memory of a tile of rows: h before steps of even and of odd place, what each thread carries from
// step to step (c, and h unless the sweep is plain), and the mailboxes by buffer and nearness. kSteps: parts
// of 16 of the depth.
template <class T, int kSteps>
struct alignas(16) ForwardTile {
  cuda::Word h[2][kSteps * kTileWords];
  float states[2][kClusterThreads];
  cuda::Mailbox boxes[2][2];
};
template <int kSteps>
struct alignas(16) ForwardTile<float, kSteps> {
  float h[2][8][16 * kSteps + kFloatPad];
  float states[2][kClusterThreads];
  cuda::Mailbox boxes[2][2];
};

// R's columns lie in the order in which blocks send: the own rank's first, then those of rank + 1, ...; in
// float32 by their numbers. Rows of lanes with lane / 4 < 4 are i and f of unit lane / 4 % 4, the others' are
// g and o. scratch: shared memory, a place for each thread, which is free after the next barrier.
template <class T, int kSteps>
__device__ __forceinline__ void load_weights(const CudaCell<T>& cell, const ClusterPlace& at, int ranks,
                                             void* scratch, ClusterWeights<T> (&weights)[kSteps]) {
  const int g = at.lane / 4, unit = at.rank * kBlockUnits + at.warp * kWarpUnits + g % 4;
  const T* const upper = cell.hh + (static_cast<Offset>(g / 4 * 2) * cell.hidden + unit) * cell.output_stride;
  const T* const lower = upper + static_cast<Offset>(cell.hidden) * cell.output_stride;
  unroll<kSteps>([&](int s) {
    const int word = 4 * s + at.lane % 4;
    if constexpr (sizeof(T) == 2) {
      const int slot = word / kClusterWarps;
      const int column = ((slot + at.rank) % ranks * kClusterWarps + word % kClusterWarps) * kWarpUnits;
      const bool is_there = unit < cell.hidden && slot < ranks && column < cell.hidden;
      weights[s] = {is_there ? *reinterpret_cast<const cuda::Word*>(upper + column) : 0,
                    is_there ? *reinterpret_cast<const cuda::Word*>(lower + column) : 0};
    } else {
      const bool is_there = unit < cell.hidden && 4 * word < cell.hidden;
      weights[s] = {is_there ? read_piece(upper, word) : Piece<T>{},
                    is_there ? read_piece(lower, word) : Piece<T>{}};
    }
  });
  if constexpr (sizeof(T) == 2) {
    unroll<kSteps>([&](int s) { weights[s].settle(static_cast<Weights16*>(scratch)); });
    __syncthreads();
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
  constexpr int kWords = sizeof(tiles->h[0]) / (sizeof(T) == 2 ? sizeof(cuda::Word) : sizeof(T));
  const int thread = static_cast<int>(threadIdx.x), hidden = cell.hidden, batch = cell.at.batch;
  for (int n = thread; n < work.count() * kWords; n += kClusterThreads) {
    if constexpr (sizeof(T) == 2) {
      const int tile = n / kWords, word = n % kWords / 8, r = n % 8;
      const int slot = word / kClusterWarps, b = work.batch_row(tile, r);
      const int column = ((slot + at.rank) % ranks * kClusterWarps + word % kClusterWarps) * kWarpUnits;
      const bool is_there = slot < ranks && column < hidden && b < batch;
      const T* const from = cell.h[0] + static_cast<Offset>(b) * cell.output_stride + column;
      tiles[tile].h[0][word_place(word, r)] = is_there ? *reinterpret_cast<const cuda::Word*>(from) : 0;
      tiles[tile].h[1][word_place(word, r)] = 0;
    } else {
      const int tile = n / kWords, r = n / (kWords / 8) % 8, column = n % (kWords / 8);
      const int b = work.batch_row(tile, r);
      const bool is_there = column < hidden && b < batch;
      tiles[tile].h[0][r][column] =
          is_there ? cell.h[0][static_cast<Offset>(b) * cell.output_stride + column] : 0.0f;
      tiles[tile].h[1][r][column] = 0;
    }
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
// The state after the last step of a thread's unit and row.
template <class T>
__device__ __forceinline__ void leave_state(const CudaCell<T>& cell, int end, int b, int unit, T h, float c) {
  (end % 2 ? cell.h[1] : cell.h[0])[static_cast<Offset>(b) * cell.output_stride + unit] = h;
  cell.c[static_cast<Offset>(b) * cell.hidden + unit] = c;
}

// What a block gets of a tile from the nearer, or from the farther ranks.
template <class T>
__device__ __forceinline__ int hidden_bytes(int ranks, int far) {
  constexpr int kSendBytes = kBlockUnits * 8 * static_cast<int>(sizeof(T));
  return (far == 0 ? min(ranks, kNearRanks) : ranks - kNearRanks) * kSendBytes;
}
// One thread opens a tile's mailboxes.
template <class T, class Tile>
__device__ __forceinline__ void open_hidden(Tile& tile, int ranks) {
  for (auto& boxes : tile.boxes) {
    for (int far = 0; far < 2; ++far) open_mailbox(&boxes[far], hidden_bytes<T>(ranks, far));
  }
}

// A thread's part in the exchange, after the cluster_sync(). A Tile has h and boxes as ForwardTile has.
template <class T, class Tile>
class HiddenExchange {
 public:
  __device__ __forceinline__ HiddenExchange(Tile* tiles, const ClusterPlace& at, int ranks,
                                            const ForwardLanes& lanes)
      : bytes_{in_register(hidden_bytes<T>(ranks, 0)), in_register(hidden_bytes<T>(ranks, 1))} {
    // In 16-bit types 8 lanes have the same two rows' words, and send them to a near and a far rank each; in
    // float32 4 lanes have a row's.
    unroll<kFars>([&](int far) {
      const int slot = sizeof(T) == 2 ? lanes.unit + 4 * lanes.odd + far * kNearRanks : lanes.unit;
      sends_[far] = slot < ranks;
      const int peer = sends_[far] ? (at.rank + ranks - slot) % ranks : at.rank;
      if constexpr (sizeof(T) == 2) {
        const int place = word_place(slot * kClusterWarps + at.warp, lanes.row - lanes.odd);
        to_[far] = cuda::cluster_address(tiles[0].h[0], peer) + place * static_cast<int>(sizeof(cuda::Word));
      } else {
        const int first_unit = at.rank * kBlockUnits + at.warp * kWarpUnits;
        to_[far] = cuda::cluster_address(&tiles[0].h[0][lanes.row][first_unit], peer);
      }
      boxes_[far] = cuda::cluster_address(&tiles[0].boxes[0][far], peer);
    });
  }

  // Adds R h to z of the thread's unit and row. waits: for the messages of phase `phase`.
  template <int kSteps>
  __device__ __forceinline__ void multiply(Tile& own, const ClusterWeights<T> (&weights)[kSteps],
                                           const ForwardLanes& lanes, int buffer, bool waits, int phase,
                                           float (&z)[4]) const {
    ChainedSums sums;
    if constexpr (sizeof(T) == 2) {
      const cuda::Word* const operands = operand_of_lane(own.h[buffer]);
#pragma unroll
      for (int far = 0; far < 2; ++far) {
        if (far == 1 && kSteps <= 2 * kNearRanks) continue;
        if (waits && bytes_[far] > 0) take_mail(&own.boxes[buffer][far], phase, bytes_[far]);
        unroll<2 * kNearRanks>([&](int k) {
          const int s = far * 2 * kNearRanks + k;
          if (s < kSteps) {
            weights[s < kSteps ? s : 0].template multiply<T>(operands[s * kTileWords], sums.of[s % 4]);
          }
        });
      }
    } else {
      if (waits) take_mail(&own.boxes[buffer][0], phase, bytes_[0]);
      const int lane = static_cast<int>(threadIdx.x) % cuda::kWarpSize;
      const float* const operands = own.h[buffer][lane / 4];
      unroll<kSteps>([&](int s) { weights[s].multiply(read_piece(operands, 4 * s + lane % 4), sums); });
    }
    float rows[4];
    unroll<4>([&](int k) { rows[k] = sums.total(k); });
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
    send(tile, buffer, message);
  }
  // The same of float32.
  __device__ __forceinline__ void send(int tile, int buffer, const ForwardLanes& lanes, float h) const {
    float units[4];
    lanes.join(h, units);
    send(tile, buffer, bits_of(units).words);
  }

 private:
  static constexpr int kFars = sizeof(T) == 2 ? 2 : 1;

  __device__ __forceinline__ void send(int tile, int buffer, const std::uint32_t (&message)[4]) const {
    constexpr int kTileBytes = static_cast<int>(sizeof(Tile));
    const int offset = tile * kTileBytes + (1 - buffer) * static_cast<int>(sizeof(Tile::h[0]));
    const int box_offset = tile * kTileBytes + (1 - buffer) * 2 * static_cast<int>(sizeof(cuda::Mailbox));
    unroll<kFars>([&](int far) {
      if (sends_[far]) cuda::send_message(to_[far] + offset, message, boxes_[far] + box_offset);
    });
  }

  int bytes_[2];
  bool sends_[kFars];
  cuda::ClusterAddress to_[kFars], boxes_[kFars];
};

}  // namespace warpalign::detail::recurrent
