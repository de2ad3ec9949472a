// The weights of a block of a sweep of the whole grid.
#pragma once

#include "cuda/memory/remote.cuh"
#include "recurrent/cuda/cell/weights.cuh"

namespace warpalign::detail::recurrent {

using cuda::kNotYet;
using cuda::Word;

constexpr int kOwnUnits = 16;
constexpr int kResidentWarps = 8;
constexpr int kResidentThreads = kResidentWarps * cuda::kWarpSize;
constexpr int kWordEntries = 4;   // 16-bit elements of a word
constexpr int kStepEntries = 16;  // depth of one mma

// Bytes of weights for 16 columns of a warp.
constexpr std::size_t kSharedStepBytes = kResidentThreads * 16;

// kTiles times 16 rows of weights, and this warp's part of their columns, 16 to a step: kSteps steps in
// registers, and with kShares more of them in shared memory. A lane reads kWords words of a row at once: the
// columns of so many steps are dealt out so that a lane's elements follow each other. The depth is a multiple
// of 4 kWords, and numbers of steps are multiples of kWords.
template <class T, int kTiles, int kSteps, bool kShares, int kWords>
class BlockWeights {
 public:
  // row(tile, r): where row r of a tile begins; null: it is 0. places: for a fragment of each thread,
  // meanwhile.
  template <class Row>
  __device__ __forceinline__ void load(Weights16* places, const Row& row) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
    for (int m = 0; m < kTiles; ++m) {
      const T* const first = row(m, lane / 4);
      const T* const second = row(m, lane / 4 + 8);
#pragma unroll
      for (int s = 0; s < kSteps; ++s) {
        fragments_[m][s] = fragment(first, second, s);
        fragments_[m][s].settle(places);
      }
      for (int s = 0; s < shared_steps_; ++s) shared(m, s) = fragment(first, second, kSteps + s);
    }
  }

 protected:
  static constexpr int kLanes = 4;  // that share a row's columns

  // more: where kTiles `shared_steps` fragments of each thread have place.
  __device__ __forceinline__ BlockWeights(Weights16* more, int shared_steps, int depth)
      : more_(more + threadIdx.x), shared_steps_(kShares ? shared_steps : 0) {
    const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
    const int all_reads = (kSteps + shared_steps_) / kWords;
    first_ = warp * all_reads * kLanes + lane % kLanes;
    reads_ = min(max((depth / (kWordEntries * kWords) - first_ + kLanes - 1) / kLanes, 0), all_reads);
  }
  __device__ __forceinline__ Weights16& shared(int m, int s) const {
    return more_[(m * shared_steps_ + s) * kResidentThreads];
  }

  Weights16 fragments_[kTiles][kSteps];
  Weights16* more_;
  int shared_steps_;
  // The lane reads a row at first_, and kLanes reads further on each time; it reads `reads_` times.
  int first_, reads_;

 private:
  __device__ __forceinline__ Weights16 fragment(const T* first, const T* second, int s) const {
    const int word = (first_ + s / kWords * kLanes) * kWords + s % kWords;
    const bool is_there = s / kWords < reads_;
    const Word upper = first && is_there ? reinterpret_cast<const Word*>(first)[word] : 0;
    const Word lower = second && is_there ? reinterpret_cast<const Word*>(second)[word] : 0;
    return {upper, lower};
  }
};

}  // namespace warpalign::detail::recurrent
