// The sweep of the whole grid for slices of several tiles of rows: two tiles of 8 rows are worked on
// together. A thread finishes one unit of one of their 16 rows. So a tile waits less than it would alone.
#pragma once

#include "recurrent/cuda/resident.cuh"
#include "recurrent/cuda/unit_lanes.cuh"

namespace warpalign::detail::recurrent {

constexpr int kTilesOfPairs = 4;  // of a slice, from which pairs are the faster way

// Bytes of shared memory: two sets of partial sums of two tiles, and, for each pair, the threads' states.
constexpr int partials_of_turn(int weight_tiles) { return 2 * kResidentWarps * warp_distance(weight_tiles); }
constexpr std::size_t kPairBytes = kResidentThreads * sizeof(OwnState);

// ResidentWeights that multiply two tiles of rows.
template <class T, int kTiles, int kSteps, bool kShares>
class PairWeights : public ResidentWeights<T, kTiles, kSteps, kShares> {
  using Base = ResidentWeights<T, kTiles, kSteps, kShares>;

 public:
  using Base::Base;

  // Sums of a tile of rows. A single tile of weights has two chains of sums, so that products need not wait
  // for each other.
  static constexpr int kChains = kTiles == 1 ? 2 : 1;
  struct Sums {
    static constexpr int kChains = PairWeights::kChains;
    float of[kTiles * kChains][4];
  };

  // sums[n] += weights times the 8 rows of tile n. row[n]: where this lane's row (lane / 4) begins; null: 0.
  // Words that are all ones are not there yet. two: whether there is a second tile.
  __device__ __forceinline__ void multiply(const T* const (&row)[2], bool two, Sums (&sums)[2]) const {
    const Source from[2] = {source(row[0]), source(row[1])};
    Word now[2][kChunk], next[2][kChunk];
    ask(from, 0, now);
#pragma unroll
    for (int begin = 0; begin < kSteps; begin += kChunk) {
      if (kShares || begin + kChunk < kSteps) ask(from, begin + kChunk, next);
      wait(from, begin, now);
      multiply_chunk(two, now, sums, [&](int m, int k) { return fragments_[m][begin + k]; });
      take(next, now);
    }
    if constexpr (kShares) {
      for (int begin = 0; begin < shared_steps_; begin += kChunk) {
        ask(from, kSteps + begin + kChunk, next);
        wait(from, kSteps + begin, now);
        // Words behind the last step are 0, and so is what they add; their weights are any.
        multiply_chunk(two, now, sums,
                       [&](int m, int k) { return shared(m, min(begin + k, shared_steps_ - 1)); });
        take(next, now);
      }
    }
  }

 private:
  static constexpr int kChunk = kShares && kTiles > 1 ? 4 : 8;  // steps of words in registers
  static_assert(kSteps % kChunk == 0);
  using Base::first_word_;
  using Base::fragments_;
  using Base::shared;
  using Base::shared_steps_;
  using Base::steps_;
  using typename Base::Source;

  __device__ __forceinline__ Source source(const T* row) const {
    return {reinterpret_cast<const Word*>(row) + first_word_, row ? steps_ : 0};
  }

