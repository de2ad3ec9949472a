// Parts of dh on their way between the blocks of a cluster: a block turns dz of its own units into parts of
// dh for all units, and sends each block its part in float32. The owner adds the parts in the order of the
// ranks.
#pragma once

#include "recurrent/cuda/clusters/cluster_operands.cuh"
#include "recurrent/cuda/clusters/cluster_tiles.cuh"

namespace warpalign::detail::recurrent {

constexpr int kPartRows = 16;                         // units of one product's rows
constexpr int kPartFloats = kPartRows * 8;            // with 8 rows of the batch
constexpr int kBlockParts = kBlockUnits / kPartRows;  // that a block gets from each block
constexpr int kPartBytes = kBlockParts * kPartFloats * 4;
constexpr int kDepthSteps = 4 * kBlockUnits / 16;  // of 16 gates: the block's own

// Shared memory of a tile of rows: parts of dh from each rank for steps of even and of odd place, what each
// thread carries from step to step, and the mailboxes.
template <int kRanks>
struct alignas(16) BackwardTile {
  float parts[2][kRanks][kBlockParts * kPartFloats];
  float states[2][kClusterThreads];  // dh, dc
  cuda::Mailbox boxes[2];
};
// dz of the block's units, for even and odd turns: the operands of the products. In float32 a row of the
// batch has the gates of a unit side by side.
template <class T>
struct alignas(16) OwnGradients {
  cuda::Word dz[2][kDepthSteps * kTileWords];

  // entries: of the gate `unit` of the warp's units, or in float32 of the four gates of unit `unit`.
  __device__ __forceinline__ void put(int turn, int unit, int warp, int row, cuda::Word entries) {
    dz[turn][word_place(unit * kClusterWarps + warp, row)] = entries;
  }
};
template <>
struct alignas(16) OwnGradients<float> {
  float dz[2][8][16 * kDepthSteps + kFloatPad];

  __device__ __forceinline__ void put(int turn, int unit, int warp, int row, const Piece<float>& entries) {
    *reinterpret_cast<Piece<float>*>(&dz[turn][row][(warp * kWarpUnits + unit) * 4]) = entries;
  }
};

// Rows 2 q, 2 q + 1, 2 q + 8, 2 q + 9 of a product are units 4 q ... 4 q + 3: a warp's sums of parts are the
// units of a word.
__device__ __forceinline__ int unit_of_part_row(int row) { return row % 8 / 2 * 4 + row % 2 + row / 8 * 2; }

// The lanes' places in a backward sweep: a thread has one unit, and row `row` of every tile.
struct BackwardLanes : UnitLanes<16, 2> {
  int row;

