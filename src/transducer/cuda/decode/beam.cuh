// A step of beam search. A block owns an utterance.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "cuda/rows/ragged.h"
#include "cuda/threads/warp.cuh"
#include "transducer/beam.h"

namespace warpalign::detail::transducer {

constexpr int kBeamThreads = 128;

// A block as the crew of a step.
class BeamBlock {
 public:
  static constexpr int kWarps = kBeamThreads / cuda::kWarpSize;
  struct alignas(16) Slot {
    unsigned char bytes[16];
  };

  __device__ explicit BeamBlock(Slot* slots) : slots_(slots) {}

  [[nodiscard]] __device__ static int rank() { return static_cast<int>(threadIdx.x); }
  [[nodiscard]] __device__ static int size() { return kBeamThreads; }
  __device__ static void sync() { __syncthreads(); }

  template <class T, class Op>
  [[nodiscard]] __device__ T combine(T v, const Op& op) const {
    static_assert(sizeof(T) <= sizeof(Slot));
    v = cuda::reduce(v, op);
    if (rank() % cuda::kWarpSize == 0) memcpy(slots_ + rank() / cuda::kWarpSize, &v, sizeof(T));
    __syncthreads();
    memcpy(static_cast<void*>(&v), slots_, sizeof(T));
    for (int warp = 1; warp < kWarps; ++warp) {
      T other;
      memcpy(static_cast<void*>(&other), slots_ + warp, sizeof(T));
      v = op(v, other);
    }
    __syncthreads();
    return v;
  }

  template <class Real>
  [[nodiscard]] __device__ double lse(const Real* row, int columns) const {
    Real largest = -kInfinity<Real>;
    for (int c = rank(); c < columns; c += size()) largest = row[c] > largest ? row[c] : largest;
    largest = combine(largest, [](Real a, Real b) { return b > a ? b : a; });
    const Real shift = largest > -kInfinity<Real> ? largest : Real(0);
    Real sum = 0;
    for (int c = rank(); c < columns; c += size()) sum += std::exp(row[c] - shift);
    return static_cast<double>(shift) + std::log(combine(sum, [](Real a, Real b) { return a + b; }));
  }

  // Finds the labels one by one, with a pass over the row for each.
  template <class Real>
  __device__ void best_labels(const TransducerDecoding& d, const Real* row, const Real* added,
                              std::int32_t count, Best<Real>* out) const {
    const auto better = [](Best<Real> a, const Best<Real>& other) {
      if (other.column >= 0) a.see(other.value, other.column);
      return a;
    };
    Best<Real> last;
    for (std::int32_t j = 0; j < count; ++j) {
      Best<Real> best;
      for (std::int32_t c = rank(); (j == 0 || last.column >= 0) && c < d.labels; c += size()) {
        if (blank_frames(d, c) > 0) continue;
        const Real value = row[c] + (added ? added[c] : Real(0));
        if (j == 0 || value < last.value || (value == last.value && c > last.column)) best.see(value, c);
      }
      last = combine(best, better);
      if (rank() == 0) out[j] = last;
    }
  }

 private:
  Slot* slots_;  // kWarps of them, shared
};

template <class Real>
__global__ void __launch_bounds__(kBeamThreads)
    beam_kernel(const TransducerBeamStep p, const BeamWork<Real> work) {
  __shared__ BeamBlock::Slot slots[BeamBlock::kWarps];
  const BeamBlock crew(slots);
  const int b = static_cast<int>(blockIdx.x);
  const std::int32_t length = cuda::true_length(p.lengths, b, p.frames, 0);
  BeamSearchStep<Real, BeamBlock>(p, b, length, work.of(BeamLayout(p), b), crew).run();
}

}  // namespace warpalign::detail::transducer