  __device__ __forceinline__ static void ask(const Source (&from)[2], int begin, Word (&to)[2][kChunk]) {
#pragma unroll
    for (int n = 0; n < 2; ++n) {
#pragma unroll
      for (int k = 0; k < kChunk; ++k) {
        to[n][k] =
            begin + k < from[n].steps ? cuda::load_relaxed(from[n].words + (begin + k) * kStepWords) : 0;
      }
    }
  }
  __device__ __forceinline__ static void wait(const Source (&from)[2], int begin, Word (&words)[2][kChunk]) {
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      while (true) {
        bool waits = false;
#pragma unroll
        for (int k = 0; k < kChunk; ++k) waits |= words[n][k] == kNotYet;
        if (!__any_sync(cuda::kFullWarp, waits)) break;
#pragma unroll
        for (int k = 0; k < kChunk; ++k) {
          if (words[n][k] == kNotYet)
            words[n][k] = cuda::load_relaxed(from[n].words + (begin + k) * kStepWords);
        }
      }
    }
  }
  __device__ __forceinline__ static void take(const Word (&next)[2][kChunk], Word (&now)[2][kChunk]) {
#pragma unroll
    for (int n = 0; n < 2; ++n) {
#pragma unroll
      for (int k = 0; k < kChunk; ++k) now[n][k] = next[n][k];
    }
  }
  template <class Fragment>
  __device__ __forceinline__ static void multiply_chunk(bool two, const Word (&words)[2][kChunk],
                                                        Sums (&sums)[2], const Fragment& fragment) {
#pragma unroll
    for (int k = 0; k < kChunk; ++k) {
#pragma unroll
      for (int m = 0; m < kTiles; ++m) {
        const Weights16 weights = fragment(m, k);
        weights.template multiply<T>(words[0][k], sums[0].of[m * kChains + k % kChains]);
        if (two) weights.template multiply<T>(words[1][k], sums[1].of[m * kChains + k % kChains]);
      }
    }
  }
};

// Who a thread is: it finishes unit lane / 2 of the block, of row `row` of each pair of tiles.
struct PairPlace {
  int direction, group, rank, unit, row;
  int first_row, end_row;  // of the group's slice

  template <class T>
  __device__ __forceinline__ explicit PairPlace(const ResidentParams<T>& p) {
    const int block = static_cast<int>(blockIdx.x), thread = static_cast<int>(threadIdx.x);
    rank = block % p.ranks;
    group = block / p.ranks % p.groups;
    direction = block / p.ranks / p.groups;
    unit = rank * kOwnUnits + thread / 2 % kOwnUnits;
    row = thread / 32 + thread % 2 * 8;
    first_row = (p.first_tile + group * p.tiles) * 8;
    end_row = min(first_row + p.tiles * 8, p.cell[0].at.batch);
  }
  // Row r of the pair of tiles that begins with tile `tile`, as a row of the batch; past it: the slice has
  // none.
  __device__ __forceinline__ int batch_row(int tile, int r) const {
    const int b = first_row + tile * 8 + r;
    return b < end_row ? b : kNoRow;
  }
  static constexpr int kNoRow = 0x7fffffff;
};

// Joins the warps' partial sums in shared memory. `turn` counts the calls: two sets of places take turns.
template <int kTiles, class Sums>
__device__ __forceinline__ void join_pair_sums(const Sums (&sums)[2], bool two, float* partials, int turn,
                                               float (&totals)[kTiles]) {
  constexpr int kDistance = warp_distance(kTiles), kChains = Sums::kChains;
  const int thread = static_cast<int>(threadIdx.x), warp = thread / 32, lane = thread % 32;
  float* const places = partials + turn % 2 * partials_of_turn(kTiles);
#pragma unroll
  for (int n = 0; n < 2; ++n) {
    if (n == 1 && !two) continue;
#pragma unroll
    for (int m = 0; m < kTiles; ++m) {
      float sum[4];
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        sum[k] = sums[n].of[m * kChains][k];
        if (kChains == 2) sum[k] += sums[n].of[m * kChains + kChains - 1][k];
      }
      float* const to =
          places + (warp * 2 + n) * kDistance + (m * 8 + 2 * (lane % 4)) * kColumnDistance + lane / 4;
      to[0] = sum[0], to[kColumnDistance] = sum[1];
      to[8] = sum[2], to[kColumnDistance + 8] = sum[3];
    }
  }
  __syncthreads();
  const int unit = lane / 2, tile = lane % 2, row = warp;
#pragma unroll
  for (int m = 0; m < kTiles; ++m) {
    float sum[2] = {};
    const float* const from = places + tile * kDistance + (m * 8 + row) * kColumnDistance + unit;
#pragma unroll
    for (int k = 0; k < kResidentWarps; ++k) sum[k % 2] += from[2 * k * kDistance];
    totals[m] = sum[0] + sum[1];
  }
}

}  // namespace warpalign::detail::recurrent
