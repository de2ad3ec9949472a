// Weights of a block of a sweep of the whole grid, which multiply two tiles of rows that other blocks write
// meanwhile. A lane reads 16 bytes of a row at once.
#pragma once

#include "cuda/memory/two_words.cuh"
#include "recurrent/cuda/grid/block_weights.cuh"

namespace warpalign::detail::recurrent {

template <class T, int kTiles, int kSteps, bool kShares>
class PairWeights : public BlockWeights<T, kTiles, kSteps, kShares, 2> {
  using Base = BlockWeights<T, kTiles, kSteps, kShares, 2>;
  using Base::first_;
  using Base::fragments_;
  using Base::kLanes;
  using Base::reads_;
  using Base::shared;
  using Base::shared_steps_;

 public:
  // Sums of a tile of rows. A single tile of weights has two chains of sums, so that products need not wait
  // for each other.
  static constexpr int kChains = kTiles == 1 ? 2 : 1;
  struct Sums {
    float of[kTiles * kChains][4];

    // Sum k of weight tile m.
    __device__ __forceinline__ float at(int m, int k) const {
      return kChains == 1 ? of[m][k] : of[m * kChains][k] + of[m * kChains + kChains - 1][k];
    }
  };

  __device__ __forceinline__ PairWeights(Weights16* more, int shared_steps, int depth)
      : Base(more, shared_steps, depth) {}

  // The first words of two tiles of rows, which a lane has asked for.
  struct Asked {
    cuda::TwoWords words[2][kShares ? 3 : 4];
  };
  // row[n]: where this lane's row (lane / 4) of tile n begins; null: 0.
  __device__ __forceinline__ void ask(const T* const (&row)[2], Asked& asked) const {
    ask({source(row[0]), source(row[1])}, 0, asked.words);
  }

  // sums[n] += weights times the 8 rows of tile n. Words that are all ones are not there yet. two: whether
  // there is a second tile. asked: ask() has been called with the same rows.
  __device__ __forceinline__ void multiply(const T* const (&row)[2], bool two, Asked& asked,
                                           Sums (&sums)[2]) const {
    const Source from[2] = {source(row[0]), source(row[1])};
    auto& now = asked.words;
    cuda::TwoWords next[2][kChunk];
#pragma unroll
    for (int begin = 0; begin < kSteps / 2; begin += kChunk) {
      if (kShares || begin + kChunk < kSteps / 2) ask(from, begin + kChunk, next);
      wait(from, begin, now);
      multiply_chunk(two, now, sums, [&](int m, int k) { return fragments_[m][2 * begin + k]; });
      take(next, now);
    }
    if constexpr (kShares) {
      for (int begin = 0; begin < shared_steps_ / 2; begin += kChunk) {
        ask(from, kSteps / 2 + begin + kChunk, next);
        wait(from, kSteps / 2 + begin, now);
        // Words behind the last step are 0, and so is what they add; their weights are any.
        multiply_chunk(two, now, sums,
                       [&](int m, int k) { return shared(m, min(2 * begin + k, shared_steps_ - 1)); });
        take(next, now);
      }
    }
  }

 private:
  static constexpr int kChunk = kShares ? 3 : 4;  // pairs of steps in registers
  static_assert(kSteps / 2 % kChunk == 0);

  struct Source {
    const cuda::TwoWords* words;
    int pairs;
  };
  __device__ __forceinline__ Source source(const T* row) const {
    return {reinterpret_cast<const cuda::TwoWords*>(row) + first_, row ? reads_ : 0};
  }
  __device__ __forceinline__ static void ask(const Source (&from)[2], int begin,
                                             cuda::TwoWords (&to)[2][kChunk]) {
#pragma unroll
    for (int n = 0; n < 2; ++n) {
#pragma unroll
      for (int k = 0; k < kChunk; ++k) {
        to[n][k] = {0, 0};
        if (begin + k < from[n].pairs) to[n][k] = cuda::load_relaxed(from[n].words + (begin + k) * kLanes);
      }
    }
  }
  __device__ __forceinline__ static void wait(const Source (&from)[2], int begin,
                                              cuda::TwoWords (&words)[2][kChunk]) {
    const auto is_waiting = [](const cuda::TwoWords& w) { return w.first == kNotYet || w.second == kNotYet; };
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      while (true) {
        bool waits = false;
#pragma unroll
        for (int k = 0; k < kChunk; ++k) waits |= is_waiting(words[n][k]);
        if (!__any_sync(cuda::kFullWarp, waits)) break;
#pragma unroll
        for (int k = 0; k < kChunk; ++k) {
          if (is_waiting(words[n][k])) {
            words[n][k] = cuda::load_relaxed(from[n].words + (begin + k) * kLanes);
          }
        }
      }
    }
  }
  __device__ __forceinline__ static void take(const cuda::TwoWords (&next)[2][kChunk],
                                              cuda::TwoWords (&now)[2][kChunk]) {
#pragma unroll
    for (int n = 0; n < 2; ++n) {
#pragma unroll
      for (int k = 0; k < kChunk; ++k) now[n][k] = next[n][k];
    }
  }
  template <class Fragment>
  __device__ __forceinline__ static void multiply_chunk(bool two, const cuda::TwoWords (&words)[2][kChunk],
                                                        Sums (&sums)[2], const Fragment& fragment) {
#pragma unroll
    for (int k = 0; k < 2 * kChunk; ++k) {
      const auto word = [&](int n) { return k % 2 ? words[n][k / 2].second : words[n][k / 2].first; };
#pragma unroll
      for (int m = 0; m < kTiles; ++m) {
        const Weights16 weights = fragment(m, k);
        weights.template multiply<T>(word(0), sums[0].of[m * kChains + k % kChains]);
        if (two) weights.template multiply<T>(word(1), sums[1].of[m * kChains + k % kChains]);
      }
    }
  }
};

}  // namespace warpalign::detail::recurrent
