// Weights of a block of a sweep of the whole grid: in registers, and beyond 1024 units a part of them in
// shared memory. They multiply one or two tiles of 8 rows that other blocks write meanwhile.
#pragma once

#include "cuda/memory/remote.cuh"
#include "cuda/memory/two_words.cuh"
#include "recurrent/cuda/cell/operands.cuh"

namespace warpalign::detail::recurrent {

using cuda::kNotYet;
using cuda::Word;

constexpr int kOwnUnits = 16;
constexpr int kResidentWarps = 8;
constexpr int kResidentThreads = kResidentWarps * cuda::kWarpSize;
constexpr int kWordEntries = 4;   // 16-bit elements of a word
constexpr int kStepEntries = 16;  // depth of one product

// Bytes of weights for 16 columns of a warp.
constexpr std::size_t kSharedStepBytes = kResidentThreads * 16;

// Where a lane's rows begin of a product of two tiles of rows; null: 0.
template <class T>
struct RowPair {
  const T* of[2];
};

// kTiles times 16 rows of weights, and this warp's part of their columns, 16 to a step: kSteps steps in
// registers, and with kShares more of them in shared memory. A lane reads 16 bytes of a row at once, which
// are operands of two steps: the columns of two steps are dealt out so that a lane's elements follow each
// other. The depth is a multiple of 8, and numbers of steps are even. kRows: tiles of rows that are
// multiplied.
template <class T, int kTiles, int kSteps, bool kShares, int kRows>
class RowWeights {
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

  // more: where kTiles `shared_steps` fragments of each thread have place.
  __device__ __forceinline__ RowWeights(Weights16* more, int shared_steps, int depth)
      : more_(more + threadIdx.x), shared_steps_(kShares ? shared_steps : 0) {
    const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
    const int all_reads = (kSteps + shared_steps_) / 2;
    first_ = warp * all_reads * kLanes + lane % kLanes;
    reads_ = min(max((depth / (kWordEntries * 2) - first_ + kLanes - 1) / kLanes, 0), all_reads);
  }
  // row(tile, r): where row r of a tile of weights begins; null: it is 0. places: for a fragment of each
  // thread, meanwhile.
  template <class Row>
  __device__ __forceinline__ void load(Weights16* places, const Row& row) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    unroll<kTiles>([&](int m) {
      const T* const first = row(m, lane / 4);
      const T* const second = row(m, lane / 4 + 8);
      unroll<kSteps>([&](int s) {
        fragments_[m][s] = fragment(first, second, s);
        fragments_[m][s].settle(places);
      });
      for (int s = 0; s < shared_steps_; ++s) shared(m, s) = fragment(first, second, kSteps + s);
    });
  }

  // The first words of the tiles of rows, which a lane has asked for.
  static constexpr int kChunk = kShares ? 3 : 4;  // pairs of steps whose words are in registers
  struct Asked {
    cuda::TwoWords words[kRows][kChunk];
  };
  // row[n]: where this lane's row (lane / 4) of tile n begins; null: 0.
  __device__ __forceinline__ void ask(const T* const (&row)[2], Asked& asked) const {
    ask({source(row[0]), source(row[1])}, 0, asked.words);
  }
  // sums[n] += weights times the 8 rows of tile n. Words that are all ones are not there yet. two: whether
  // there is a second tile. asked: ask() has been called with the same rows.
  __device__ __forceinline__ void multiply(const T* const (&row)[2], bool two, Asked& asked,
                                           Sums (&sums)[kRows]) const {
    const Source from[2] = {source(row[0]), source(row[1])};
    auto& now = asked.words;
    cuda::TwoWords next[kRows][kChunk];
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
        // Words after the last step are 0, and so is what they add; their weights are any.
        multiply_chunk(two, now, sums,
                       [&](int m, int k) { return shared(m, min(2 * begin + k, shared_steps_ - 1)); });
        take(next, now);
      }
    }
  }

 private:
  static constexpr int kLanes = 4;  // that share a row's columns
  static_assert(kSteps / 2 % kChunk == 0);

  // Where the lane's words of a row begin, and how many there are.
  struct Source {
    const cuda::TwoWords* words;
    int pairs;
  };
  __device__ __forceinline__ Source source(const T* row) const {
    return {reinterpret_cast<const cuda::TwoWords*>(row) + first_, row ? reads_ : 0};
  }
  __device__ __forceinline__ Weights16& shared(int m, int s) const {
    return more_[(m * shared_steps_ + s) * kResidentThreads];
  }
  __device__ __forceinline__ Weights16 fragment(const T* first, const T* second, int s) const {
    const int word = (first_ + s / 2 * kLanes) * 2 + s % 2;
    const bool is_there = s / 2 < reads_;
    const Word upper = first && is_there ? reinterpret_cast<const Word*>(first)[word] : 0;
    const Word lower = second && is_there ? reinterpret_cast<const Word*>(second)[word] : 0;
    return {upper, lower};
  }
  __device__ __forceinline__ static void ask(const Source (&from)[2], int begin,
                                             cuda::TwoWords (&to)[kRows][kChunk]) {
    unroll<kRows>([&](int n) {
      unroll<kChunk>([&](int k) {
        to[n][k] = {0, 0};
        if (begin + k < from[n].pairs) to[n][k] = cuda::load_relaxed(from[n].words + (begin + k) * kLanes);
      });
    });
  }
  __device__ __forceinline__ static void wait(const Source (&from)[2], int begin,
                                              cuda::TwoWords (&words)[kRows][kChunk]) {
    const auto is_waiting = [](const cuda::TwoWords& w) { return w.first == kNotYet || w.second == kNotYet; };
#pragma unroll
    for (int n = 0; n < kRows; ++n) {
      while (true) {
        bool waits = false;
        unroll<kChunk>([&](int k) { waits |= is_waiting(words[n][k]); });
        if (!__any_sync(cuda::kFullWarp, waits)) break;
        unroll<kChunk>([&](int k) {
          if (is_waiting(words[n][k])) {
            words[n][k] = cuda::load_relaxed(from[n].words + (begin + k) * kLanes);
          }
        });
      }
    }
  }
  __device__ __forceinline__ static void take(const cuda::TwoWords (&next)[kRows][kChunk],
                                              cuda::TwoWords (&now)[kRows][kChunk]) {
    unroll<kRows>([&](int n) { unroll<kChunk>([&](int k) { now[n][k] = next[n][k]; }); });
  }
  template <class Fragment>
  __device__ __forceinline__ static void multiply_chunk(bool two,
                                                        const cuda::TwoWords (&words)[kRows][kChunk],
                                                        Sums (&sums)[kRows], const Fragment& fragment) {
#pragma unroll
    for (int k = 0; k < 2 * kChunk; ++k) {
      const auto word = [&](int n) { return k % 2 ? words[n][k / 2].second : words[n][k / 2].first; };
      unroll<kTiles>([&](int m) {
        const Weights16 weights = fragment(m, k);
        weights.template multiply<T>(word(0), sums[0].of[m * kChains + k % kChains]);
        if constexpr (kRows == 2) {
          if (two) weights.template multiply<T>(word(1), sums[1].of[m * kChains + k % kChains]);
        }
      });
    }
  }

  Weights16 fragments_[kTiles][kSteps];
  Weights16* more_;
  int shared_steps_;
  // The lane reads a row at first_, and kLanes reads further on each time; it reads `reads_` times.
  int first_, reads_;
};

}  // namespace warpalign::detail::recurrent