  __device__ __forceinline__ BackwardLanes() {
    const int lane = static_cast<int>(threadIdx.x) % cuda::kWarpSize;
    row = lane / 4 % 4 * 2 + lane % 2;
  }
};

// Which part of all a warp's product k makes. Odd ranks begin with the later half, so that owners are not all
// busy at once.
template <int kParts>
__device__ __forceinline__ int part_of_warp(const ClusterPlace& at, int k) {
  return at.warp * kParts + (kParts == 4 ? k ^ at.rank % 2 * 2 : k);
}

// scratch: shared memory, a place for each thread.
template <class T, int kParts>
__device__ __forceinline__ void load_weights_across(const CudaCell<T>& cell, const ClusterPlace& at,
                                                    void* scratch,
                                                    ClusterWeights<T> (&weights)[kParts][kDepthSteps]) {
  using Entries = std::conditional_t<sizeof(T) == 2, cuda::Word, Piece<T>>;
  const int hidden = cell.hidden;
  unroll<kParts>([&](int k) {
    Entries halves[2][kDepthSteps];
    unroll<2>([&](int half) {
      const int to_unit = part_of_warp<kParts>(at, k) * kPartRows + unit_of_part_row(at.lane / 4 + half * 8);
      const T* const from = cell.hh_across + static_cast<Offset>(to_unit) * cell.gates_stride;
      unroll<kDepthSteps>([&](int s) {
        const int word = 4 * s + at.lane % 4;
        if constexpr (sizeof(T) == 2) {
          const int unit = at.rank * kBlockUnits + word % kClusterWarps * kWarpUnits;
          const bool is_there = to_unit < hidden && unit < hidden;
          halves[half][s] =
              is_there ? *reinterpret_cast<const cuda::Word*>(from + word / kClusterWarps * hidden + unit)
                       : 0;
        } else {
          const int unit = at.rank * kBlockUnits + word;
          const bool is_there = to_unit < hidden && unit < hidden;
          unroll<4>([&](int gate) {
            halves[half][s].entries[gate] = is_there ? from[static_cast<Offset>(gate) * hidden + unit] : 0.0f;
          });
        }
      });
    });
    unroll<kDepthSteps>([&](int s) {
      weights[k][s] = {halves[0][s], halves[1][s]};
      if constexpr (sizeof(T) == 2) weights[k][s].settle(static_cast<Weights16*>(scratch));
    });
  });
}

// Puts the gradients after the last step into the tiles.
template <class T, class Work, class Tile>
__device__ __forceinline__ void fill_gradients(const CudaCell<T>& cell, const Work& work, int unit, int row,
                                               Tile* tiles) {
  const int thread = static_cast<int>(threadIdx.x);
  for (int tile = 0; tile < work.count(); ++tile) {
    const int b = work.batch_row(tile, row);
    const bool is_own = unit < cell.hidden && b < cell.at.batch;
    const Offset index = static_cast<Offset>(b) * cell.hidden + unit;
    tiles[tile].states[0][thread] = is_own ? cell.dh[index] : 0.0f;
    tiles[tile].states[1][thread] = is_own ? cell.dc[index] : 0.0f;
  }
}

// All threads open a tile.
template <int kRanks, class Tile>
__device__ __forceinline__ void open_parts(Tile& tile, int ranks) {
  const int thread = static_cast<int>(threadIdx.x);
  for (int r = ranks; r < kRanks; ++r) {  // these send nothing
    tile.parts[0][r][thread] = tile.parts[1][r][thread] = 0;
  }
  if (thread != 0) return;
  for (cuda::Mailbox& box : tile.boxes) open_mailbox(&box, ranks * kPartBytes);
}

// A thread's part in the exchange, after the cluster_sync(). A Tile has parts and boxes as BackwardTile has.
template <int kParts, class Tile>
class PartExchange {
 public:
  __device__ __forceinline__ PartExchange(Tile* tiles, const ClusterPlace& at, int ranks)
      : bytes_(in_register(ranks * kPartBytes)) {
    unroll<kParts>([&](int k) {
      const int part = part_of_warp<kParts>(at, k), owner = part / kBlockParts;
      sends_[k] = owner < ranks;
      const int peer = sends_[k] ? owner : at.rank;
      to_[k] = cuda::cluster_address(
          &tiles[0].parts[0][at.rank][part % kBlockParts * kPartFloats + at.lane * 4], peer);
      boxes_[k] = cuda::cluster_address(&tiles[0].boxes[0], peer);
    });
  }

  // What arrives for this thread's unit and row.
  __device__ __forceinline__ float take(Tile& own, int buffer, int phase) const {
    take_mail(&own.boxes[buffer], phase, bytes_);
    float sums[4];
    unroll<4>([&](int r) { sums[r] = own.parts[buffer][r][threadIdx.x]; });
    unroll<kRanks - 4>([&](int r) { sums[r % 4] += own.parts[buffer][4 + r][threadIdx.x]; });
    return (sums[0] + sums[1]) + (sums[2] + sums[3]);
  }

  // Multiplies dz of the block's units of this turn, which all threads see, and sends the parts.
  template <class T>
  __device__ __forceinline__ void send(const ClusterWeights<T> (&weights)[kParts][kDepthSteps],
                                       const OwnGradients<T>& own, int turn, int tile, int buffer) const {
    float sums[kParts][4] = {};
    if constexpr (sizeof(T) == 2) {
      const cuda::Word* const operands = operand_of_lane(own.dz[turn]);
      unroll<kDepthSteps>([&](int s) {
        const cuda::Word operand = operands[s * kTileWords];
        unroll<kParts>([&](int k) { weights[k][s].template multiply<T>(operand, sums[k]); });
      });
    } else {
      const int lane = static_cast<int>(threadIdx.x) % cuda::kWarpSize;
      const float* const operands = own.dz[turn][lane / 4];
      ChainedSums chains;
      unroll<kDepthSteps>(
          [&](int s) { weights[0][s].multiply(read_piece(operands, 4 * s + lane % 4), chains); });
      unroll<4>([&](int k) { sums[0][k] = chains.total(k); });
    }
    constexpr int kTileBytes = static_cast<int>(sizeof(Tile));
    const int offset = tile * kTileBytes + (1 - buffer) * static_cast<int>(sizeof(Tile::parts[0]));
    const int box_offset = tile * kTileBytes + (1 - buffer) * static_cast<int>(sizeof(cuda::Mailbox));
    unroll<kParts>([&](int k) {
      if (sends_[k]) cuda::send_message(to_[k] + offset, bits_of(sums[k]).words, boxes_[k] + box_offset);
    });
  }

 private:
  static constexpr int kRanks = kParts * kClusterWarps / kBlockParts;
  int bytes_;
  bool sends_[kParts];
  cuda::ClusterAddress to_[kParts], boxes_[kParts];
};

}  // namespace warpalign::detail::recurrent
